"""The nodes of a session: what they hold, how that is written, and the chain of their digests.

A node is never changed. Its body is one line of JSON, always the same bytes for the same content.
Its digest covers its parent's digest and everything that it holds itself. So one changed bit shows
in the node, and one missing node in all nodes behind it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from monitor._util.checked_words import checked
from monitor._util.codec import Codec, to_plain
from monitor.chunks import ToolResult
from monitor.errors import ConfigError, SessionDamaged, StoreError
from monitor.messages import AssistantMessage, Message, UserMessage, message_codec

T = TypeVar("T")

DIGEST_BYTES: Final = 16
"""128 bits: enough that no two contents have the same digest by chance. Each node stores one."""


class NodeKind(StrEnum):
    """The kinds of nodes of a session."""

    MESSAGE = "message"
    """A message of the conversation, or the result of one call."""
    COMPACTION = "compaction"
    """A summary, and the first node after it whose original is still shown."""
    CONTEXT_EDIT = "context_edit"
    """A replacement that is shown in the place of another node. That node itself stays as it is."""
    MARKER = "marker"
    """A named point with data. It is not shown to the model."""
    BRANCH_NOTE = "branch_note"
    """A text for people about the branch. It is not shown to the model."""


class Follow:
    """The parent of a draft that follows the head of its branch."""

    def __repr__(self) -> str:
        return "FOLLOW"


FOLLOW: Final = Follow()
"""The default parent of a draft: the head of the branch that it is written to."""

Said: TypeAlias = Message | ToolResult
"""The content of a node of kind `message`. A result that is stored apart from its message joins
that message in the context.
"""

said_codec: Codec[Said] = Codec(UserMessage, AssistantMessage, ToolResult)
"""The JSON form of the content of a node."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class Node:
    """One node of the tree, as it is stored."""

    seq: int
    """The number of the node in the order of writing, from 1, without gaps. Times do not define the
    order.
    """
    id: str
    """128 bits as 32 hexadecimal digits; the first 12 are the time in milliseconds."""
    parent: str | None
    """The id of the node before it on its path. `None`: it is a root."""
    kind: NodeKind
    run: str | None
    turn: int | None
    at_ms: int
    """The time of writing, in milliseconds since 1970."""
    tokens: int | None
    """The size of the part that is shown to the model. `None`: not known."""
    digest: str
    body: str = field(repr=False)
    """The content of the node as one line of JSON."""

    @property
    def data(self) -> dict[str, Any]:
        """The body as data. Raises `SessionDamaged` if it is no JSON object."""
        return read_body(self)


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class Draft:
    """A node that is not stored yet. Make it with `message`, `compaction` and the others."""

    kind: NodeKind
    body: str = field(repr=False)
    parent: str | Follow | None = FOLLOW
    """`FOLLOW`: the node follows the head of the branch, or the draft before it. An id: it follows
    the node with this id. `None`: it is a new root.
    """
    run: str | None = None
    turn: int | None = None
    tokens: int | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class Compacted:
    """The content of a compaction node.

    Raises `ConfigError`, before anything is written, for an empty summary, for an empty `shown`
    and for negative numbers of tokens.
    """

    summary: str
    shown: tuple[Message, ...]
    """The messages that are shown in the place of everything before `first_kept_node_id`."""
    first_kept_node_id: str | None
    """The first node that is shown as it is. `None`: no node before the compaction is shown."""
    tokens_before: int
    tokens_after: int
    details: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""
    reason: str = ""
    summarised_by: str = ""
    base: str | None = None
    """The newest node that the summary covers. `None`: the head at the time of writing."""
    stale: bool = False
    """When this compaction was finished, the path had changed, or another compaction was newer. The
    node is kept but not used.
    """

    def __post_init__(self) -> None:
        if not self.summary.strip() or not self.shown:
            raise ConfigError("a compaction has a summary, and something that is shown for it")
        if min(self.tokens_before, self.tokens_after) < 0:
            raise ConfigError("tokens_before and tokens_after are numbers of tokens")


compacted_codec: Codec[Compacted] = Codec(Compacted)


@dataclass(slots=True, frozen=True, kw_only=True)
class ContextEdit:
    """The content of a `context_edit` node."""

    target: str
    """The id of the node that is replaced. It stands on the same path."""
    replacement: UserMessage | AssistantMessage | ToolResult | None
    """The model is shown this in its place. `None`: neither the target nor the results of its calls
    are shown.
    """


# ------------------------------------------------------------------ making drafts


def message(
    said: Said, *, run: str | None = None, turn: int | None = None, tokens: int | None = None, parent: Any = FOLLOW
) -> Draft:
    """A draft of a message, or of the result of one call."""
    if not isinstance(said, UserMessage | AssistantMessage | ToolResult):
        raise ConfigError(f"a node holds a message or a tool result, not {type(said).__name__}")
    return Draft(
        kind=NodeKind.MESSAGE,
        body=canonical(said_codec.to_brief(said)),
        parent=parent,
        run=run,
        turn=turn,
        tokens=tokens,
    )


def compaction(done: Compacted, *, run: str | None = None, turn: int | None = None) -> Draft:
    """A draft of a compaction. When it is written, the store decides whether it is stale. Raises
    `ConfigError` if a user's message is not the first that it shows: no provider takes a history
    that begins with an answer.
    """
    if not isinstance(done.shown[0], UserMessage):
        raise ConfigError("what a compaction shows begins with a user message")
    return Draft(kind=NodeKind.COMPACTION, body=body_of_compaction(done), run=run, turn=turn, tokens=done.tokens_after)


