"""The output items of a streamed response, as far as the client knows them, and the events that
close them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from monitor.proxy.formats.requests import behind

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
class _ItemPart:
    value: dict[str, Any]
    pieces: list[str] = field(default_factory=list[str])
    text_done: bool = False
    done: bool = False

    @property
    def holds(self) -> str | None:
        """The name of its text. `None`: it has no text."""
        kind = self.value.get("type")
        return _TEXTS.get(kind) if isinstance(kind, str) else None

    def whole(self) -> dict[str, Any]:
        """The part with the text that the client was sent."""
        if self.done or self.holds is None:
            return self.value
        return self.value | {self.holds: "".join(self.pieces)}


class OutputItem:
    """One output item, as far as the client knows it."""

    def __init__(self, index: int, value: Mapping[str, Any]) -> None:
        self._index = index
        self._value: Mapping[str, Any] = value
        self._done = False
        self._parts: dict[_Place, _ItemPart] = {}

    def finish(self, value: Mapping[str, Any]) -> None:
        """The service has closed the item. `value`: the whole item."""
        self._value, self._done = value, True

    def take(self, event: Mapping[str, Any]) -> None:
        """Note an event that belongs to this item."""
        place = _place(event)
        kind = str(event.get("type"))
        if place is None or self._done:
            return
        if kind.endswith(("part.added", "part.done")):
            part = event.get("part")
            known = self._parts.setdefault(place, _ItemPart({}))
            known.value = dict(part) if isinstance(part, dict) else known.value
            known.done = kind.endswith("done")
        elif kind.endswith(".delta") and isinstance(event.get("delta"), str) and place in self._parts:
            self._parts[place].pieces.append(event["delta"])
        elif kind.endswith(".done") and place in self._parts:
            known = self._parts[place]
            known.text_done = True
            words = event.get(known.holds) if known.holds is not None else None
            if isinstance(words, str):
                known.pieces = [words]

    @property
    def has_open_text(self) -> bool:
        """Whether visible text may follow in it."""
        return self._open_text() is not None

    def _open_text(self) -> _Place | None:
        if self._done:
            return None
        texts = (
            place
            for place, part in self._parts.items()
            if part.value.get("type") == "output_text" and not part.text_done and not part.done
        )
        return max(texts, default=None)

    def closed(self, status: str, sentence: str = "") -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The events that close the item, and the whole item with `status`. `sentence`: the last of
        its text. Nothing changes here.
        """
        if self._done:
            return [], dict(self._value)
        place = self._open_text() if sentence else None
        if place is not None:
            other, part = OutputItem(self._index, self._value), self._parts[place]
            words = behind(sentence, begun=bool("".join(part.pieces)))
            other._parts = {**self._parts, place: replace(part, pieces=[*part.pieces, words])}
            closing, item = other.closed(status)
            return [self._delta(place, words), *closing], item
        parts = {place: part.whole() for place, part in sorted(self._parts.items())}
        item = dict(self._value)
        for name in ("content", "summary"):
            held = [part for (where, _), part in parts.items() if where == name]
            if held or name in item:
                item[name] = held
        item["status"] = status
        events = [event for place in parts for event in self._closing(place, self._parts[place], parts[place])]
        return [*events, {"type": "response.output_item.done", "output_index": self._index, "item": item}], item

    def _delta(self, place: _Place, words: str) -> dict[str, Any]:
        where = {"item_id": self._value.get("id"), "output_index": self._index, "content_index": place[1]}
        return {"type": "response.output_text.delta", **where, "delta": words, "logprobs": []}

    def _closing(self, place: _Place, part: _ItemPart, whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events that close a part of the item."""
        if part.done:
            return
        where, number = place
        place_fields = {"item_id": self._value.get("id"), "output_index": self._index, f"{where}_index": number}
        summary, kind = where == "summary", whole.get("type")
        if part.holds is not None and not part.text_done:
            name = "reasoning_summary_text" if summary else kind
            logprobs: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
            text = {part.holds: whole[part.holds]}
            yield {"type": f"response.{name}.done", **place_fields, **text, **logprobs}
        name = "reasoning_summary_part" if summary else "content_part"
        yield {"type": f"response.{name}.done", **place_fields, "part": whole}


def spoken(index: int, sentence: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events of a new message with nothing but `sentence`, and the message."""
    id = f"msg_agent_monitor_{index}"
    message = {"id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    item, part = OutputItem(index, message), {"type": "output_text", "text": "", "annotations": []}
    added = {"item_id": id, "output_index": index, "content_index": 0, "part": part}
    begun: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": index, "item": message},
        {"type": "response.content_part.added", **added},
    ]
    item.take(begun[1])
    closing, whole = item.closed("completed", sentence)
    return [*begun, *closing], whole


def _place(event: Mapping[str, Any]) -> _Place | None:
    """Where in its item an event belongs."""
    for where in ("content", "summary"):
        number = event.get(f"{where}_index")
        if type(number) is int:
            return where, number
    return None
