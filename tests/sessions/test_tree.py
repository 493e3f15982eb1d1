"""The tree: how much of it is read, and what a damaged one shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import SessionDamaged, StoreError
from monitor.messages import AssistantMessage, Reasoning, Text, UserMessage
from monitor.sessions import Draft, InMemorySession, Node, compaction, context_edit, marker, message, said_of
from monitor.sessions.nodes import canonical, new_id, node_of
from monitor.sessions.tree import ACTIVE, Tip, TreeProblem, context_of, plan, verify
from tests.sessions.making import assistant, result, says, summary, user

pytestmark = pytest.mark.feature("AC-01")


class Tree:
    """Nodes in memory that count how often they are read."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.at: Tip | None = None
        self.read = 0

    def tip(self, id: str) -> Tip | None:
        node = self.nodes.get(id)
        return Tip(node.id, node.digest) if node else None

    def head(self, branch: str) -> Tip | None:
        return self.at

    def upwards(self, id: str | None) -> Iterator[Node]:
        while id is not None:
            self.read += 1
            yield self.nodes[id]
            id = self.nodes[id].parent

    def last_seq(self) -> int:
        return len(self.nodes)

    def add(self, *drafts: Draft) -> list[str]:
        count = iter(range(len(self.nodes), len(self.nodes) + len(drafts)))
        planned = plan(self, drafts, branch=ACTIVE, at_ms=1, new_id=lambda: new_id(1, next(count).to_bytes(10, "big")))
        self.nodes |= {node.id: node for node in planned.nodes}
        self.at = self.tip(planned.head) if planned.head else None
        return [node.id for node in planned.nodes]

    def context(self) -> Any:
        return context_of(self.upwards(self.at.id if self.at else None))


@pytest.mark.feature("AC-02")
def test_no_more_of_a_path_is_read_than_what_is_shown():
    """The context of a long session costs what its newest part costs."""
    tree = Tree()
    for _ in range(50):
        ids = tree.add(*(says(f"{number}") for number in range(200)))
        tree.add(context_edit(ids[-3], user("short")), marker("m"))
        tree.add(compaction(summary(ids[-10])))
    tree.add(says("a"), says("b"))
    tree.read = 0
    assert len(tree.context().messages) == 1 + 10 + 2
    assert tree.read == 10 + 2 + 1 + 2  # the kept tail, an edit and a marker, the compaction, what follows
    tree.read = 0
    tree.add(says("c"))
    assert tree.read == 0
    tree.add(message(assistant("d", "1")), message(result("1")))
    assert tree.read == 0


def changed(tree: Tree, id: str, **fields: Any) -> None:
    tree.nodes[id] = replace(tree.nodes[id], **fields)


@pytest.mark.feature("AC-02", "AC-07")
def test_a_compaction_that_cannot_be_used_is_passed_over_for_an_older_one():
    tree = Tree()
    (a, b) = tree.add(says("a"), says("b"))
    (first,) = tree.add(compaction(summary(b, text="first")))
    (second,) = tree.add(compaction(summary(b, text="second")))
    tree.add(says("c"))
    assert texts(tree) == ["second", "b", "c"]
    changed(tree, second, body=tree.nodes[second].body.replace(b, "f" * 32))
    assert texts(tree) == ["first", "b", "c"]
    changed(tree, second, body="no JSON")
    assert texts(tree) == ["first", "b", "c"]
    changed(tree, first, body="{}")
    assert texts(tree) == ["a", "b", "c"]
    assert a


def texts(tree: Tree) -> list[str]:
    return [one.content[0].text for one in tree.context().messages]


def test_a_message_that_cannot_be_read_is_an_error_and_not_left_away():
    tree = Tree()
    (a, _) = tree.add(says("a"), says("b"))
    for body in (
        "",
        "[]",
        "{}",
        '{"type":"run_started"}',
        '{"type":"user_message"}',
        '{"content":1,"type":"user_message"}',
    ):
        changed(tree, a, body=body)
        with pytest.raises(SessionDamaged, match=a):
            tree.context()
        assert list(verify(tree.nodes.values(), {}))


def test_verify_names_what_is_missing():
    tree = Tree()
    (a, b, c) = tree.add(says("a"), says("b"), says("c"))
    assert list(verify(tree.nodes.values(), {"x": c, "empty": None})) == []
    without = [tree.nodes[a], tree.nodes[c]]
    assert list(verify(without, {"x": b})) == [
        TreeProblem("node number 2 is missing", 2),
        TreeProblem(f"its parent {b} is missing", 3, c),
        TreeProblem(f"the branch 'x' ends at {b}, which is missing", None, b),
    ]


def test_a_chain_that_was_written_again_from_some_node_on_differs_in_all_its_later_digests():
    """So one digest, kept elsewhere, says whether anything before it was changed."""
    one, other = Tree(), Tree()
    one.add(says("a"), says("b"), says("c"))
    other.add(says("a"), says("B"), says("c"))
    pairs = list(zip(one.nodes.values(), other.nodes.values(), strict=True))
    assert [a.digest == b.digest for a, b in pairs] == [True, False, False]
    assert [a.body == b.body for a, b in pairs] == [True, False, True]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(st.characters(exclude_categories=())),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(st.characters(exclude_categories=()), max_size=5), inner, max_size=4)
        ),
    )
)
def test_a_body_that_is_read_and_written_again_has_the_same_bytes(data: Any):
    import json

    try:
        text = canonical(data)
    except ValueError:  # infinite
        return
    assert "\n" not in text
    text.encode()
    assert canonical(json.loads(text)) == text


TEXT = st.text(st.characters(exclude_categories=()), max_size=30)


@given(st.lists(TEXT), st.booleans(), TEXT | st.none())
def test_messages_are_read_back_as_they_were_also_where_defaults_are_not_written(
    parts: Any, synthetic: Any, signature: Any
):
    for said in (
        UserMessage(tuple(map(Text, parts)), synthetic=synthetic),
        AssistantMessage(tuple(Reasoning(one, signature, signature) for one in parts), synthetic=synthetic),
    ):
        node = node_of(message(said), seq=1, id="a", parent=None, parent_digest=None, at_ms=1)
        back = said_of(node)
        assert repr(back).encode("utf-16", "surrogatepass") == repr(said).encode("utf-16", "surrogatepass") or any(
            "\\ud" in repr(one)
            for one in (*parts, signature)  # two lone surrogates become one character
        )
        assert type(back) is type(said)


def test_an_id_needs_80_bits_of_chance():
    with pytest.raises(StoreError, match="10 bytes"):
        new_id(1, b"123")


@pytest.mark.anyio
async def test_memory_takes_back_every_part_of_a_step_that_fails():
    session = InMemorySession(clock=lambda: 5.0)
    await session.append(says("a"))
    assert (await session.nodes())[0].at_ms == 5_000
    await session.aclose()
    with pytest.raises(StoreError, match="closed"):
        await session.switch_node(None)
