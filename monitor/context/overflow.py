"""The messages with which services refuse a request that does not fit, as data. Failure answered:
each adapter knows two or three of these messages.

There is one table for all providers. Messages that sound similar and mean something else come
first, then messages with numbers, then codes and bare statuses. Put a row of your own first:
`read_failure(message, rows=(mine, *OVERFLOW_ROWS))`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from monitor._util.checked_words import checked
from monitor.chunks import Usage, UsageReport
from monitor.context.history import History
from monitor.context.tokens import ContextMeter, total_tokens
from monitor.context.window import DEFAULT, Headroom, Window
from monitor.errors import ConfigError, FinishReason
from monitor.models import ErrorKind, ModelError, ToolSpec
from monitor.outcome import Turn

LEAST_WINDOW_TOKENS: Final = 512
MOST_WINDOW_TOKENS: Final = 100_000_000
"""A limit that a refusal states is a window only between these bounds. A limit of 0, 1 or twenty
digits means another error.
"""
MAX_MESSAGE_CHARS: Final = 2000
"""How much of a message is read: some services send the whole prompt back."""


class OverflowKind(StrEnum):
    """The meaning of a refusal, or of a suspicious answer, for the context."""

    OVERFLOW = "overflow"
    """The prompt, or the prompt and the room for the answer, has more tokens than the model's
    window.
    """
    BYTES = "bytes"
    """The request has too many bytes, whatever its tokens: removing media and large results helps.
    """
    HOPELESS = "hopeless"
    """This one request needs more tokens than the account may use in a minute, so waiting does not
    help. It says nothing about the window.
    """
    RATE_LIMIT = "rate_limit"
    """Too much in too short a time: waiting helps; a shorter prompt may not."""
    OUTPUT_TRUNCATED = "output_truncated"
    """The answer began, and the end of the window cut it off."""
    SILENT = "silent"
    """No error, but the provider counts more than the window, or had no room left for an answer."""
    OTHER = "other"
    """The message resembles one of these and means something else: a quota, a bill, a wrong
    setting."""


TOO_LONG: Final = frozenset({OverflowKind.OVERFLOW, OverflowKind.BYTES})
"""The refusals after which a shorter request may succeed."""

_OF_THE_WINDOW: Final = frozenset({OverflowKind.OVERFLOW, OverflowKind.OUTPUT_TRUNCATED, OverflowKind.SILENT})

_NUMBER: Final = r"(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\s?[KkMm]\b)?"
_GROUPS: Final = ("used", "limit", "prompt", "answer")


@dataclass(slots=True, frozen=True)
@checked
class OverflowRow:
    """One message of a service. Every field that is set must match.

    `phrase`: a regular expression, matched without regard to case. In it, `<used>` stands for the
    tokens of the request, `<limit>` for the most accepted, `<prompt>` and `<answer>` for the parts
    of a sum. Raises `ConfigError` for a row without a phrase, a status and a code.
    """

    provider: str
    kind: OverflowKind
    phrase: str | None = None
    status: tuple[int, ...] = ()
    """HTTP statuses; one of them must match."""
    code: tuple[str, ...] = ()
    """The provider's codes or finish reasons, in lower case; one of them must match."""
    _pattern: re.Pattern[str] | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.phrase is None and not self.status and not self.code:
            raise ConfigError(f"a row of the overflow table names a phrase, a status or a code: {self}")
        if self.phrase is None:
            return
        pattern = self.phrase
        for group in _GROUPS:
            pattern = pattern.replace(f"<{group}>", f"(?P<{group}>{_NUMBER})")
        try:
            object.__setattr__(self, "_pattern", re.compile(pattern, re.IGNORECASE | re.DOTALL))
        except re.error as error:
            raise ConfigError(f"the phrase {self.phrase!r} is not a regular expression: {error}") from error

    def read(self, message: str, status: int | None, code: str | None) -> Overflow | None:
        """The row's reading of a failure. `None`: the row does not match."""
        if (self.status and status not in self.status) or (
            self.code and (code is None or code.lower() not in self.code)
        ):
            return None
        if self._pattern is None:
            return Overflow(self.kind, self.provider)
        found = self._pattern.search(message)
        if found is None:
            return None
        said = {group: _tokens(number) for group, number in found.groupdict().items() if number is not None}
        used = said["prompt"] + said["answer"] if "prompt" in said and "answer" in said else said.get("used")
        limit = said.get("limit")
        if self.kind is OverflowKind.HOPELESS and (used is None or limit is None or used <= limit):
            return None
        return Overflow(self.kind, self.provider, used, limit)


