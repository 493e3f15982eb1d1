"""The command `agent-monitor`. Needs the extra `cli`; without it the command says so, and
everything else still works.
"""

from __future__ import annotations

import gc
import sys

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, as shells count it."""


def main() -> None:
    """Run the command with the arguments of this process, and exit."""
    try:
        _run()
    except KeyboardInterrupt:  # also while the libraries are imported
        sys.exit(INTERRUPTED)


def _run() -> None:
    if sys.argv[1:2] == ["hook"]:  # a coding agent waits for the answer, so little is imported for it
        from monitor.cli.hooks.first_look import answered  # noqa: PLC0415 - only this command needs it

        gc.disable()  # the process ends before there is garbage, and looking for it takes a sixth of the time
        if answered(sys.argv[2:]):
            gc.freeze()  # nor is any looked for at the end
            return
    try:
        from monitor.cli.app import run  # noqa: PLC0415 - its libraries may not be there
    except ModuleNotFoundError as error:
        from monitor.errors import MissingExtra  # noqa: PLC0415 - most programs have their extras

        package = (error.name or "").partition(".")[0]
        if package not in {"rich", "typer"}:
            raise
        print(f"agent-monitor: {MissingExtra(package, 'cli')}", file=sys.stderr)
        sys.exit(2)
    run()
