"""The command `agent-monitor`. Needs the extra `cli`; without it the command says so, and
everything else still works.
"""

from __future__ import annotations

import sys

from monitor.cli.exit_code import INTERRUPTED
from monitor.errors import MissingExtra


def main() -> None:
    """Run the command with the arguments of this process, and exit."""
    if sys.argv[1:2] == ["hook"] and _answered(sys.argv[2:]):
        return
    try:
        from monitor.cli import process  # noqa: PLC0415 - its libraries may not be there
        from monitor.cli.app import app  # noqa: PLC0415 - the same
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {"rich", "typer"}:
            raise
        print(f"agent-monitor: {MissingExtra(package, 'cli')}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    try:
        process.run(app)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _answered(arguments: list[str]) -> bool:
    """Answer a coding agent, without the libraries of the other commands: it waits for the answer.
    False: the command line is not the one that an agent has.
    """
    from monitor.cli.hooks.answer import HookCall  # noqa: PLC0415 - only this command needs it

    call = HookCall.of(arguments)
    if call is not None:
        call.answer()
    return call is not None
