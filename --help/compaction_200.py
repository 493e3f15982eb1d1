import asyncio
from typing import Any

import monitor

history: list[Any] = [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Read all files."}]
for n in range(40):
    function = {"name": "read_file", "arguments": f'{{"path": "src/f{n}.py"}}'}
    history += [
        {"role": "assistant", "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": "value = compute(value)\n" * 200},
    ]


async def main() -> list[Any]:
    compaction = monitor.Compaction.pi(summarizer=monitor.context.Extractive())  # or pi(), and model= below
    reported = 48_700  # what the provider counted last
    if not compaction.due(reported, window=64_000):
        return history
    shorter, result = await compaction.shorten("openai-chat", history, window=64_000)
    print(result.tokens_before, "->", result.tokens_after, result.summarised_by)
    return shorter  # what is sent next


sent = asyncio.run(main())
assert len(sent) < len(history)
