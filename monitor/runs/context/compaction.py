"""`Compaction`: given to a supervisor, or called in a loop that the caller writes."""

from __future__ import annotations

import contextlib
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import anyio

from monitor._util.argument_checks import check_kind, check_model, check_word, is_whole
from monitor._util.checked_words import checked
from monitor._util.explained_options import explained
from monitor.adapters.provider_forms import to_form
from monitor.context.compaction.hooks import CompactionResult
from monitor.context.compaction.pinned import PinnedFacts, recognised
from monitor.context.compaction.preset import Preset
from monitor.context.compaction.triggers import Hysteresis, Marks
from monitor.context.history import History
from monitor.context.repairs import repair
from monitor.context.tokens import ContextMeter
from monitor.context.window import NEVER_FULL, Window, window_of
from monitor.errors import PRESSING, CompactionReason, ConfigError, StoreError, describe
from monitor.events import Event
from monitor.guard.async_sinks import fan_out
from monitor.guard.options import CLOSE_GRACE_S
from monitor.guard.streams.wait import Clock, SystemClock
from monitor.messages import Message
from monitor.models import Model, ToolSpec
from monitor.runs.context.compaction_job import RunServices
from monitor.runs.context.compactor import Compactor
from monitor.runs.record.compaction_runs import CompactionNumbers
from monitor.runs.record.recorder import Recorder, known_in
from monitor.sessions.closed_runs import COMPACT, RunRecord, SessionStore
from monitor.sessions.tree import ACTIVE
from monitor.sinks.base import Sink, checked_sinks
from monitor.tools.masking import Secrets
from monitor.wires.fields import Form
from monitor.wires.read import read_history