@dataclass(slots=True, frozen=True)
@checked
class Overflow:
    """The known facts about a request that did not fit."""

    kind: OverflowKind
    provider: str
    """The provider whose message it was; `any` if several providers use it."""
    used_tokens: int | None = None
    """The number of tokens that the provider counted. `None`: not stated."""
    limit_tokens: int | None = None
    """The number of tokens that the provider takes. `None`: not stated."""

    @property
    def window_tokens(self) -> int | None:
        """The size of the model's window, if `limit_tokens` states it. Limits on rates or bytes and
        impossible numbers do not.
        """
        limit = self.limit_tokens
        if self.kind not in _OF_THE_WINDOW or limit is None:
            return None
        return limit if LEAST_WINDOW_TOKENS <= limit <= MOST_WINDOW_TOKENS else None


def _rows(kind: OverflowKind, *sentences: tuple[str, str]) -> tuple[OverflowRow, ...]:
    return tuple(OverflowRow(provider, kind, phrase) for provider, phrase in sentences)


_NOT_THE_WINDOW: Final = (
    *_rows(
        OverflowKind.HOPELESS,
        ("groq, openai", r"(?:tokens? per min|\btpm\b).{0,80}?\blimit:? <limit>,.{0,40}?\brequested:? <used>"),
    ),
    *_rows(
        OverflowKind.RATE_LIMIT,
        ("any", r"rate.?limit"),
        ("any", r"too many requests"),
        ("bedrock", r"throttl"),  # "ThrottlingException: Too many tokens, please wait before trying again."
        ("any", r"tokens? per (?:min(?:ute)?|hour|day)"),
        ("any", r"\btpm\b"),
    ),
    OverflowRow("any", OverflowKind.RATE_LIMIT, status=(429,)),
    *_rows(
        OverflowKind.OTHER,
        ("any", r"quota"),
        ("any", r"billing"),
        ("any", r"refus(?:al|ed to answer)"),
        ("any", r"reasoning is (?:required|mandatory)"),
        ("any", r"context window (?:is )?too small"),
        ("any", r"prompt template"),
    ),
)

_SENTENCES: Final = _rows(
    OverflowKind.OVERFLOW,
    # with both numbers
    ("anthropic", r"prompt is too long: <used> tokens > <limit> maximum"),
    ("anthropic", r"exceed context limit: <prompt> \+ <answer> > <limit>"),
    ("openai", r"maximum context length is <limit> tokens.{0,60}?(?:resulted in|requested(?: about)?) <used>"),
    ("openai", r"input tokens exceed the configured limit of <limit>.{0,60}?resulted in <used>"),
    ("google", r"input token count \(?<used>\)? exceeds the maximum number of tokens allowed \(?<limit>"),
    ("xai", r"maximum prompt length is <limit> but the request contains <used>"),
    ("together", r"\(?<used> tokens\)? is longer than the model's context length \(?<limit>"),
    ("mistral", r"prompt contains <used> tokens.{0,20}?too large for model with <limit> maximum context length"),
    ("copilot", r"token count of <used> exceeds the limit of <limit>"),
    ("kimi", r"exceeded model token limit: <limit> \(requested: <used>\)"),
    ("ds4", r"prompt has <used> tokens, but the configured context size is <limit>"),
    ("llama.cpp", r"\(<used> tokens\) exceeds the available context size \(<limit> tokens\)"),
    # with the limit
    ("openai, openrouter, deepseek", r"maximum context length (?:is|of) <limit>"),
    ("litellm", r"maximum context length \(<limit>\)"),
    ("mistral", r"too large for model with <limit> maximum context length"),
    ("poolside", r"maximum allowed input length of <limit>"),
    ("dashscope", r"range of input length should be \[\d+, <limit>\]"),
    ("kimi", r"supports only <limit> context"),
    # without numbers
    ("anthropic, ollama, z.ai", r"prompt (?:is )?too long"),
    ("anthropic, openai, minimax", r"exceeds? (?:the )?context (?:limit|window)"),
    ("openai", r"context_length_exceeded"),
    ("openai, openrouter, litellm", r"maximum context length"),
    ("openai", r"input tokens exceed the configured limit"),
    ("google, bedrock, copilot", r"token count.{0,40}\bexceed"),
    (
        "google, bedrock",
        r"(?:exceeds the maximum|is longer than the maximum|exceeding the maximum) number of (?:input )?tokens",
    ),
    ("bedrock", r"input is too long for (?:the )?requested model"),
    ("xai", r"maximum prompt length is"),
    ("groq", r"reduce the length of the (?:messages|prompt)"),
    ("poolside", r"maximum allowed input length"),
    ("together", r"is longer than the model's context length"),
    ("kimi", r"exceeded model token limit"),
    ("minimax, litellm", r"context window (?:limit )?(?:has been )?exceed"),
    ("litellm", r"ContextWindowExceededError"),
    ("z.ai", r"prompt exceeds max length"),
    ("dashscope", r"range of input length should be"),
    ("llama.cpp", r"exceeds the available context size"),
    ("llama.cpp", r"context size has been exceeded"),
    ("lm studio", r"greater than the context length"),
    ("ds4", r"the configured context size is"),
    ("any", r"token limit exceeded"),
    ("any", r"(?:prompt|input|request|messages?|context) (?:has|have|contains?|with) too many tokens"),
    ("any", r"too many tokens in (?:the |your )?(?:prompt|input|request|messages|context)"),
    ("any", r"(?:上下文|提示词?|输入)(?:窗口|内容)?(?:长度)?(?:过长|超出|超过|超限)"),
    ("any", r"超[出过]了?(?:模型)?的?最大上下文|请压缩上下文"),
)

