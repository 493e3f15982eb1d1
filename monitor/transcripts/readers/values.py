"""Values of the records of transcripts, whose types nobody has checked: texts, numbers, times,
calls, results, tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from monitor._util.hashing import identity
from monitor.chunks import Usage
from monitor.transcripts.base import ReadReport, RecordedCall, RecordedMessage, RecordedResult, sha1_of

KEPT_CHARS: Final = 65_536
"""Only this many characters of a longer result are kept, with the length and the hash of the
whole.
"""
OWN_SIGN: Final = "agent-monitor: "
"""The beginning of the reasons that the hooks of agent-monitor give."""


def result_of(
    name: object, text_: str, *, is_error: bool = False, call_id: object = None, refusal: str | None = None
) -> RecordedResult:
    """A tool's result, shortened if it is long. `refusal`: the words that the agent puts before the
    reason of a hook that refused the call; `None`: it has none. A tool that imitates them hides its
    results, but not its calls: they count by their arguments.
    """
    tool, id = text(name), text(call_id) or None
    if refusal is not None and text_.startswith(f"{refusal}{OWN_SIGN}"):
        return RecordedResult(tool, text_[:KEPT_CHARS], is_error=True, call_id=id, vetoed=True)
    if len(text_) <= KEPT_CHARS:
        return RecordedResult(tool, text_, is_error, call_id=id)
    return RecordedResult(tool, text_[:KEPT_CHARS], is_error, len(text_), sha1_of(text_)[:16], id)


def answer_of(
    name: object, said: str, *, at: float | None = None, is_error: bool = False, call_id: object = None
) -> RecordedMessage:
    """The message of one tool's result."""
    return RecordedMessage("tool", tool_results=(result_of(name, said, is_error=is_error, call_id=call_id),), at=at)


def call_of(name: object, arguments: object, id: object) -> RecordedCall:
    """A call. `arguments` may be JSON in a string, as OpenAI has it."""
    return RecordedCall(text(name) or "?", without_media(arguments), text(id) or None)


def text(value: object) -> str:
    """`value` if it is a text, else nothing."""
    return value if isinstance(value, str) else ""


def id_of(value: object) -> str:
    """`value` as a piece of an id: a short text, or a whole number of usual size."""
    if isinstance(value, str):
        return value[:MOST_ID_CHARS]
    return str(value) if isinstance(value, int) and abs(value) < MOST_NUMBER else "?"


MOST_ID_CHARS: Final = 200
MOST_NUMBER: Final = 2**63


def table(value: object) -> Mapping[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Any]:
    """`value` if it is a JSON list, else an empty one."""
    return value if isinstance(value, list) else []


def tables(value: object) -> list[Mapping[str, Any]]:
    """The items of `value` if it is a JSON list. One that is no JSON object is empty."""
    return [*map(table, rows(value))]


