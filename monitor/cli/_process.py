"""What else writes to the terminal: an exception that nobody caught, a warning, a log line. None of
it may steer it either.
"""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from monitor.cli import _view

CRASHED = 70
"""The exit code of a bug of ours: none of a command's own, which say what was found."""


def run(app: Callable[[], Any]) -> None:
    """Call `app`; a bug is a traceback on stderr, without local variables."""
    show_warning = warnings.formatwarning
    warnings.formatwarning = lambda *args, **more: _view.printable(show_warning(*args, **more))
    last = logging.StreamHandler()
    last.setLevel(logging.WARNING)
    last.setFormatter(_Printable())
    logging.lastResort = last  # where nothing is configured, which is so here
    try:
        app()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown whole
        sys.stderr.write(_view.printable("".join(traceback.format_exception(error))))
        sys.exit(CRASHED)


class _Printable(logging.Formatter):
    """Lines without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return _view.printable(super().format(record))
