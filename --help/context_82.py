from monitor import UserMessage
from monitor.messages import Text
from monitor.context import History, HistoryEdit

history = History(UserMessage((Text(word),)) for word in ("one", "two", "three"))
edit = HistoryEdit(history.version, 0, 2, (UserMessage((Text("one and two"),)),), "compaction")
history.append(UserMessage((Text("four"),)))
print(history.commit(edit))  # CommittedEdit: what came later stays behind it
print(history.commit(edit))  # Stale: what it replaces is not there any more
print(history.behind(0, 1))  # the two originals
