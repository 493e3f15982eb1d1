import asyncio

import monitor
from monitor.context import BeforeCompaction, CompactionAsked, CompactionHook, CompactionResult, Extractive


def before(asked: CompactionAsked) -> BeforeCompaction:
    if asked.reason == "high_water" and asked.tokens < 10_000:
        return BeforeCompaction(cancel="not now")
    return BeforeCompaction(context="Name every ticket.", note="Ticket ABC-7 is open.")


def after(result: CompactionResult) -> None:
    print(result.tokens_before, "->", result.tokens_after)


hook = CompactionHook(before=before, after=after, autocontinue=lambda result: False)
compaction = monitor.Compaction.opencode(summarizer=Extractive(), hooks=[hook])
asked = monitor.UserMessage((monitor.messages.Text("Read it."),))
read = [monitor.AssistantMessage((monitor.messages.Text("word " * 2_000),)) for _ in range(20)]
result = asyncio.run(compaction.compact([asked, *read], window=32_000))
assert "Ticket ABC-7 is open." in str(result.messages[0])
