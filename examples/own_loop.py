"""A loop of your own over the OpenAI SDK that stays inside the model's window, offline. It compacts
at the mark, and after a refusal of the service.

With a key, leave out `base_url` and `LocalOpenAI`, and let a model write the summaries:
`COMPACTION = monitor.Compaction(model=monitor.model("openai:gpt-5-mini"))`.
"""

import asyncio
import json
from typing import Any

from openai import AsyncOpenAI

import monitor
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import events_of, overflow, usage

WINDOW, FILES = 32_000, 60
MAX_REFUSALS = 3
COMPACTION = monitor.Compaction.pi(summarizer=monitor.context.Extractive())  # copies and counts: no model is asked
TASK = "Read src/f1.py to src/f60.py in turn. The report goes to /srv/reports/final-7731.md."


async def shorter(history: list[Any], reason: str) -> list[Any]:
    """The same conversation, compacted; unchanged if it cannot be made smaller."""
    try:
        shortened, result = await COMPACTION.shorten("openai-chat", history, window=WINDOW, reason=reason)
    # the run goes on as it is; if the service refuses that too, it ends
    except monitor.context.CompactionError as error:
        print(f"{reason}: {error}")
        return history
    print(f"{reason}: {result.tokens_before:,} -> {result.tokens_after:,} tokens, {result.kept_messages} messages kept")
    return shortened


def read_file(path: str) -> str:
    """Every thirtieth file is long: after it the next request does not fit."""
    return f"# {path}\n" + "value = compute(value)  # and so on\n" * (3_400 if path.endswith("30.py") else 100)


def carried_out(turn: monitor.outcome.Turn, guard: monitor.Guard) -> list[Any]:
    """The turn as messages of the conversation: what the model said, and the results of its
    calls.
    """
    said: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.tool_calls:
        said["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in turn.tool_calls
        ]
    messages: list[Any] = [said]
    for call in turn.tool_calls:
        result = read_file(**call.arguments)
        guard.tool_result(call, result)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return messages


async def main(base_url: str) -> None:
    """Ask the model, carry out its calls, and compact when the guard says so, until the model has
    answered.
    """
    history: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TASK}]
    refusals = 0
    async with (
        AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0) as client,
        monitor.Guard(window=WINDOW) as guard,
    ):
        while True:
            stream = client.chat.completions.create(
                model="gpt-5", messages=history, stream=True, stream_options={"include_usage": True}
            )
            async with guard.watch(stream) as watched:
                async for _ in watched:
                    pass
            turn = watched.turn
            if turn.stopped is None:  # otherwise the turn is not usable, and its calls are not carried out
                history += carried_out(turn, guard)
            match guard.check():
                case monitor.Stop(monitor.TerminateReason.PROMPT_TOO_LONG) if refusals < MAX_REFUSALS:
                    refusals += 1  # the next stream is the same turn again
                    history = await shorter(history, "overflow")
                case monitor.Stop():  # a limit, a loop, a call that failed or was blocked
                    break
                case _ if turn.stopped:  # the output limit cut it off
                    break
                case _ if not turn.tool_calls:
                    guard.finish()  # the model has answered
                    break
                case monitor.Compact():  # the service's own count has come to 85 % of the window
                    history = await shorter(history, "ceiling")
                case _:
                    pass  # go on
    print(guard.outcome.reason, "after", guard.outcome.turns, "turns:", guard.outcome.text)
    assert "/srv/reports/final-7731.md" in json.dumps(history)  # the user's message is kept word for word


class Service:
    """Stands for the service: it counts tokens, refuses requests that are too long, and reads one
    file after another.
    """

    done = 0

    def __call__(self, request: Any) -> Any:
        """Its answer."""
        tokens = len(json.dumps(request.body["messages"])) // 4
        if tokens > WINDOW:
            return [overflow(tokens, WINDOW)]
        self.done += 1
        if self.done > FILES:
            return events_of("All is read.", tokens=usage(tokens, output=5))
        return events_of("", [("read_file", {"path": f"src/f{self.done}.py"})], tokens=usage(tokens, output=20))


with LocalOpenAI(Service()) as server:
    asyncio.run(main(server.base_url))
