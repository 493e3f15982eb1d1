"""A summary by a model. Failures answered: a summariser runs out of its own window, runs out of
time, or goes on with the work.

    summarizer = ModelSummarizer(model, settings={"max_tokens": 4_000})
    summary = await summarizer.summarize(task, ask, progress=print)

The model reads the messages as text between two marks, in pieces that fit its window. Each piece
brings the summary of the earlier pieces up to date. After a timeout, the next try goes on from the
last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, Literal

from monitor._util.hashing import canonical_json, identity
from monitor.compaction.records import AskTurn, CompactionError
from monitor.compaction.summaries.excerpts import (
    LEAST_WINDOW_TOKENS,
    Excerpt,
    beside,
    blocks,
    listed,
    most_tokens,
    next_window,
    with_error,
)
from monitor.compaction.summaries.summarizer import Checkpoint, CompactionProgress, Summary
from monitor.compaction.summaries.templates import BEGIN, END, SummaryTask
from monitor.context.measure.tokens import Size, message_tokens, size_of_text, sizes_by_source
from monitor.context.measure.window import Window, window_of
from monitor.context.reduce.media import has_media
from monitor.errors import ConfigError, describe
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.models import PASSING, ErrorKind, Model, ModelRequest
from monitor.outcome import Turn
from monitor.reasons import CompactionFailure, FinishReason, TerminateReason

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
