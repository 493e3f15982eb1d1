"""The protocol of summarisers: what one receives, and what it returns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Any, Final, Literal, NamedTuple, Protocol

from monitor._util.hashing import canonical_json, identity
from monitor._util.text import printable, quoted, quoted_lines
from monitor.chunks import ToolCall
from monitor.context.compaction.hooks import AskTurn, CompactionError
from monitor.context.compaction.templates import BEGIN, END, SummaryTask
from monitor.context.reduce import SUMMARY_RESULT_CHARS, clip, has_media, placeholder
from monitor.context.tokens import ERROR, WIDE_ERROR, Size, message_tokens, size_of_text, sizes_by_source
from monitor.context.window import Window, window_of
from monitor.errors import CompactionFailure, ConfigError, FinishReason, TerminateReason, describe
from monitor.messages import AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import PASSING, ErrorKind, Model, ModelRequest
from monitor.outcome import Turn


@dataclass(slots=True, frozen=True, kw_only=True)
class Checkpoint:
    """How far a summary has come that is made window by window. The next try goes on from here
    after a timeout.
    """

    covers: int
    """The number of the task's messages that the text covers."""
    identity: str
    """xxh3-64 over the messages that the text covers, the earlier summary and the prompt. Only the
    same task, or a longer one that begins with it, may use the checkpoint.
    """
    text: str


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionProgress:
    """One step of a summary is done."""

    done_messages: int
    of_messages: int
    checkpoint: Checkpoint | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class Summary:
    """The summary that a summariser made of a task."""

    text: str
    by: str
    """The model by name, or `extractive`."""


class Summarizer(Protocol):
    """Makes a summary of a task."""

    @property
    def name(self) -> str:
        """The name that records and warnings say."""
        ...

    async def summarize(
        self,
        task: SummaryTask,
        ask: AskTurn,
        /,
        *,
        progress: Callable[[CompactionProgress], None],
        checkpoint: Checkpoint | None = None,
    ) -> Summary:
        """The summary of `task`. Raises `CompactionError` if there is none to be had, and
        `TimeoutError`.
        """
        ...


async def ask_for_summary(
    summarizer: Summarizer,
    task: SummaryTask,
    *,
    ask: AskTurn,
    progress: Callable[[CompactionProgress], None],
    checkpoint: Checkpoint | None,
) -> Summary:
    """Let `summarizer` make a summary of `task`. Whatever it raises becomes a `CompactionError`."""
    try:
        summary: object = await summarizer.summarize(task, ask, progress=progress, checkpoint=checkpoint)
    except CompactionError:
        raise
    except TimeoutError as error:
        raise CompactionError(CompactionFailure.TIMEOUT, str(error) or "it took too long") from error
    except Exception as error:
        raise CompactionError(CompactionFailure.CRASHED, f"{summarizer.name} raised {describe(error)}") from error
    if not isinstance(summary, Summary) or not isinstance(summary.text, str):
        raise CompactionError(
            CompactionFailure.INVALID, f"{summarizer.name} gave {summary!r:.200}, which is no Summary"
        )
    if not summary.text.strip():
        raise CompactionError(CompactionFailure.EMPTY, f"{summarizer.name} wrote nothing")
    return summary


# --- Messages as data for a summariser: who said what, which calls had which results, within the
# summariser's window.
#
# [1] user: | Find out when the shop opens. [Attached image/png: door.png] [2] agent: | Let me
# look it up. [2] call 1: "search" with {"q": "opening hours"} [2] call 1, "search", returned: |
# Monday to Friday, 9 to 5
#
# Each quoted line has a mark before it (`monitor._util.text.quoted_lines`), so no text can
# pass for another speaker. Media are named. Thinking is left out: pi found that with it, the
# request for a summary was longer than what it summarised.

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


# --- A summary by a model. Failures answered: a summariser runs out of its own window, runs out of
# time, or goes on with the work.
#
# The model reads the messages as text between two marks, in pieces that fit its window. Each
# piece brings the summary of the earlier pieces up to date. After a timeout, the next try goes on
# from the last checkpoint.

UNKNOWN_WINDOW_TOKENS: Final = 100_000
"""The window of an unknown model. Models that agents use have 128,000 tokens at least, and reading
in pieces loses little.
"""
SHRINKS: Final = 3
"""The number of times that the record is halved for a provider that finds it too long: as often as
Codex does.
"""
MOST_LENGTH: Final = 1.5
"""The factor by which a summary may be longer than asked for: models cannot count."""
EARLIER_SHARE: Final = 0.5
"""The most of the room for reading that the earlier summary gets; the messages get the rest."""
BESIDE_SHARE: Final = 0.2
"""The most of the room for reading that is given to what stands beside the messages: pinned facts,
identifiers, files.
"""
BESIDE_TOKENS: Final = 8_000
"""The most tokens for what stands beside the messages."""
LEAST_ROOM_TOKENS: Final = 2_000
"""The least room for what is read: in less, an earlier summary leaves no room for messages."""


