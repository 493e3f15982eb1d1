"""When the failures of many runs are one outage. Failure answered: a search service goes down, and
each of two hundred runs finds out by itself, is nudged, and burns its turns.

Rules:

- Failures are counted for each thing that may fail: a model, a tool, one call of a tool. They are
  an outage if enough different runs have the same error within the window, without a success in any
  run between them. A failure that comes and goes is none, unless most runs have it: the newest
  result of each run says how many have it now.
- During an outage one run at a time is let through to try: the probe. Each probe that fails doubles
  the time until the next one. A probe that does not report within its lease is given up. Runs that
  have not tried yet go first, so that no run looks like a loop.
- The success of a call that was begun after the outage was found ends it. Where some calls worked
  between those that failed, several in a row end it.

All of it is arithmetic: times come from outside, and a `Trouble` can be stored as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from monitor._util.argument_checks import check_number, check_seconds, is_finite
from monitor._util.hashing import identity
from monitor.errors import ConfigError
from monitor.verdicts import FleetFinding

WORDS_CHARS: Final = 200
"""Characters of an error that are kept for people."""
ERRORS_KEPT: Final = 8
"""Different errors of one thing that are counted at once: those that came last."""
RUNS_KEPT: Final = 1_000
"""Different runs that one outage counts."""
OTHERS_FIRST_S: Final = 3.0
"""How much later a run may try that has tried before. Runs look once a second."""
LONGEST_WAIT: Final = 8
"""The longest time between two probes, in times of the first."""
RESULTS_KEPT: Final = 200
"""Runs whose newest result is kept: those that came last. Of two hundred runs of which 70 % fail,
at least 60 % are seen to fail in 999 of 1,000 cases.
"""
WORKS: Final = ""
"""In the place of an error: the run had a success."""
SUCCESSES_IN_A_ROW: Final = 4
"""The number of successes that end an outage in which some calls worked. Of calls that fail with a
chance of 70 %, four in a row work once in 120 times.
"""


class Failure(NamedTuple):
    """The failure of a call, in the form in which failures are compared."""

    subject: str
    """The thing that failed: equal for the same thing."""
    what: str
    """The failed thing, for people."""
    error: str
    """The identity of the error."""
    words: str
    """The error for people."""
    by_chance: bool = False
    """Each use fails or works by chance, as a model loops or does not: one success says little."""


@dataclass(slots=True)
class Streak:
    """Failures with one error, since the last success."""

    words: str
    since_s: float
    failures: int = 0
    runs: dict[str, float] = field(default_factory=dict[str, float])
    """The newest failure of each run."""


@dataclass(slots=True)
class Outage:
    """An outage that goes on."""

    id: str
    what: str
    words: str
    since_s: float
    found_s: float
    wait_s: float
    """Seconds between two probes."""
    next_probe_s: float
    failures: int
    runs: list[str]
    probe: str | None = None
    """The run that was let through."""
    probe_until_s: float = 0.0
    tried: list[str] = field(default_factory=list[str])
    """Runs that were probes."""
    successes: int = 0
    """Successes in a row since the outage was found."""
    successes_needed: int = 1
    """The number of successes in a row that end the outage."""

    def finding(self, ended_s: float | None = None) -> FleetFinding:
        """The outage, as events say it."""
        return FleetFinding(
            outage=self.id,
            what=self.what,
            error=self.words,
            runs=len(self.runs),
            failures=self.failures,
            since_s=self.since_s,
            found_s=self.found_s,
            ended_s=ended_s,
        )


@dataclass(slots=True)
class Trouble:
    """The failures of one thing."""

    streaks: dict[str, Streak] = field(default_factory=dict[str, Streak])
    """Failures by the identity of their error, since the last success."""
    latest: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    """For each run its newest error by its identity, or `WORKS`, and the time. The oldest is first.
    """
    outage: Outage | None = None
    changed_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trouble:
        """The inverse of `to_dict`."""
        outage = data["outage"]
        return cls(
            {error: Streak(**streak) for error, streak in data["streaks"].items()},
            {run: (error, at) for run, (error, at) in data.get("latest", {}).items()},
            None if outage is None else Outage(**outage),
            data["changed_s"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageRule:
    """When failures are an outage, and how often a run is let through."""

    runs: int = 8
    """Different runs that must fail. Where each call fails with a chance of 10 %, eight in a row
    come once in a hundred million calls; five come once in a hundred thousand.
    """
    share: float = 0.6
    """The part of the runs that must fail where others work meanwhile. `runs` more must fail than
    work. Where each call fails with a chance of 30 %, 60 % of a hundred runs never do.
    """
    window_s: float = 120.0
    """Seconds for which a result counts."""
    probe_every_s: float = 15.0
    """Time from the finding to the first probe. It doubles with each probe that fails, up to
    `LONGEST_WAIT` times this.
    """
    probe_lease_s: float = 120.0
    """Time after which a probe that has not reported is given up."""

    def __post_init__(self) -> None:
        check_number("runs", self.runs, 2)  # one run is not a fleet
        if not is_finite(self.share) or not 0.5 <= self.share <= 1:  # noqa: PLR2004 - most runs
            raise ConfigError(f"share is a number between 0.5 and 1, not {self.share!r}")
        for name in ("window_s", "probe_every_s", "probe_lease_s"):
            check_seconds(name, getattr(self, name))

    def failed(self, trouble: Trouble, failure: Failure, run: str, now: float) -> FleetFinding | None:
        """Count a failure in `run`. A finding: with this failure it is an outage."""
        trouble.changed_s = now
        if (outage := trouble.outage) is not None:
            self._went_on(outage, failure, run, now)
            return None
        streak = self._counted(trouble, failure, run, now)
        self._note(trouble, failure.error, run, now)
        failing = [one for one, (error, _) in trouble.latest.items() if error == failure.error]
        in_a_row = len(streak.runs) >= self.runs
        if not in_a_row and not self._most_fail(trouble, len(failing)):
            return None
        trouble.outage = outage = Outage(
            id=identity(f"{failure.subject}\n{failure.error}\n{now!r}"),
            what=failure.what,
            words=streak.words,
            since_s=streak.since_s if in_a_row else min(trouble.latest[one][1] for one in failing),
            found_s=now,
            wait_s=self.probe_every_s,
            next_probe_s=now + self.probe_every_s,
            failures=streak.failures if in_a_row else len(failing),
            runs=[*streak.runs] if in_a_row else failing,
            successes_needed=SUCCESSES_IN_A_ROW if failure.by_chance or _comes_and_goes(trouble, failure) else 1,
        )
        trouble.streaks.clear()
        trouble.latest.clear()
        return outage.finding()

    def succeeded(self, trouble: Trouble, run: str, began_s: float, now: float) -> FleetFinding | None:
        """A call of `run`, begun at `began_s`, has succeeded. A finding: that ends the outage."""
        trouble.changed_s = now
        trouble.streaks.clear()
        outage = trouble.outage
        if outage is None:
            self._note(trouble, WORKS, run, now)
            if all(error == WORKS for error, _ in trouble.latest.values()):
                trouble.latest.clear()
            return None
        if began_s < outage.found_s:
            return None
        outage.successes += 1
        if outage.successes < outage.successes_needed:
            if run == outage.probe:
                outage.probe, outage.next_probe_s = None, now
            return None
        trouble.outage = None
        return outage.finding(ended_s=now)

    def may_go(self, trouble: Trouble, run: str, now: float) -> bool:
        """Whether `run` may make its call now. True during an outage: it is the probe."""
        outage = trouble.outage
        if outage is None or outage.probe == run:
            return True
        if self.waits(outage, run, now):
            return False
        trouble.changed_s = now
        outage.probe, outage.probe_until_s = run, now + self.probe_lease_s
        if run not in outage.tried and len(outage.tried) < RUNS_KEPT:
            outage.tried.append(run)
        return True

    def waits(self, outage: Outage, run: str, now: float) -> bool:
        """Whether `run` must wait, because another run tries, or the next probe is not due."""
        if outage.probe == run:
            return False
        due_s = outage.next_probe_s if outage.probe is None else outage.probe_until_s
        return now < due_s + (OTHERS_FIRST_S if run in outage.tried else 0.0)

    def is_over(self, trouble: Trouble, now: float) -> bool:
        """Whether nothing of `trouble` counts any more."""
        return trouble.outage is None and (not trouble.latest or trouble.changed_s < now - self.window_s)

    def _note(self, trouble: Trouble, error: str, run: str, now: float) -> None:
        """The newest result of `run`, among those that count."""
        trouble.latest.pop(run, None)
        trouble.latest[run] = (error, now)
        old = sum(at <= now - self.window_s for _, at in trouble.latest.values())
        for one in list(trouble.latest)[: max(old, len(trouble.latest) - RESULTS_KEPT)]:
            del trouble.latest[one]

    def _most_fail(self, trouble: Trouble, failing: int) -> bool:
        """Whether an error that `failing` runs have is that of most runs."""
        working = sum(error == WORKS for error, _ in trouble.latest.values())
        return failing - working >= self.runs and failing >= self.share * len(trouble.latest)

    def _counted(self, trouble: Trouble, failure: Failure, run: str, now: float) -> Streak:
        """The streak of this failure, which is the newest of those that are kept."""
        streak = trouble.streaks.pop(failure.error, None) or Streak(failure.words[:WORDS_CHARS], now)
        streak.words = failure.words[:WORDS_CHARS]
        streak.runs.pop(run, None)
        streak.runs = {one: at for one, at in streak.runs.items() if at > now - self.window_s}
        if not streak.runs:
            streak.since_s, streak.failures = now, 0
        streak.runs[run] = now
        streak.failures += 1
        trouble.streaks[failure.error] = streak
        while len(trouble.streaks) > ERRORS_KEPT:
            del trouble.streaks[next(iter(trouble.streaks))]
        return streak

    def _went_on(self, outage: Outage, failure: Failure, run: str, now: float) -> None:
        outage.failures += 1
        outage.successes = 0
        outage.words = failure.words[:WORDS_CHARS]
        if run not in outage.runs and len(outage.runs) < RUNS_KEPT:
            outage.runs.append(run)
        if run == outage.probe:
            outage.probe = None
            outage.wait_s = min(2 * outage.wait_s, LONGEST_WAIT * self.probe_every_s)
            outage.next_probe_s = now + outage.wait_s


def _comes_and_goes(trouble: Trouble, failure: Failure) -> bool:
    """Whether a run has had a success after another had the same failure."""
    failed = False
    for error, _ in trouble.latest.values():
        if failed and error == WORKS:
            return True
        failed = failed or error == failure.error
    return False
