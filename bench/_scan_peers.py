"""What stands beside a scan in one run: other programs over the same sessions, the time of each
part of a scan, and what a coding agent waits for before each call of a loop.
"""

from __future__ import annotations

import compileall
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import monitor
from monitor.detectors.defaults import default_detectors
from monitor.detectors.detector import Detector
from monitor.transcripts.analysis.survey import WatchSettings, survey_file
from monitor.transcripts.base import ReadReport
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import Source

SESSIONS = Path(".claude", "projects")
"""Where a home has its sessions."""
PATHS = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
CALLS_OF_JQ = 'fromjson? | select(.type == "assistant") | .message.content[]? | select(.type == "tool_use") | .name'
PARTS_MEGABYTES = 20.0
"""The parts are timed over so much: each adds little to the one before it."""
CALLS = 8
"""The equal calls of the loop that a hook is asked about."""
LOOPED = {"command": "pytest -q tests/test_a.py"}


@dataclass
class Used:
    """What a command took, with all its children."""

    what: str
    seconds: float
    cpu_s: float


def used(
    what: str,
    command: Sequence[str],
    *,
    given: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Used:
    """Run `command` in the folder `cwd`, with `given` on its stdin."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    silent = subprocess.DEVNULL
    subprocess.run(command, input=given, stdout=silent, stderr=silent, check=False, env=env, cwd=cwd)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Used(what, seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def peers(home: Path) -> list[Used]:
    """The programs that are installed, each over the sessions of `home`, on one core at a time.
    unwedge looks for loops; jq and ripgrep only find the calls.
    """
    files = [str(path) for path in sorted((home / SESSIONS).rglob("*.jsonl"))]
    commands = {
        "unwedge scan": ["unwedge", "scan", "--limit", str(len(files))],
        "jq, the names of all calls": ["jq", "-R", CALLS_OF_JQ, *files],
        "ripgrep, the lines with calls": ["rg", "-j1", "-c", '"type": ?"tool_use"', *files],
    }
    env = {**os.environ, "HOME": str(home)}
    found = [(what, shutil.which(command[0], path=PATHS), command) for what, command in commands.items()]
    return [used(what, [program, *command[1:]], env=env) for what, program, command in found if program]


def parts(home: Path) -> dict[str, float]:
    """Milliseconds of processor time for each megabyte: of each part of a scan, and of all
    detectors but one.
    """
    sources: list[Path] = []
    megabytes = 0.0
    for path in sorted((home / SESSIONS).rglob("*.jsonl")):
        if megabytes < PARTS_MEGABYTES:
            sources.append(path)
            megabytes += path.stat().st_size / 1e6

    def timed(read: Callable[[Source], object]) -> float:
        began = time.process_time()
        for path in sources:
            read(Source.of_path(path))
        return (time.process_time() - began) * 1e3 / megabytes

    found = {
        "lines and JSON": timed(lambda source: sum(1 for _ in source.records(ReadReport()))),
        "and messages": timed(_messages),
        "and the core without detectors": timed(partial(survey_file, watched=WatchSettings(list))),
        "and all detectors": timed(survey_file),
    }
    for kind in map(type, default_detectors()):
        found[f"all detectors but {kind.__name__}"] = timed(
            partial(survey_file, watched=WatchSettings(partial(_without, kind)))
        )
    return found


def _messages(source: Source) -> int:
    reader = reader_of(source)
    return sum(1 for _ in reader.read(source, ReadReport())) if reader is not None else 0


def _without(kind: type[Detector]) -> list[Detector]:
    return [one for one in default_detectors() if type(one) is not kind]


def looped(folder: Path, times: int) -> dict[str, list[float]]:
    """The median and the 99th percentile of the milliseconds of processor time of one answer: for
    each call of a loop, of bare Python, and of unwedge. The calls take turns. The package is
    compiled before, as pip does when it installs.
    """
    compileall.compile_dir(str(Path(monitor.__file__).parent), quiet=1)
    spent: dict[str, list[float]] = {}
    unwedge = shutil.which("unwedge", path=PATHS)
    for turn in range(times):
        session = folder / f"{turn}.jsonl"
        session.touch()
        env = {**os.environ, "XDG_CACHE_HOME": str(folder / f"cache{turn}"), "HOME": str(folder / f"home{turn}")}
        asked = {"hook_event_name": "PreToolUse", "transcript_path": str(session), "tool_name": "Bash"}
        given = json.dumps({**asked, "tool_input": LOOPED, "session_id": "s", "cwd": str(folder)}).encode()
        commands = {"bare Python": [sys.executable, "-c", "pass"]}
        for call in range(1, CALLS + 1):
            hook = [sys.executable, "-m", "monitor.cli", "hook", "claude-code", "--on-loop", "deny"]
            now = {**commands, f"equal call {call}": hook} | ({"unwedge": [unwedge, "hook"]} if unwedge else {})
            for what, command in now.items():
                spent.setdefault(what, []).append(1e3 * used(what, command, given=given, env=env, cwd=folder).cpu_s)
            with session.open("a") as out:
                out.writelines(f"{json.dumps(record)}\n" for record in _step(call))
    return {what: [statistics.median(row), sorted(row)[math.ceil(0.99 * len(row)) - 1]] for what, row in spent.items()}


def _step(call: int) -> list[Mapping[str, object]]:
    """A call and its result, as Claude Code writes them."""
    made = {"type": "tool_use", "id": f"toolu_{call}", "name": "Bash", "input": LOOPED}
    gave = {"type": "tool_result", "tool_use_id": f"toolu_{call}", "content": "1 error: no module named 'flask'"}
    return [
        {"type": role, "uuid": f"{role}-{call}", "parentUuid": None, "sessionId": "s", "message": message}
        for role, message in (
            ("assistant", {"role": "assistant", "id": f"msg_{call}", "content": [made]}),
            ("user", {"role": "user", "content": [gave]}),
        )
    ]
