"""The first look of a hook: nothing of the core is imported as long as nothing repeats.

A coding agent waits for the answer before each call. Most calls are like no other. For them
reading the new lines of the session is enough. Only where a loop is possible is the session read
by the detectors (`monitor.cli.hooks.answer`).
"""

import json
import os
import sys

from monitor.cli.hooks.found_settings import has_settings
from monitor.cli.hooks.session_lines import SessionLines
from monitor.cli.inputs.cache_folder import cache_path

AGENTS = ("claude-code", "codex", "gemini-cli")
ANSWERS = ("ask", "deny", "stop")
MOST_ASKED = 16 * 1024 * 1024
"""Bytes of the agent's question that are read: it holds the call, with what is to be written."""


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
    data = sys.stdin.buffer.read(MOST_ASKED)
    if any(option != "--on-loop" for option, _ in given) or has_settings():
        session, asks = None, True  # with limits of the user's own, only the detectors know what a loop is
    else:
        session, asks = _first_look(data, arguments[0])
    if not asks:
        sys.stdout.write("{}\n")
        sys.stdout.flush()
        return True
    from monitor.cli.hooks.answer import HookCall  # noqa: PLC0415 - with the core: only where a loop is possible

    if not HookCall.of(arguments).answer(data) and session is not None:
        session.is_calm()
        session.keep()
    return True


def _first_look(data: bytes, agent: str) -> "tuple[SessionLines | None, bool]":
    """The session, and whether the detectors have to look at it. `data`: the agent's question."""
    try:
        event = json.loads(data)
        path = event.get("transcript_path")
        if path is None or (isinstance(path, str) and not os.path.isfile(path)):
            return None, False  # an agent that keeps no session, or the first call, which may come before its file
        session = SessionLines(os.path.abspath(path), cache_path("sessions"))
        session.read()
        name = event.get("tool_name") if agent != "codex" and "tool_input" in event else ""  # it asks in other words
        asks = not session.understood or session.steps.may_loop(str(name), event.get("tool_input"))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None, True  # the second look says what is wrong
    session.keep()
    return session, asks
