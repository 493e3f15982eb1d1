"""The benchmark of the context still runs, and has numbers for all that it promises. Nothing is
timed: a busy machine is no bug.
"""

from __future__ import annotations

import json

from bench import context
from monitor.context import read_history, repair, validate


def test_context() -> None:
    results = context.measure((50, 100), rounds=1, turns=3)
    context.show(results)
    data = json.loads(json.dumps(results.to_dict()))
    assert {"read", *context.COUNTED, "reduce"} <= {row["row"] for row in data["ours"]}
    assert all(ms >= 0 for row in data["ours"] + data["peers"] for ms in row["ms"].values())
    assert set(data["turn_ms"]) == set(data["ours"][0]["ms"]) == {"50", "100"}
    assert data["history"]["tokens"] > 100_000
    assert set(data["goals"][0]) == {"goal", "value", "limit", "passed"}


def test_the_history_needs_repairs_and_is_as_large_as_promised() -> None:
    records = context.chat(1_000)
    assert 900 <= len(records) <= 1_000
    assert 4.5e6 < len(json.dumps(records, ensure_ascii=False)) < 6e6
    assert validate("openai-chat", records)
    messages, report = repair(read_history("openai-chat", records), form="openai-chat")
    assert {"result_moved", "result_added"} <= set(report.counts)
    assert repair(messages, form="openai-chat")[0] is messages