@explained(example="monitor.Compaction.pi(timeout_s=60)")
@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class Compaction(Preset):
    """How a history is kept inside the window: a preset that can be carried out.

        supervisor = monitor.Supervisor(model, compaction=monitor.Compaction.opencode(model=small))
        result = await monitor.Compaction.pi().compact(messages, model=model)

    See `Preset` for the options.
    """

    def due(self, tokens: int, *, window: Window | int | None) -> CompactionReason | None:
        """Why a request of `tokens` should be made smaller before it is sent to a model with this
        window; `None`: it need not be.

        For a loop that the caller writes. The best value for `tokens` is what the provider reported
        last, with an estimate of all that has come since. Without a window the answer is always
        `None`, and a `UserWarning` says so.
        """
        if not is_whole(tokens):
            raise ConfigError(f"tokens is a number of tokens, not {tokens!r}")
        known = window_of(None, config=window)
        if known.tokens is None:
            warnings.warn(f"due() without a window: {NEVER_FULL}", UserWarning, stacklevel=2)
        return Hysteresis(Marks(known, self.headroom, self.low_water)).due(tokens)

    async def compact(
        self,
        messages: Sequence[Message],
        *,
        window: Window | int | None = None,
        model: Model | None = None,
        instructions: str | None = None,
        tools: Sequence[ToolSpec] = (),
        facts: PinnedFacts | None = None,
        reason: CompactionReason | str = CompactionReason.MANUAL,
        form: Form | None = None,
        sinks: Sequence[Sink] = (),
        clock: Clock | None = None,
    ) -> CompactionResult:
        """Make `messages` smaller, for a loop that the caller writes. They may be the messages of
        an earlier result.

        `window`: the tokens of the model that reads them; by default those of `model` in the table
        of known models. `model` writes the summary, unless the preset has its own. `instructions`
        and `tools` are sent with the messages, so they are measured too. `facts` stand beside the
        summary word for word. With `reason` `OVERFLOW`, whatever is possible is done, also without
        a model. By default a failure changes nothing.

        Raises `CompactionError`, and `ConfigError` for invalid arguments.
        """
        return await self._compacted(
            History(recognised(tuple(messages))),
            CompactionNumbers(),
            window=window,
            model=model,
            instructions=instructions,
            tools=tools,
            facts=facts,
            reason=reason,
            form=form,
            sinks=sinks,
            clock=clock,
        )

    async def compact_session(
        self,
        session: SessionStore,
        *,
        branch: str = ACTIVE,
        window: Window | int | None = None,
        model: Model | None = None,
        instructions: str | None = None,
        tools: Sequence[ToolSpec] = (),
        facts: PinnedFacts | None = None,
        reason: CompactionReason | str = CompactionReason.MANUAL,
        form: Form | None = None,
        sinks: Sequence[Sink] = (),
        clock: Clock | None = None,
    ) -> CompactionResult:
        """Make the conversation of `session` smaller. The next run of the session goes on from the
        summary; the messages themselves stay in the session.

            async with SQLiteSession("work.session") as session:
                await monitor.Compaction.pi().compact_session(session, model=model)

        The conversation is repaired first. The compaction is stored as in a run: a node on the
        branch, and hidden runs with what the model was asked. The other arguments are those of
        `compact`.

        Raises `CompactionError`, `ConfigError` for invalid arguments, and `StoreError`.
        """
        context = await session.context(branch)
        history = History(recognised(repair(context.messages, form=form)[0]))
        run = RunRecord(id=uuid.uuid4().hex, purpose=COMPACT)
        recorder = Recorder(session, history, run, reply=lambda: None, turn=lambda: 0, branch=branch)
        await recorder.begin(known_in(context, history.messages), head=context.head, with_results=False, resumed=False)
        try:
            result = await self._compacted(
                history,
                recorder.compactions,
                emit=recorder.emit,
                window=window,
                model=model,
                instructions=instructions,
                tools=tools,
                facts=facts,
                reason=reason,
                form=form,
                sinks=sinks,
                clock=clock,
            )
        except BaseException as error:
            with anyio.CancelScope(shield=True), contextlib.suppress(StoreError):
                await recorder.end_with(ok=False, detail=describe(error))
            raise
        await recorder.end_with(ok=True, tokens_before=result.tokens_before, tokens_after=result.tokens_after)
        return result

    async def _compacted(
        self,
        history: History,
        record: CompactionNumbers,
        *,
        window: Window | int | None,
        model: Model | None,
        instructions: str | None,
        tools: Sequence[ToolSpec],
        facts: PinnedFacts | None,
        reason: CompactionReason | str,
        form: Form | None,
        sinks: Sequence[Sink],
        clock: Clock | None,
        emit: Callable[[Event], object] = lambda _: None,
    ) -> CompactionResult:
        """Compact `history`. `record` stores the compaction, and `emit` gets its events."""
        if reason not in set(CompactionReason):
            raise ConfigError(f"reason is one of {', '.join(CompactionReason)}, not {reason!r}")
        reason, writes = CompactionReason(reason), model or self.model
        if writes is None and self.summarizer is None and reason not in PRESSING:
            raise ConfigError(
                "compact() needs a summariser: give model=, or a Compaction with model= or"
                " summarizer=monitor.context.Extractive()"
            )
        _check(model, instructions, tools, facts)
        if form is not None:
            check_word("form", form, Form)
        time = clock or SystemClock()
        began = time.now()
        fan, awaited = fan_out(checked_sinks(sinks), CLOSE_GRACE_S)
        secrets = Secrets()

        def tell(event: Event) -> None:
            masked = secrets.event(event)
            emit(masked)
            fan.emit(masked)

        compactor = Compactor(
            self,
            history,
            model=writes,
            window=window_of(model.name if model is not None else None, config=window),
            meter=ContextMeter(history, instructions=instructions, tools=tools),
            run=RunServices(
                clock=time,
                emit=tell,
                close_grace_s=CLOSE_GRACE_S,
                at=lambda now: now - began,
                facts=lambda: facts or PinnedFacts(),
                record=record,
            ),
            form=form,
        )
        try:
            return await compactor.compact(reason)
        finally:
            await compactor.close()
            await awaited.close()

    async def shorten(
        self,
        form: Form,
        history: Iterable[Any],
        *,
        window: Window | int | None = None,
        model: Model | None = None,
        instructions: str | None = None,
        tools: Sequence[ToolSpec] = (),
        facts: PinnedFacts | None = None,
        reason: CompactionReason | str = CompactionReason.CEILING,
        sinks: Sequence[Sink] = (),
        clock: Clock | None = None,
    ) -> tuple[list[dict[str, Any]], CompactionResult]:
        """Read `history` in the form of a provider, in any state, repair it, compact it, and return
        it in the same form.

        For a loop that the caller writes, when its guard says `Compact`, or its provider refuses a
        request. `form`: `openai-chat`, `openai-responses`, `anthropic`, `gemini`. System and
        developer messages at the head stay unchanged. The other arguments are those of `compact`.
        By default whatever is possible is done, also without a model.

        Raises what `compact` raises, and `AdapterError` for a part that the form does not have.
        """
        given = list(history)
        raw = list(read_history(form, given))
        messages, report = repair(raw, form=form)
        said = "\n\n".join(filter(None, (instructions, report.instructions))) or None
        result = await self.compact(
            messages,
            window=window,
            model=model,
            instructions=said,
            tools=tools,
            facts=facts,
            reason=reason,
            form=form,
            sinks=sinks,
            clock=clock,
        )
        system = [
            _plain(one)
            for one, _ in takewhile(lambda pair: pair[1].role == "system", zip(given, raw, strict=True))
            if one
        ]
        return [*system, *to_form(form, result.messages)], result


def _plain(message: Any) -> dict[str, Any]:
    """A message of the caller's, which may be an object of an SDK."""
    plain: Mapping[str, Any] = message.model_dump(exclude_none=True) if hasattr(message, "model_dump") else message
    return dict(plain)


DEFAULT: Final = Compaction()
"""The compaction of a supervisor without `compaction=`. It is recognised as this one object: only a
compaction that was asked for gives warnings.
"""


def _check(model: object, instructions: object, tools: Sequence[object], facts: object) -> None:
    """Refuse arguments that would fail later, with a message that is harder to understand."""
    if model is not None:
        check_model("model", model)
    check_kind("instructions", instructions, str, "a text")
    check_kind("facts", facts, PinnedFacts, "a monitor.context.PinnedFacts")
    for tool in tools:
        if not isinstance(tool, ToolSpec):
            raise ConfigError(
                f"tools takes a list of monitor.models.ToolSpec, not {tool!r:.200}; a provider's own has the same three"
                " fields"
            )
