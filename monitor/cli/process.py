"""Makes other output printable: tracebacks, warnings and log lines must not contain control
characters for the terminal either.
"""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from monitor.cli.render import output

CRASHED = 70
"""The exit code of a bug of agent-monitor. No command uses it for a result."""


def run(app: Callable[[], Any]) -> None:
    """Call `app`; a bug is a traceback on stderr, without local variables."""
    show_warning = warnings.formatwarning
    warnings.formatwarning = lambda *args, **more: output.printable(show_warning(*args, **more))
    last = logging.StreamHandler()
    last.setLevel(logging.WARNING)
    last.setFormatter(_Printable())
    logging.lastResort = last  # used if no logging is configured, as in the command
    try:
        app()
    except Exception as error:  # noqa: BLE001 - every bug is shown with its whole traceback
        sys.stderr.write(output.printable("".join(traceback.format_exception(error))))
        sys.exit(CRASHED)


class _Printable(logging.Formatter):
    """Lines without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return output.printable(super().format(record))
