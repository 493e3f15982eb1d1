"""How far a run has come, as facts that no summary has to remember: what was handed over, what is missing, where the plan stands."""

from __future__ import annotations

import json

from monitor._codec import to_plain
from monitor.assignment import Assignment
from monitor.compaction.pinned import PinnedFacts


def frontier(assignment: Assignment) -> PinnedFacts:
    """The facts of a run's assignment."""
    result = assignment.result()
    emitted = {name: json.dumps(to_plain(value), ensure_ascii=False, sort_keys=True) for name, value in result.get("emitted", {}).items()}
    plan = assignment.plan
    return PinnedFacts(emitted=emitted, outstanding=tuple(result.get("missing", ())), plan=plan.render() if plan is not None else None)
