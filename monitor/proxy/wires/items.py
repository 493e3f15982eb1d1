"""The output items of a streamed response, as far as the client knows them, and the events that
close them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

SERVED: Final = frozenset(
    {
        "code_interpreter_call",
        "compaction",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "message",
        "reasoning",
        "web_search_call",
    }
)
"""Items that ask nothing of the client. Every other one counts as a call, an unknown one too."""

_TEXTS: Final = {"output_text": "text", "reasoning_text": "text", "summary_text": "text", "refusal": "refusal"}
"""The parts that hold text, and the field that holds it."""

_Place: TypeAlias = tuple[Literal["content", "summary"], int]


@dataclass(slots=True)
class _Part:
    value: dict[str, Any]
    pieces: list[str] = field(default_factory=list[str])
    text_done: bool = False
    done: bool = False


class Item:
    """One output item. `known`: what was known of it before."""

    def __init__(self, index: int, value: Mapping[str, Any], known: Item | None, *, done: bool) -> None:
        self.value: dict[str, Any] = dict(value)
        """The item, as the last response lists it."""
        self._index = index
        self._done = done
        self._parts: dict[_Place, _Part] = known._parts if known is not None and not done else {}  # noqa: SLF001 - the same class

    def take(self, event: Mapping[str, Any]) -> None:
        """Note an event of this item."""
        place = _place(event)
        kind = str(event.get("type"))
        if place is None or self._done:
            return
        if kind.endswith(("part.added", "part.done")):
            part = event.get("part")
            known = self._parts.setdefault(place, _Part({}))
            known.value = dict(part) if isinstance(part, dict) else known.value
            known.done = kind.endswith("done")
        elif kind.endswith(".delta") and isinstance(event.get("delta"), str) and place in self._parts:
            self._parts[place].pieces.append(event["delta"])
        elif kind.endswith(".done") and place in self._parts:
            self._parts[place].text_done = True

    def closing(self) -> Iterator[dict[str, Any]]:
        """The events that close the item. Afterwards `value` is the whole item."""
        if self._done:
            return
        item_id = self.value.get("id")
        for place, part in sorted(self._parts.items()):
            if not part.done:
                yield from self._close(place, part, item_id)
        for name in ("content", "summary"):
            parts = [part.value for (where, _), part in sorted(self._parts.items()) if where == name]
            if parts or name in self.value:
                self.value[name] = parts
        self.value["status"] = "incomplete"
        self._done = True
        yield {"type": "response.output_item.done", "output_index": self._index, "item": self.value}

    def _close(self, place: _Place, part: _Part, item_id: object) -> Iterator[dict[str, Any]]:
        where, number = place
        kind = part.value.get("type")
        field_name = _TEXTS.get(kind) if isinstance(kind, str) else None
        common = {"item_id": item_id, "output_index": self._index, f"{where}_index": number}
        if field_name is not None:
            text = "".join(part.pieces)
            part.value |= {field_name: text}
            if not part.text_done:
                name = "reasoning_summary_text" if where == "summary" else kind
                more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
                yield {"type": f"response.{name}.done", **common, field_name: text, **more}
        name = "reasoning_summary_part" if where == "summary" else "content_part"
        yield {"type": f"response.{name}.done", **common, "part": part.value}
        part.done = True


def _place(event: Mapping[str, Any]) -> _Place | None:
    """Where in its item an event belongs."""
    for where in ("content", "summary"):
        number = event.get(f"{where}_index")
        if type(number) is int:
            return where, number
    return None
