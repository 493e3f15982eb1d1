"""What each run knows of the files of a workspace: as it has read or written them last.

A change of a file that the run has not read, or that has changed since, is refused. The answer says
what has changed. So no run overwrites what it has never seen, and no change of another run is lost.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind
from monitor.tools.base import CallingRun, excerpt
from monitor.tools.files.edits import compared
from monitor.tools.files.text_files import TextFile

KEPT_CHARS: Final = 4_000_000
"""The most characters of texts that are kept for each run, to say what has changed. Of the others
only a hash is kept.
"""
MOST_FILES: Final = 10_000
"""The most files that are remembered for each run. The oldest are forgotten, and read again."""


@dataclass(slots=True)
class _Seen:
    digest: bytes
    text: str | None
    """`None`: too many texts have been read since."""


class _SeenByRun:
    """The files that one run has seen, the newest last."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, _Seen] = OrderedDict()
        self._chars = 0

    def get(self, place: str) -> _Seen | None:
        return self._files.get(place)

    def put(self, place: str, digest: bytes, text: str) -> None:
        self._forget_text(self._files.pop(place, None))
        self._files[place] = _Seen(digest, text)
        self._chars += len(text)
        if len(self._files) > MOST_FILES:
            self._forget_text(self._files.popitem(last=False)[1])
        for seen in self._files.values() if self._chars > KEPT_CHARS else ():
            self._forget_text(seen)
            if self._chars <= KEPT_CHARS:
                break

    def _forget_text(self, seen: _Seen | None) -> None:
        if seen is not None and seen.text is not None:
            self._chars -= len(seen.text)
            seen.text = None


class KnownFiles:
    """The files that each run has seen. Its methods may be called from any thread, but two calls
    about one file must not overlap.
    """

    def __init__(self) -> None:
        self._runs: WeakKeyDictionary[CallingRun, _SeenByRun] = WeakKeyDictionary()
        self._others = _SeenByRun()
        """For runs of other libraries that nothing can refer to weakly: they share it."""

    def saw(self, run: CallingRun, place: str, content: bytes, text: str) -> None:
        """The run has read, or written, the file at `place`."""
        self._of(run).put(place, _digest(content), text)

    def check(self, run: CallingRun, path: str, now: TextFile) -> None:
        """Raise `ToolError` (`stale`) if the run has not seen the file as it is now."""
        place = str(now.place)
        seen = self._of(run).get(place)
        if seen is None:
            said = f"{excerpt(path)} is there, and you have not read it since this run began or was resumed"
            raise ToolError(f"{said}; nothing was changed. Read it first", kind=ToolErrorKind.STALE)
        if seen.digest == _digest(now.content.content):
            return
        said = f"{excerpt(path)} has changed since you read it, so nothing was changed here."
        changes, whole = compared(place, seen.text, now.text) if seen.text is not None and now.whole else ("", False)
        if not whole:
            raise ToolError(f"{said} Read it again\n{changes}".rstrip("\n"), kind=ToolErrorKind.STALE)
        self.saw(run, place, now.content.content, now.text)
        said = f"{said} This has changed; make your change anew if it still fits:\n{changes}"
        raise ToolError(said.rstrip("\n"), kind=ToolErrorKind.STALE)

    def _of(self, run: CallingRun) -> _SeenByRun:
        try:
            return self._runs.setdefault(run, _SeenByRun())
        except TypeError:
            return self._others


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
