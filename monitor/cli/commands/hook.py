"""`agent-monitor hook`: what a coding agent asks before each tool call."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

from monitor.cli.hooks.agents import ANSWERS, HOOKS, LoopAnswer
from monitor.cli.hooks.first_look import answered
from monitor.cli.hooks.install import HookSettings
from monitor.cli.options.shared import DetectorOptions, argument, flag, option
from monitor.cli.render import output
from monitor.errors import ConfigError
from monitor.settings import known_name


def hook(
    agent: Annotated[str, argument("AGENT", "claude-code, codex or gemini-cli.")],
    *,
    install: Annotated[bool, flag("--install", "Add the hook to the agent's settings. A backup is kept.")] = False,
    uninstall: Annotated[bool, flag("--uninstall", "Take the hook out of them. A backup is kept.")] = False,
    file: Annotated[
        Path | None, option("FILE", "The settings to change, e.g. those of a project. Otherwise the user's own.")
    ] = None,
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
      agent-monitor hook claude-code --install
      agent-monitor hook codex --install --on-loop stop
      agent-monitor hook claude-code --uninstall
      agent-monitor hook gemini-cli < event.json

    --install and --uninstall show the lines that change. Only the entry of
    agent-monitor is added, replaced or taken out.

    Exit code: 0; 2 if the command itself is used wrongly.
    """
    known = HOOKS[known_name(agent, HOOKS, "agent")]
    answer: LoopAnswer = next(one for one in ANSWERS if one == known_name(on_loop, ANSWERS, "answer", "--on-loop"))
    if install + uninstall + print_settings > 1:
        raise ConfigError("--install, --uninstall and --print-settings say different things; give one of them")
    if file is not None and not (install or uninstall):
        raise ConfigError("--file is for --install and --uninstall")
    if not (install or uninstall or print_settings):
        answered([known.agent, "--on-loop", answer, *settings.written()])
        return
    settings.read()
    program = (
        ["agent-monitor"] if print_settings or shutil.which("agent-monitor") else [sys.executable, "-m", "monitor"]
    )
    command = shlex.join([*program, "hook", known.agent, "--on-loop", answer, *settings.written()])
    entry = known.settings(command, answer)
    if print_settings:
        output.write_json(entry, indent=2)
        output.stderr().print(f"Add this to {known.place}. {known.note}", soft_wrap=True)
        return
    place = HookSettings(file or Path.home() / known.file, known.agent)
    _change(place, place.uninstalled() if uninstall else place.installed(entry))
    if install:
        output.stderr().print(known.note, soft_wrap=True)


def _change(place: HookSettings, after: str) -> None:
    """Show the lines that change, and write the file."""
    console, changed = output.stdout(), False
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in place.difference(after):
        changed = True
        output.line(console, line, styles.get(line[:1], ""))
    if not changed:
        output.line(console, f"{place.path}: nothing to change")
        return
    backup = place.write(after)
    output.line(console, f"{place.path} is written" + (f"; as it was: {backup}" if backup else ""))
