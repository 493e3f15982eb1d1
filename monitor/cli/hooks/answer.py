"""The answer to a coding agent that asks before a tool call.

The agent waits for it before each call. So nothing is imported here that takes long and is not
needed: no typer, no rich; and pydantic only where settings are given. The session is read on from
where the last answer stopped.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from monitor._util.printable import on_one_line, printable_json
from monitor.cli.hooks import HOOKS
from monitor.cli.hooks.base import DEEDS, Deed, Hook
from monitor.cli.inputs.cache_folder import cache_folder
from monitor.errors import MonitorError
from monitor.policy import ObserveOnly
from monitor.transcripts.analysis.following import Follower
from monitor.transcripts.analysis.scan import Finding
from monitor.transcripts.analysis.states import InFiles
from monitor.transcripts.analysis.survey import SurveyedRun

MOST_ASKED: Final = 16 * 1024 * 1024
"""Bytes of the agent's question that are read: it holds the call, with what is to be written."""
RESULT_CHARS: Final = 200
STILL_TURNS: Final = 1
"""A loop is going on if it was seen in the last turn or the one before: the agent may not have
written the last one yet.
"""
OWN_FILE, PROJECT_FILE, TABLE = "agent-monitor.toml", "pyproject.toml", "agent-monitor"


@dataclass(slots=True)
class HookCall:
    """The command line of a hook."""

    hook: Hook
    deed: Deed = "ask"
    config: Path | None = None
    detectors: str | None = None
    settings: Sequence[str] = ()

    @classmethod
    def of(cls, arguments: Sequence[str]) -> HookCall | None:
        """The command line that the settings of an agent have. `None`: it is another one, which
        typer reads, and refuses where it is wrong.
        """
        if not arguments or len(arguments) % 2 == 0 or arguments[0] not in HOOKS:
            return None
        call, settings = cls(HOOKS[arguments[0]]), list[str]()
        for option, value in zip(arguments[1::2], arguments[2::2], strict=True):
            deed: Deed | None = next((one for one in DEEDS if one == value), None)
            if option == "--on-loop" and deed is not None:
                call.deed = deed
            elif option == "--config":
                call.config = Path(value)
            elif option == "--detectors":
                call.detectors = value
            elif option == "--set":
                settings.append(value)
            else:
                return None
        call.settings = settings
        return call

    def answer(self) -> None:
        """Read the question on stdin, and write the answer to stdout. Reasons for no answer go to
        stderr, and hold up nobody.
        """
        found: Mapping[str, Any] = {}
        try:
            event = _event(sys.stdin.buffer.read(MOST_ASKED))
            loop = self._loop(_text(event, "transcript_path"))
            if loop is not None:
                found = self.hook.answer(_text(event, "hook_event_name"), _reason(*loop), self.deed)
        except (MonitorError, OSError, ValueError) as error:
            sys.stderr.write(f"{on_one_line(f'agent-monitor: the session could not be watched: {error}')}\n")
        sys.stdout.write(f"{printable_json(json.dumps(found))}\n")
        sys.stdout.flush()

    def _loop(self, path: str) -> tuple[SurveyedRun, Finding] | None:
        """The loop in which the session is now; `None`: it is in none."""
        if not path or not Path(path).is_file():
            return None  # an agent that keeps no session, or the first call, which may come before its file
        runs = [run for found in self._follower().survey(Path(path)) for run in found.runs]
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

    def _follower(self) -> Follower:
        folder = cache_folder("sessions")
        if not (self.config or self.detectors or self.settings or _has_settings()):
            return Follower(InFiles(folder, "{}"), policy=ObserveOnly)
        from monitor.cli.options.settings_options import settings_of  # noqa: PLC0415 - with pydantic and typer, only where needed

        chosen = settings_of(self.config, self.detectors, self.settings)
        kept = InFiles(folder, json.dumps(chosen.settings, default=str))
        return Follower(kept, detectors=chosen.detectors, policy=ObserveOnly)


def _has_settings() -> bool:
    """Whether the current folder may have settings: a quick look, before they are read."""
    if os.path.lexists(OWN_FILE):
        return True
    try:
        data = Path(PROJECT_FILE).read_bytes()
        return TABLE.encode() in data and TABLE in tomllib.loads(data.decode()).get("tool", {})
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


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


def _reason(run: SurveyedRun, finding: Finding) -> str:
    said = f"agent-monitor: {finding.detection.message}."
    own = run.finding is finding and finding.detection.channel == "tools"  # the result that was kept is its own
    result = " ".join(run.result.split())[:RESULT_CHARS] if own else ""
    return on_one_line(f"{said} The result: {result}" if result else said)