class ModelSummarizer:
    """A `Summarizer` that asks `model`. `settings` go to the provider as they are: output limit,
    temperature, thinking.

    `window`: the model's limits; by default those of the table of known models, else 100,000
    tokens.

    `prefix`: the run's own request up to where its history will be cut. The provider has it in its
    cache, so reading it again costs a tenth. The summary is asked for behind it, if it fits and
    ends with the task. The run's own instructions and tools stay, and calls are refused.
    """

    def __init__(
        self,
        model: Model,
        *,
        window: Window | None = None,
        settings: Mapping[str, Any] | None = None,
        prefix: ModelRequest | None = None,
    ) -> None:
        self._model = model
        self._window = window or window_of(model.name)
        self._settings = dict(settings or {})
        self._prefix = prefix

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._model.name

    async def summarize(
        self,
        task: SummaryTask,
        ask: AskTurn,
        *,
        progress: Callable[[CompactionProgress], None],
        checkpoint: Checkpoint | None = None,
    ) -> Summary:
        """See `Summarizer`. A `checkpoint` of another task is ignored. A cancellation passes
        through.
        """
        if not task.messages:
            raise CompactionError(CompactionFailure.NOTHING_TO_COMPACT, "there are no messages to summarise")
        work = _Work(self._model, self._window.tokens or UNKNOWN_WINDOW_TOKENS, self._settings, task, ask, progress)
        if self._prefix is not None and checkpoint is None:
            draft = await work.on_top_of(self._prefix)
            if draft is not None:
                return await work.checked(draft)
        try:
            return await work.checked(await work.folded(checkpoint))
        except CompactionError as error:
            error.media_removed = any(map(has_media, task.messages))
            raise


@dataclass(slots=True)
class _SummaryDraft:
    """A summary before its check."""

    text: str
    again: Callable[[str, str], ModelRequest]
    """Makes the request that sends a summary back and says what is wrong with it."""


