"""`agent-monitor sessions replay`: a stored run, as it was or as other parts would judge it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from monitor.cli.foreground import exit_code
from monitor.cli.options.run_arguments import (
    SHOWN,
    NoDetectorsOption,
    RunArguments,
    VerboseOption,
    arguments_in,
    limit_option,
    refuse_detectors_without,
    shown_option,
)
from monitor.cli.options.session_file import FolderOption, SessionArgument, opened_reader
from monitor.cli.options.shared import DetectorsOption, SetOption, flag, option, setting_option, settings_of
from monitor.cli.options.supervisor_arguments import limits_of
from monitor.cli.render import output
from monitor.cli.render.screen import EventFeed, JsonScreen, RunHeading, TerminalScreen
from monitor.errors import ConfigError
from monitor.events import ChunkReceived, Envelope, Event, RunIdentity, RunStarted
from monitor.runs.record.recorder import TASK
from monitor.runs.record.replay import Replay, replay_of
from monitor.settings import Settings
from monitor.sinks import line_of

OTHER_VERSION = "this version decides otherwise than the one that made the run"


@dataclass(slots=True, frozen=True, kw_only=True)
class ReplayOptions:
    """The parts in the place of those of the run."""

    detectors: DetectorsOption = None
    no_detectors: NoDetectorsOption = False
    policy: Annotated[
        str | None,
        setting_option("NAME", "What follows from a loop: ladder, stop, or observe, which shows all that is found."),
    ] = None
    settings: SetOption = None
    config: Annotated[
        Path | None,
        setting_option("FILE", "Settings (TOML) in the place of those of the run."),
    ] = None
    max_turns: Annotated[str | None, limit_option("N|off", "Turns.")] = None
    timeout: Annotated[str | None, limit_option("SECONDS|off", "For the whole run.")] = None
    idle_timeout: Annotated[str | None, limit_option("SECONDS|off", "How long the model may send nothing.")] = None
    max_tool_calls: Annotated[int | None, limit_option("N", "Tool calls.", min=1)] = None

    def parts(self, arguments: RunArguments | None) -> dict[str, Any]:
        """The parts that replace those of the run, as `replay_of` takes them. `arguments`: those of
        the run, if its session has them.

        Raises `ConfigError` for a setting or a limit that does not exist.
        """
        base = Settings(arguments.settings if arguments is not None else {}) if self.config is None else None
        chosen = settings_of(self.config, self.detectors, self.settings, self.policy, base=base)
        others = bool(self.settings) or self.config is not None
        limited = any((self.max_turns, self.timeout, self.idle_timeout, self.max_tool_calls))
        given: dict[str, Any] = {"stop_when": limits_of(self)} if limited else {}
        if self.no_detectors or self.detectors is not None or others:
            given["detectors"] = [] if self.no_detectors else chosen.detectors()
        if (self.policy is not None or others) and (made := chosen.policy()) is not None:
            given["policy"] = made
        return given


def replay(
    session: SessionArgument,
    *,
    run: Annotated[str | None, option("ID", "Another run than the newest; sessions show lists them.")] = None,
    speed: Annotated[
        float | None,
        shown_option("N", "1: as fast as it was; 10: ten times. Otherwise at once."),
    ] = None,
    events: Annotated[bool, flag("--events", panel=SHOWN, said="One line for each event, with its second.")] = False,
    as_json: Annotated[
        bool,
        flag(
            "--json",
            panel=SHOWN,
            said="JSON lines: first what kind of replay it is, then one event each; the last is the outcome.",
        ),
    ] = False,
    verbose: VerboseOption = False,
    options: ReplayOptions,
    folder: FolderOption = None,
) -> None:
    """Show a stored run again, as agent-monitor run has shown it.

    Nothing is called and nothing is changed. The same core gets what was stored,
    chunk by chunk with its times, and decides again: what repeats, what follows, when
    and why the run ends. With other detectors, another policy or other
    limits, it shows what they would have said. It ends where the run would have gone
    another way.

    Examples:
      agent-monitor sessions replay tidy
      agent-monitor sessions replay tidy --speed 2
      agent-monitor sessions replay tidy --events
      agent-monitor sessions replay tidy --policy observe \\
        --set ToolCallRepetition.loop_at=3
      agent-monitor sessions replay tidy --max-turns 10

    agent-monitor run --session stores all that is needed. A program opens its session
    with SQLiteSession(path, chunks=True). Without stored chunks the stored events are
    shown, and other parts read each turn as one piece; a line says so.

    Exit code: that of the run as it is shown, as of agent-monitor run; 0 if its
    process died before it ended.
    """
    if speed is not None and not 0 < speed < float("inf"):
        raise ConfigError(f"--speed {speed:g}: give a number above 0")
    if events and as_json:
        raise ConfigError("--events and --json say different things; give one of them")
    refuse_detectors_without(options.detectors, no_detectors=options.no_detectors)
    with opened_reader(session, folder) as there:
        arguments = arguments_in(there)
        given = options.parts(arguments)
        replayed = replay_of(there, run, pieces=not events, **given)
    played = _in_time(replayed.events, speed)
    if as_json:
        _print_json(replayed, _enveloped(replayed, arguments, played), verbose=verbose)
    elif events:
        _print_events(played)
    else:
        _print_run(session, replayed, arguments, _enveloped(replayed, arguments, played), verbose=verbose)
    if not as_json:
        _print_remarks(replayed, changed=bool(given))
    raise typer.Exit(exit_code(replayed.outcome) if replayed.outcome is not None else 0)


def _in_time(events: Iterable[Event], speed: float | None) -> Iterator[Event]:
    """The events, each at its time. The time between two processes of a run does not count."""
    before_s = 0.0
    for event in events:
        if speed is not None and event.at_s > before_s:
            time.sleep((event.at_s - before_s) / speed)
        before_s = event.at_s
        yield event


def _enveloped(replayed: Replay, arguments: RunArguments | None, events: Iterable[Event]) -> Iterator[Envelope]:
    """The events with the identity of their run."""
    run, seq = replayed.run, 0
    model = arguments.model if arguments is not None else None
    identity = RunIdentity(run=run.id, root=run.id, agent=run.agent, model=model, began_s=run.started_at_s or 0.0)
    for event in events:
        seq += not isinstance(event, ChunkReceived)
        yield Envelope(identity, seq, event)


def _print_json(replayed: Replay, events: Iterable[Envelope], *, verbose: bool) -> None:
    about = {"run": replayed.run.id, "exact": replayed.exact, "as_stored": replayed.as_stored}
    about |= {"departed": replayed.departed, "remark": replayed.remark}
    output.write_json(json.dumps({"type": "replay", **about}))
    lines = JsonScreen(chunks=verbose)
    for envelope in events:
        lines.receive(envelope)


def _print_events(events: Iterable[Event]) -> None:
    console = output.stdout()
    for event in events:
        line = Text.assemble((f"{event.at_s:9.3f}  ", "dim"), output.on_one_line(line_of(event)))
        if output.is_unbounded(console):
            console.print(line, soft_wrap=True)
        else:
            console.print(line, no_wrap=True, overflow="ellipsis")


def _print_run(
    session: str, replayed: Replay, arguments: RunArguments | None, events: Iterable[Envelope], *, verbose: bool
) -> None:
    screen = TerminalScreen(output.stdout(), verbose=verbose, price=arguments.priced if arguments is not None else None)
    feed = EventFeed(screen)
    named = arguments or RunArguments(folder="")
    outputs = [one.partition(":")[0].strip() for one in named.outputs]
    task = str(replayed.run.data.get(TASK, ""))
    screen.begin(RunHeading(f"agent-monitor sessions replay {session}", named.model, (), outputs, task))
    began = False
    for envelope in events:
        if isinstance(envelope.event, RunStarted):
            if began:
                feed.flush()
                output.stdout().print(Text("here the run was taken up again", style="bold"))
            began = True
        if not isinstance(envelope.event, ChunkReceived):
            feed.receive(envelope)
        feed.handed_out(envelope)
    feed.flush()
    feed.close()


def _print_remarks(replayed: Replay, *, changed: bool) -> None:
    """Print the limitations of this replay to stderr."""
    remarks = [replayed.remark] if replayed.remark is not None else []
    if replayed.departed is not None:
        remarks.append(f"the rest of the record is not shown: {replayed.departed}")
    elif replayed.outcome is None:
        remarks.append("the process of the run died here; agent-monitor sessions resume goes on with it")
    if replayed.exact and not changed and not replayed.as_stored:
        remarks.append(OTHER_VERSION)
    for remark in remarks:
        output.line(output.stderr(), remark, "yellow")
