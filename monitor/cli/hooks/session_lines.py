"""Reads the new lines of a session for a first look: its calls and results, and nothing else.

It knows the lines of Claude Code, Codex and Gemini CLI. The state is kept between calls, in a file
that nobody else may write to. A first reading begins near the end of the session, so it takes no
longer for a long one.
"""

import json
import os
import stat
import time
import zlib

from monitor.cli.hooks.recent_steps import RecentSteps

TYPE_CHECKING = False  # `typing` takes long to import
if TYPE_CHECKING:
    from typing import BinaryIO

FIRST_BYTES = 1_000_000
"""The part of a session, from its end, that a first reading takes."""
MOST_BYTES = 8_000_000
"""The most new bytes that are read at once. Of more, the last ones are read."""
EDGE_BYTES = 4_096
"""The bytes before the place where a reading stopped that must be as they were."""
BEGINNING_BYTES = 128_000
"""The part of a long session, from its beginning, in which requests of the user are looked for."""
REQUESTS = 8
"""The places of requests that are kept, the newest ones."""
KEPT_S = 7 * 24 * 3600.0
"""The state of a session that nobody has asked about for so long is removed."""
VERSION = 4
SUM_BYTES = 8
_KNOWN = ("type", "sessionId", "$set", "$rewindTo")
"""Each line of the three agents has one of these fields."""


class SessionLines:
    """The newest steps of the session in the file `path`, as far as they were read. `folder`: where
    the state is kept.
    """

    def __init__(self, path: str, folder: str) -> None:
        self._path, self._folder = path, folder
        self._file = os.path.join(folder, f"{zlib.crc32(os.fsencode(path)):08x}.json")
        known = _loaded(self._file)
        self.steps = RecentSteps()
        self.requests: list[list[int]] = []
        """Where each part begins and ends in which a person says something, as far as is known."""
        self.understood = True
        """Whether the lines are those of a known agent."""
        self._at = 0
        self._inode: list[int] = []
        self._edge = 0
        self._is_kept = False
        if known.get("version") == VERSION and known.get("path") == path:
            self._take_over(known)

    def _take_over(self, known: "dict[str, object]") -> None:
        at, inode, edge, steps, requests = (known.get(name) for name in ("at", "inode", "edge", "steps", "requests"))
        if isinstance(at, int) and isinstance(inode, list) and isinstance(edge, int) and isinstance(steps, dict):
            self._at, self._inode, self._edge = at, inode, edge
            self.steps, self.understood = RecentSteps(steps), known.get("understood") is True
            self.requests = requests if isinstance(requests, list) else []
            self._is_kept = True

    def read(self) -> None:
        """Read the lines that are new. Raises `OSError`."""
        with open(self._path, "rb") as file:
            status = os.fstat(file.fileno())
            inode = [status.st_dev, status.st_ino]
            most = MOST_BYTES
            if self._inode != inode or status.st_size < self._at or self._edge_before(file) != self._edge:
                self.steps, self.requests, self.understood, self._at = RecentSteps(), [], True, 0
                most = FIRST_BYTES
            start = max(self._at, status.st_size - most)
            if start > self._at:
                self.requests.append([self._at, min(start, self._at + BEGINNING_BYTES)])
            file.seek(start)
            data = file.read(status.st_size - start)
            begin = 0 if start == self._at else data.find(b"\n") + 1
            end = data.rfind(b"\n") + 1
            at = start + begin
            for line in data[begin:end].splitlines(keepends=True):
                if self._take(line):
                    self.requests = [*self.requests, [at, at + len(line)]][-REQUESTS:]
                at += len(line)
            if end:
                self._is_kept = False
                self._at, self._inode = start + end, inode
                self._edge = self._edge_before(file)

    def _take(self, line: bytes) -> bool:
        """Take in a line. Returns whether a person says something in it."""
        if not line.strip():
            return False
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return False
        if not isinstance(record, dict) or not any(name in record for name in _KNOWN):
            self.understood = False
            return False
        interrupts = _interrupts(record)
        if interrupts:
            self.steps.interrupted()
        _take_steps(record, self.steps)
        return interrupts

    def _edge_before(self, file: "BinaryIO") -> int:
        """The hash of the bytes before the place where the reading stopped."""
        start = max(0, self._at - EDGE_BYTES)
        file.seek(start)
        return zlib.crc32(file.read(self._at - start))

    def hold(self, question: str, line: str, name: str, arguments: object) -> None:
        """The detectors have answered `line` to `question`: see `RecentSteps.hold`."""
        self.steps.hold(question, line, name, arguments)
        self._is_kept = False

    def is_calm(self, free_calls: int, name: str, arguments: object) -> None:
        """The detectors see no loop in the session: see `RecentSteps.is_calm`."""
        self.steps.is_calm(free_calls, name, arguments)
        self._is_kept = False

    def keep(self) -> None:
        """Store the state, if it has changed. One that cannot be stored is left out: the next
        reading is a first one.
        """
        if self._is_kept:
            return
        state = {
            "version": VERSION,
            "path": self._path,
            "at": self._at,
            "inode": self._inode,
            "edge": self._edge,
            "understood": self.understood,
            "requests": self.requests,
            "steps": self.steps.save(),
        }
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            if not _is_own(self._folder):
                return
            if not os.path.lexists(self._file):
                _remove_old(self._folder)
            half = f"{self._file}.{os.getpid()}"
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
            data = json.dumps(state).encode()
            with os.fdopen(descriptor, "wb") as out:
                out.write(_sum_of(data) + data)
            os.replace(half, self._file)
        except OSError:
            return


