from monitor import AssistantMessage, UserMessage
from monitor.messages import Text
from monitor.chunks import ToolCall, ToolResult
from monitor.context import History
from monitor.context import ClipResults, DropMedia, PruneResults, propose_edit

call = ToolCall("1", "read_file", {"path": "big.log"})
history = History(
    [
        UserMessage((Text("Why did the build fail?"),)),
        AssistantMessage((call,), (ToolResult("1", "read_file", "line\n" * 50_000),)),
        AssistantMessage((Text("A test failed."),)),
    ]
)
reduction = propose_edit(history, DropMedia(), PruneResults(), ClipResults.oversized(100_000))
assert reduction is not None  # None: there is nothing to take out
print(reduction.saved_tokens, reduction.breaks_at, reduction.reread_tokens)
history.commit(reduction.edit)
