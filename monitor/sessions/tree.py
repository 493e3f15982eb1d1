"""The tree of a session: the place of a new node, the messages for the model, the tree's faults.

The functions are pure. A store gives a `TreeView` of its tree, and gets the nodes to write or the
messages to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from monitor._util.codec import tag_of
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import SessionDamaged, StoreError
from monitor.messages import AssistantMessage, Message
from monitor.sessions.nodes import (
    Compacted,
    Draft,
    Follow,
    Node,
    NodeKind,
    Said,
    body_of_compaction,
    check_readable,
    compacted_of,
    digest_of,
    edit_of,
    node_of,
    read_body,
    said_of,
)

ASSISTANT_MESSAGE: Final = tag_of(AssistantMessage)
TOOL_RESULT: Final = tag_of(ToolResult)
ACTIVE: Final = "active"
"""The name of the branch that is used where no other is named."""


@dataclass(slots=True, frozen=True)
class Tip:
    """The facts about a parent that a new node needs."""

    id: str
    digest: str


class TreeView(Protocol):
    """The tree of a store at one moment."""

    def tip(self, id: str) -> Tip | None:
        """The node with this id; `None`: there is none."""
        ...

    def head(self, branch: str) -> Tip | None:
        """The newest node of a branch; `None`: the branch is empty, or there is none."""
        ...

    def upwards(self, id: str | None) -> Iterator[Node]:
        """The node, its parent, and so on to the root. Nothing for `None`."""
        ...

    def last_seq(self) -> int:
        """The number of the newest node; 0: there is none."""
        ...


@dataclass(slots=True, frozen=True)
class Planned:
    """Nodes that are ready to be written."""

    nodes: tuple[Node, ...]
    head: str | None
    """The node at which the branch ends after that."""


@dataclass(slots=True, frozen=True)
class Entry:
    """A message of the context, and the nodes that it comes from."""

    node: str
    """The id of the node that holds the message, or of the compaction that shows it."""
    message: Message
    result_nodes: tuple[str, ...] = ()
    """For each result of the message, the id of the node that holds it."""


@dataclass(slots=True, frozen=True)
class Context:
    """The messages that the model gets of a path."""

    entries: tuple[Entry, ...] = ()
    compaction: Node | None = None
    """The compaction that is in force."""
    head: str | None = None
    """The id of the newest node of the path."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the path, without their nodes."""
        return tuple(entry.message for entry in self.entries)


# ------------------------------------------------------------------ writing


def plan(view: TreeView, drafts: Sequence[Draft], *, branch: str, at_ms: int, new_id: Callable[[], str]) -> Planned:
    """The nodes that `drafts` become, each behind the one before it.

    Raises `StoreError` for a draft that does not fit the tree: a parent that is not there, a result
    without its call, an edit of a node that is not on the path.
    """
    over = _Overlay(view)
    at = view.head(branch)
    for draft in drafts:
        if not isinstance(draft.parent, Follow):
            at = _parent(over, draft.parent)
        if draft.kind is NodeKind.COMPACTION:
            at = _add_compaction(over, draft, at, at_ms, new_id())
            continue
        _check(over, draft, at)
        at = over.add(draft, at, at_ms, new_id())
    return Planned(tuple(over.added.values()), at.id if at else None)


class _Overlay:
    """The view, and the nodes that are planned on top of it."""

    def __init__(self, view: TreeView) -> None:
        self._view = view
        self._last = view.last_seq()
        self._bodies: dict[str, dict[str, Any]] = {}
        self.added: dict[str, Node] = {}

    def tip(self, id: str) -> Tip | None:
        node = self.added.get(id)
        return Tip(node.id, node.digest) if node else self._view.tip(id)

    def upwards(self, at: Tip | None) -> Iterator[Node]:
        id = at.id if at else None
        while id in self.added:
            node = self.added[id]
            yield node
            id = node.parent
        yield from self._view.upwards(id)

    def body(self, node: Node) -> dict[str, Any]:
        """The body of a message as data. Each is read once, however many results follow it."""
        if node.id not in self._bodies:
            self._bodies[node.id] = read_body(node)
        return self._bodies[node.id]

    def add(self, draft: Draft, at: Tip | None, at_ms: int, id: str) -> Tip:
        self._last += 1
        node = node_of(
            draft,
            seq=self._last,
            id=id,
            parent=at.id if at else None,
            parent_digest=at.digest if at else None,
            at_ms=at_ms,
        )
        self.added[id] = node
        return Tip(node.id, node.digest)


def _parent(over: _Overlay, parent: str | None) -> Tip | None:
    if parent is None:
        return None
    found = over.tip(parent)
    if found is None:
        raise StoreError(f"there is no node {parent} to go on from")
    return found