def _take_steps(record: "dict[str, object]", steps: RecentSteps) -> None:
    """The calls and results of one line."""
    payload = record.get("payload")
    if isinstance(payload, dict):  # Codex
        _take_item(payload, steps)
        return
    calls = record.get("toolCalls")
    for call in calls if isinstance(calls, list) else ():  # Gemini CLI
        if isinstance(call, dict):
            steps.called(call.get("id"), str(call.get("name")), call.get("args"))
            if "result" in call:
                steps.answered(call.get("id"), _words(call["result"]))
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():  # Claude Code
        if isinstance(block, dict) and block.get("type") == "tool_use":
            steps.called(block.get("id"), str(block.get("name")), block.get("input"))
        elif isinstance(block, dict) and block.get("type") == "tool_result":
            steps.answered(block.get("tool_use_id"), _words(block.get("content")))


def _interrupts(record: "dict[str, object]") -> bool:
    """Whether the line is something that a person said, or the beginning of a new history."""
    if "$rewindTo" in record or record.get("subtype") == "compact_boundary" or record.get("type") == "compacted":
        return True
    payload = record.get("payload")
    if isinstance(payload, dict):  # Codex
        return payload.get("role") == "user" or payload.get("type") in ("user_message", "compacted", "turn_aborted")
    if record.get("type") != "user":
        return False
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) and content else [None]
    return any(not isinstance(block, dict) or block.get("type") != "tool_result" for block in blocks)


def _take_item(item: "dict[str, object]", steps: RecentSteps) -> None:
    kind, id = str(item.get("type")), item.get("call_id") or item.get("id")
    if kind.endswith("_call_output") or kind == "tool_search_output":
        steps.answered(id, _words(item.get("output", item.get("tools"))))
    elif kind.endswith("_call"):
        given = next((item[name] for name in ("arguments", "input", "action") if name in item), None)
        steps.called(id, str(item.get("name") or kind), given)


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _loaded(file: str) -> "dict[str, object]":
    """The state that is kept in `file`. Empty: `file` has no usable state."""
    try:
        if not _is_own(os.path.dirname(file)) or not _is_own(file):
            return {}
        with open(file, "rb") as kept:
            checked, data = kept.read(SUM_BYTES), kept.read()
        found = json.loads(data) if checked == _sum_of(data) else None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _sum_of(data: bytes) -> bytes:
    """Stands before a state, so that a damaged one is known."""
    return b"%08x" % zlib.crc32(data)


def _is_own(path: str) -> bool:
    """Whether nobody but this user may write to it. On Windows the folder of a user is."""
    if os.name == "nt":
        return True
    status = os.lstat(path)
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode) and not status.st_mode & others


def _remove_old(folder: str) -> None:
    """A new session has begun, which is rare: time to look for old ones."""
    now = time.time()
    for name in os.listdir(folder):
        file = os.path.join(folder, name)
        try:
            if now - os.stat(file).st_mtime > KEPT_S:
                os.unlink(file)
        except OSError:
            continue
