"""Long texts that stand once: what is read back is what was written, whatever it looks like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import Supervisor
from monitor.events import ToolFinished
from monitor.runs import Results
from monitor.sessions import SQLiteSession
from monitor.sessions.nodes import canonical
from monitor.sessions.tables.sharing import (
    AS_IS,
    CALL,
    LEAST_CHARS,
    POINTER,
    Pointers,
    can_be_shared,
    whole,
)
from monitor.sessions.tables.step import INLINE_BYTES
from monitor.testing import ScriptedModel
from monitor.testing import call as calls

LONG = ["a" * LEAST_CHARS, "b" * (LEAST_CHARS + 5), "long \ud800 text " * 9]
TEXT = st.sampled_from([*LONG, "short", POINTER, CALL, AS_IS]) | st.text(max_size=5)
DATA: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT, inner, max_size=3)
        | st.fixed_dictionaries({"arguments": inner, "id": st.just("c"), "name": st.sampled_from(["look", "act"])})
    ),
    max_leaves=12,
)


@given(data=DATA, nodes=st.lists(DATA, max_size=3))
def test_sharing_is_undone_by_reading(data: Any, nodes: list[Any]):
    bodies = {seq: canonical(node) for seq, node in enumerate(nodes, 1)}
    shared = Pointers(bodies.items()).shared(data)
    assert whole(json.loads(json.dumps(shared)), bodies.__getitem__) == data


def test_a_text_is_pointed_to_only_where_a_node_has_it_and_it_is_long():
    pointers = Pointers([(7, canonical({"x": [LONG[0], "short"], "y": LONG[1]}))])
    assert pointers.shared({"text": LONG[1], "other": LONG[2], "short": "short"}) == {
        "text": {POINTER: [7, 1]},
        "other": LONG[2],
        "short": "short",
    }
    assert can_be_shared([{"x": LONG[0]}])
    assert not can_be_shared({LONG[0]: "short"})


def test_a_call_is_pointed_to_where_it_is_the_same_to_the_last_argument():
    calls = [{"arguments": {"n": n}, "id": f"call_{n}", "name": "act"} for n in range(3)]
    pointers = Pointers([(7, canonical({"content": calls[:2]}))])
    assert pointers.shared({"call": calls[1], "others": [calls[2]]}) == {"call": {CALL: [7, 1]}, "others": [calls[2]]}
    assert can_be_shared({"call": calls[0]})


def test_a_pointer_to_nothing_is_an_error():
    with pytest.raises(ValueError, match="has no text number 4"):
        whole({POINTER: [1, 4]}, lambda _: canonical([LONG[0]]))


@pytest.mark.anyio
@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize("chars", [30_000, INLINE_BYTES - 200, INLINE_BYTES + 1, 300_000])
async def test_a_result_stands_once_in_its_session_however_long_it_is(tmp_path: Path, chars: int, *, chunks: bool):
    def read(n: int) -> str:
        """Read."""
        return (f"line {n} of a text\n" * chars)[:chars]

    path = tmp_path / "a.session"
    model = ScriptedModel(*([calls("read", n=n)] for n in range(4)), "Done.")
    async with SQLiteSession(path, chunks=chunks) as session:
        await Supervisor(model, tools=[read], results=Results(bound=None), detectors=None, session=session).run("Read.")
        ended = [one.event.result.text for one in await session.events() if isinstance(one.event, ToolFinished)]
        assert ended == [one.text for one in await session.calls()] == [read(n) for n in range(4)]
        assert not await session.verify()
    size = sum(one.stat().st_size for one in tmp_path.rglob("*") if one.is_file())
    assert size < 4 * chars * 1.1 + 200_000  # an empty session has 90 KB
