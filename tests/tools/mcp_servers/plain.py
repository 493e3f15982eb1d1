"""A server for tests in plain Python, which starts at once: it speaks the protocol of 2025 over
stdio, and misbehaves where it is told to.

    plain.py [tools per page] [pages] [log file] [how it starts: "", "fail", "mute", "shell", "bad",
        "silent", "noisy", "reads", "deep N", "half", "once FILE"]
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
OWN += ["parts"]
TOOLS: list[dict[str, Any]] = [{"name": name, "description": "", "inputSchema": SCHEMA} for name in OWN]
ANSWERED: list[str] = []
LOCK = threading.Lock()
INITIALIZED = False
ASKED: dict[Any, Any] = {}
"""Calls that wait for the answer to a question of ours, by its id."""


def log(what: str) -> None:
    if LOG:
        with Path(LOG).open("a") as file:
            file.write(what + "\n")


def send(message: dict[str, Any]) -> None:
    with LOCK:
        line = json.dumps({"jsonrpc": "2.0", **message})
        if START.startswith("deep"):  # as deep as no encoder goes
            depth = int(START.removeprefix("deep "))
            line = line.replace('"DEPTH"', '{"not": ' * depth + "{}" + "}" * depth)
        if START == "half":
            line = line.replace('"hi"', '"\\ud800hi\\udc00"')
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def answer_late(request: Any, seconds: float) -> None:
    time.sleep(seconds)
    answer(request, "waited")


def answer(request: Any, text: str) -> None:
    send({"id": request["id"], "result": {"content": [{"type": "text", "text": text}]}})


def call(request: Any) -> None:  # noqa: C901, PLR0911, PLR0912 - one case for each tool
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
        case "parts":
            part = {"type": "text", "text": "x"}
            return send({"id": request["id"], "result": {"content": [part] * int(text)}})
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
        case "survey":
            ASKED["q1"] = request
            fields = {"name": {"type": "string"}, "age": {"type": "integer"}}
            schema = {"type": "object", "properties": fields, "required": ["name"]}
            return send(
                {"id": "q1", "method": "elicitation/create", "params": {"message": text, "requestedSchema": schema}}
            )
        case "nag":  # five questions, the first two at once
            ASKED["nag"] = request
            for number in range(5):
                if number > 1:
                    while len(ANSWERED) < number:
                        handle(json.loads(sys.stdin.readline()))
                question = {"message": f"question {number}", "requestedSchema": {"type": "object", "properties": {}}}
                send({"id": f"nag{number}", "method": "elicitation/create", "params": question})
            return None
        case "run":
            shell, none = ["sh", "-c", text], subprocess.DEVNULL
            wrote = subprocess.run(shell, capture_output=True, text=True, stdin=none, check=False)
            return answer(request, wrote.stdout + wrote.stderr)
        case "odd":  # no content, a wrong type
            return send({"id": request["id"], "result": {"content": "nothing"}})
        case "rude":
            return send({"id": request["id"], "error": {"code": -32000, "message": "no\x1b[2J, never"}})
    return answer(request, text or f"called {name}")


def handle(message: Any) -> None:  # noqa: C901 - one case for each method
    global INITIALIZED  # noqa: PLW0603 - it is the state of this program
    match message.get("method"):
        case str() if START == "silent" and not INITIALIZED and message["method"] != "initialize":
            return
        case None:  # an answer to a question of ours
            if str(message.get("id")).startswith("nag"):
                ANSWERED.append((message.get("result") or {}).get("action", "error"))
                if len(ANSWERED) == 5:
                    answer(ASKED.pop("nag"), json.dumps(ANSWERED))
            elif message.get("id") in ASKED:
                answer(ASKED.pop(message["id"]), json.dumps(message.get("result") or message.get("error")))
        case "resources/list":
            found = [{"uri": "notes://a", "name": "a", "description": "the notes"}]
            send({"id": message["id"], "result": {"resources": found}})
        case "resources/read":
            uri = message["params"]["uri"]
            send({"id": message["id"], "result": {"contents": [{"uri": uri, "text": f"text of {uri}"}]}})
        case "prompts/list":
            prompt = {"name": "greet", "description": "a greeting", "arguments": [{"name": "who"}]}
            send({"id": message["id"], "result": {"prompts": [prompt]}})
        case "prompts/get":
            who = message["params"]["arguments"]["who"]
            said = [{"role": "user", "content": {"type": "text", "text": f"Greet {who}."}}]
            send({"id": message["id"], "result": {"messages": said}})
        case "initialize":
            INITIALIZED = True
            log(f"capabilities {json.dumps(message['params']['capabilities'])}")
            capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
            if START == "reads":
                capabilities |= {"resources": {}, "prompts": {}}
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
if START == "noisy":
    for _ in range(2_000):
        os.write(2, b"noise " * 1_000)
    os.write(2, b"\nthe last words\n")
if START.startswith("deep"):
    TOOLS.append({"name": "deep", "inputSchema": json.loads('{"type": "object", "a": ' * 140 + "1" + "}" * 140)})
    TOOLS.append({"name": "deeper", "inputSchema": {**SCHEMA, "not": "DEPTH"}})
if START == "bad":
    TOOLS.append({"name": "no schema", "description": "It says nothing of its arguments."})
    TOOLS.append({"name": "text", "inputSchema": "object"})
    TOOLS.append("no tool at all")  # type: ignore[arg-type]
    TOOLS.append({"name": "task", "inputSchema": SCHEMA, "execution": {"taskSupport": "required"}})
    TOOLS.append({"name": "last", "inputSchema": SCHEMA, "execution": {"taskSupport": "optional"}})
if START == "reads":
    TOOLS.append({"name": "survey", "description": "Asks the person.", "inputSchema": SCHEMA})
    TOOLS.append({"name": "nag", "description": "Asks the person often.", "inputSchema": SCHEMA})
if START == "shell":
    TOOLS.append({"name": "run", "description": "Run a command.", "inputSchema": SCHEMA})
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
