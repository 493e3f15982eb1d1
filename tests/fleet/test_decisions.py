"""What an engine does after a receipt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.fleet import Decision, End, NextTurn, Park, Receipt, Wait, decide
from monitor.fleet.receipts import STUCK_WORKER

RECEIPT = Receipt(session="s", run="r", turn=4, turns=4, head="h", next="turn", reason="worker_stopping")


@pytest.mark.parametrize(
    ("receipt", "decision"),
    [
        (RECEIPT, NextTurn(5)),
        (replace(RECEIPT, next="wait", reason="paused", wake_at_s=9.0), Wait(5, 9.0)),
        (replace(RECEIPT, next="end", reason="goal", ok=True), End(True, "goal")),
        (replace(RECEIPT, next="end", reason="aborted"), End(False, "aborted")),
        (replace(RECEIPT, next="park", reason=STUCK_WORKER), Park(5, STUCK_WORKER)),
    ],
)
def test_each_receipt_has_one_consequence(receipt: Receipt, decision: Decision):
    assert decide(receipt) == decision
    assert decide(Receipt.from_json(receipt.to_json())) == decision