@dataclass(slots=True)
class _Work:
    """The work on one summary, from its first request on."""

    model: Model
    window: int
    settings: Mapping[str, Any]
    task: SummaryTask
    ask: AskTurn
    progress: Callable[[CompactionProgress], None]
    _instructions: str = field(init=False)
    _texts: Sequence[str] = field(init=False)
    """The task's messages as the model reads them."""
    _chain: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        self._instructions = self.task.template.instructions(self.task)
        self._texts = blocks(self.task.messages)
        self._chain = _identities(self.task, self._texts)

    # --- the two ways to a draft

    async def on_top_of(self, prefix: ModelRequest) -> _SummaryDraft | None:
        """Ask with the run's own request and a question behind it. `None`: that does not fit, or it
        would be about other messages.
        """
        if not _is_about(self.task, prefix):
            return None
        parts = [self.task.template.instructions(self.task, live=True)]
        if besides := beside(self.task, BESIDE_TOKENS):
            parts.append(f"What is known besides, as data:\n{BEGIN}\n{besides}\n{END}")
        parts.append(_NOW)
        question = _said("\n\n".join(parts))

        def request(*behind: Message) -> ModelRequest:
            messages = (*prefix.messages, question, *behind)
            return replace(prefix, messages=messages, tool_choice="none", settings=self.settings)

        def again(draft: str, wrong: str) -> ModelRequest:
            sent_back = request(AssistantMessage((Text(draft),)), _said(wrong))
            return sent_back if self._fits(sent_back) else self._again(draft, wrong, None, self._room())

        if not self._fits(request()):
            return None
        try:
            text = await self._answer(request())
        except CompactionError as error:
            if error.failure is not CompactionFailure.TOO_LONG:
                raise
            return None
        self._step(len(self.task.messages), text)
        return _SummaryDraft(text, again)

    async def folded(self, checkpoint: Checkpoint | None) -> _SummaryDraft:
        """Summarise piece by piece. Each piece brings the summary of those before up to date."""
        messages, chain = self.task.messages, self._chain
        earlier, done = self.task.previous, 0
        if (
            checkpoint is not None
            and 0 < checkpoint.covers <= len(messages)
            and checkpoint.identity == chain[checkpoint.covers]
        ):
            earlier, done = checkpoint.text, checkpoint.covers
        room = self._room()
        shrinks = 0
        last: Excerpt | None = None
        while done < len(messages):
            last = self._next(earlier, done, room)
            try:
                earlier = await self._answer(self._request(self._question(earlier, last, room)))
            except CompactionError as error:
                if error.failure is not CompactionFailure.TOO_LONG:
                    raise
                shrinks += 1
                room = min(room, most_tokens(self._question(earlier, last, room))) // 2
                if shrinks > SHRINKS or room < LEAST_ROOM_TOKENS:
                    raise
                continue
            done = last.stop
            self._step(done, earlier)
        assert earlier is not None  # noqa: S101 - there was a message, or a checkpoint
        return _SummaryDraft(earlier, lambda draft, wrong: self._again(draft, wrong, last, room))

    # --- what a draft must have

    async def checked(self, draft: _SummaryDraft) -> Summary:
        """The summary, if nothing is wrong with it. Else it is sent back once."""
        text = draft.text
        wrong = self._wrong(text)
        unsaid = [one for one in self._missing(text) if one not in self.task.pinned]
        if wrong or unsaid:
            try:
                corrected = await self._answer(draft.again(text, _correction(wrong, unsaid)))
            except CompactionError:
                if wrong:
                    raise
                corrected = text
            still_wrong = self._wrong(corrected)
            if wrong and still_wrong:
                raise CompactionError(
                    CompactionFailure.REJECTED, f"the summary of {self.model.name}: {'; '.join(still_wrong)}"
                )
            if wrong or (not still_wrong and len(self._missing(corrected)) <= len(self._missing(text))):
                text = corrected
        return Summary(text=text, by=self.model.name)

    def _wrong(self, text: str) -> list[str]:
        """The faults of the summary `text`, in words for the model."""
        wrong: list[str] = []
        if self.task.prompt is None and (sections := self.task.template.audit(text)):
            wrong.append(f"these sections are missing, empty altogether, or there twice: {', '.join(sections)}")
        most = int(self.task.max_tokens * MOST_LENGTH)
        tokens = size_of_text(text).tokens
        whole = self._whole(tokens)
        if tokens > min(most, whole):
            than = "what it stands for" if whole < most else "it may be"
            wrong.append(
                f"it is longer than {than}: {tokens:,} tokens instead of {min(self.task.max_tokens, whole):,} at most"
            )
        return wrong

    def _whole(self, enough: int) -> int:
        """The tokens of all that is summarised. The count may end early, at `enough` or more."""
        whole = size_of_text(self.task.previous or "").tokens
        for message in self.task.messages:
            if whole >= enough:
                break
            whole += message_tokens(message)
        return whole

    def _missing(self, text: str) -> tuple[str, ...]:
        return tuple(one for one in self.task.identifiers if one not in text)

    def _clean(self, text: str) -> str:
        return self.task.template.clean(text) if self.task.prompt is None else text.strip()

    # --- requests

    def _room(self) -> int:
        """The tokens for what is read: the window without the instructions and the answer."""
        room = self.window - self.task.max_tokens - most_tokens(self._instructions) - _FRAME_TOKENS
        if room < LEAST_ROOM_TOKENS:
            raise CompactionError(
                CompactionFailure.TOO_LONG,
                f"the window of {self.model.name} is {self.window:,} tokens; with instructions and"
                f" {self.task.max_tokens:,} tokens for the answer there is no room to read anything: allow a shorter"
                " summary, or give a model with a larger window",
            )
        return room

    def _fits(self, request: ModelRequest) -> bool:
        return with_error(sum(sizes_by_source(request).values(), Size())) + self.task.max_tokens <= self.window

    def _next(self, earlier: str | None, done: int, room: int) -> Excerpt:
        """The messages that the model reads next."""
        left = room - most_tokens(self._question(earlier, None, room))
        return next_window(self.task.messages, self._texts, max(left, LEAST_WINDOW_TOKENS), first=done)

    def _question(self, earlier: str | None, excerpt: Excerpt | None, room: int) -> str:
        parts = [BEGIN]
        if earlier is not None:
            parts.append(listed("the earlier summary", [earlier], int(room * EARLIER_SHARE)))
        if besides := beside(self.task, min(int(room * BESIDE_SHARE), BESIDE_TOKENS)):
            parts.append(besides)
        if excerpt is not None:
            parts += [f"messages {excerpt.start + 1} to {excerpt.stop} of {len(self.task.messages)}:", excerpt.text]
        parts += [END, "", _NOW if earlier is None else _UPDATE_NOW]
        return "\n".join(parts)

    def _request(self, question: str, *behind: Message) -> ModelRequest:
        return ModelRequest((_said(question), *behind), self._instructions, (), "none", self.settings)

    def _again(self, draft: str, wrong: str, excerpt: Excerpt | None, room: int) -> ModelRequest:
        """The request for a correction: with the newest messages of the draft, if they fit; else
        with the draft as an earlier summary that is brought up to date.
        """
        answer = (AssistantMessage((Text(draft),)), _said(wrong))
        question = self._question(None, excerpt, room)
        if excerpt is not None and most_tokens(question) + most_tokens(draft) + most_tokens(wrong) <= room:
            return self._request(question, *answer)
        return self._request(f"{self._question(draft, None, room)}\n\n{wrong}")

    # --- answers

    async def _answer(self, request: ModelRequest) -> str:
        """The text of a good answer. Another one is asked for once more where that may help."""
        tries = {"passing", "empty"}
        while True:
            turn = await self._asked(request)
            text = self._clean(turn.text)
            failure, why, again = _failure_of(turn, text)
            if failure is None:
                return text
            if again not in tries:
                break
            tries.remove(again)
        raise CompactionError(failure, f"{self.model.name} {why}", passing=again == "passing") from turn.error

    async def _asked(self, request: ModelRequest) -> Turn:
        try:
            return await self.ask(self.model, request)
        except (TimeoutError, ConfigError, CompactionError):
            raise
        except Exception as error:
            raise CompactionError(CompactionFailure.PROVIDER, f"{self.model.name} failed: {describe(error)}") from error

    def _step(self, done: int, text: str) -> None:
        checkpoint = Checkpoint(covers=done, identity=self._chain[done], text=text)
        self.progress(
            CompactionProgress(done_messages=done, of_messages=len(self.task.messages), checkpoint=checkpoint)
        )