def context_edit(target: str, replacement: Said | None, *, run: str | None = None, turn: int | None = None) -> Draft:
    """A draft by which `target` is shown as `replacement` from now on, on this branch."""
    shown = None if replacement is None else said_codec.to_brief(replacement)
    body = canonical({"replacement": shown, "target": target})
    return Draft(kind=NodeKind.CONTEXT_EDIT, body=body, run=run, turn=turn)


def marker(name: str, data: Any = None, *, run: str | None = None, turn: int | None = None) -> Draft:
    """A draft of a named point. `data`: anything that JSON can hold."""
    return Draft(kind=NodeKind.MARKER, body=canonical({"data": to_plain(data), "name": name}), run=run, turn=turn)


def branch_note(text: str) -> Draft:
    """A draft of a text for people about the branch."""
    return Draft(kind=NodeKind.BRANCH_NOTE, body=canonical({"text": text}))


def body_of_compaction(done: Compacted) -> str:
    """The JSON that a compaction node has as its body."""
    plain = compacted_codec.to_brief(done)
    plain["shown"] = [message_codec.to_brief(one) for one in done.shown]
    return canonical(plain)


def canonical(data: Any) -> str:
    """JSON on one line, the same bytes for equal data. Letters of every script stay readable. If a
    text has a lone surrogate, which UTF-8 cannot hold, the line is ASCII.
    """
    text = _write(data)
    if not _fits(text):  # two lone surrogates beside each other are read back as one character
        data = json.loads(_write_ascii(data))
        text = _write(data)
    return text if _fits(text) else _write_ascii(data)


_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_write_ascii = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def _fits(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# ------------------------------------------------------------------ reading bodies


def read_body(node: Node) -> dict[str, Any]:
    """The body of `node` as data. Raises `SessionDamaged` if it is no JSON object."""
    try:
        data = json.loads(node.body)
    except (ValueError, RecursionError) as error:
        raise SessionDamaged(f"node {node.id} (number {node.seq}) cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise SessionDamaged(f"node {node.id} (number {node.seq}) holds no JSON object")
    return data


def said_of(node: Node) -> Said:
    """The message of a node of kind `message`. Raises `SessionDamaged` if it holds none."""
    return _decoded(node, said_codec.from_dict)


def compacted_of(node: Node) -> Compacted:
    """The content of a compaction node. Raises `SessionDamaged` if it cannot be read."""

    def read(data: dict[str, Any]) -> Compacted:
        shown = tuple(message_codec.from_dict(one) for one in data.get("shown", ()))
        return compacted_codec.from_dict({**data, "shown": shown})

    return _decoded(node, read)


def edit_of(node: Node) -> ContextEdit:
    """The content of a context edit. Raises `SessionDamaged` if it cannot be read."""

    def read(data: dict[str, Any]) -> ContextEdit:
        given = data["replacement"]
        target = data["target"]
        if not isinstance(target, str):
            raise ValueError("the target is no id")
        return ContextEdit(target=target, replacement=None if given is None else said_codec.from_dict(given))

    return _decoded(node, read)


def _decoded(node: Node, read: Callable[[dict[str, Any]], T]) -> T:
    try:
        return read(read_body(node))
    except (ValueError, TypeError, KeyError, AttributeError, ConfigError) as error:
        raise SessionDamaged(f"node {node.id} (number {node.seq}, {node.kind}) cannot be read: {error}") from None


def check_readable(node: Node) -> None:
    """Raise `SessionDamaged` if the body does not fit the node's kind."""
    match node.kind:
        case NodeKind.MESSAGE:
            said_of(node)
        case NodeKind.COMPACTION:
            compacted_of(node)
        case NodeKind.CONTEXT_EDIT:
            edit_of(node)
        case NodeKind.MARKER | NodeKind.BRANCH_NOTE:
            read_body(node)


# ------------------------------------------------------------------ the chain


def digest_of(parent_digest: str | None, node: Node) -> str:
    """The digest of a node, as 32 hexadecimal digits: BLAKE2b over its parent's digest and all its
    fields but its number and its place.
    """
    head = _write_ascii([parent_digest, node.id, node.kind, node.run, node.turn, node.at_ms, node.tokens])
    hashed = hashlib.blake2b(head.encode(), digest_size=DIGEST_BYTES)
    hashed.update(b"\n")
    hashed.update(node.body.encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def node_of(draft: Draft, *, seq: int, id: str, parent: str | None, parent_digest: str | None, at_ms: int) -> Node:
    """The stored node that is made of a draft."""
    node = Node(
        seq=seq,
        id=id,
        parent=parent,
        kind=draft.kind,
        run=draft.run,
        turn=draft.turn,
        at_ms=at_ms,
        tokens=draft.tokens,
        digest="",
        body=draft.body,
    )
    return replace(node, digest=digest_of(parent_digest, node))


def new_id(at_ms: int, chance: bytes) -> str:
    """An id: 48 bits of time and 80 bits of chance."""
    if len(chance) != ID_CHANCE_BYTES:
        raise StoreError(f"an id needs {ID_CHANCE_BYTES} bytes of chance, not {len(chance)}")
    return f"{at_ms & 0xFFFF_FFFF_FFFF:012x}{chance.hex()}"


ID_CHANCE_BYTES: Final = 10
