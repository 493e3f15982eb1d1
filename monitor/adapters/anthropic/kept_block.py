"""A block of a stream that the service needs back, while its pieces come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from monitor.adapters.parts import arguments_of


@dataclass(slots=True)
class KeptBlock:
    """A block that the service needs back, or the citations of a text, while it comes."""

    block: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    """The JSON text of its input."""

    def add(self, delta: object) -> None:
        """Add a piece: of the input, of a list such as the citations, or of a text."""
        for name, value in plain(delta).items():
            if name == "type" or value is None:
                continue
            if name == "partial_json":
                self.pieces.append(value)
            elif name == "citation":
                self.block["citations"] = [*(self.block.get("citations") or ()), value]
            elif isinstance(value, str) and isinstance(before := self.block.get(name), str):
                self.block[name] = before + value
            else:
                self.block[name] = value

    def whole(self) -> dict[str, Any] | None:
        """The block. `None`: it was cut off within its input."""
        text = "".join(self.pieces)
        if not text:
            return self.block
        given = arguments_of(text)
        return {**self.block, "input": given} if isinstance(given, dict) else None


def plain(holder: object) -> dict[str, Any]:
    """The fields that the service has sent, by their names in its wire format."""
    to_dict = getattr(holder, "to_dict", None)
    return cast("dict[str, Any]", to_dict(mode="json", warnings=False)) if callable(to_dict) else {}
