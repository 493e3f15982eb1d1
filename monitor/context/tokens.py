"""How many tokens the next request will have.

Failures answered: a report is used for a history that was rewritten since. Whole histories are
added up again and again. The error of an estimate is unknown.

    meter = ContextMeter(history)
    meter.fixed(instructions, tools)
    meter.count()                    # TokenCount: before the first call, an estimate
    meter.sent()                     # the history as it stands goes out
    meter.reported(usage_report)     # each report of that one call
    meter.answered()                 # it ended well: count from the report, and estimate the rest

The provider's reports also show the error of the estimates for its vocabulary, and correct later
estimates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from monitor._util.codec import text_of
from monitor._util.text import weigh
from monitor.chunks import ToolCall, ToolResult, Usage, UsageReport
from monitor.context.history import History
from monitor.messages import AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import ModelRequest, ToolSpec

MESSAGE_TOKENS: Final = 4
"""Tokens of a message, a call or a result beside its text, for the marks around it. OpenAI's
cookbook counts 3 to 7.
"""
IMAGE_TOKENS: Final = 1_600
"""Anthropic's count for the largest image that it does not scale down. Others: Gemini 258 a tile,
OpenClaw 2,000, pi 1,200.
"""
PAGE_TOKENS: Final = 2_000
"""A page of a document: Anthropic says 1,500 to 3,000; Gemini counts 258."""
PAGE_BYTES: Final = 50_000
MOST_DOCUMENT_TOKENS: Final = 25_800
"""Gemini CLI's number for any PDF, also for one that is only an address."""
BYTES_PER_TOKEN: Final[Mapping[str, int]] = {"audio": 500, "video": 1_000}
"""Gemini counts 32 tokens a second of sound (16 kB at 128 kbit/s) and about 300 of video (at 2.4
Mbit/s).
"""
LONG_MEDIA_TOKENS: Final = 20_000
"""Sound or video of which only the address is known: about ten minutes of sound, or one minute of
video."""
HIDDEN_BYTES: Final = 650
"""Bytes of encrypted thinking that are not thinking. Codex's number."""

ERROR: Final = 0.35
"""19 of 20 estimates of ASCII text are off by at most this share, before the first report:
`monitor._util.text.weigh`.
"""
WIDE_ERROR: Final = 1.0
"""The relative error for other scripts and for media, where `ERROR` is that for Latin text."""
CALIBRATED: Final = 15 / 35
"""The share of the error that remains once the provider has reported a prompt: 15 % of ASCII text,
measured on the second halves of the same runs.
"""
LEAST_TO_LEARN_TOKENS: Final = 500
"""A shorter prompt is not used to correct the estimates: the provider's own additions weigh too
much in it.
"""
SCALE_BOUNDS: Final = (0.5, 2.0)
LEAST_BELIEVED: Final = 0.25
"""A report below this share of the estimate counts something else: a silently shortened prompt, or
only the uncached tokens.
"""


@dataclass(slots=True, frozen=True)
class Size:
    """An estimate in eighths of a token, in three parts of different accuracy: ASCII text, other
    scripts, media.
    """

    plain: int = 0
    other: int = 0
    media: int = 0

    def __add__(self, more: Size) -> Size:
        return Size(self.plain + more.plain, self.other + more.other, self.media + more.media)

    def __sub__(self, less: Size) -> Size:
        return Size(self.plain - less.plain, self.other - less.other, self.media - less.media)

    @property
    def tokens(self) -> int:
        """The size in whole tokens, rounded up."""
        return -(-(self.plain + self.other + self.media) // 8)


@dataclass(slots=True, frozen=True)
class TokenCount:
    """Tokens of a request: the best guess, and bounds that hold for 19 of 20 requests."""

    tokens: int
    low: int
    high: int
    reported: int = 0
    """The number of `tokens` that the provider counted itself."""


def total_tokens(usage: Usage | UsageReport) -> int | None:
    """Tokens of one call, prompt and answer: the reported total, else the sum of what was read,
    cached, written and answered.

    (Of a `Usage` the input includes what came from a cache and what was put there.) `None`: nothing
    was reported, or only zeros.
    """
    return usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0) or None


# --- sizes of parts


def size_of_text(text: str) -> Size:
    """The size of any text: prose, code, JSON."""
    return Size(*weigh(text))


