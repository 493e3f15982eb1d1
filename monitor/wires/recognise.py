"""Recognises the form of a conversation's records. A record must have all signs of one form, and no
sign of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from monitor.errors import ConfigError
from monitor.wires import anthropic, chat, gemini, responses
from monitor.wires.fields import Form, is_one_of

Record: TypeAlias = Mapping[str, Any]

NEUTRAL: Final = "neutral"
Kept: TypeAlias = Form | Literal["neutral"]
"""The form of a stored conversation. `neutral`: our own, as `monitor.messages.message_codec` writes
it.
"""
FORMS: Final[tuple[Kept, ...]] = (*get_args(Form), NEUTRAL)
MOST_FIELDS: Final = 8
"""The most fields of an unknown record that are named."""


def forms_of(record: Record) -> frozenset[Kept]:
    """The forms that `record` fits; a user's plain text fits several."""
    return frozenset(form for form, has_signs in _SIGNS.items() if has_signs(record))


def form_of(request: Record, records: Sequence[Record]) -> Kept:
    """The one form of all `records`, which may stand in `request`. Records that fit several forms
    are taken for OpenAI's chat.

    Raises `ConfigError`, which counts the records that do not fit.
    """
    each = [forms_of(record) for record in records]
    common = frozenset(FORMS).intersection(*each)
    if "contents" in request:
        common &= {"gemini"}
    elif "input" in request:
        common &= {"openai-responses"}
    elif "system" in request or "anthropic_version" in request:
        common &= {"anthropic"}
    preferred: tuple[Kept, ...] = ("openai-chat", "anthropic", "openai-responses", "gemini", NEUTRAL)
    for form in preferred:
        if form in common:
            return form
    raise ConfigError(_in_no_form(each, records))


def _in_no_form(each: Sequence[frozenset[Kept]], records: Sequence[Record]) -> str:
    known = f"--form says which they are: {', '.join(FORMS)}"
    strange = [index for index, forms in enumerate(each) if not forms]
    counted = Counter(form for forms in each for form in forms)
    if not counted:
        return f"no known form has messages like these, with {_fields(records[0])}; {known}"
    if strange:
        first, are = strange[0], "is" if len(strange) == 1 else "are"
        number = f"{len(strange):,} of its {len(each):,} records"
        return f"{number} {are} not understood, the first is message {first}, with {_fields(records[first])}; {known}"
    told = ", ".join(f"{number:,} may be {form}" for form, number in counted.most_common())
    return f"its {len(each):,} records are not of one form ({told}); {known}"


def _fields(record: Record) -> str:
    names = list(map(str, record))
    if not names:
        return "no fields"
    listed = ", ".join(names[:MOST_FIELDS]) + (", ..." if len(names) > MOST_FIELDS else "")
    return f"the field {listed}" if len(names) == 1 else f"the fields {listed}"


def not_understood(form: Kept, records: Sequence[Record]) -> int:
    """The number of `records` that do not fit `form`."""
    has_signs = _SIGNS[form]
    return sum(not has_signs(record) for record in records)


def _neutral(record: Record) -> bool:
    return is_one_of(record.get("type"), {"user_message", "assistant_message"})


_SIGNS: Final[Mapping[Kept, Callable[[Record], bool]]] = {
    "gemini": gemini.is_content,
    "openai-chat": chat.is_message,
    "openai-responses": responses.is_item,
    "anthropic": anthropic.is_message,
    NEUTRAL: _neutral,
}
