"""How the calls of a run are carried out: options of `Supervisor` that a guard does not have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from monitor._util.argument_checks import check_model, check_part, is_whole
from monitor.calls import CallLedger
from monitor.errors import ConfigError
from monitor.harness.runs.calls.result_summaries import ResultSummary
from monitor.tools.approvals.approval import Approval, Approver, AskFunction, approver_of
from monitor.tools.artifacts.artifact_store import ArtifactStore
from monitor.tools.results.guidance import GuidanceFlag, check_flag
from monitor.tools.results.result_store import ResultStore, Summarise
from monitor.tools.results.truncation import Bound

Offer: TypeAlias = Callable[[int, Sequence[str]], Collection[str]]
"""The tools that the model is offered, by the number of the turn and the names of the tools."""


@dataclass(slots=True, frozen=True)
class CallOptions:
    """How the calls of a run are carried out."""

    max_parallel: int
    ledger: CallLedger | None
    approval: Approval
    approver: Approver | AskFunction | None
    offer: Offer | None
    artifacts: ArtifactStore | None
    bound: Bound | None
    summary: ResultSummary | None
    guidance: GuidanceFlag
    deps: object = None

    def keeper(
        self, run_id: str, shows: Callable[[str, str], bool], summary: Summarise | None = None
    ) -> ResultStore | None:
        """What bounds and keeps the results of the run, if anything does. `shows`, `summary`: see
        `ResultStore`.
        """
        if self.artifacts is None and self.bound is None:
            return None
        return ResultStore(self.artifacts, self.bound, summary=summary, run=run_id, shows=shows)

    def __post_init__(self) -> None:
        if self.artifacts is not None:
            check_part("artifacts", self.artifacts, "put")
        if self.bound is not None and not isinstance(self.bound, Bound):
            raise ConfigError(
                f"result_bound takes a Bound, not {self.bound!r}: write result_bound=monitor.tools.Bound(20_000)"
            )
        if self.summary is not None:
            if not callable(self.summary):
                check_model("result_summary", self.summary)
            if self.bound is None:
                raise ConfigError(
                    "result_summary needs a bound, above which a result is summarised: leave out result_bound=None"
                )
        check_flag(self.guidance)
        if not is_whole(self.max_parallel) or self.max_parallel < 1:
            raise ConfigError(f"max_parallel_tools={self.max_parallel!r}: give 1 or more")
        if self.ledger is not None:
            check_part("ledger", self.ledger, "advance")
        approver_of(self.approver)
        if self.offer is not None and not callable(self.offer):
            raise ConfigError(f"offer takes a function of the turn and the tools' names, not {self.offer!r}")
