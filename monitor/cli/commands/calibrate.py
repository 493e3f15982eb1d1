"""`agent-monitor calibrate`: limits with a promise, from a user's own good runs.

Runs that look like loops are shown, because a line that is drawn among loops stops none of them.
Equal runs count once: a session that is seen under two names says nothing twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from monitor._util.hashing import identity
from monitor.cli.inputs.survey_workers import SurveySettings
from monitor.cli.inputs.transcripts import InputReader, RunSelection, inputs_of
from monitor.cli.options.levels import FACTORS, SCALED, WEIGHED, Levels, as_toml, levels_of, names_of, threshold_above
from monitor.cli.options.shared import (
    LimitOption,
    OneJsonOption,
    SelectionOptions,
    SettingsOptions,
    argument,
    flag,
    option,
)
from monitor.cli.render import output, table
from monitor.cli.render.files import check_out, write_out
from monitor.cli.render.output import BAD_USE as BAD_INPUT
from monitor.cli.render.scan_report import LABELLED_LOOP, NOT_COUNTED, Report
from monitor.errors import ConfigError
from monitor.transcripts.analysis.calibration import (
    EVIDENCE,
    LENGTH,
    LineOutcome,
    evidence_and_length,
    line,
    needed,
    tried,
    usual_length,
)
from monitor.transcripts.analysis.recorded_steps import NO_STEPS
from monitor.transcripts.analysis.survey import SurveyedRun, loop_of_run
from monitor.transcripts.analysis.traces import ALL, TracedRun
from monitor.view.status import count

SHOWN: Final = 10
"""How many runs that look like loops are listed, unless the user looks at them."""
DROPPED: Final = "dropped"
KINDS: Final = {"good": "good runs", "look_like_loops": "runs that look like loops", "loops": "labelled loops"}
"""The kinds of runs that count, and their names for people."""
CONDITION: Final = (
    "The promise holds if the runs to come are like these: the same kind of tasks, models and tools, in any order."
    " After a change of one of them, calibrate again. It is an average: a single set of runs may turn out unlucky."
)


class Loops(StrEnum):
    """What becomes of unlabelled runs that look like loops."""

    KEEP = "keep"
    DROP = "drop"
    LOOK = "look"


@dataclass(slots=True)
class _Runs:
    """The runs, as far as they count."""

    known: dict[str, TracedRun] = field(default_factory=dict[str, TracedRun])
    """The runs by their content."""
    equal: int = 0
    dropping: bool = False
    """The runs that look like loops are dropped."""
    unread: Counter[str] = field(default_factory=Counter[str])
    """How many runs do not count, by the reason."""
    contradictory: list[str] = field(default_factory=list[str])
    """The runs that are equal to one with the opposite label."""

    def add(self, run: TracedRun, *, finished: bool) -> None:
        label = run.began.label
        if run.silent or (finished and label is None and run.ended.state != "finished"):
            self.unread["silent" if run.silent else "not finished"] += 1
            return
        before = self.known.get(run.content)
        self.equal += run.goes_on or before is not None
        if run.goes_on:
            return
        if before is None or before.began.label is None:  # a label says more than none
            self.known[run.content] = replace(run, steps=NO_STEPS)
            return
        labels = {label, before.began.label}
        if LABELLED_LOOP in labels and labels.isdisjoint({None, NOT_COUNTED}) and len(labels) > 1:
            self.contradictory.append(run.id)

    @property
    def suspects(self) -> list[TracedRun]:
        """The runs without a label that look like loops, dropped or not."""
        return [run for run in self.known.values() if run.began.label is None and run.loops]

    @property
    def bad(self) -> list[TracedRun]:
        """The labelled loops."""
        return [run for run in self.known.values() if run.began.label == LABELLED_LOOP]

    @property
    def good(self) -> list[TracedRun]:
        """The runs that draw the line."""
        left = [run for run in self.known.values() if run.began.label not in {LABELLED_LOOP, NOT_COUNTED}]
        return [run for run in left if run.began.label is not None or not run.loops] if self.dropping else left

    @property
    def left_out(self) -> Counter[str]:
        """How many runs do not count, by the reason."""
        borderline = sum(run.began.label == NOT_COUNTED for run in self.known.values())
        dropped = len(self.suspects) if self.dropping else 0
        return +(self.unread + Counter({NOT_COUNTED: borderline, DROPPED: dropped}))

    @property
    def not_counted(self) -> str:
        """How many other runs there are, for a message."""
        equal = [f"{count(self.equal, 'run')} equal to another, or its rest"] if self.equal else []
        said = ", ".join([*equal, *_reasons(self.left_out)])
        return f" ({said})" if said else ""

    def settle(self, loops: Loops | None, console: Console) -> None:
        """Show, drop or keep the runs that look like loops, as the user says."""
        suspects, good = self.suspects, len(self.good)
        self.dropping = loops is Loops.DROP
        if loops is Loops.KEEP or not (suspects or loops is Loops.LOOK):
            return
        alike = "looks like a loop" if len(suspects) == 1 else "look like loops"
        console.print(f"{len(suspects)} of {count(good, 'good run')} {alike}", style="bold", highlight=False)
        shown = suspects if loops is Loops.LOOK else suspects[:SHOWN]
        for run in shown:
            output.line(console, f"  {run.file}: {run.id}: {_why(run)}")
        if len(suspects) > len(shown):
            console.print(f"  and {len(suspects) - len(shown)} more")
        if suspects and not self.dropping:
            console.print(
                Text("  --loops look lists them all, --loops drop leaves them out, --loops keep calls them good.")
            )

    def check(self, share: float, *, kept: bool) -> None:
        """Raises `ConfigError` if equal runs have opposite labels, or the good runs are too few.
        So it does if the line lies among loops, or above all settings. `kept`: the user says that
        the runs that look like loops are good.
        """
        good = self.good
        if self.contradictory:
            raise ConfigError(
                f"{count(len(self.contradictory), 'run')} equal to one with the opposite label, such as"
                f" {self.contradictory[0]}: label them alike, or drop them"
            )
        if len(good) < (least := needed(share)):
            raise ConfigError(
                f"{count(len(good), 'good run')} cannot promise that at most {percent(share)} are stopped:"
                f" {least:,} are needed{self.not_counted}"
            )
        at = line([evidence(run) for run in good], share)
        suspects = [] if self.dropping else self.suspects
        lost = len(suspects) - above(suspects, at)
        if lost and not kept:
            raise ConfigError(
                f"the line for {percent(share)} would let {lost} of {count(len(suspects), 'run')} pass that"
                " look like loops; look at them, then say --loops drop or --loops keep, or label them"
            )
        bad = self.bad + (self.suspects if self.dropping else [])
        missed = len(bad) - above(bad, at)
        if missed > len(bad) / 2:
            raise ConfigError(
                f"the line for {percent(share)} would let {missed} of {count(len(bad), 'loop')} pass: the good runs"
                " repeat themselves as much as the loops do; give a larger --at-most, or runs of one kind"
            )
        if at >= len(FACTORS) - 1:
            raise ConfigError(
                f"more than {percent(share)} of the good runs repeat themselves more than the most lenient settings"
                f" allow (x {FACTORS[-1]:g}): give a larger --at-most, or runs of one kind"
            )


def evidence(run: TracedRun) -> float:
    """The score of all detectors together."""
    return run.traces[ALL].evidence


def above(runs: Sequence[TracedRun], at: float) -> int:
    """How many of the runs a line stops."""
    return sum(evidence(run) > at for run in runs)


def _why(run: TracedRun) -> str:
    return loop_of_run(run)


def _reasons(left_out: Mapping[str, int]) -> list[str]:
    return [f"{number:,} {reason}" for reason, number in left_out.items()]


@dataclass(slots=True, frozen=True, kw_only=True)
class CalibrateOptions:
    """The promise, and the runs that it is made of."""

    at_most: Annotated[str, option("SHARE", "Of good runs at most so many are stopped: 5% or 0.05.")] = "5%"
    out: Annotated[Path | None, option("FILE", "Write the settings to this file (TOML).", "--out", "-o")] = None
    loops: Annotated[
        Loops | None,
        option("WHAT", "Runs that look like loops: keep them as good, drop them, or look at them."),
    ] = None
    finished: Annotated[bool, flag("--finished", "Only runs that ended by themselves, as their recordings say.")] = (
        False
    )

    @property
    def share(self) -> float:
        """The share of good runs that may be stopped. Raises `ConfigError` if it is none."""
        number = self.at_most.removesuffix("%")
        try:
            share = round(float(number) / 100 if self.at_most.endswith("%") else float(number), 9)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            raise ConfigError(f"--at-most takes 5% or 0.05, not {self.at_most!r}")
        return share


def calibrate(
    paths: Annotated[
        list[str] | None,
        argument("RUNS", "Good runs: files, folders, archives. Without any, the known places."),
    ] = None,
    *,
    options: CalibrateOptions,
    selection: SelectionOptions,
    limit: LimitOption = None,
    as_json: OneJsonOption = False,
    settings: SettingsOptions,
) -> None:
    """Fit the limits to your own good runs, with a promise: at most 5% of such runs are stopped.

    Each run is watched with eight settings, from strict to lenient, and the
    highest evidence of it is measured between them. The line is the strictest
    one of which the promise can be made (split conformal prediction). Runs with
    the label "loop" are not good. Where there are some, half of the good runs
    draw the line. The other half shows what it costs and saves, beside a limit
    on the number of turns alone. Runs that look like loops are shown, and a
    line that lets them pass is refused. Equal runs count once.

    Examples:
      agent-monitor calibrate --finished -o agent-monitor.toml
      agent-monitor calibrate ~/.claude/projects --at-most 2%
      agent-monitor calibrate labelled.jsonl.gz --json

    Exit code: 0; 2 if there are too few runs for the promise, or if the line lies
    among loops or above all settings. Also 2 if a file or a line could not be read.
    """
    console, complaints = output.stdout(), output.stderr()
    share, out, loops = options.share, options.out, options.loops
    if out is not None:
        check_out(out, "--out")
    base = settings.read()
    levels = levels_of(base)
    watcher = Levels(tuple(json.dumps(level) for level in levels)).watcher
    runs, report, wanted = _Runs(), Report(), RunSelection.of(selection)

    def add(run: SurveyedRun) -> None:
        report.add(run, listed=False)
        if isinstance(run, TracedRun):
            runs.add(run, finished=options.finished)

    with inputs_of(paths, wanted) as inputs:
        report.bad += inputs.missing
        reading = InputReader(SurveySettings.of(base, watcher), complaints, inputs, wanted)
        reading.read_all(report, add, limit=limit, partly=False)
        reading.complain()
    runs.settle(loops, complaints)
    if loops is Loops.LOOK:
        raise typer.Exit(BAD_INPUT if report.incomplete else 0)
    runs.check(share, kept=loops is Loops.KEEP)
    found = _Calibration.of(runs, levels, names_of(base), share)
    if as_json:
        output.write_json(found.as_json())
    else:
        found.show(console)
    if out is not None:
        write_out(out, [found.as_toml().encode()], "--out")
        output.line(console, f"written to {out}") if not as_json else None
    raise typer.Exit(BAD_INPUT if report.incomplete else 0)


def percent(share: float) -> str:
    """`0.05` as `5%`, `0.0125` as `1.25%`."""
    return f"{100 * share:.6g}%"


_TRIED: Final = table.RowKind[LineOutcome](
    table.Fact("score", table.Column("score", "end"), lambda one: one.rule),
    table.Fact("good", None, lambda one: one.good),
    table.Fact("good_stopped", None, lambda one: one.stopped),
    table.Fact(None, table.Column("good stopped", right=True), lambda one: f"{one.stopped} of {one.good}"),
    table.Fact("loops", None, lambda one: one.bad),
    table.Fact("loops_stopped", None, lambda one: one.caught),
    table.Fact(None, table.Column("loops stopped", right=True), lambda one: f"{one.caught} of {one.bad}"),
    table.Fact("saved_tokens", None, lambda one: round(one.saved)),
    table.Fact(None, table.Column("tokens saved", right=True), lambda one: f"{one.saved:,.0f}"),
    table.Fact(
        "saved_share",
        table.Column("of them", right=True),
        lambda one: one.saved / one.of_bad if one.of_bad else None,
        lambda share: "" if share is None else f"{share:.0%}",
    ),
    table.Fact("lost_tokens", None, lambda one: round(one.lost)),
)
"""The facts about a rule that was tried on runs that did not draw its line."""


@dataclass(slots=True, frozen=True)
class _Calibration:
    """The fitted limits, and their results on runs that did not draw them."""

    runs: _Runs
    share: float
    lines: Mapping[str, int]
    """The level of each detector alone, and of all together. As many as there are levels: off."""
    stopped: Mapping[str, tuple[int, int]]
    """How many runs of a kind the line stops, and how many there are."""
    tried: Sequence[LineOutcome]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, runs: _Runs, levels: Sequence[Mapping[str, Any]], names: Sequence[str], share: float) -> _Calibration:
        """The lines, and what they do on runs that they were not drawn from."""
        good = runs.good
        heights = {name: line([run.traces[name].evidence for run in good], share) for name in (ALL, *names)}
        lines = {name: int(height) + 1 for name, height in heights.items()}
        settings = dict(levels[lines[ALL]])
        if WEIGHED in names and any(run.traces[ALL].peaks for run in good):
            settings[WEIGHED] = {**settings[WEIGHED], "stop": threshold_above(heights[ALL], levels)}
        kinds = zip(KINDS, (good, runs.suspects, runs.bad), strict=True)
        stopped = {kind: (above(of_kind, heights[ALL]), len(of_kind)) for kind, of_kind in kinds}
        return cls(runs, share, lines, stopped, _held_out(runs, share), settings)

    def show(self, console: Console) -> None:
        """Print the limits and their results for people."""
        good, equal, left_out = self.runs.good, self.runs.equal, self.runs.left_out
        silent = sum(not run.total.tool_calls for run in good)
        without = f", {silent} of them without a call" if silent else ""
        promised = f"at most {percent(self.share)} of runs like them are stopped"
        output.line(console, f"{count(len(good), 'good run')}{without}: {promised}", "bold")
        rows = []
        for name, at in self.lines.items():
            numbers = "off" if at >= len(FACTORS) else f"x {FACTORS[at]:g}" if name in {ALL, *SCALED} else "as they are"
            rows.append((name or "all together", numbers, "" if name else self._written()))
        columns = (table.Column("detector", "end"), table.Column("its numbers", right=True), table.Column("", "end"))
        table.show(console, columns, rows)
        told = [f"{stopped} of {total} {KINDS[kind]}" for kind, (stopped, total) in self.stopped.items() if total]
        console.print(f"The line stops {', '.join(told)}.", highlight=False)
        if self.tried:
            self._show_tried(console)
        if equal:
            console.print(f"{count(equal, 'run')} counted once: equal to another one, or its rest.")
        if left_out:
            console.print(f"Left out: {', '.join(_reasons(left_out))}.")
        if left_out[DROPPED]:
            console.print("If some of the dropped runs are good, more good runs may be stopped than promised.")
        console.print(CONDITION, soft_wrap=True)
        console.print()
        output.write(self.as_toml().rstrip())

    def _written(self) -> str:
        stop = self.settings.get(WEIGHED, {}).get("stop")
        return "this is what is written" + (f", with {WEIGHED}(stop={stop:g})" if stop else "")

    def _show_tried(self, console: Console) -> None:
        console.print()
        console.print("On the half of the good runs that did not draw the line, and on the labelled loops:")
        _TRIED.show(console, self.tried)
        if self._estimated:
            console.print(f"Of {count(self._estimated, 'run')} the tokens are estimated from the length of the texts.")

    @property
    def _estimated(self) -> int:
        return sum(run.estimated for run in (*self.runs.good, *self.runs.bad))

    def as_toml(self) -> str:
        """The settings, with the promise above them."""
        head = (
            f"# From {len(self.runs.good)} good runs: at most {percent(self.share)} of runs like them are stopped.\n"
            "# It holds while tasks, models and tools stay of the same kind.\n"
        )
        if dropped := self.runs.left_out[DROPPED]:
            head += f"# {count(dropped, 'run')} that looked like loops {'was' if dropped == 1 else 'were'} dropped.\n"
        return head + as_toml(self.settings)

    def as_json(self) -> dict[str, Any]:
        """The limits and their results as JSON data."""
        return {
            "at_most": self.share,
            "good": len(self.runs.good),
            "loops": len(self.runs.bad),
            "left_out": self.runs.left_out.total(),
            "left_out_why": self.runs.left_out,
            "equal": self.runs.equal,
            "look_like_loops": [{"id": run.id, "file": run.file, "why": _why(run)} for run in self.runs.suspects],
            "stopped": {kind: stopped for kind, (stopped, _) in self.stopped.items()},
            "estimated": self._estimated,
            "lines": {name or "all": FACTORS[at] if at < len(FACTORS) else None for name, at in self.lines.items()},
            "held_out": [_TRIED.as_json(one) for one in self.tried],
            "settings": self.settings,
            "condition": CONDITION,
        }


def _held_out(runs: _Runs, share: float) -> list[LineOutcome]:
    """Half of the good runs, chosen by their hashes, draws the line; the other half is tried."""
    bad = [run.traces[ALL] for run in runs.bad]
    if not bad:
        return []
    ordered = [run.traces[ALL] for run in sorted(runs.good, key=_place)]
    fit, rest = ordered[::2], ordered[1::2]
    if len(fit) < needed(share):
        return []
    rules = (EVIDENCE, evidence_and_length(usual_length(fit)), LENGTH)
    return [tried(rule, fit, rest, bad, share) for rule in rules]


def _place(run: TracedRun) -> str:
    """The place of a run in a random order that is always the same."""
    return identity(f"{run.file}\n{run.id}")
