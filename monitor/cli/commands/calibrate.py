"""`agent-monitor calibrate`: limits with a promise, from a user's own good runs.

Runs that look like loops are shown, because a line that is drawn among loops stops none of them.
Equal runs count once: a session that is seen under two names says nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from monitor.cli.options.selection import LimitOption, OneJsonOption, SelectionOptions
from monitor.cli.options.settings_options import SettingsOptions
from monitor.cli.render import output, table
from monitor.cli.render.out_file import check_out, write_out
from monitor.cli.render.scan_report import LABELLED_LOOP, NOT_COUNTED, Report
from monitor.errors import ConfigError
from monitor.transcripts.analysis.calibration import (
    EVIDENCE,
    LENGTH,
    LineOutcome,
    Trace,
    evidence_and_length,
    line,
    needed,
    tried,
    usual_length,
)
from monitor.transcripts.analysis.survey import SurveyedRun
from monitor.transcripts.analysis.traces import ALL, TracedRun
from monitor.view.run_ending import count

BAD_INPUT: Final = 2
SHOWN: Final = 10
"""How many runs that look like loops are listed, unless the user looks at them."""
CONDITION: Final = (
    "The promise holds if the runs to come are like these: the same kind of tasks, models and tools, in any order."
    " After a change of one of them, calibrate again. It is an average: a single set of runs may turn out unlucky."
)


class Loops(StrEnum):
    """What becomes of unlabelled runs that look like loops."""

    KEEP = "keep"
    DROP = "drop"
    LOOK = "look"


@dataclass(slots=True, frozen=True)
class _GoodRun:
    """A run that counts as good."""

    place: str
    """The place of a run in a random order that is always the same."""
    id: str
    file: str
    why: str
    """Why it looks like a loop; empty: it does not, or its label says that it is none."""
    traces: Mapping[str, Trace]

    @property
    def evidence(self) -> float:
        """The score of all detectors together."""
        return self.traces[ALL].evidence


@dataclass(slots=True)
class _GoodRuns:
    """The runs, as far as they count."""

    good: list[_GoodRun] = field(default_factory=list[_GoodRun])
    bad: list[Trace] = field(default_factory=list[Trace])
    left_out: int = 0
    equal: int = 0
    estimated: int = 0
    known: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """The label of each run, by its content. `None`: it has none."""
    contradictory: list[str] = field(default_factory=list[str])
    """The runs that are equal to one with the opposite label."""

    def add(self, run: TracedRun, *, finished: bool) -> None:
        label = run.began.label
        if run.silent or label == NOT_COUNTED or (finished and label is None and run.ended.state != "finished"):
            self.left_out += 1
            return
        if run.goes_on:
            self.equal += 1
            return
        if run.content in self.known:
            self.equal += 1
            before = self.known[run.content]
            if None not in {label, before} and (label == LABELLED_LOOP) != (before == LABELLED_LOOP):
                self.contradictory.append(run.id)
            return
        self.known[run.content] = label
        self.estimated += run.estimated
        if label == LABELLED_LOOP:
            self.bad.append(run.traces[ALL])
            return
        found = run.detection
        why = found.message if found is not None and label is None else ""
        self.good.append(_GoodRun(identity(f"{run.file}\n{run.id}"), run.id, run.file, why, run.traces))

    @property
    def suspects(self) -> list[_GoodRun]:
        """The runs that look like loops."""
        return [run for run in self.good if run.why]

    @property
    def not_counted(self) -> str:
        """How many other runs there are, for a message."""
        why = ((self.equal, "equal to another, or its rest"), (self.left_out, "left out"))
        said = ", ".join(f"{count(number, 'run')} {what}" for number, what in why if number)
        return f" ({said})" if said else ""

    def show_suspects(self, console: Console, *, most: int | None = SHOWN) -> None:
        """The runs that look like loops. `most`: how many are listed; `None`: all of them."""
        suspects = self.suspects
        alike = "looks like a loop" if len(suspects) == 1 else "look like loops"
        console.print(f"{len(suspects)} of {count(len(self.good), 'good run')} {alike}:", style="bold", highlight=False)
        for run in suspects[:most]:
            console.print(Text(f"  {run.file}: {run.id}: {run.why}"), soft_wrap=True)
        if most is not None and len(suspects) > most:
            console.print(f"  and {len(suspects) - most} more")
        console.print(
            Text("  --loops look lists them all, --loops drop leaves them out, --loops keep calls them good.")
        )

    def settle(self, loops: Loops | None, console: Console) -> None:
        """Show, drop or keep the runs that look like loops, as the user says."""
        if self.suspects and loops is not Loops.KEEP:
            self.show_suspects(console, most=None if loops is Loops.LOOK else SHOWN)
        if loops is Loops.DROP:
            self.left_out += len(self.suspects)
            self.good = [run for run in self.good if not run.why]

    def check(self, share: float, *, kept: bool) -> None:
        """Raises `ConfigError` if equal runs have opposite labels, if the good runs are too few for
        `share`, or if its line lies among loops. `kept`: the user says that the runs that look like
        loops are good.
        """
        if self.contradictory:
            raise ConfigError(
                f"{count(len(self.contradictory), 'run')} equal to one with the opposite label, such as"
                f" {self.contradictory[0]}: label them alike, or drop them"
            )
        if len(self.good) < (least := needed(share)):
            raise ConfigError(
                f"{count(len(self.good), 'good run')} cannot promise that at most {percent(share)} are stopped:"
                f" {least:,} are needed{self.not_counted}"
            )
        at = line([run.evidence for run in self.good], share)
        lost = [run for run in self.suspects if run.evidence <= at]
        if lost and not kept:
            raise ConfigError(
                f"the line for {percent(share)} would let {len(lost)} of {count(len(self.suspects), 'run')} pass that"
                " look like loops; look at them, then say --loops drop or --loops keep, or label them"
            )
        missed = sum(trace.evidence <= at for trace in self.bad)
        if missed > len(self.bad) / 2:
            raise ConfigError(
                f"the line for {percent(share)} would let {missed} of {len(self.bad)} labelled loops pass: the good"
                " runs repeat themselves as much as the loops do; give a larger --at-most, or runs of one kind"
            )


@dataclass(slots=True, frozen=True, kw_only=True)
class CalibrateOptions:
    """The promise, and the runs that it is made of."""

    at_most: Annotated[
        str, typer.Option("--at-most", metavar="SHARE", help="Of good runs at most so many are stopped: 5% or 0.05.")
    ] = "5%"
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the settings to this file (TOML).")
    ] = None
    loops: Annotated[
        Loops | None,
        typer.Option("--loops", help="Runs that look like loops: keep them as good, drop them, or look at them."),
    ] = None
    finished: Annotated[
        bool, typer.Option("--finished", help="Only runs that ended by themselves, as their recordings say.")
    ] = False

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
        typer.Argument(metavar="[RUNS...]", help="Good runs: files, folders, archives. Without any, the known places."),
    ] = None,
    *,
    options: CalibrateOptions,
    selection: SelectionOptions,
    limit: LimitOption = None,
    as_json: OneJsonOption = False,
    settings: SettingsOptions,
) -> None:
    """Fit the limits to your own good runs, with a promise: at most 5% of such runs are stopped.

    \b
    Each run is watched with eight settings, from strict to lenient, and the
    highest evidence of it is measured between them. The line is the strictest
    one of which the promise can be made (split conformal prediction). Runs with
    the label "loop" are not good. Where there are some, half of the good runs
    draw the line. The other half shows what it costs and saves, beside a limit
    on the number of turns alone. Runs that look like loops are shown, and a
    line that lets them pass is refused. Equal runs count once.

    \b
    Examples:
      agent-monitor calibrate --finished -o agent-monitor.toml
      agent-monitor calibrate ~/.claude/projects --at-most 2%
      agent-monitor calibrate labelled.jsonl.gz --json

    \b
    Exit code: 0; 2 if there are too few runs for the promise, if the line lies
    among loops, or if a file or a line could not be read.
    """  # noqa: D301 - \b keeps the lines of an example apart
    console, complaints = output.stdout(), output.stderr()
    with output.tidy_exit():
        share, out, loops = options.share, options.out, options.loops
        if out is not None:
            check_out(out, "--out")
        base = settings.read()
        levels = levels_of(base)
        watcher = Levels(tuple(json.dumps(level) for level in levels)).watcher
        runs, report, wanted = _GoodRuns(), Report(), RunSelection.of(selection)

        def add(run: SurveyedRun) -> None:
            report.add(run, listed=False)
            if isinstance(run, TracedRun):
                runs.add(run, finished=options.finished)

        with inputs_of(paths, complaints, wanted) as inputs:
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
            console.print(Text(f"written to {out}"), soft_wrap=True) if not as_json else None
        raise typer.Exit(BAD_INPUT if report.incomplete else 0)


def percent(share: float) -> str:
    """`0.05` as `5%`, `0.0125` as `1.25%`."""
    return f"{100 * share:.6g}%"


_TRIED: Final[Sequence[table.Fact[LineOutcome]]] = (
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

    share: float
    good: int
    bad: int
    left_out: int
    equal: int
    suspects: Sequence[_GoodRun]
    estimated: int
    lines: Mapping[str, int]
    """The level of each detector alone, and of all together. As many as there are levels: off."""
    tried: Sequence[LineOutcome]
    settings: Mapping[str, Any]

    @classmethod
    def of(
        cls, runs: _GoodRuns, levels: Sequence[Mapping[str, Any]], names: Sequence[str], share: float
    ) -> _Calibration:
        """The lines, and what they do on runs that they were not drawn from."""
        heights = {name: line([run.traces[name].evidence for run in runs.good], share) for name in (ALL, *names)}
        lines = {name: int(height) + 1 for name, height in heights.items()}
        at = lines[ALL]
        settings = dict(levels[at]) if at < len(levels) else {**levels[-1], "detectors": []}
        if WEIGHED in names and at < len(levels):
            promise = f"{len(runs.good)} good runs: at most {percent(share)} of runs like them come to it"
            settings[WEIGHED] = {**settings[WEIGHED], "fitted": promise}
            if any(run.traces[ALL].peaks for run in runs.good):
                settings[WEIGHED]["threshold"] = threshold_above(heights[ALL], levels)
        return cls(
            share,
            len(runs.good),
            len(runs.bad),
            runs.left_out,
            runs.equal,
            runs.suspects,
            runs.estimated,
            lines,
            _held_out(runs, share),
            settings,
        )

    def show(self, console: Console) -> None:
        """Print the limits and their results for people."""
        console.print(
            Text(
                f"{count(self.good, 'good run')}: at most {percent(self.share)} of runs like them are stopped",
                style="bold",
            ),
            soft_wrap=True,
        )
        rows = []
        for name, at in self.lines.items():
            numbers = "off" if at >= len(FACTORS) else f"x {FACTORS[at]:g}" if name in {ALL, *SCALED} else "as they are"
            of_all = at if name == ALL else None
            rows.append((name or "all together", numbers, "" if of_all is None else "this is what is written"))
        columns = (table.Column("detector", "end"), table.Column("its numbers", right=True), table.Column("", "end"))
        table.show(console, columns, rows)
        if self.tried:
            self._show_tried(console)
        if self.equal:
            console.print(f"{count(self.equal, 'run')} counted once: equal to another one, or its rest.")
        if self.left_out:
            console.print(f"Left out: {count(self.left_out, 'run')}, silent, borderline, dropped or not finished.")
        if self.estimated:
            console.print(f"Of {count(self.estimated, 'run')} the tokens are estimated from the length of the texts.")
        console.print(CONDITION, soft_wrap=True)
        console.print()
        output.write(self.as_toml().rstrip())

    def _show_tried(self, console: Console) -> None:
        console.print()
        console.print("On the half of the good runs that did not draw the line, and on the labelled loops:")
        table.show_facts(console, _TRIED, self.tried)

    def as_toml(self) -> str:
        """The settings, with the promise above them."""
        head = (
            f"# From {self.good} good runs: at most {percent(self.share)} of runs like them are stopped.\n"
            "# It holds while tasks, models and tools stay of the same kind.\n"
        )
        return head + as_toml(self.settings)

    def as_json(self) -> dict[str, Any]:
        """The limits and their results as JSON data."""
        return {
            "at_most": self.share,
            "good": self.good,
            "loops": self.bad,
            "left_out": self.left_out,
            "equal": self.equal,
            "look_like_loops": [{"id": run.id, "file": run.file, "why": run.why} for run in self.suspects],
            "estimated": self.estimated,
            "lines": {name or "all": FACTORS[at] if at < len(FACTORS) else None for name, at in self.lines.items()},
            "held_out": [table.as_json(_TRIED, one) for one in self.tried],
            "settings": self.settings,
            "condition": CONDITION,
        }


def _held_out(runs: _GoodRuns, share: float) -> list[LineOutcome]:
    """Half of the good runs, chosen by their hashes, draws the line; the other half is tried."""
    if not runs.bad:
        return []
    ordered = [run.traces[ALL] for run in sorted(runs.good, key=lambda one: one.place)]
    fit, rest = ordered[::2], ordered[1::2]
    if len(fit) < needed(share):
        return []
    rules = (EVIDENCE, evidence_and_length(usual_length(fit)), LENGTH)
    return [tried(rule, fit, rest, runs.bad, share) for rule in rules]
