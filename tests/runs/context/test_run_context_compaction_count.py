"""What a compaction beside the run has taken out is not counted any more, though the call that was
on its way had it.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

import monitor
from monitor.context.tokens import message_tokens
from monitor.testing import CapturedEvents, ScriptedModel, call

PAGE = "a line of a page that is read once\n" * 150


def read(path: str) -> str:
    """Read a page."""
    return f"{path}\n{PAGE}"


class _Model:
    """Counts what it is sent, four characters a token, as the provider does that has not heard of
    an edit yet.
    """

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._made = 0

    def __call__(self, request: monitor.models.ModelRequest) -> object:
        if request.tool_choice == "none":
            return monitor.Compaction().template.skeleton({"Goal": "- The pages are read."})
        self._made += 1
        if self._made > self._turns:
            return "done"
        sent = sum(message_tokens(message) for message in request.messages)
        return [
            f"I read page {self._made}.",
            call("read", path=f"page_{self._made}"),
            monitor.chunks.UsageReport(sent, 10),
        ]


@pytest.mark.anyio
async def test_a_compaction_beside_the_run_is_not_followed_at_once_by_another() -> None:
    events = CapturedEvents()
    model = ScriptedModel(_Model(60), suspends=True)
    outcome = await monitor.Supervisor(model, tools=[read], window=24_000, sinks=[events]).run("Read all 60 pages.")
    assert outcome.ok
    told = [
        event
        for event in events
        if isinstance(
            event,
            monitor.events.CompactionStarted | monitor.events.CompactionSkipped | monitor.events.CompactionFinished,
        )
    ]
    assert len(events.of(monitor.events.CompactionFinished)) > 2
    for one, following in pairwise(told):
        if isinstance(one, monitor.events.CompactionFinished):
            assert following.turn > one.turn + 2