def are_objects(value: object, each: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether `value` is a JSON list of objects, of which `each` holds."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and each(one) for one in value)


def whole(value: object) -> int:
    """`value` if it can be a number of tokens, else 0."""
    return value if isinstance(value, int) and is_count(value) else 0


def words(content: object) -> str:
    """The text of a content that is a text, or a list of texts and blocks with a text.

    A block that is no text stands as its kind, with the size and the hash of its data.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _block(content)
    return "\n".join(filter(None, map(words, rows(content))))


def _block(block: Mapping[str, Any]) -> str:
    for name in ("text", "content", "output", "input_text", "output_text"):
        if isinstance(block.get(name), str):
            return str(block[name])
    for name in ("content", "parts"):
        if isinstance(block.get(name), list):
            return words(block[name])
    data = block.get("source", block.get("image_url", block.get("inlineData", block.get("data"))))
    while isinstance(data, dict):
        data = data.get("data", data.get("url", ""))
    return named_media(text(block.get("type")) or "data", text(data)) if data else ""


def named_media(kind: str, data: str) -> str:
    """A text that stands for binary data: its kind, its size and its hash."""
    return f"[{kind}, {len(data)} characters, xxh3 {identity(data)}]"


LONG_DATA_CHARS: Final = 1_024


def without_media(value: Any) -> Any:
    """`value` with long `data:` URLs replaced by their size and hash, as they are compared and
    shown.
    """
    return with_texts(value, _without_data)


def _without_data(said: str) -> str:
    return named_media("data", said) if len(said) > LONG_DATA_CHARS and said.startswith("data:") else said


def with_texts(value: Any, change: Callable[[str], Any], depth: int = 0) -> Any:
    """`value`, which is JSON, with each text in it as `change` gives it."""
    if isinstance(value, str):
        return change(value)
    if depth > MOST_DEPTH:
        return value
    if isinstance(value, dict):
        return {key: with_texts(item, change, depth + 1) for key, item in value.items()}
    return [with_texts(item, change, depth + 1) for item in value] if isinstance(value, list) else value


MOST_DEPTH: Final = 32


def as_float(value: object) -> float:
    """`value` if it is a finite number, else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def dollars(value: object) -> float | None:
    """A cost in US dollars. `None`: the recording does not say, or says what can be no cost."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MOST_USD else None


MOST_USD: Final = 1e6
"""No run has cost more: a larger number is no cost."""


_USUAL_TIERS: Final = frozenset({"", "standard", "default", "auto"})


def in_tier(model: str, told: Mapping[str, Any]) -> str:
    """`model` with the tier in which a call was served, such as `gpt-5:batch`. `told`: the record
    of the call. In the usual tier it is `model`. Other tiers have other prices.
    """
    tiers = [text(told.get(name)) for name in ("service_tier", "speed")]
    return ":".join([model, *(tier for tier in tiers if tier not in _USUAL_TIERS)]) if model else ""


def seconds(value: object) -> float | None:
    """A time as seconds since 1970: ISO text, or a number of seconds, milliseconds, microseconds or
    nanoseconds. `None`: it is no time.

    A text without a zone is taken as UTC: recordings do not say whose local time it is.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number = as_float(value)
        for above, unit in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
            if number >= above:
                return number / unit
        return number if number > 0 else None
    if isinstance(value, str):
        if value.isdecimal() and len(value) < MOST_DIGITS:
            return seconds(int(value))
        try:
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return None


MOST_DIGITS: Final = 24


def tokens_of(
    usage: Mapping[str, Any],
    given: str,
    answered: str,
    *,
    thinking: str = "",
    cached: str = "",
    written: str = "",
    total: str = "",
) -> Usage | None:
    """The tokens of `usage`, whose counts stand in the fields with these names. The counts of
    several fields, with blanks between their names, are added. `None`: `usage` has none of these
    fields, an impossible count, or nothing but zeros: no call takes no tokens.
    """
    sums = given.split(), answered.split()
    named = [usage[name] for name in (*sums[0], *sums[1], total) if usage.get(name) is not None]
    parts = [usage[name] for name in (thinking, cached, written) if usage.get(name) is not None]
    if not any(named) or not all(map(is_count, (*named, *parts))):
        return None
    input_tokens, output_tokens = (sum(whole(usage.get(name)) for name in names) for names in sums)
    thought, read, stored, all_ = (whole(usage.get(name)) for name in (thinking, cached, written, total))
    return Usage(input_tokens, output_tokens, thought, read, all_ or input_tokens + output_tokens, stored)


MOST_TOKENS: Final = 10**12
"""No run has used more: a larger number is no count."""


def is_count(value: object) -> bool:
    """Whether `value` can be a number of tokens."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def unpacked(value: object, report: ReadReport) -> Mapping[str, Any]:
    """The JSON object in a column of a database. One that cannot be read is noted, and is empty."""
    try:
        return table(json.loads(value)) if isinstance(value, str | bytes) else {}
    except (ValueError, RecursionError) as error:
        report.cannot_read(1, f"not JSON: {error}")
        return {}


def parsed(arguments: object) -> object:
    """The value of arguments that are JSON in a string."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments
