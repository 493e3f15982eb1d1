import json
from pathlib import Path

from monitor.transcripts import sources, survey

call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
turn = [
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "c", "content": "permission denied"},
]
Path("chat.json").write_text(json.dumps([{"role": "user", "content": "Tidy up."}, *turn * 7]))

for source in sources(["*.json"]):
    for run in survey(source):
        if run.detection is not None:
            print(run.format, run.detection.message, run.result, run.saved.tool_calls)
