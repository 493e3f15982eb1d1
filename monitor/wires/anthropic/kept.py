"""Parts of the model's turn that Anthropic's service needs back and that no neutral part can hold.

Each of them is the signature of a `Reasoning` without text, in its place among the other parts:

- `block`: a whole block, such as a call of a server-side tool, its result, or a compaction;
- `citations` and `chars`: the citations of the last `chars` code points of the text before it;
- `use`: the fields of the tool call behind it besides its name and input, such as its caller.

No model signs these blocks. Every Claude model accepts them, and no other provider gets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from monitor._util.signatures import mark, origin, read_mark
from monitor.chunks import ToolCall
from monitor.messages import AssistantMessage, Message, Reasoning
from monitor.reasons import FinishReason

ORIGIN: Final = origin("anthropic", None)

_OF_A_CALL: Final = frozenset({"type", "id", "name", "input", "cache_control"})


def of_block(block: Mapping[str, Any]) -> str:
    """The signature that holds a whole block."""
    return mark({"block": dict(block)})


def of_text(citations: object, chars: int) -> str | None:
    """The signature that holds the citations of a text of `chars` code points, if there are any."""
    return mark({"citations": citations, "chars": chars}) if isinstance(citations, list) and citations else None


def of_call(block: Mapping[str, Any]) -> str | None:
    """The signature that holds the further fields of a `tool_use` block. `None`: it has none."""
    fields = {name: value for name, value in block.items() if name not in _OF_A_CALL and value is not None}
    if fields.get("caller") == {"type": "direct"}:  # what the service takes if nothing is said
        del fields["caller"]
    return mark({"use": fields}) if fields else None


def kept_block(piece: object) -> dict[str, Any] | None:
    """The whole block that a part of a message keeps, if it keeps one."""
    fields = _fields(piece).get("block")
    return fields if isinstance(fields, dict) else None


def kept_citations(piece: Reasoning) -> tuple[list[Any], int] | None:
    """The citations that a part keeps for the text before it, and the length of their text."""
    fields = _fields(piece)
    citations, chars = fields.get("citations"), fields.get("chars")
    return (citations, chars) if isinstance(citations, list) and type(chars) is int and chars > 0 else None


def kept_use(piece: Reasoning) -> dict[str, Any] | None:
    """The further fields that a part keeps for the call behind it."""
    fields = _fields(piece).get("use")
    return fields if isinstance(fields, dict) else None


def _fields(piece: object) -> dict[str, Any]:
    return (read_mark(piece.signature) or {}) if isinstance(piece, Reasoning) else {}


def call_of(block: Mapping[str, Any]) -> str | None:
    """The id of the service's own call that `block` is, or answers. `None`: `block` is neither."""
    kind = str(block.get("type"))
    key = "id" if kind.endswith("_tool_use") else "tool_use_id" if kind.endswith("_tool_result") else ""
    given = block.get(key)
    return given if isinstance(given, str) else None


def paired(messages: Iterable[Message]) -> frozenset[str]:
    """The ids of the service's own calls that may be sent in `messages`.

    The service refuses a call of its own without its result, and a result without its call. A call
    may wait for its result behind a turn that also calls tools of the caller's. It may also wait
    behind a turn that the service has paused, until the user speaks.
    """
    waiting: set[str] = set()
    complete: set[str] = set()
    calls = False
    for message in messages:
        if not isinstance(message, AssistantMessage):
            if not calls:
                waiting.clear()
            continue
        for block in filter(None, map(kept_block, message.content)):
            call = call_of(block)
            if call is not None and "tool_use_id" not in block:
                waiting.add(call)
            elif call in waiting:
                waiting.remove(call)
                complete.add(call)
        calls = any(isinstance(part, ToolCall) for part in message.content)
        if message.finish_reason not in ((FinishReason.DONE, None) if calls else (FinishReason.INTERRUPTED, None)):
            waiting.clear()
    return frozenset(complete | waiting)