def _check(over: _Overlay, draft: Draft, at: Tip | None) -> None:
    """Raise `StoreError` for a draft that would never be shown, or would hide too much."""
    if draft.kind is NodeKind.MESSAGE and '"type":"tool_result"' in draft.body:
        said = read_body(_as_node(draft))
        if said.get("type") == TOOL_RESULT:
            _check_result(over, said.get("id"), at)
    elif draft.kind is NodeKind.CONTEXT_EDIT:
        edit = edit_of(_as_node(draft))
        target = next((node for node in over.upwards(at) if node.id == edit.target), None)
        if target is None or target.kind is not NodeKind.MESSAGE:
            raise StoreError(f"the edit's target {edit.target} is no message on the path")
        _check_replacement(said_of(target), edit.replacement)


def _check_result(over: _Overlay, id: object, at: Tip | None) -> None:
    """The bodies are read as plain data, which takes a tenth of the time."""
    for node in over.upwards(at):
        if node.kind is not NodeKind.MESSAGE:
            continue
        said = over.body(node)
        if said.get("type") == ASSISTANT_MESSAGE:
            if any("arguments" in part and part.get("id") == id for part in said.get("content", ())):
                return
            break
        if said.get("type") == TOOL_RESULT and said.get("id") == id:
            raise StoreError(f"the call {id} has its result already")
    raise StoreError(f"the result of {id} has no call: the newest assistant message does not have it")


def _check_replacement(target: Said, shown: Said | None) -> None:
    if isinstance(target, ToolResult) and (not isinstance(shown, ToolResult) or shown.id != target.id):
        raise StoreError("a result is replaced by a result of the same call: no provider accepts a call without one")
    if shown is not None and not isinstance(target, ToolResult) and type(shown) is not type(target):
        raise StoreError(f"a {type(target).__name__} is replaced by another one, not by a {type(shown).__name__}")


def _as_node(draft: Draft) -> Node:
    """The draft as a node that can be read."""
    return node_of(draft, seq=0, id="(new)", parent=None, parent_digest=None, at_ms=0)


def _add_compaction(over: _Overlay, draft: Draft, at: Tip | None, at_ms: int, id: str) -> Tip | None:
    """Add a compaction. A stale one follows the node that it was made from, beside the path."""
    done = compacted_of(_as_node(draft))
    base = over.tip(done.base) if done.base else at
    if base is None:
        raise StoreError(
            f"there is no node {done.base} that a compaction could be based on"
            if done.base
            else "a compaction needs a path that it covers"
        )
    stale = done.base is not None and not _is_current(over, at, base, done.first_kept_node_id)
    if not stale:
        _check_kept(over, at or base, done.first_kept_node_id)
    body = body_of_compaction(replace(done, base=base.id, stale=stale))
    tip = over.add(replace(draft, body=body), base if stale else at, at_ms, id)
    return at if stale else tip


def _is_current(over: _Overlay, at: Tip | None, base: Tip, first_kept: str | None) -> bool:
    """Whether the covered nodes still begin the path, with the first kept node behind them, and no
    newer compaction covers them.
    """
    keeps = first_kept is None or over.tip(first_kept) is None  # such a node never was on the path
    current = False
    for node in over.upwards(at):
        keeps = keeps or node.id == first_kept
        current = current or node.id == base.id
        if current and keeps:
            return True
        if node.kind is NodeKind.COMPACTION and not current:
            return False
    return False


def _check_kept(over: _Overlay, base: Tip, first_kept: str | None) -> None:
    if first_kept is None:
        return
    node = next((one for one in over.upwards(base) if one.id == first_kept), None)
    if node is None:
        raise StoreError(f"first_kept_node_id {first_kept} is not on the path that the compaction covers")
    if node.kind is NodeKind.MESSAGE and isinstance(said_of(node), ToolResult):
        raise StoreError("first_kept_node_id is a result: it would be shown without its call")


# ------------------------------------------------------------------ showing


def context_of(upwards: Iterable[Node]) -> Context:
    """The messages that the model gets of a path. `upwards`: its nodes, newest first.

    They are the last valid compaction, the nodes that it keeps, and the nodes after it. No more
    nodes are read than that needs. A compaction is valid if it is not stale and its first kept node
    stands on the path before it.
    """
    walked: list[Node] = []
    chosen: tuple[Node, Compacted] | None = None
    for node in upwards:
        walked.append(node)
        if chosen is None and node.kind is NodeKind.COMPACTION:
            chosen = _usable(node)
            if chosen and chosen[1].first_kept_node_id is None:
                break
        elif chosen and node.id == chosen[1].first_kept_node_id:
            break
    else:  # the root is reached: no compaction, or the newest one keeps a node that is not there
        chosen = _last_valid(walked)
    if not walked:
        return Context()
    kept = _kept(walked, chosen)
    entries = _entries(kept)
    if chosen is None:
        return Context(tuple(entries), None, walked[0].id)
    shown = [Entry(chosen[0].id, one) for one in chosen[1].shown]
    return Context((*shown, *entries), chosen[0], walked[0].id)


