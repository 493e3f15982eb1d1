"""`agent-monitor hook`: what a coding agent asks before each tool call."""

from __future__ import annotations

import shlex
from typing import Annotated

from monitor.cli.hooks.agents import ANSWERS, HOOKS, LoopAnswer
from monitor.cli.hooks.first_look import answered
from monitor.cli.options.shared import DetectorOptions, argument, flag, option
from monitor.cli.render import output
from monitor.settings import known_name


def hook(
    agent: Annotated[str, argument("AGENT", "claude-code, codex or gemini-cli.")],
    *,
    print_settings: Annotated[
        bool, flag("--print-settings", "Print what to add to the agent's settings, and end.")
    ] = False,
    on_loop: Annotated[str, option("WHAT", "ask a person, deny the call, or stop the agent.")] = "ask",
    settings: DetectorOptions,
) -> None:
    """Answer a coding agent that asks before each tool call: while it is in a loop, ask or stop.

    The agent gives the path of its session on stdin, as JSON. The session is read
    and watched; the answer goes to stdout, as JSON: {} means go on. What cannot be
    read never stops an agent: that is {} too, with the reason on stderr.

    Examples:
      agent-monitor hook claude-code --print-settings
      agent-monitor hook codex --on-loop stop --print-settings
      agent-monitor hook gemini-cli < event.json

    Exit code: 0; 2 if the command itself is used wrongly.
    """
    known = HOOKS[known_name(agent, HOOKS, "agent")]
    answer: LoopAnswer = next(one for one in ANSWERS if one == known_name(on_loop, ANSWERS, "answer", "--on-loop"))
    if print_settings:
        command = ["agent-monitor", "hook", known.agent, "--on-loop", answer]
        command += settings.written()
        settings.read()
        output.write_json(known.settings(shlex.join(command), answer), indent=2)
        output.stderr().print(f"Add this to {known.place}. {known.note}", soft_wrap=True)
        return
    answered([known.agent, "--on-loop", answer, *settings.written()])
