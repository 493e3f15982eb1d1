"""Messages as data for a summariser: who said what, which calls had which results, within the
summariser's window.

    [1] user:
    | Find out when the shop opens.
    [Attached image/png: door.png]
    [2] agent:
    | Let me look it up.
    [2] call 1: "search" with {"q": "opening hours"}
    [2] call 1, "search", returned:
    | Monday to Friday, 9 to 5

Each quoted line has a mark before it (`monitor._util.quoting.quoted_lines`), so no text can pass
for another speaker. Media are named. Thinking is left out: pi found that with it, the request for a
summary was longer than what it summarised.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from monitor._util.hashing import canonical_json
from monitor._util.quoting import printable, quoted, quoted_lines
from monitor.chunks import ToolCall
from monitor.compaction.summaries.templates import SummaryTask
from monitor.context.measure.tokens import ERROR, WIDE_ERROR, Size, size_of_text
from monitor.context.reduce.media import placeholder
from monitor.context.reduce.truncate import SUMMARY_RESULT_CHARS, clip
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Media, Message, Reasoning, UserMessage

ARGUMENT_CHARS: Final = 500
"""The most of each argument of a call: a path is whole, a file's contents show their beginning."""
CALL_CHARS: Final = 2_000
"""The most of all arguments of a call together; as much as of a result."""
NAME_CHARS: Final = 200
"""The most of a tool's name, or of the name of an attachment."""
LEAST_WINDOW_TOKENS: Final = 500
"""The least window: in less, a message could not even be named.
"""


class Excerpt(NamedTuple):
    """Messages `start` to `stop` (exclusive, counted from 0), as text."""

    start: int
    stop: int
    text: str


def most_tokens(text: str) -> int:
    """The most tokens that `text` has in 19 of 20 cases: the estimate and its error. Two texts
    together have no more than the sum.
    """
    return with_error(size_of_text(text))


def with_error(size: Size) -> int:
    """The tokens of an estimate and its error: in 19 of 20 cases it is not further off."""
    return math.ceil((size.plain * (1 + ERROR) + (size.other + size.media) * (1 + WIDE_ERROR)) / 8)


def blocks(messages: Iterable[Message]) -> list[str]:
    """Each of `messages` as text, without a limit of its length."""
    return [_block(message, at, _WHOLE) for at, message in enumerate(messages)]


def next_window(messages: Sequence[Message], texts: Sequence[str], max_tokens: int, *, first: int = 0) -> Excerpt:
    """Return as many whole `messages`, from index `first` on, as have at most `max_tokens` (by
    `most_tokens`); at least one. `texts`: what `blocks` makes of `messages`.

    A message that is longer alone is reduced until it fits: its results, then its arguments, then
    the middle of what is said; a note says how much was left out. The same messages always give the
    same text. Raises `ConfigError` below `LEAST_WINDOW_TOKENS`, and where there is no message left.
    """
    if max_tokens < LEAST_WINDOW_TOKENS or first >= len(messages):
        raise ConfigError(
            f"a window of {max_tokens} tokens for message {first} of {len(messages)}; it takes {LEAST_WINDOW_TOKENS} or"
            " more"
        )
    lines: list[str] = []
    used = 0
    for at in range(first, len(messages)):
        text, tokens = _fitted(messages[at], at, max_tokens, texts[at])
        if lines and used + tokens > max_tokens:
            break
        lines.append(text)
        used += tokens
    return Excerpt(first, first + len(lines), "\n".join(lines))


# --- what stands beside the messages


