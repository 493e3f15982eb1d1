"""`agent-monitor doctor`: which loops the present settings see, how soon, and what follows. It also
lists the installed versions.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import groupby
from typing import Any

import anyio
import typer
from rich.console import Console
from rich.text import Text

import monitor
from monitor.chunks import ToolResult
from monitor.cli.options.shared import OneJsonOption, SettingsOptions, described
from monitor.cli.render import output, table
from monitor.cli.render.scan_report import RUNG_STYLES
from monitor.policy import Policy, StopAtFirstLoop
from monitor.prices import table_facts
from monitor.settings import Settings
from monitor.testing.loops import Case, healthy, loops
from monitor.tools import find_sandbox
from monitor.transcripts.analysis.scan import Finding, RunScanner, watch_chunks
from monitor.verdicts import Detection
from monitor.view.status import count

NOT_SEEN = 1


@dataclass(slots=True, frozen=True)
class _CaseResult:
    """A made run, and the findings in it."""

    case: Case
    watched: RunScanner

    @property
    def loop(self) -> Finding | None:
        """The first finding of a sure loop."""
        return next((finding for finding in self.watched.findings if finding.detection.level == "loop"), None)

    @property
    def suspicion(self) -> Finding | None:
        """The first finding, sure or not."""
        return self.watched.findings[0] if self.watched.findings else None


def doctor(*, as_json: OneJsonOption = False, settings: SettingsOptions) -> None:
    """Feed your settings a loop of each kind, and healthy work, and say what is seen, how soon, and
    what follows.

    Examples:
      agent-monitor doctor
      agent-monitor doctor --policy ladder
      agent-monitor doctor --detectors tool-call-repetition,content-repetition
      agent-monitor doctor --set ToolCallRepetition.loop_at=20 \\
        --set tools.deploy.polling=true
      agent-monitor doctor --json --config agent-monitor.toml

    No model is asked and nothing leaves the machine: the runs are made here, and
    are always the same. Each tool that the settings name gets its own loop.

    Exit code: 0 every loop is seen and no healthy run is taken for a loop;
    1 otherwise; 2 a setting is invalid.
    """
    console = output.stdout()
    chosen = settings.read()
    decides = chosen.policy() or StopAtFirstLoop()
    if not as_json:
        _show_environment(console, chosen, decides)
    sick = _watch(loops(chosen.tools), chosen, decides)
    well = _watch(healthy(), chosen, decides)
    blind = _blind(chosen, decides, sick)
    if as_json:
        output.write_json({**_as_json(chosen, decides, sick, well), "unseen_without_results": blind})
    else:
        _show(console, sick, well)
        _show_blind(console, blind)
    raise typer.Exit(NOT_SEEN if _not_seen(sick) or _alarms(well) else 0)


def _watch(cases: Iterable[Case], chosen: Settings, policy: Policy, *, results: bool = True) -> list[_CaseResult]:
    """The findings in each of `cases`. `results`: whether the results of tools are passed on."""
    return [
        _CaseResult(
            case,
            watch_chunks(
                (one for one in case.chunks() if results or not isinstance(one[1], ToolResult)),
                detectors=chosen.detectors(),
                policy=policy,
            ),
        )
        for case in cases
    ]


def _blind(chosen: Settings, policy: Policy, sick: Iterable[_CaseResult]) -> list[str]:
    """The kinds of loops that are seen no more where a program never passes on the results of its
    tools.
    """
    seen = (row.case for row in sick if row.loop is not None)
    return [row.case.title for row in _watch(seen, chosen, policy, results=False) if row.loop is None]


def _show_blind(console: Console, blind: list[str]) -> None:
    output.heading(console, "what is guarded here")
    lost = "; ".join(output.on_one_line(title) for title in blind) or "nothing"
    said = (
        f"A program that never passes on the results of its tools loses: {lost}.",
        "A provider that never reports tokens makes token limits, budgets and windows count estimates.",
        "A stream without close() stays open after a stop, and nothing interrupts a synchronous read.",
        "Guard.coverage() says after a run which of these hold for it.",
    )
    for line in said:
        output.line(console, line)


def _not_seen(rows: Iterable[_CaseResult]) -> list[_CaseResult]:
    return [row for row in rows if row.loop is None and not row.case.unseen_because]


def _alarms(rows: Iterable[_CaseResult]) -> list[_CaseResult]:
    return [row for row in rows if row.loop is not None]


# ------------------------------------------------------------------ for people


def _show_environment(console: Console, chosen: Settings, policy: Policy) -> None:
    facts = environment()
    loops_of_events = ", ".join(_with_version(name, version) for name, version in facts["event_loops"].items())
    rows: list[tuple[str, str | Text]] = [
        ("versions", f"agent-monitor {facts['agent_monitor']}, Python {facts['python']}, {facts['platform']}"),
        *(
            (f"extra {extra}", ", ".join(_with_version(name, version) for name, version in packages.items()))
            for extra, packages in facts["extras"].items()
        ),
        ("event loops", loops_of_events),
        ("sandbox", _sandbox_here(facts["sandbox"])),
        ("settings", output.on_one_line(str(chosen.source)) if chosen.source else "no file; the defaults"),
        *(("", Text(output.on_one_line(setting), style="cyan")) for setting in described(chosen)),
        (
            "detectors",
            ", ".join(type(detector).__name__ for detector in chosen.detectors()) or Text("none", style="red"),
        ),
        ("policy", type(policy).__name__),
        ("prices", str(table_facts())),
    ]
    output.card(console, "what there is", rows, style="cyan")


def _sandbox_here(found: Mapping[str, str]) -> Text:
    """The sandbox of commands that works on this machine."""
    said = output.on_one_line(": ".join(filter(None, [found["kind"], found["detail"]])))
    return Text(said, style="green" if not found["detail"] else "yellow" if found["kind"] != "none" else "red")


def _with_version(name: str, version: str | None) -> str:
    return f"{name} {version or '(not installed)'}"


def _show(console: Console, sick: list[_CaseResult], well: list[_CaseResult]) -> None:
    output.heading(console, "loops")
    names = ("a loop of this kind", "is seen by", "after", "and the policy")
    columns = [table.Column(name, "whole" if name == "after" else "fold") for name in names]
    table.show(console, columns, [(row.case.title, *_seen(row)) for row in sick])
    for row in sick:
        if row.loop is None and row.case.unseen_because:
            output.line(console, f"{row.case.title}: not seen, {row.case.unseen_because}", "dim")
    output.heading(console, "healthy work")
    columns = [table.Column("work that repeats", "fold"), table.Column("is", "fold")]
    table.show(console, columns, [(row.case.title, _left_alone(row)) for row in well])
    not_seen, alarms = _not_seen(sick), _alarms(well)
    expected = sum(not row.case.unseen_because for row in sick)
    said = (
        f"{expected - len(not_seen)} of {expected} kinds of loops are seen, {len(alarms)} of {len(well)} healthy runs"
        " taken for one."
    )
    console.print(Text(said, style="bold red" if not_seen or alarms else "bold green"))
    if not_seen:
        output.line(console, f"Nobody sees: {'; '.join(row.case.title for row in not_seen)}.", "red")
    if alarms:
        output.line(console, f"Taken for a loop: {'; '.join(row.case.title for row in alarms)}.", "red")


def _seen(row: _CaseResult) -> tuple[str | Text, str | Text, str | Text]:
    if row.loop is None:
        style = "dim" if row.case.unseen_because else "bold red"
        if row.suspicion is None:
            return Text("nobody", style=style), "", ""
        found = row.suspicion.detection
        return Text(f"{found.detector} (only suspected)", style=style), _after(found), _steps(row.watched)
    found = row.loop.detection
    return f"{found.detector}: {found.kind} x {found.count}", _after(found), _steps(row.watched)


def _after(found: Detection) -> str:
    return count(_number(found), _unit(found))


def _number(found: Detection) -> int:
    """How much of the run the detection needed."""
    return found.offset + 1 if found.channel in {"tools", "messages"} else found.offset


def _unit(found: Detection) -> str:
    return {"tools": "call", "messages": "answer"}.get(found.channel, "char")


def _steps(watched: RunScanner) -> Text:
    """The steps of the policy, each with its place in the unit of the column before."""
    steps = Text()
    for _, findings in groupby(watched.findings, key=lambda finding: finding.rung):
        first = next(findings)
        steps.append(", " if steps else "")
        steps.append(f"{first.rung} at {_number(first.detection):,}", style=RUNG_STYLES[first.rung])
    if watched.ended_by is None and {finding.rung for finding in watched.findings} != {"observe"}:
        steps.append("; never ends it", style="red")
    return steps


def _left_alone(row: _CaseResult) -> Text:
    if row.loop is not None:
        found = row.loop.detection
        return Text(f"taken for a loop by {found.detector} ({found.kind}) after {_after(found)}", style="bold red")
    if row.suspicion is not None:
        return Text(
            f"suspected by {row.suspicion.detection.detector} after {_after(row.suspicion.detection)}", style="yellow"
        )
    return Text("left alone", style="green")


# ------------------------------------------------------------------ for programs


def _as_json(chosen: Settings, policy: Policy, sick: list[_CaseResult], well: list[_CaseResult]) -> Mapping[str, Any]:
    not_seen, alarms = _not_seen(sick), _alarms(well)
    return {
        "ok": not (not_seen or alarms),
        "not_seen": [row.case.title for row in not_seen],
        "taken_for_a_loop": [row.case.title for row in alarms],
        "environment": environment(),
        "settings": {
            "file": str(chosen.source) if chosen.source else None,
            "set": described(chosen),
            "detectors": [type(detector).__name__ for detector in chosen.detectors()],
            "policy": type(policy).__name__,
        },
        "loops": [_row_as_json(row) for row in sick],
        "healthy": [_row_as_json(row) for row in well],
    }


def _row_as_json(row: _CaseResult) -> dict[str, Any]:
    found = row.loop.detection if row.loop else None
    return {
        "kind": row.case.title,
        "seen": found is not None,
        "unseen_because": row.case.unseen_because or None,
        "suspected": row.suspicion is not None,
        "detector": found.detector if found else None,
        "rule": found.kind if found else None,
        "repetitions": found.count if found else None,
        "after": _number(found) if found else None,
        "unit": _unit(found) if found else None,
        "steps": [
            {"rung": finding.rung, "at": _number(finding.detection), "unit": _unit(finding.detection)}
            for finding in row.watched.findings
        ],
        "ended": row.watched.ended_by is not None,
    }


# --------------------------------------------------------------------------------------------------
# The installed versions, which every bug report needs.

DISTRIBUTION = "agent-monitor"
NOT_FOR_USERS = {"all", "engines", "frameworks", "test"}
"""Extras that only name others, or that users of the library do not need."""
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def environment() -> dict[str, Any]:
    """The relevant versions, as JSON data. `None`: not installed."""
    return {
        "agent_monitor": monitor.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "needs": {name: version_of(name) for name in _requirements().get("", [])},
        "extras": {
            extra: {name: version_of(name) for name in names}
            for extra, names in sorted(_requirements().items())
            if extra and extra not in NOT_FOR_USERS
        },
        "event_loops": {
            name: platform.python_version() if name == "asyncio" else version_of(name)
            for name in anyio.get_all_backends()
        },
        "sandbox": {"kind": (found := find_sandbox()).kind, "detail": found.detail},
    }


def version_of(package: str) -> str | None:
    """The installed version of a distribution. `None`: it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> dict[str, list[str]]:
    """Packages by extra, from the metadata of the installed distribution. Required packages are
    under "". Empty for a bare checkout.
    """
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for line in lines:
        extra, name = _EXTRA.search(line), _NAME.match(line)
        if name is not None and name.group() != DISTRIBUTION:
            found.setdefault(extra.group(1) if extra else "", []).append(name.group())
    return found
