"""Compacts a conversation or a session, and counts what that costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console

import monitor
from monitor.adapters.adapter import adapter_of
from monitor.cli.compacting.compact_input import CompactInput, CompactOptions
from monitor.cli.compacting.compact_report import CompactReport
from monitor.cli.options.clients import Closing
from monitor.cli.options.supervisor_arguments import model_of, nothing_to_close
from monitor.cli.render import output
from monitor.compaction.preset import PRESETS
from monitor.context.reduce.reduction import difference
from monitor.errors import ConfigError
from monitor.events import CompactionProgressed, CompactionStarted, Event
from monitor.models import Model, ModelRequest
from monitor.reasons import CompactionReason
from monitor.sessions.postgres.session_address import owner_at
from monitor.settings import known_name
from monitor.sinks.lines import line_of
from monitor.wires.recognise import NEUTRAL


class _CountedModel:
    """A model whose calls are counted."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self.adapter = adapter_of(model)
        self.calls = 0
        self._model = model

    def stream(self, request: ModelRequest) -> Any:
        """Count a call, and stream the answer of the model."""
        self.calls += 1
        return self._model.stream(request)


@dataclass(slots=True, frozen=True)
class _ProgressSink:
    """A sink that prints the progress."""

    console: Console

    def emit(self, event: Event) -> None:
        """Print `event` if it tells the progress of a compaction."""
        if isinstance(event, CompactionStarted | CompactionProgressed):
            output.complain(self.console, line_of(event, chars=None), style="dim")


def summariser(options: CompactOptions) -> tuple[monitor.Compaction, Model | None, Closing]:
    """The compaction, the model that it asks, and how that is closed. `None`: it asks nobody."""
    compaction = getattr(monitor.Compaction, known_name(options.preset, PRESETS, "preset", "--preset"))()
    if options.asks_nobody:
        if options.base_url is not None:
            raise ConfigError("--base-url needs a model; name it as well: --model openai:NAME")
        return replace(compaction, summarizer=monitor.compaction.Extractive()), None, nothing_to_close
    return compaction, *model_of(options.model, options.base_url, keyless="leave --model out")


async def compacted(
    given: CompactInput, options: CompactOptions, session: Path | str | None, complaints: Console
) -> CompactReport:
    """Compact `given`, which is that of `session` if there is one.

    Raises `CompactionError` if it cannot be made smaller.
    """
    compaction, model, close = summariser(options)
    reason = CompactionReason(options.reason)
    counted = _CountedModel(model) if model is not None else None
    sinks = [_ProgressSink(complaints)] if counted is not None else []
    try:
        if session is not None:
            async with owner_at(session, create=False) as store:
                result = await compaction.compact_session(
                    store, window=given.window, model=counted, reason=reason, sinks=sinks
                )
        else:
            result = await compaction.compact(
                given.messages,
                window=given.window,
                model=counted,
                instructions=given.instructions,
                tools=given.conversation.tools,
                reason=reason,
                form=None if given.conversation.form == NEUTRAL else given.conversation.form,
                sinks=sinks,
            )
    finally:
        with anyio.CancelScope(shield=True):
            await close()
    breaks_at, *_ = difference(given.messages, result.messages)
    calls = counted.calls if counted is not None else 0
    return CompactReport(given, compaction, result, calls, reason, breaks_at, named_nobody=options.model is None)
