from monitor.adapters import to_form
from monitor.context import HistoryLimits, curated, prepare, read_history, recorded

stored = [{"role": "user", "parts": [{"text": "Hello."}]}, {"role": "model", "parts": [{"text": ""}]}]  # half an answer
for n in range(8):
    stored += [{"role": "user", "parts": [{"text": f"Is {n} even?"}]}, {"role": "model", "parts": [{"text": "Count."}]}]

chat = recorded(curated(read_history("gemini", stored)))
kept = HistoryLimits(direct=20, channel=4).of("channel")
messages, report = prepare(chat, form="anthropic", limit=kept.reduce if kept else None)
print(len(stored), "->", len(messages), "messages:", to_form("anthropic", messages)[0])
