"""A scripted service for programs of several agents. An agent is known by the word `AGENT:name` in
its instructions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from monitor.testing import gemini_steps, openai_steps
from monitor.testing.openai_steps import Pause
from tests.integrations.wires import GEMINI, Wire

PIECES = 400
"""A slow answer has this many different pieces, 10 ms apart."""


@dataclass
class Service:
    """What each agent answers: `first`, and `then` when its request brings results of tools."""

    wire: Wire
    first: dict[str, list[Any]] = field(default_factory=dict)
    then: dict[str, list[Any]] = field(default_factory=dict)

    def __call__(self, request: Any) -> list[Any]:
        who = name_of(request.body)
        if answered(request.body):
            return self.then.get(who) or self.wire.says(f"done by {who}")
        return self.first.get(who) or self.wire.says(f"from {who}")

    def calls(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """Several calls in one answer. Every agent has the same ids."""
        if self.wire is GEMINI:
            return [*[gemini_steps.call(name, given) for name, given in calls], gemini_steps.finish()]
        made = [openai_steps.call(name, given, id=f"call_{at}", at=at) for at, (name, given) in enumerate(calls)]
        return [*made, openai_steps.finish("tool_calls")]

    def slow(self) -> list[Any]:
        """An answer of some seconds in which nothing repeats."""
        told = self.wire.says(*[f"{number * 7919 % 10007} " for number in range(PIECES)])
        return [step for piece in told for step in (piece, Pause(0.01))]

    def chants(self) -> list[Any]:
        return [Pause(0.2), *self.wire.chants()]


def answered(body: dict[str, Any]) -> bool:
    """Whether the request ends with results of tools."""
    if "contents" in body:
        return any("functionResponse" in part for part in body["contents"][-1]["parts"])
    return bool(body["messages"][-1]["role"] == "tool")


def name_of(body: dict[str, Any]) -> str:
    """The agent that asks: that of its own instructions, which stand before or behind all else."""
    system = body.get("systemInstruction") or [one for one in body.get("messages", ()) if one["role"] == "system"]
    found = re.findall(r"AGENT:(\w+)", json.dumps(system or body))
    return str(found[0]) if found else "?"
