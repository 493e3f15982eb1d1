"""LiteLLM, which has no loop: the program has its own."""

from __future__ import annotations

from typing import Any

import monitor
from monitor.guard.guard import Guard
from monitor.integrations.litellm import LiteLLMAdapter, completion, completion_sync
from monitor.outcome import Turn
from tests.integrations.drivers import Ending, Tool

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    },
}


async def run(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with guard:
        asked = Conversation(guard, tool)
        while True:
            stream = completion(**asked.options(base_url))
            async with guard.watch(stream, adapter=LiteLLMAdapter, reraise=True) as watched:
                async for _ in watched:
                    pass
            if (ending := asked.answered(watched.turn, watched.to_form("openai-chat"))) is not None:
                return ending


def run_sync(base_url: str, guard: Guard, tool: Tool) -> Ending:
    with guard:
        asked = Conversation(guard, tool)
        while True:
            stream = completion_sync(**asked.options(base_url))
            with guard.watch(stream, adapter=LiteLLMAdapter, reraise=True) as watched:
                for _ in watched:
                    pass
            if (ending := asked.answered(watched.turn, watched.to_form("openai-chat"))) is not None:
                return ending


class Conversation:
    """What the program sends, and what it does with an answer."""

    def __init__(self, guard: Guard, tool: Tool) -> None:
        self.guard, self.tool = guard, tool
        self.history: list[Any] = [{"role": "user", "content": "go"}]
        self.tools = [LOOK]

    def options(self, base_url: str) -> dict[str, Any]:
        service = {"model": "openai/local", "api_base": base_url, "api_key": "none", "num_retries": 0}
        return service | {"messages": self.history, **({"tools": self.tools} if self.tools else {})}

    def answered(self, turn: Turn, messages: list[Any]) -> Ending | None:
        """Carry out the calls. Returns the end of the run, if it is over."""
        if turn.stopped:
            return Ending(turn.text, turn.stopped.reason.value)
        self.history += messages
        for call in turn.tool_calls:
            result = self.tool(call.arguments["q"])
            self.guard.tool_result(call, result)
            self.history.append({"role": "tool", "tool_call_id": call.id, "content": result})
        match self.guard.check():
            case monitor.Stop() as stop:
                return Ending(turn.text, stop.reason.value)
            case monitor.Nudge(text):
                self.history.append({"role": "user", "content": text})
            case monitor.WithdrawTool(_, text):
                self.tools = []
                self.history.append({"role": "user", "content": text})
        return None if turn.tool_calls else Ending(turn.text)
