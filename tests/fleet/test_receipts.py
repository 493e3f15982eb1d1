"""Receipts: short whatever is in them, and refused where they are not understood."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import Usage
from monitor.errors import ConfigError, StoreError
from monitor.fleet import Receipt
from monitor.fleet.receipts import MAX_BYTES, MAX_NAME_CHARS

RECEIPT = Receipt(session="s" * 32, run="r" * 32, turn=1, turns=1, head="h" * 32, next="turn", reason="worker_stopping")
names = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=MAX_NAME_CHARS)
texts = st.text(st.characters(exclude_categories=()), max_size=4_000)
wholes = st.integers(0, 2**63 - 1)


receipts = st.builds(
    Receipt,
    session=names,
    run=names,
    turn=st.integers(1, 2**63),
    turns=wholes,
    head=names,
    next=st.sampled_from(["turn", "wait", "end", "park"]),
    reason=names,
    detail=texts,
    ok=st.booleans(),
    usage=st.builds(Usage, wholes, wholes, wholes, wholes, wholes),
    cost_usd=st.floats(0, 1e300),
    evidence=names,
    wake_at_s=st.none() | st.floats(0, 1e12),
)


@given(receipts)
def test_a_receipt_has_at_most_two_kilobytes_and_reads_back(receipt: Receipt):
    line = receipt.to_json()
    assert len(line.encode()) <= MAX_BYTES
    again = Receipt.from_json(line)
    assert again.to_json() == line
    assert replace(again, detail="") == replace(receipt, detail="")


@pytest.mark.parametrize(
    "wrong",
    [
        {"session": "s" * (MAX_NAME_CHARS + 1)},
        {"head": "é"},
        {"run": "a\nb"},
        {"turn": 0},
        {"turn": True},
        {"turns": -1},
        {"next": "perhaps"},
        {"cost_usd": float("nan")},
        {"wake_at_s": float("inf")},
    ],
)
def test_what_cannot_be_said_shortly_is_refused(wrong: dict[str, object]):
    with pytest.raises(ConfigError):
        replace(RECEIPT, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None])
def test_another_version_is_refused(version: object):
    data = json.loads(RECEIPT.to_json())
    with pytest.raises(StoreError, match="version"):
        Receipt.from_json(json.dumps({**data, "version": version}))


@pytest.mark.parametrize(
    "change",
    [
        {"strange": 1},
        {"ok": 1},
        {"detail": None},
        {"usage": {}},
        {"usage": None},
        {"turn": "1"},
        {"next": []},
        {"session": 5},
        {"wake_at_s": "soon"},
    ],
)
def test_a_line_that_is_no_receipt_is_refused(change: dict[str, object]):
    data = json.loads(RECEIPT.to_json())
    with pytest.raises(StoreError):
        Receipt.from_json(json.dumps({**data, **change}))


VALUES = st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=8)


@given(st.text(max_size=100) | VALUES.map(json.dumps))
def test_any_other_text_is_refused(line: str):
    with pytest.raises(StoreError):
        Receipt.from_json(line)


def test_a_field_that_is_missing_is_named():
    data = json.loads(RECEIPT.to_json())
    del data["head"]
    with pytest.raises(StoreError, match="head"):
        Receipt.from_json(json.dumps(data))
