from monitor import AssistantMessage, UserMessage
from monitor.messages import Text
from monitor.context import KeepTokens
from monitor.context import History

turns = [(UserMessage((Text(f"Question {n}"),)), AssistantMessage((Text("word " * 400),))) for n in range(8)]
history = History(message for turn in turns for message in turn)
cut = KeepTokens(1_000).cut(history.messages, usable_tokens=100_000)
assert cut is not None  # None: there is nothing to summarise
print(cut.index, cut.turn_start, cut.kept_tokens)
summary = UserMessage((Text("(what was said before, in short)"),))
history.commit(cut.edit(history.version, (summary,)))