OVERFLOW_ROWS: Final[tuple[OverflowRow, ...]] = (
    OverflowRow("anthropic, z.ai", OverflowKind.OUTPUT_TRUNCATED, code=("model_context_window_exceeded",)),
    *_NOT_THE_WINDOW,
    *_SENTENCES,
    OverflowRow("z.ai", OverflowKind.OUTPUT_TRUNCATED, r"model_context_window_exceeded"),
    *_rows(
        OverflowKind.BYTES,
        ("anthropic", r"too many total text bytes"),
        ("anthropic", r"request_too_large"),
        ("any", r"request entity too large"),
        ("any", r"(?:request|payload) (?:body )?(?:is )?too large"),
    ),
    OverflowRow(
        "openai",
        OverflowKind.OVERFLOW,
        code=("context_length_exceeded", "string_above_max_length", "context_window_exceeded"),
    ),
    OverflowRow("z.ai", OverflowKind.OVERFLOW, code=("1261",)),
    # with other statuses this phrase may mean a rate limit
    OverflowRow("any", OverflowKind.OVERFLOW, r"\btoo many tokens\b", status=(400, 413, 422)),
    OverflowRow("anthropic", OverflowKind.BYTES, code=("request_too_large",)),
    # Copilot: "failed to parse request"; Cerebras: no body at all
    OverflowRow("any", OverflowKind.BYTES, status=(413,)),
)
"""In order: the first row that matches decides. A bare 400 is not an overflow: pi once took it for
one, and compacted because of typing errors.
"""


def read_failure(
    message: str, *, status: int | None = None, code: str | None = None, rows: Iterable[OverflowRow] = OVERFLOW_ROWS
) -> Overflow | None:
    """Reads what a failed call says about the size of the request. `None`: nothing.

    `status`: the HTTP status, if there was one. `code`: the provider's own code. Never raises,
    whatever the provider says.
    """
    message = message[:MAX_MESSAGE_CHARS]
    for row in rows:
        found = row.read(message, status, code)
        if found is not None:
            return found
    return None


def says_overflow(message: str, *, status: int | None = None) -> bool:
    """Whether a refusal says that a shorter prompt would be accepted. Messages about rates and
    quotas never do.
    """
    found = read_failure(message, status=status)
    return found is not None and (found.kind in TOO_LONG or found.kind is OverflowKind.OUTPUT_TRUNCATED)


NEARLY_FULL: Final = 0.99
"""Share of the window that some servers fill before they return an empty answer (Xiaomi MiMo, seen
by pi).
"""


def read_answer(
    usage: Usage, window_tokens: int | None, *, finish_reason: FinishReason | None, raw_finish_reason: str | None = None
) -> Overflow | None:
    """Reads what an answer without an error says about the size of its request. `None`: nothing.

    `usage`: the tokens of this one call. `window_tokens`: the model's window; `None`: unknown. An
    answer that was cut off at its own limit, with room left in the window, says nothing about the
    context.
    """
    word = (raw_finish_reason or "").partition(":")[0].strip()
    for row in OVERFLOW_ROWS:
        if row.code and row.phrase is None and row.kind is OverflowKind.OUTPUT_TRUNCATED and word.lower() in row.code:
            return Overflow(row.kind, row.provider, usage.total_tokens or None, window_tokens)
    if not window_tokens:
        return None
    full = window_tokens * NEARLY_FULL
    if usage.input_tokens > window_tokens:
        return Overflow(OverflowKind.SILENT, "any", usage.input_tokens, window_tokens)
    if finish_reason is not FinishReason.LENGTH:
        return None
    if usage.output_tokens == 0 and usage.input_tokens >= full:
        return Overflow(OverflowKind.SILENT, "any", usage.input_tokens, window_tokens)
    if usage.input_tokens + usage.output_tokens >= full:
        return Overflow(OverflowKind.OUTPUT_TRUNCATED, "any", usage.input_tokens + usage.output_tokens, window_tokens)
    return None