# --- what is said


_FRAME_TOKENS: Final = 50
"""Tokens for the marks around two messages, and for lines in between."""
_NOW: Final = "Write the summary now, and nothing else."
_UPDATE_NOW: Final = (
    "Bring the earlier summary up to date with what came after it. Write the whole summary, and nothing else."
)


def _said(text: str) -> UserMessage:
    return UserMessage((Text(text),), synthetic=True)


def _correction(wrong: Sequence[str], unsaid: Sequence[str]) -> str:
    parts = ["Your summary cannot stay as it is:", *(f"- {one}" for one in wrong)]
    if unsaid:
        parts.append("- it does not say the following, which are to be written exactly so where they belong:")
        parts.append(listed("names", unsaid, LEAST_ROOM_TOKENS // 5))
    return "\n".join((*parts, "Write the whole summary again, in the form that was asked for, and nothing else."))


# --- what is known of tasks, requests and answers


def _identities(task: SummaryTask, texts: Sequence[str]) -> list[str]:
    """The identities of the first 0, 1, ... messages, with the earlier summary and the prompt."""
    template = task.template
    asked = (template.name, template.sections, template.style, task.previous, task.prompt, task.hints)
    return [*accumulate(texts, lambda before, text: identity(before + text), initial=identity(canonical_json(asked)))]


def _is_about(task: SummaryTask, prefix: ModelRequest) -> bool:
    """Whether `prefix` ends with the messages of `task`, so that a user may speak next."""
    ends = prefix.messages[-len(task.messages) :]
    return ends == task.messages and isinstance(ends[-1], AssistantMessage)


def _failure_of(turn: Turn, text: str) -> tuple[CompactionFailure | None, str, Literal["passing", "empty", "never"]]:
    """The fault of an answer, the same in words, and the reason to ask again.

    `passing`: the provider's trouble may pass. `empty`: the answer was empty. `never`: the same
    question would have the same answer, or there is no fault.
    """
    error, stopped = turn.model_error, turn.stopped
    reason = None if stopped is None else stopped.reason
    detail = error.message if error is not None else stopped.detail if stopped is not None else ""
    if reason is TerminateReason.PROMPT_TOO_LONG or (error is not None and error.kind is ErrorKind.OVERFLOW):
        return CompactionFailure.TOO_LONG, f"finds it too long: {detail}", "never"
    if turn.tool_calls:
        return CompactionFailure.TOOL_CALL, f"called {turn.tool_calls[0].name} instead of writing a summary", "never"
    if turn.finish_reason is FinishReason.LENGTH or turn.text_chars > len(turn.text):
        return CompactionFailure.TRUNCATED, "wrote a summary that was cut off at the output limit", "never"
    if error is not None or turn.error is not None:
        passing = error is not None and error.kind in PASSING
        return CompactionFailure.PROVIDER, f"failed: {detail or turn.error}", "passing" if passing else "never"
    if reason is TerminateReason.TRUNCATED:
        return CompactionFailure.TRUNCATED, f"wrote a summary that was cut off: {detail}", "never"
    if not text and reason in {None, TerminateReason.INVALID_STREAM}:
        return CompactionFailure.EMPTY, "wrote nothing", "empty"
    if stopped is not None:
        passing = reason is TerminateReason.INVALID_STREAM
        return CompactionFailure.PROVIDER, f"gave no summary: {detail}", "passing" if passing else "never"
    return None, "", "never"
