"""Reads the new lines of a session for a first look: its calls and results, and nothing else.

It knows the lines of Claude Code, Codex and Gemini CLI. The state is kept between calls, in a file
that nobody else may write to. A first reading begins near the end of the session, so it takes no
longer for a long one.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
import zlib

from monitor.detectors.calls.seen_marks import SeenMarks, mark

TYPE_CHECKING = False  # `typing` takes long to import
if TYPE_CHECKING:
    from typing import BinaryIO

# --------------------------------------------------------------------------------------------------
# The answers that the hook has given for a loop, for as long as nothing but the loop goes on.
#
# Importing the core takes longer than an agent should wait, and a model that is refused often
# makes the same call again. Then the answer of before holds. It holds no longer once another call
# is made, a tool says something new, a person says something, or the history is compacted.

KEPT = 16
"""The most answers that are kept: a loop has few different calls."""


class HeldAnswers:
    """The answers for one loop. `saved`: what `save` returned; `None`: there are none."""

    def __init__(self, saved: object = None) -> None:
        known = saved if isinstance(saved, dict) else {}
        answers, calls = known.get("answers"), known.get("calls")
        self._answers: dict[str, str] = {}
        """The line that was written to stdout, for each question."""
        self._calls: list[object] = calls if isinstance(calls, list) else []
        """The identities of the calls of the loop."""
        if isinstance(answers, dict):
            self._answers = {name: line for name, line in answers.items() if isinstance(line, str)}

    def save(self) -> dict[str, object]:
        """The state as JSON data."""
        return {"answers": self._answers, "calls": self._calls}

    def add(self, question: str, line: str, calls: list[object]) -> None:
        """Hold `line`, the answer to `question`. `calls`: the identities of the loop's calls."""
        self._answers[question] = line
        while len(self._answers) > KEPT:
            del self._answers[next(iter(self._answers))]
        self._calls = [*self._calls, *(call for call in calls if call not in self._calls)][-KEPT:]

    def find(self, question: str) -> str | None:
        """The answer to `question`. `None`: the detectors have to be asked."""
        return self._answers.get(question)

    def called(self, identity: int) -> None:
        """A call was made."""
        if identity not in self._calls:
            self.clear()

    def clear(self) -> None:
        """Something else than the loop goes on."""
        self._answers, self._calls = {}, []


CALLS = 24
"""The calls that are compared: three rounds of a ring of eight calls."""
EQUAL_CALLS, ROUNDS, OTHER_ROUNDS = 5, 3, 2
"""The detectors need five equal calls, or three rounds of a ring: then another call came again too,
for which one time less is enough.
"""
RESULTS = 6
"""The results that are compared."""
STALE_RESULTS = 4
"""The results that add nothing, among these: the detectors need five steps for a loop."""
NEW_WORDS = 5
"""A short result with fewer new words adds nothing."""
SHORT_WORDS = 30
HEAD_CHARS, TAIL_CHARS = 4_000, 1_000
"""The part of a result that is read."""
OWN_SIGN, OWN_SIGN_WITHIN = "agent-monitor: ", 200
"""Stands near the beginning of a refusal that this hook gave: it is no answer of a tool."""
_WORD = re.compile(r"[^\W_]{1,64}")