def beside(task: SummaryTask, max_tokens: int) -> str:
    """The facts besides the messages. Each kind gets the same share of `max_tokens`."""
    details = task.details
    kinds: list[tuple[str, Sequence[str]]] = [
        ("stands beside the summary, word for word", [task.pinned] if task.pinned.strip() else []),
        ("names to write exactly as they are, if they still matter", task.identifiers),
        ("files that were read", details.files_read),
        ("files that were changed", details.files_modified),
        ("other things that were made", details.artifacts),
        ("what tools did", details.tool_notes),
    ]
    there = [(label, texts) for label, texts in kinds if texts]
    return "\n".join(listed(label, texts, max_tokens // len(there)) for label, texts in there)


def listed(label: str, texts: Sequence[str], max_tokens: int) -> str:
    """The lines of `texts` below `label`; their middle is cut if they are too long."""
    text = "\n".join(texts)
    chars = len(text)
    shown = f"{label}:\n{quoted_lines(text)}"
    while most_tokens(shown) > max_tokens and chars:
        chars = chars * 3 // 4
        shown = f"{label}:\n{quoted_lines(clip(text, chars, ending=0.5))}"
    return shown


# --- one message


@dataclass(slots=True, frozen=True)
class _Detail:
    """The most characters that are shown of each part of a message."""

    result: int = SUMMARY_RESULT_CHARS
    argument: int = ARGUMENT_CHARS
    call: int = CALL_CHARS
    text: int | None = None
    """`None`: no limit."""


_WHOLE: Final = _Detail()
_LESS: Final = (
    _Detail(1_000),
    _Detail(400),
    _Detail(100),
    _Detail(100, 200, 800),
    _Detail(100, 50, 200),
    *(_Detail(100, 50, 200, 256_000 >> halvings) for halvings in range(11)),
)
"""The details that are tried in order for a message that is too long."""


def _fitted(message: Message, at: int, max_tokens: int, whole: str) -> tuple[str, int]:
    """`message`, whose full text is `whole`, as a text that fits, and the tokens of its lines."""
    text = ""
    for text in chain((whole,), (_block(message, at, detail) for detail in _LESS)):
        tokens = most_tokens(text + "\n")
        if tokens <= max_tokens:
            return text, tokens
    text = _middle_out(text.split("\n"), at, max_tokens)
    return text, most_tokens(text + "\n")


def _middle_out(lines: Sequence[str], at: int, max_tokens: int) -> str:
    """Return as many first and last lines as fit, and a note that counts the others."""
    sizes = [most_tokens(line + "\n") for line in lines]
    begin, end = 0, len(lines)
    room = max_tokens - most_tokens(_left_out(at, len(lines), len(lines)) + "\n")
    half = room // 2
    while begin < end and sizes[begin] <= half:
        half -= sizes[begin]
        room -= sizes[begin]
        begin += 1
    while end > begin and sizes[end - 1] <= room:
        room -= sizes[end - 1]
        end -= 1
    return "\n".join((*lines[:begin], _left_out(at, end - begin, len(lines)), *lines[end:]))


def _left_out(at: int, lines: int, of: int) -> str:
    return f"[{at + 1}] {lines:,} of {of:,} lines left out: too long to be read"


def _block(message: Message, at: int, detail: _Detail) -> str:
    return "\n".join(_lines(message, f"[{at + 1}]", detail))


def _lines(message: Message, number: str, detail: _Detail) -> Iterator[str]:
    speaker = "agent" if isinstance(message, AssistantMessage) else "supervisor" if message.synthetic else "user"
    said = [part for part in message.content if not isinstance(part, Reasoning | ToolCall)]
    calls = [part for part in message.content if isinstance(part, ToolCall)]
    if said or not calls:
        yield f"{number} {speaker}:" if said else f"{number} {speaker}: (nothing)"
    for part in said:
        yield (
            _attached(part)
            if isinstance(part, Media)
            else quoted_lines(part.text if detail.text is None else clip(part.text, detail.text, ending=0.5))
        )
    if isinstance(message, UserMessage):
        return
    numbers: dict[str, int] = {}
    for order, call in enumerate(calls, 1):
        numbers.setdefault(call.id, order)
        yield f"{number} call {order}: {_name(call.name)} with {_arguments(call.arguments, detail)}"
    for result in message.results:
        order_of = numbers.get(result.id)
        whose = "a call" if order_of is None else f"call {order_of}"
        came = "was not carried out" if result.vetoed else "failed" if result.is_error else "returned"
        yield f"{number} {whose}, {_name(result.name)}, {came}:"
        yield quoted_lines(clip(result.text, detail.result, ending=None if detail is _WHOLE else 0.3))


def _attached(media: Media) -> str:
    text = printable(placeholder(media).text)
    return text if len(text) <= NAME_CHARS else f"{text[:NAME_CHARS]}...]"


def _name(name: str) -> str:
    return quoted(name, NAME_CHARS, 0)


def _arguments(arguments: object, detail: _Detail) -> str:
    """`arguments` as JSON on one line."""
    if isinstance(arguments, Mapping):
        arguments = {key: _argument(value, detail.argument) for key, value in arguments.items()}
    text = json.dumps(arguments) if isinstance(arguments, str) else canonical_json(arguments)
    text = printable(json.dumps(json.loads(text), ensure_ascii=False))
    return text if len(text) <= detail.call else f"{text[: detail.call]}... ({len(text):,} characters)"


def _argument(value: object, max_chars: int) -> object:
    if not isinstance(value, str) or len(value) <= max_chars:
        return value
    return f"{value[:max_chars]}... ({len(value):,} characters)"
