"""`agent-monitor calibrate judge-eval`: whether a judge agrees with the labels of recorded runs,
and whether its confidence is reliable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from monitor.cli.inputs.offline_judge import OfflineJudge, offline_judge
from monitor.cli.inputs.survey_workers import strange, why_missing
from monitor.cli.inputs.transcripts import complaints_of
from monitor.cli.options.shared import CacheOption, ConfirmOption, JudgeOptions, OneJsonOption, argument, option
from monitor.cli.render import output, table
from monitor.errors import AdapterError, MissingExtra
from monitor.transcripts import ReadReport, RecordedRun, runs
from monitor.transcripts.analysis.calibration import is_stuck, question_on
from monitor.transcripts.analysis.survey import why_unread
from monitor.transcripts.places import files as files_of
from monitor.transcripts.places import sources_of
from monitor.verdicts import Judgement
from monitor.view.status import count

NO_VERDICT, BAD_INPUT = 1, 2
BINS = 10
"""Rows of the reliability table: confidences from 0 to 1 in steps of a tenth."""


@dataclass(slots=True, frozen=True)
class Verdict:
    """The judge's answer on one run, and the run's label."""

    run: str
    kind: str
    stuck: bool
    judgement: Judgement

    @property
    def agrees(self) -> bool:
        """Whether the judge agrees with the label."""
        return self.judgement.found is self.stuck


@dataclass(slots=True)
class Evaluation:
    """All verdicts, and the runs on which there is none."""

    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    without_label: int = 0
    too_short: int = 0
    bad: int = 0
    """Lines and files that could not be read."""

    @property
    def agreement(self) -> float:
        """The share of verdicts that agree with the label."""
        return _share(verdict.agrees for verdict in self.verdicts)

    @property
    def brier(self) -> float:
        """The mean square error of the confidence: 0 is perfect, and a constant 0.5 gets 0.25."""
        return _mean((verdict.judgement.confidence - verdict.stuck) ** 2 for verdict in self.verdicts)

    def kinds(self) -> Iterator[tuple[str, list[Verdict]]]:
        """Verdicts by kind of run: the loops first."""
        kinds: dict[tuple[bool, str], list[Verdict]] = defaultdict(list)
        for verdict in self.verdicts:
            kinds[not verdict.stuck, verdict.kind].append(verdict)
        return ((kind, kinds[stuck, kind]) for stuck, kind in sorted(kinds))

    def bins(self) -> Iterator[tuple[float, float, list[Verdict]]]:
        """Verdicts by confidence, without empty bins; 1.0 belongs to the last one."""
        for number in range(BINS):
            of_bin = [
                verdict
                for verdict in self.verdicts
                if min(int(verdict.judgement.confidence * BINS), BINS - 1) == number
            ]
            if of_bin:
                yield number / BINS, (number + 1) / BINS, of_bin


def judge_eval(
    corpus: Annotated[
        list[str],
        argument("CORPUS", "Recorded runs with labels: files, folders, patterns, archives."),
    ],
    *,
    judge: Annotated[
        str,
        option("MODEL", "The model to ask: google:NAME, openai:NAME, ..., or replay:FILE."),
    ],
    confirm: ConfirmOption = None,
    cache: CacheOption = None,
    limit: Annotated[int | None, option("N", "Stop after N questions.", min=1)] = None,
    as_json: OneJsonOption = False,
) -> None:
    """Ask a judge about labelled runs, and compare.

    The judge is asked once about each run: at the fifth repetition of its labelled loop (or
    the third), else at its end. Loops within one message are left out.

    Examples:
      agent-monitor calibrate judge-eval runs.jsonl --judge replay:FILE
      agent-monitor calibrate judge-eval --judge google:gemini-2.5-flash \\
        --limit 50 --json runs.jsonl.gz

    Answers are kept on disk, so asking again costs nothing, and needs no key.

    Exit code: 0; 1 no verdict was given; 2 a file or a line could not be read (the rest
    is still reported), or there are no labels.
    """
    console, complaints = output.stdout(), output.stderr()
    with offline_judge(JudgeOptions(judge=judge, judge_confirm=confirm, judge_cache=cache)) as asker:
        found = Evaluation()
        for run in _runs(corpus, found, complaints):
            if limit is not None and asker.questions >= limit:
                break
            _examine(run, asker, found)
        asker.complain(complaints)
        if as_json:
            output.write_json(as_data(found, asker), indent=1)
        else:
            show(console, found, asker)
        raise typer.Exit(BAD_INPUT if found.bad or not asker.questions else NO_VERDICT if not found.verdicts else 0)


def _runs(files: Sequence[str], found: Evaluation, complaints: Console) -> Iterator[RecordedRun]:
    missing: list[str] = []
    for source in (source for path in files_of(files, missing=missing) for source in sources_of(path)):
        report = ReadReport()
        try:
            yield from runs(source, report)
        except AdapterError:
            found.bad += 1
            output.complain(complaints, f"{source.name}: {strange(source)}")
        except (OSError, MissingExtra) as error:
            found.bad += 1
            output.complain(complaints, f"agent-monitor: cannot read {source.name}: {why_unread(error)}")
        else:
            found.bad += report.bad
            complaints_of(source.name, report).show(complaints)
    found.bad += len(missing)
    for file in missing:
        output.complain(complaints, f"agent-monitor: cannot read {file}: {why_missing(file)}")


def _examine(run: RecordedRun, asker: OfflineJudge, found: Evaluation) -> None:
    stuck = is_stuck(run)
    if stuck is None:
        found.without_label += 1
        return
    told = question_on(run)
    if told is None:
        found.too_short += 1
        return
    judgement = asker(asker.judge, told)
    if isinstance(judgement, Judgement):
        found.verdicts.append(Verdict(run.id, run.loop.kind if run.loop else run.label or "", stuck, judgement))


# ------------------------------------------------------------------ the tables


def _confidence(verdicts: Sequence[Verdict]) -> float:
    return _mean(verdict.judgement.confidence for verdict in verdicts)


_KIND: Final = table.RowKind[tuple[str, list[Verdict]]](
    table.Fact("kind", table.Column("runs that are", "fold"), lambda one: one[0]),
    table.Fact("stuck", "labelled", lambda one: one[1][0].stuck, lambda stuck: "stuck" if stuck else "not stuck"),
    table.Fact("asked", "asked", lambda one: len(one[1])),
    table.Fact("called_stuck", "called stuck", lambda one: sum(verdict.judgement.found for verdict in one[1])),
    table.Fact("mean_confidence", "mean confidence", lambda one: _confidence(one[1]), "{:.2f}".format),
)
"""The facts about the verdicts on one kind of run."""
_BIN: Final = table.RowKind[tuple[float, float, list[Verdict]]](
    table.Fact(None, "confidence", lambda one: f"{one[0]:.1f} to {one[1]:.1f}"),
    table.Fact("from", None, lambda one: one[0]),
    table.Fact("to", None, lambda one: one[1]),
    table.Fact("runs", "runs", lambda one: len(one[2])),
    table.Fact("mean", "mean", lambda one: _confidence(one[2]), "{:.2f}".format),
    table.Fact("stuck", "really stuck", lambda one: _share(verdict.stuck for verdict in one[2]), "{:.0%}".format),
)
"""The facts about the verdicts with confidences between two bounds."""


# ------------------------------------------------------------------ for people


def show(console: Console, found: Evaluation, asker: OfflineJudge) -> None:
    """Print two tables and the totals."""
    if found.verdicts:
        _KIND.show(console, found.kinds())
        _BIN.show(console, found.bins())
        right = sum(verdict.agrees for verdict in found.verdicts)
        verdicts_agree = (
            f"{right} of {count(len(found.verdicts), 'verdict')} agree with the label ({found.agreement:.0%})"
        )
        console.print(f"{verdicts_agree}; Brier score {found.brier:.3f}.")
        wrong = [verdict.run for verdict in found.verdicts if not verdict.agrees]
        if wrong:
            more = ", ..." if len(wrong) > 5 else ""  # noqa: PLR2004 - as many as fit on a line
            console.print(f"Not: {', '.join(map(output.on_one_line, wrong[:5]))}{more}.", soft_wrap=True)
    else:
        console.print(
            "No verdict was given." if asker.questions else "No run has a label that a judge could be measured by."
        )
    console.print(
        f"Left out: {found.without_label} without a label that counts, {found.too_short} too short to be asked about."
    )
    console.print(asker.said(), soft_wrap=True)


# ------------------------------------------------------------------ for programs


def as_data(found: Evaluation, asker: OfflineJudge) -> dict[str, Any]:
    """The evaluation as JSON data, with every verdict."""
    return {
        "agreement": found.agreement if found.verdicts else None,
        "brier": found.brier if found.verdicts else None,
        "kinds": [_KIND.as_json(one) for one in found.kinds()],
        "reliability": [_BIN.as_json(one) for one in found.bins()],
        "verdicts": [
            {
                "id": verdict.run,
                "kind": verdict.kind,
                "stuck": verdict.stuck,
                "confidence": verdict.judgement.confidence,
                "found": verdict.judgement.found,
                "judged_by": verdict.judgement.judged_by,
                "analysis": verdict.judgement.analysis,
            }
            for verdict in found.verdicts
        ],
        "without_label": found.without_label,
        "too_short": found.too_short,
        "unreadable": found.bad,
        "judge": asker.as_json(),
    }


def _share(given: Any) -> float:
    return _mean(map(float, given))


def _mean(given: Any) -> float:
    numbers = list(given)
    return sum(numbers) / len(numbers) if numbers else 0.0
