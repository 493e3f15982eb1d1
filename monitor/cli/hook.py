"""`agent-monitor hook`: what a coding agent asks before each tool call."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from monitor.cli import _view
from monitor.cli._settings import ConfigOption, DetectorsOption, SetOption, settings_of
from monitor.cli.hooks import HOOKS
from monitor.cli.hooks.base import DEEDS, Deed
from monitor.errors import MonitorError
from monitor.policy import ObserveOnly
from monitor.settings import Settings, known_name
from monitor.transcripts.scan import Finding
from monitor.transcripts.source import Source
from monitor.transcripts.survey import SurveyedRun, survey

MOST_ASKED: Final = 16 * 1024 * 1024
"""Bytes of the agent's question that are read: it holds the call, with what is to be written."""
RESULT_CHARS: Final = 200
STILL_TURNS: Final = 1
"""A loop is going on if it was seen in the last turn or the one before: the agent may not have
written the last one yet.
"""


def hook(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="claude-code, codex or gemini-cli.")],
    *,
    print_settings: Annotated[
        bool, typer.Option("--print-settings", help="Print what to add to the agent's settings, and end.")
    ] = False,
    on_loop: Annotated[
        str, typer.Option("--on-loop", metavar="WHAT", help="ask a person, deny the call, or stop the agent.")
    ] = "ask",
    detectors: DetectorsOption = None,
    settings: SetOption = None,
    config: ConfigOption = None,
) -> None:
    """Answer a coding agent that asks before each tool call: while it is in a loop, ask or stop.

    \b
    The agent gives the path of its session on stdin, as JSON. The session is read
    and watched; the answer goes to stdout, as JSON: {} means go on. What cannot be
    read never stops an agent: that is {} too, with the reason on stderr.

    \b
    Examples:
      agent-monitor hook claude-code --print-settings
      agent-monitor hook codex --on-loop stop --print-settings
      agent-monitor hook gemini-cli < event.json

    \b
    Exit code: 0; 2 if the command itself is used wrongly.
    """  # noqa: D301 - \b keeps the lines of an example apart
    with _view.tidy_exit():
        known = HOOKS[known_name(agent, HOOKS, "agent")]
        deed: Deed = next(one for one in DEEDS if one == known_name(on_loop, DEEDS, "answer", "--on-loop"))
        if print_settings:
            command = ["agent-monitor", "hook", known.agent, "--on-loop", deed]
            command += ["--config", str(config.absolute())] if config is not None else []
            command += ["--detectors", detectors] if detectors is not None else []
            for setting in settings or ():
                command += ["--set", setting]
            settings_of(config, detectors, settings, None)
            _view.write_json(known.settings(shlex.join(command), deed), indent=2)
            _view.stderr().print(f"Add this to {known.place}. {known.note}", soft_wrap=True)
            return
        answer: Mapping[str, Any] = {}
        try:
            event = _event(sys.stdin.buffer.read(MOST_ASKED))
            found = _loop(event, settings_of(config, detectors, settings, None))
            if found is not None:
                answer = known.answer(_text(event, "hook_event_name"), _reason(*found), deed)
        except (MonitorError, OSError, ValueError) as error:
            _view.complain(_view.stderr(), f"agent-monitor: the session could not be watched: {error}")
        _view.write_json(answer)


def _event(data: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except RecursionError:
        raise ValueError("stdin is nested too deeply") from None
    if not isinstance(event, dict):
        raise ValueError("stdin is no JSON object")
    return event


def _text(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""


def _loop(event: Mapping[str, Any], chosen: Settings) -> tuple[SurveyedRun, Finding] | None:
    """The loop in which the session is now; `None`: it is in none."""
    path = _text(event, "transcript_path")
    if not path:
        return None  # an agent that keeps no session
    if not Path(path).is_file():
        return None  # the first call of a session may come before its file
    runs = list(survey(Source.of_path(Path(path)), detectors=chosen.detectors, policy=ObserveOnly))
    main = [run for run in runs if run.began.parent is None] or runs
    if not main:
        return None
    run = max(main, key=lambda one: one.last_at or 0.0)
    if run.failed:
        raise ValueError(run.failed)
    loops = [finding for finding in run.findings if finding.detection.level == "loop"]
    if not loops or loops[-1].turn < run.total.turns - STILL_TURNS:
        return None
    return run, loops[-1]


def _reason(run: SurveyedRun, finding: Finding) -> str:
    said = f"agent-monitor: {finding.detection.message}."
    own = run.finding is finding and finding.detection.channel == "tools"  # the result that was kept is its own
    result = " ".join(run.result.split())[:RESULT_CHARS] if own else ""
    return _view.on_one_line(f"{said} The result: {result}" if result else said)
