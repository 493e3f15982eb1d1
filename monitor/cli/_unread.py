"""Reports the unreadable lines of a file of recorded runs: names a few, and counts the others."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Final

from rich.console import Console

from monitor.cli import _view
from monitor.transcripts import Corpus
from monitor.transcripts.corpus import BOM, GZIP_MAGIC
from monitor.transcripts.kinds import EVENTS, HEAD_BYTES, RUN, kind_of

SHOWN: Final = 3
"""How many lines of a file are named. If a file is not understood, mostly all lines have the same
fault.
"""


def complain_of(console: Console, corpus: Corpus, name: str, runs: int, *, whole: bool = True) -> int:
    """Report the unreadable lines of `corpus`, and return their number; 1 for a file without lines.
    `name`: the name that is shown. `runs`: how many runs were read.

    `whole`: the file was read to its end.
    """
    if runs or not whole:
        for bad in corpus.bad_lines[:SHOWN]:
            _view.complain(console, f"{name}:{bad.line}: {bad.message}")
        if (more := corpus.bad - SHOWN) > 0:
            _view.complain(console, f"{name}: and {more:,} more line{'s' if more > 1 else ''} could not be read")
        return corpus.bad
    kind = _kind(corpus.path)
    what = f"; it is {kind}" if kind else ""
    if not corpus.bad:
        _view.complain(
            console, f"{name}: there is not a recorded run in it{what or ': it is empty' if not corpus.lines else what}"
        )
        return 1
    first = corpus.bad_lines[0]
    told = f"{name}:{first.line}: {first.message}"
    if kind not in {RUN, EVENTS}:  # else the message says what is wrong with it
        lines = "its one line" if corpus.bad == 1 else f"none of its {corpus.bad:,} lines"
        is_none = "is not a recorded run" if corpus.bad == 1 else "is a recorded run"
        told += f"; {lines} {is_none}{what}"
    _view.complain(console, told)
    return corpus.bad


def _kind(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            if head.startswith(GZIP_MAGIC):
                file.seek(0)
                with gzip.GzipFile(fileobj=file) as unzipped:
                    head = unzipped.read(HEAD_BYTES)
    except (EOFError, OSError, zlib.error):
        return None
    return kind_of(head.removeprefix(BOM))
