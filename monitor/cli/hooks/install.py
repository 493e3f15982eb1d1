"""The entry of a hook in an agent's settings: added and taken out, with a backup of the file."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterator, Mapping
from itertools import chain, count
from pathlib import Path, PurePath
from typing import Any, Final

from monitor.cli.render.files import write_out
from monitor.errors import ConfigError

BACKUP: Final = ".before-agent-monitor"
"""Ends the name of a backup. A second one has a number."""
_NAMES: Final = frozenset({"agent-monitor", "monitor"})


class HookSettings:
    """The file of an agent's settings, with and without the entry of a hook."""

    def __init__(self, path: Path, agent: str) -> None:
        """`path`: the file, which may not be there yet. Raises `ConfigError` if it is no JSON
        object, or its folder is not there.
        """
        self.path = path.expanduser().resolve()
        self._agent = agent
        if not self.path.parent.is_dir():
            raise ConfigError(f"{self.path.parent} is not there: is {agent} installed? --file names another file")
        try:
            self._before = self.path.read_text("utf-8") if self.path.exists() else ""
            self._data: Any = json.loads(self._before or "{}")
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(f"{self.path} is not JSON, so nothing was changed: {error}") from None
        events = self._data.get("hooks", {}) if isinstance(self._data, dict) else None
        if not isinstance(events, dict) or not all(isinstance(entries, list) for entries in events.values()):
            raise ConfigError(f"{self.path} has no hooks that are known here, so nothing was changed")
        self._events: dict[str, list[Any]] = events

    def installed(self, settings: Mapping[str, Any]) -> str:
        """The text of the file with the entries of `settings` in the place of older ones."""
        events = self._others()
        for event, entries in settings["hooks"].items():
            events[event] = [*events.get(event, ()), *entries]
        return self._text(events)

    def uninstalled(self) -> str:
        """The text of the file without the entries of agent-monitor."""
        return self._text(self._others())

    def difference(self, after: str) -> Iterator[str]:
        """The lines that change. None: nothing does."""
        lines = (self._before.splitlines(), after.splitlines())
        return difflib.unified_diff(*lines, str(self.path), str(self.path), lineterm="")

    def write(self, after: str) -> Path | None:
        """Write the file. Returns the backup of what was there. `None`: nothing was."""
        backup = None
        if self._before:
            names = chain([self.path.name + BACKUP], (f"{self.path.name}{BACKUP}-{number}" for number in count(2)))
            backup = next(one for one in map(self.path.with_name, names) if not one.exists())
            write_out(backup, [self._before.encode()], "--install")
        write_out(self.path, [after.encode()], "--install")
        return backup

    def _others(self) -> dict[str, list[Any]]:
        """The hooks of everybody else."""
        left = {event: [one for one in map(self._without, entries) if one] for event, entries in self._events.items()}
        return {event: entries for event, entries in left.items() if entries or not self._events[event]}

    def _without(self, entry: Any) -> Any:
        """`entry` without the commands of agent-monitor. `None`: it has no other one."""
        hooks = entry.get("hooks") if isinstance(entry, dict) else None
        if not isinstance(hooks, list):
            return entry
        others = [one for one in hooks if not self._is_own(one)]
        return entry if len(others) == len(hooks) else {**entry, "hooks": others} if others else None

    def _is_own(self, hook: Any) -> bool:
        command = hook.get("command") if isinstance(hook, dict) else None
        try:
            words = shlex.split(command) if isinstance(command, str) else []
        except ValueError:
            return False
        at = words.index("hook") if "hook" in words else 0
        return bool(at) and PurePath(words[at - 1]).name in _NAMES and words[at + 1 : at + 2] == [self._agent]

    def _text(self, events: Mapping[str, Any]) -> str:
        """The file with these hooks. One in which nothing changes stays as it is written."""
        data = {**self._data, "hooks": events}
        if not events and not self._events:
            data = self._data
        elif not events:
            del data["hooks"]
        return self._before if data == self._data else f"{json.dumps(data, ensure_ascii=False, indent=2)}\n"