def size_of_media(media: Media) -> Size:
    """The size of media, by its kind and the length of its data, if the data is there."""
    kind, _, subtype = media.mime_type.lower().partition("/")
    data_bytes = None if media.data is None else len(media.data) * 3 // 4
    if kind == "text" and data_bytes is not None:
        return Size(media=2 * data_bytes)
    if kind in BYTES_PER_TOKEN:
        tokens = LONG_MEDIA_TOKENS if data_bytes is None else data_bytes // BYTES_PER_TOKEN[kind]
    elif kind == "application" and subtype != "octet-stream":
        pages = math.inf if data_bytes is None else 1 + data_bytes // PAGE_BYTES
        tokens = int(min(MOST_DOCUMENT_TOKENS, pages * PAGE_TOKENS))
    else:
        tokens = IMAGE_TOKENS
    return Size(media=8 * (tokens + MESSAGE_TOKENS))


def size_of_result(result: ToolResult) -> Size:
    """The size of a tool's answer, with its name and the id of its call."""
    size = _MARKS + size_of_text(result.name) + size_of_text(result.text)
    return sum(map(size_of_media, result.media), size) if result.media else size


def size_of_results(message: Message) -> Size:
    """The size of all results of this message's calls."""
    return sum(map(size_of_result, message.results), Size()) if isinstance(message, AssistantMessage) else Size()


def size_of_message(message: Message) -> Size:
    """The size of a message with its calls and their results."""
    parts = sum(map(_size_of_part, message.content), _MARKS)
    return parts + size_of_results(message)


def message_tokens(message: Message) -> int:
    """Estimated tokens of a message with its calls and their results. Linear in its size."""
    return size_of_message(message).tokens


def size_of_tools(tools: Iterable[ToolSpec]) -> Size:
    """The size of the declarations of tools."""
    return sum(
        (size_of_text(tool.name + tool.description + text_of(tool.parameters)) + _MARKS for tool in tools), Size()
    )


def sizes_by_source(request: ModelRequest) -> dict[str, Size]:
    """The sizes of the parts of a request: system, tools, user, assistant, reasoning, calls,
    results, media. Linear in its size.
    """
    sizes = {source: Size() for source in _SOURCES}
    sizes["system"] = size_of_text(request.instructions or "")
    sizes["tools"] = size_of_tools(request.tools)
    for message in request.messages:
        speaker = "user" if isinstance(message, UserMessage) else "assistant"
        sizes[speaker] += _MARKS
        for part in message.content:
            sizes[_SOURCE_OF.get(type(part), speaker)] += _size_of_part(part)
        sizes["results"] += size_of_results(message)
    return sizes


_MARKS: Final = Size(plain=8 * MESSAGE_TOKENS)
_SOURCES: Final = ("system", "tools", "user", "assistant", "reasoning", "calls", "results", "media")
_SOURCE_OF: Final[Mapping[type, str]] = {Reasoning: "reasoning", ToolCall: "calls", Media: "media"}