_UNITS: Final = {"k": 1_000, "m": 1_000_000}


def _tokens(number: str) -> int:
    """The number that `1,048,576` or `256K` states. A K is read as 1,000: if 1,024 was meant, the
    smaller number is safe.
    """
    digits = number.replace(",", "").strip()
    unit = _UNITS.get(digits[-1].lower(), 1)
    return int(digits.rstrip("KkMm ")) * unit


# --- Whether a conversation has filled the usable part of its window: checked before each call and
# after each answer.
#
# Failure answered: a provider that refuses the request, cuts off the answer, or silently reads
# only a part of the prompt.


@dataclass(slots=True, frozen=True)
class Full:
    """The context has filled the usable part of the window, or more."""

    tokens: int
    usable_tokens: int
    detail: str
    """How the fullness is known, for people."""
    overflow: OverflowKind | None = None
    """How the provider met the end of the window without an error. `None`: the window did not
    end."""


class Fullness:
    """Watches how full the context of one conversation with one model is.

    A window of unknown size is never full and is not measured, until the provider refuses a request
    and states its limit. A full context is reported once, and again only after it was made smaller.
    The cost of a call here does not grow with the history.
    """

    def __init__(self, history: History, window: Window, headroom: Headroom = DEFAULT) -> None:
        self.window: Window = window
        """The window as known by now: the provider's error may state that it is smaller."""
        self._headroom = headroom
        self._usable = headroom.usable(window)
        self.meter: ContextMeter = ContextMeter(history)
        self._told = False

    @property
    def full(self) -> bool:
        """Whether the context was full at the last check."""
        return self._told

    def before_call(self, instructions: str | None, tools: Sequence[ToolSpec]) -> Full | None:
        """Check the request that is about to be sent with `instructions` and `tools`. Returns a
        `Full` if the context is full now, and was not reported before.
        """
        if self._usable is None:
            return None
        self.meter.fixed(instructions, tools)
        count = self.meter.count()
        self.meter.sent()
        return self._told_once(
            count.tokens, f"the next request has about {count.tokens:,} tokens ({count.low:,} to {count.high:,})"
        )

    def after_turn(self, turn: Turn) -> Full | None:
        """Check the context after a turn of one call that ended in any way. A refusal that states
        the limit makes the window smaller from now on.
        """
        if turn.model_error is not None:
            self._learn(turn.model_error)
        usage, well = turn.usage, turn.stopped is None and turn.finish_reason is not None
        overflow = read_answer(
            usage, self.window.tokens, finish_reason=turn.finish_reason, raw_finish_reason=turn.raw_finish_reason
        )
        tokens = total_tokens(usage) or 0
        if overflow is not None and overflow.kind in _SAID:
            self._told = True
            return Full(tokens, self._usable or tokens, _SAID[overflow.kind], overflow.kind)
        if self._usable is None or not usage.input_tokens:
            return None
        self.meter.reported(
            UsageReport(
                usage.input_tokens, usage.output_tokens, usage.reasoning_tokens, usage.cached_tokens, usage.total_tokens
            )
        )
        if well:
            self.meter.answered()
        return self._told_once(tokens, f"the provider counted {tokens:,} tokens, the answer included") if well else None

    def _learn(self, error: ModelError) -> None:
        is_overflow = error.kind is ErrorKind.OVERFLOW
        overflow = read_failure(error.message, status=error.status, code=error.code) if is_overflow else None
        if overflow is not None and overflow.window_tokens:
            self.window = self.window.learned(overflow.window_tokens)
            self._usable = self._headroom.usable(self.window)

    def _told_once(self, tokens: int, detail: str) -> Full | None:
        full = self._usable is not None and tokens >= self._usable
        told, self._told = self._told, full
        if not full or told or self._usable is None:
            return None
        return Full(
            tokens, self._usable, f"{detail}; {self._usable:,} of the window's {self.window.tokens:,} may be used"
        )


_SAID = {
    OverflowKind.SILENT: "the provider answered a prompt that fills the window: it may not have read all of it",
    OverflowKind.OUTPUT_TRUNCATED: "the answer was cut off at the end of the window",
}
