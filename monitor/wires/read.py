"""Reads, recognises and checks a history in the form of a provider. Each form has a module here,
and the adapters write the same forms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from monitor.errors import AdapterError, ConfigError
from monitor.wires import anthropic, chat, gemini, responses
from monitor.wires.fields import Form, RawMessage, WireProblem, is_one_of

Record: TypeAlias = Mapping[str, Any]


class WireForm(NamedTuple):
    """What the module of a form does with its records."""

    read: Callable[[Record], RawMessage]
    """One record as a message that is not repaired."""
    has_signs: Callable[[Record], bool]
    """Whether a record belongs to this form, with all of its fields."""
    problems: Callable[[Sequence[Record]], Iterator[WireProblem]]
    """What the service would refuse."""


_FORMS: Final[Mapping[Form, WireForm]] = {
    "gemini": WireForm(gemini.read, gemini.is_content, gemini.problems),
    "openai-chat": WireForm(chat.read, chat.is_message, chat.problems),
    "openai-responses": WireForm(responses.read, responses.is_item, responses.problems),
    "anthropic": WireForm(anthropic.read, anthropic.is_message, anthropic.problems),
}


def _form(form: Form) -> WireForm:
    if form not in _FORMS:
        raise ConfigError(f"unknown form {form!r}; known: {', '.join(_FORMS)}")
    return _FORMS[form]


def read_history(form: Form, history: Iterable[object]) -> Iterator[RawMessage]:
    """`history` as raw messages, one for each record. The records are dictionaries as in a request
    or its log, or the SDK's pydantic objects.

    Nothing is mended here; `repair` does that. A part that has no neutral form becomes `Unread`.
    Raises `ConfigError` for an unknown form. Raises `AdapterError`, with the index, for a record
    that is not a message of this form.
    """
    return _read(_form(form).read, history)


def _read(reader: Callable[[Mapping[str, Any]], RawMessage], history: Iterable[object]) -> Iterator[RawMessage]:
    for index, given in enumerate(history):
        dump = getattr(given, "model_dump", None)
        message = dump(exclude_none=True) if callable(dump) else given
        if not isinstance(message, Mapping):
            raise AdapterError(f"message {index} is {type(given).__name__}, not an object")
        try:
            yield reader(message)
        except AdapterError as error:
            raise AdapterError(f"message {index}: {error}") from None


# --------------------------------------------------------------------------------------------------
# Checks whether a provider accepts a history, before it is sent. One invalid message makes the
# provider refuse the whole request, and every later one.


def validate(form: Form, messages: Sequence[object]) -> list[WireProblem]:
    """The reasons for which the service would refuse `messages`: contents, messages or items, as
    they are about to be sent.

    The checks cover roles and their order, empty and unknown parts, ids, names and signatures.
    Every call must be answered once and in its place. Rules that depend on the model or on the
    settings are not checked: media types, sizes, whether a signature is genuine.

    Linear in the size of `messages`. Raises `ConfigError` for an unknown form.
    """
    problems = _form(form).problems
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            return [WireProblem(index, "shape", f"it is {type(message).__name__}, not an object")]
    found = list(problems([message for message in messages if isinstance(message, Mapping)]))
    return found if messages else [WireProblem(0, "empty", "there are no messages")]


# --------------------------------------------------------------------------------------------------
# Recognises the form of a conversation's records. A record must have all signs of one form, and no
# sign of another.

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
    **{form: module.has_signs for form, module in _FORMS.items()},
    NEUTRAL: _neutral,
}