def _size_of_part(part: Text | Reasoning | ToolCall | Media) -> Size:
    match part:
        case Text(text):
            return size_of_text(text)
        case Reasoning("", str() as hidden):  # encrypted thinking, as long as what it hides
            return Size(other=2 * max(0, len(hidden) * 3 // 4 - HIDDEN_BYTES))
        case Reasoning(text):
            return size_of_text(text)
        case Media():
            return size_of_media(part)
    return _MARKS + size_of_text(part.name) + size_of_text(text_of(part.arguments))


# --- how full the context is


@dataclass(slots=True, frozen=True)
class _Sent:
    """The request that was sent last."""

    messages: int
    """The number of messages in the request."""
    edits: int
    """The number of edits that the history had had by then."""
    fixed: Size
    prompt: Size
    """The size of the request, instructions and tools included."""
    usage: Usage = field(default_factory=Usage)

    @property
    def prompt_tokens(self) -> int:
        """The provider's count of the prompt. Tokens that only its total has (prompts of its own
        tools) count as prompt.
        """
        return max(self.usage.input_tokens, self.usage.total_tokens - self.usage.output_tokens)


class ContextMeter:
    """Counts the tokens of the next request of one conversation. An update costs only as much as is
    new in `history`.
    """

    def __init__(self, history: History, *, instructions: str | None = None, tools: Sequence[ToolSpec] = ()) -> None:
        self._history = history
        self.instructions: str | None = None
        self.tools: tuple[ToolSpec, ...] = ()
        self._fixed = Size()
        self._totals = [Size()]
        """Sums of all sizes before each message, and behind the last."""
        self._edits = len(history.edits)
        self._sent: _Sent | None = None
        self._answered: _Sent | None = None
        self._scale: float | None = None
        self.fixed(instructions, tools)

    def fixed(self, instructions: str | None, tools: Sequence[ToolSpec] = ()) -> None:
        """Set what every request carries beside the history. Call it again when that changes."""
        fixed = (instructions, tuple(tools))
        if fixed != (self.instructions, self.tools):
            self.instructions, self.tools = fixed
            self._fixed = size_of_text(instructions or "") + size_of_tools(tools)

    @property
    def scale(self) -> float:
        """The provider's last count divided by the estimate; 1 before the first report."""
        return 1.0 if self._scale is None else self._scale

    def forget(self) -> None:
        """Another model continues the conversation: this model's reports say nothing about how that
        one counts.
        """
        self._sent = self._answered = self._scale = None

    def sent(self) -> None:
        """The history is sent as it stands now. Call it for every attempt: reports of a failed
        attempt are void.
        """
        self._catch_up()
        self._sent = _Sent(len(self._totals) - 1, self._edits, self._fixed, self._fixed + self._totals[-1])

    def reported(self, report: UsageReport) -> None:
        """Take in the provider's running totals of the call that was sent. Reports that add up
        several calls do not fit.
        """
        if self._sent is not None:
            self._sent = replace(self._sent, usage=self._sent.usage.merged(report))

    def answered(self) -> None:
        """The call that was sent ended well. Do not call it for a failed or aborted call: the
        report before it then stays in use.
        """
        sent, self._sent = self._sent, None
        if sent is None or sent.prompt_tokens <= LEAST_BELIEVED * sent.prompt.tokens:
            return
        self._answered = sent
        if sent.prompt.tokens >= LEAST_TO_LEARN_TOKENS:
            least, most = SCALE_BOUNDS
            self._scale = min(most, max(least, sent.prompt_tokens / sent.prompt.tokens))

    def count(self, pending: Sequence[Message] = ()) -> TokenCount:
        """Tokens of the request that would be sent now, with `pending` behind the history.

        The count starts from the newest report of a call that ended well, unless a message in it
        was rewritten since. What came after it, or everything, is estimated.
        """
        self._catch_up()
        estimated = sum(map(size_of_message, pending), Size())
        known = self._answered
        if known is None or any(edit.start < known.messages for edit in self._history.edits[known.edits :]):
            self._answered = None
            return self._counted(0, self._fixed + self._totals[-1] + estimated)
        estimated += self._fixed - known.fixed + self._totals[-1] - self._totals[known.messages]
        counted = known.prompt_tokens
        behind = (*self._history.messages[known.messages : known.messages + 1], *pending)
        answer = behind[0] if behind else None
        if not isinstance(answer, UserMessage):  # the answer itself, which the report counts as well
            counted += known.usage.output_tokens
        if isinstance(answer, AssistantMessage):
            estimated += size_of_results(answer) - size_of_message(answer)
            if not any(isinstance(part, Reasoning) for part in answer.content):  # it will not be sent again
                counted -= known.usage.reasoning_tokens
        return self._counted(counted, estimated)

    def _counted(self, reported: int, estimated: Size) -> TokenCount:
        left = 1.0 if self._scale is None else CALIBRATED
        scaled = math.ceil(estimated.tokens * self.scale)
        plain, wide = abs(estimated.plain) / 8, (abs(estimated.other) + abs(estimated.media)) / 8
        error = math.ceil((ERROR * plain + WIDE_ERROR * wide) * left * self.scale)
        tokens = max(0, reported + scaled)
        return TokenCount(tokens, max(0, tokens - error), tokens + error, min(reported, tokens))

    def _catch_up(self) -> None:
        """Estimate what is new. After an edit, everything from its start on is estimated again."""
        edits = self._history.edits
        if len(edits) > self._edits:
            unchanged = min(edit.start for edit in edits[self._edits :])
            del self._totals[unchanged + 1 :]
            self._edits = len(edits)
        if len(self._totals) <= len(self._history):
            for message in self._history.messages[len(self._totals) - 1 :]:
                self._totals.append(self._totals[-1] + size_of_message(message))
