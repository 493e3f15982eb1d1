"""The first look of a hook: nothing of the core is imported as long as nothing repeats.

A coding agent waits for the answer before each call. Most calls are like no other. For them
reading the new lines of the session is enough. Only where a loop is possible is the session read
by the detectors (`monitor.cli.hooks.answer`).
"""

import json
import os
import sys

from monitor.cli.hooks.session_lines import SessionLines, has_settings
from monitor.cli.inputs.cache_folder import cache_path

AGENTS = ("claude-code", "codex", "gemini-cli")
ANSWERS = ("ask", "deny", "stop")
MOST_ASKED = 16 * 1024 * 1024
"""Bytes of the agent's question that are read: it holds the call, with what is to be written."""
MOST_KEPT = 4_000
"""The characters of a question whose answer is kept."""


def answered(arguments: "list[str]") -> bool:
    """Answer the question on stdin, if that can be done. False: the command line is another one,
    which typer reads, and refuses where it is wrong.
    """
    if not arguments or len(arguments) % 2 == 0 or arguments[0] not in AGENTS:
        return False
    given = list(zip(arguments[1::2], arguments[2::2], strict=True))
    known = {"--on-loop", "--config", "--detectors", "--set"}
    if any(option not in known or (option == "--on-loop" and value not in ANSWERS) for option, value in given):
        return False
    data = sys.stdin.buffer.read(MOST_ASKED + 1)
    if len(data) > MOST_ASKED:
        while sys.stdin.buffer.read(MOST_ASKED):
            pass  # else the agent fails to write it
        sys.stderr.write(f"agent-monitor: the call was not judged: the question has more than {MOST_ASKED} bytes\n")
        _say("{}")
        return True
    event = _event(data)
    if event is None or any(option != "--on-loop" for option, _ in given) or has_settings():
        session, asks = None, True  # with limits of the user's own, only the detectors know what a loop is
    else:
        session, asks = _first_look(event, arguments[0])
    question = "" if session is None or event is None else _question(event, given)
    held = session.steps.held(question) if session is not None else None
    if held is not None or not asks:
        _say(held or "{}")
        return True
    from monitor.cli.hooks.answer import HookCall  # noqa: PLC0415 - with the core: only where a loop is possible

    line, judged = HookCall.of(arguments).answer(data, session.requests if session is not None else None)
    _say(line)
    if session is not None and event is not None and judged is not None:
        if judged.loop is None:
            session.is_calm(judged.free_calls, *_call(event, arguments[0]))
        elif question:
            session.hold(question, line, str(event.get("tool_name")), event.get("tool_input"))
        session.keep()
    return True


def _event(data: bytes) -> "dict[str, object] | None":
    """The agent's question. `None`: it is none, and the second look says what is wrong."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _question(event: "dict[str, object]", given: "list[tuple[str, str]]") -> str:
    """What is asked, so that the same question is known again: the event, the call, and what is to
    be done in a loop. Empty: the call is too long to be kept.
    """
    call = [event.get(name) for name in ("hook_event_name", "tool_name", "tool_input")]
    question = json.dumps([*call, given], sort_keys=True)
    return question if len(question) <= MOST_KEPT else ""


def _call(event: "dict[str, object]", agent: str) -> "tuple[str, object]":
    """The call that is asked about, by its name and arguments. No name: it is not known as it will
    be recorded. Codex asks in other words.
    """
    given = event.get("tool_input")
    return (str(event.get("tool_name")) if agent != "codex" and "tool_input" in event else ""), given


def _first_look(event: "dict[str, object]", agent: str) -> "tuple[SessionLines | None, bool]":
    """The session, and whether the detectors have to look at it. `event`: the agent's question."""
    path = event.get("transcript_path")
    if path is None or (isinstance(path, str) and not os.path.isfile(path)):
        return None, False  # an agent that keeps no session, or the first call, which may come before its file
    try:
        session = SessionLines(os.path.abspath(str(path)), cache_path("sessions"))
        session.read()
        asks = not session.understood or session.steps.may_loop(*_call(event, agent))
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return None, True  # the second look says what is wrong
    session.keep()
    return session, asks
