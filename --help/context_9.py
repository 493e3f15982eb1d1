from monitor.adapters import to_form
from monitor.context import read_history, repair, validate

stored = [  # as a crashed program left it, in OpenAI's words
    {"role": "user", "content": "Which files are there?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call|1", "type": "function", "function": {"name": "list_files", "arguments": "{}"}},
            {"id": "call|2", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a'}},
        ],
    },
    {"role": "user", "content": "Hello?"},
    {"role": "tool", "tool_call_id": "call|1", "content": "a.py"},
    {"role": "tool", "tool_call_id": "call|9", "content": "lost"},
]
messages, report = repair(read_history("openai-chat", stored))
for one in report.repairs:
    print(one.index, one.kind.value, one.note)
print(validate("gemini", to_form("gemini", messages)))  # [], and so for the other providers