class RecentSteps:
    """The newest calls and results. `saved`: what `save` returned; `None`: there were none."""

    def __init__(self, saved: dict[str, object] | None = None) -> None:
        known = saved or {}
        self._calls = _rows(known.get("calls"))
        """The id and the identity of each call."""
        self._open = _rows(known.get("open"))
        """The id and the text of each call without a result."""
        self._stale = [bool(one) for one in _rows(known.get("stale"))]
        """Whether each of the newest results added nothing."""
        self._signs = _number(known.get("signs"))
        """The number of equal calls and stale results."""
        self._calm = _number(known.get("calm"))
        """The signs at which the detectors last saw no loop; -1: they were not asked."""
        self._free = _number(known.get("free"))
        """The number of calls before the detectors need be asked."""
        self._awaited = known.get("awaited")
        """The identity of the call that they were asked about, until a call was made."""
        words = known.get("words")
        self._words = SeenMarks(words if isinstance(words, list) else None)
        self._held = HeldAnswers(known.get("held"))

    def save(self) -> dict[str, object]:
        """The state as JSON data."""
        return {
            "calls": self._calls,
            "open": self._open,
            "stale": self._stale,
            "signs": self._signs,
            "calm": self._calm,
            "free": self._free,
            "awaited": self._awaited,
            "words": self._words.save(),
            "held": self._held.save(),
        }

    def called(self, id: object, name: str, arguments: object) -> None:
        """Take in a call. One that comes again under its id is the same call."""
        if id is not None and any(one[0] == id for one in self._calls):
            return
        text = _text_of(name, arguments)
        identity = mark(text)
        self._held.called(identity)
        self._free = self._free - 1 if self._awaited in (None, identity) else 0
        self._awaited = None
        self._signs += any(one[1] == identity for one in self._calls)
        self._calls = [*self._calls, [id, identity]][-CALLS:]
        self._open = [*self._open, [id, text[:HEAD_CHARS]]][-CALLS:]

    def answered(self, id: object, text: str) -> None:
        """Take in a result. A second one of the same call is left out."""
        asked = next((one for one in self._open if one[0] == id), None)
        if asked is None:
            return
        self._open.remove(asked)
        read = text if len(text) <= HEAD_CHARS + TAIL_CHARS else f"{text[:HEAD_CHARS]} {text[-TAIL_CHARS:]}"
        said = set(_WORD.findall(str(asked[1]).lower()))
        told = [word for word in _WORD.findall(read.lower()) if word.isalpha() and word not in said]
        found, state = set(map(mark, told)), mark(" ".join(sorted(told)))
        new = sum(word not in self._words for word in found)
        stale = state in self._words or (new < NEW_WORDS and len(told) <= SHORT_WORDS)
        self._words.add([*found, state])
        self._stale = [*self._stale, stale][-RESULTS:]
        self._signs += stale
        if not stale and OWN_SIGN not in text[:OWN_SIGN_WITHIN]:
            self._held.clear()

    def interrupted(self) -> None:
        """A person said something, or the history was compacted."""
        self._held.clear()

    def hold(self, question: str, line: str, name: str, arguments: object) -> None:
        """`line` was answered to `question`, which was about this call: it is in a loop."""
        identities = [one[1] for one in self._calls]
        again = [identity for identity in dict.fromkeys(identities) if identities.count(identity) > 1]
        self._held.add(question, line, [*again, mark(_text_of(name, arguments))])

    def held(self, question: str) -> str | None:
        """The answer that holds as long as nothing but the loop goes on. `None`: there is none."""
        return self._held.find(question)

    def may_loop(self, name: str = "", arguments: object = None) -> bool:
        """Whether the detectors may see a loop that goes on with this call. Without a `name`: with
        any call.
        """
        asked = _identity_of(name, arguments)
        if self._signs_with(asked) == self._calm or (self._free > 0 and self._awaited in (None, asked)):
            return False
        made = [one[1] for one in self._calls]
        if name:
            made.append(asked)
        times = {identity: made.count(identity) for identity in made}
        equal = times.pop(made[-1]) if name else max(times.values(), default=0)
        others = sorted(times.values())[: None if name else -1]
        in_turn = equal >= ROUNDS and max(others, default=0) >= OTHER_ROUNDS
        return equal >= EQUAL_CALLS or in_turn or sum(self._stale) >= STALE_RESULTS

    def is_calm(self, free_calls: int = 0, name: str = "", arguments: object = None) -> None:
        """The detectors see no loop with the call that was asked about. Once it is made, they need
        not be asked before `free_calls` more calls, nor until there is one more sign.
        """
        self._awaited = _identity_of(name, arguments)
        self._calm, self._free = self._signs_with(self._awaited), free_calls + 1

    def _signs_with(self, asked: int | None) -> int:
        """The signs that there are once the call that is asked about stands in the session. It does
        already, if the same call has no result.
        """
        equal = [one[0] for one in self._calls if one[1] == asked]
        return self._signs + (bool(equal) and all(one[0] not in equal for one in self._open))


def _identity_of(name: str, arguments: object) -> int | None:
    return mark(_text_of(name, arguments)) if name else None


def _text_of(name: str, arguments: object) -> str:
    return f"{name}({json.dumps(arguments, sort_keys=True)})"


def _rows(value: object) -> list[list[object]]:
    return value if isinstance(value, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1


# --------------------------------------------------------------------------------------------------
# Reads the new lines of a session for a first look: its calls and results, and nothing else.


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

    def _take_over(self, known: dict[str, object]) -> None:
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

    def _edge_before(self, file: BinaryIO) -> int:
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


def _take_steps(record: dict[str, object], steps: RecentSteps) -> None:
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


def _interrupts(record: dict[str, object]) -> bool:
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


def _take_item(item: dict[str, object], steps: RecentSteps) -> None:
    kind, id = str(item.get("type")), item.get("call_id") or item.get("id")
    if kind.endswith("_call_output") or kind == "tool_search_output":
        steps.answered(id, _words(item.get("output", item.get("tools"))))
    elif kind.endswith("_call"):
        given = next((item[name] for name in ("arguments", "input", "action") if name in item), None)
        steps.called(id, str(item.get("name") or kind), given)


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _loaded(file: str) -> dict[str, object]:
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


# --------------------------------------------------------------------------------------------------
# Whether the current folder has settings: a quick look, before they are read.

OWN_FILE, PROJECT_FILE, TABLE = "agent-monitor.toml", "pyproject.toml", "agent-monitor"
_AS_KEY = re.compile(rb"agent-monitor[\"']?[ \t]*[].=]")
"""Wherever the name is a key. A project that only requires the package names it in a text."""


def has_settings() -> bool:
    """Whether the folder may have settings. A file that cannot be read may have them."""
    if os.path.lexists(OWN_FILE):
        return True
    try:
        with open(PROJECT_FILE, "rb") as file:
            data = file.read()
        if _AS_KEY.search(data) is None:
            return False
        import tomllib  # noqa: PLC0415 - takes long, and few projects have such a key

        return TABLE in tomllib.loads(data.decode()).get("tool", {})
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