def _usable(node: Node) -> tuple[Node, Compacted] | None:
    try:
        done = compacted_of(node)
    except SessionDamaged:
        return None
    return None if done.stale else (node, done)


def _last_valid(walked: Sequence[Node]) -> tuple[Node, Compacted] | None:
    """The newest compaction of a whole path that is valid. `walked`: newest first."""
    place = {node.id: at for at, node in enumerate(walked)}
    for at, node in enumerate(walked):
        found = _usable(node) if node.kind is NodeKind.COMPACTION else None
        if found and (found[1].first_kept_node_id is None or place.get(found[1].first_kept_node_id, -1) > at):
            return found
    return None


def _kept(walked: list[Node], chosen: tuple[Node, Compacted] | None) -> list[Node]:
    """The nodes that are shown as they are, oldest first."""
    if chosen is None:
        return walked[::-1]
    first = chosen[1].first_kept_node_id or chosen[0].id
    end = next(at for at, node in enumerate(walked) if node.id == first)
    return walked[end::-1]


def new_ids(before: Message, after: Message) -> dict[str, str]:
    """The new ids of the calls of `before`, by their old ones, where `after` has others."""
    made, now = ([part for part in one.content if isinstance(part, ToolCall)] for one in (before, after))
    if len(made) != len(now):
        return {}
    return {old.id: new.id for old, new in zip(made, now, strict=True) if old.id != new.id}


class _Building:
    """A message, and the results that belong to it."""

    __slots__ = ("ids", "message", "node", "result_nodes", "results", "shown")

    def __init__(self, node: str, message: Message, original: Message, *, shown: bool) -> None:
        self.ids = {} if message is original else new_ids(original, message)
        self.node = node
        self.message = message
        self.shown = shown
        self.results = {one.id: one for one in message.results} if isinstance(message, AssistantMessage) else {}
        self.result_nodes = dict.fromkeys(self.results, node)

    def entry(self) -> Entry:
        if not isinstance(self.message, AssistantMessage) or not self.results:
            return Entry(self.node, self.message)
        order = [part.id for part in self.message.content if isinstance(part, ToolCall) and part.id in self.results]
        order += [id for id in self.results if id not in order]
        whole = replace(self.message, results=tuple(self.results[id] for id in order))
        return Entry(self.node, whole, tuple(self.result_nodes[id] for id in order))


def _entries(kept: Sequence[Node]) -> list[Entry]:
    edits: dict[str, Said | None] = {}
    for node in kept:
        if node.kind is NodeKind.CONTEXT_EDIT:
            edit = edit_of(node)
            edits[edit.target] = edit.replacement  # the last one wins
    built: list[_Building] = []
    for node in kept:
        if node.kind is not NodeKind.MESSAGE:
            continue
        original = said_of(node)
        said = edits.get(node.id, original)
        if isinstance(original, ToolResult):
            if isinstance(said, ToolResult):
                _join(built, node.id, said)
        else:  # a message that an edit hides still gets its results, so that they are hidden as well
            shown = said is not None and not isinstance(said, ToolResult)
            built.append(_Building(node.id, said if shown else original, original, shown=shown))  # type: ignore[arg-type]
    return [one.entry() for one in built if one.shown]


def _join(built: Sequence[_Building], node: str, result: ToolResult) -> None:
    for one in reversed(built):
        if isinstance(one.message, AssistantMessage):
            id = one.ids.get(result.id, result.id)
            if id not in one.results:
                one.results[id] = result if id == result.id else replace(result, id=id)
                one.result_nodes[id] = node
            return


# ------------------------------------------------------------------ verifying


@dataclass(slots=True, frozen=True)
class TreeProblem:
    """A fault: something in a session that is not as it was written."""

    what: str
    seq: int | None = None
    node: str | None = None


def verify(nodes: Iterable[Node], heads: Mapping[str, str | None]) -> Iterator[TreeProblem]:
    """The faults of a tree. `nodes`: in the order of their numbers."""
    digests: dict[str, str] = {}
    expected = 1
    for node in nodes:
        if node.seq != expected:
            yield TreeProblem(f"node number {expected} is missing", expected)
        expected = node.seq + 1
        yield from _problems(node, digests)
        digests[node.id] = node.digest
    for branch, head in heads.items():
        if head is not None and head not in digests:
            yield TreeProblem(f"the branch {branch!r} ends at {head}, which is missing", None, head)


def _problems(node: Node, digests: Mapping[str, str]) -> Iterator[TreeProblem]:
    if node.parent is not None and node.parent not in digests:
        yield TreeProblem(f"its parent {node.parent} is missing", node.seq, node.id)
        return
    if node.digest != digest_of(digests[node.parent] if node.parent else None, node):
        yield TreeProblem("it is not as it was written: its digest differs", node.seq, node.id)
        return
    try:
        check_readable(node)
    except SessionDamaged as error:
        yield TreeProblem(str(error), node.seq, node.id)
