"""The states of readings, kept in memory: a file that has grown is read on."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

from monitor.transcripts.analysis.stored_objects import dumped

MOST_IN_MEMORY: Final = 64
"""Files whose states are kept. The others are read from their start again."""


class States:
    """The latest state of a reading for each file, as a copy that no reading changes."""

    def __init__(self) -> None:
        self._states: OrderedDict[Path, bytes] = OrderedDict()

    def get(self, path: Path) -> Any:
        """The state of the file; `None`: there is none."""
        data = self._states.get(path)
        return None if data is None else pickle.loads(data)  # noqa: S301 - of this process

    def put(self, path: Path, state: Any) -> None:
        """Keep a state. One that cannot be stored is left out."""
        self.forget(path)
        if (data := dumped(state)) is not None:
            self._states[path] = data
            if len(self._states) > MOST_IN_MEMORY:
                self._states.popitem(last=False)

    def forget(self, path: Path) -> None:
        """Drop the state of the file."""
        self._states.pop(path, None)
