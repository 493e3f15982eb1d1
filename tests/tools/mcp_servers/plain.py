"""A server for tests in plain Python, which starts at once: it speaks the protocol of 2025 over
stdio, and misbehaves where it is told to.

    plain.py [tools per page] [pages] [log file] [how it starts: "", "fail", "mute", "once FILE"]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ARGUMENTS = [*sys.argv[1:], *["0", "1", "", ""][len(sys.argv) - 1 :]]
PER_PAGE, PAGES, LOG, START = int(ARGUMENTS[0]), int(ARGUMENTS[1]), ARGUMENTS[2], ARGUMENTS[3]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
OWN = ["echo", "die", "block", "wait", "slow", "pid", "big", "garbage", "escape", "add_tool", "describe", "odd", "rude"]
TOOLS: list[dict[str, Any]] = [{"name": name, "description": "", "inputSchema": SCHEMA} for name in OWN]
LOCK = threading.Lock()


def log(what: str) -> None:
    if LOG:
        with Path(LOG).open("a") as file:
            file.write(what + "\n")


def send(message: dict[str, Any]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer_late(request: Any, seconds: float) -> None:
    time.sleep(seconds)
    answer(request, "waited")


def answer(request: Any, text: str) -> None:
    send({"id": request["id"], "result": {"content": [{"type": "text", "text": text}]}})


def call(request: Any) -> None:
    parameters = request["params"]
    name, text = parameters["name"], (parameters.get("arguments") or {}).get("text", "")
    match name:
        case "die":
            os._exit(3)
        case "block":  # nothing is read meanwhile
            time.sleep(float(text))
        case "wait":
            threading.Thread(target=answer_late, args=(request, float(text)), daemon=True).start()
            return None
        case "slow":
            token = parameters["_meta"]["progressToken"]
            for step in range(1, 4):
                time.sleep(0.1)
                done = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
                send({"method": "notifications/progress", "params": done})
        case "pid":
            return answer(request, str(os.getpid()))
        case "big":
            return answer(request, "x" * int(text))
        case "garbage":
            sys.stdout.flush()
            os.write(1, b'this is no JSON\n\xff\xfe\n{"jsonrpc": "2.0"}\n[]\n\n')
        case "escape":
            started = subprocess.Popen(["setsid", "sleep", "300"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            return answer(request, str(started.pid))
        case "add_tool":
            TOOLS.append({"name": text, "description": "came later", "inputSchema": SCHEMA})
            send({"method": "notifications/tools/list_changed"})
        case "describe":
            TOOLS[0]["description"] = text
            send({"method": "notifications/tools/list_changed"})
        case "odd":  # no content, a wrong type
            return send({"id": request["id"], "result": {"content": "nothing"}})
        case "rude":
            return send({"id": request["id"], "error": {"code": -32000, "message": "no\x1b[2J, never"}})
    return answer(request, text or f"called {name}")


def handle(message: Any) -> None:
    match message.get("method"):
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "plain", "version": "1"}
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
            send({"id": message["id"], "result": result})
        case "tools/list":
            cursor = int((message.get("params") or {}).get("cursor") or 0)
            page = TOOLS if cursor == 0 else []
            more = [{"name": f"t{cursor}_{number}", "inputSchema": SCHEMA} for number in range(PER_PAGE)]
            following = {"nextCursor": str(cursor + 1)} if cursor + 1 < PAGES else {}
            send({"id": message["id"], "result": {"tools": [*page, *more], **following}})
        case "tools/call":
            log(f"call {message['params']['name']}")
            call(message)
        case "notifications/cancelled":
            log("cancelled")
        case str() as method if "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": f"no {method}"}})


if START == "fail":
    sys.exit("this server has no configuration: key sk-" + "a" * 30)
if START.startswith("once"):  # it starts once, and never again
    path = Path(START.removeprefix("once "))
    if path.exists():
        sys.exit("it was started before")
    path.touch()
if START == "mute":
    time.sleep(100)
log(f"started {os.getpid()}")
for line in sys.stdin:
    handle(json.loads(line))
log("ended")
