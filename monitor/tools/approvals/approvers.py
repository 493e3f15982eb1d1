"""Approvers, which ask the person: on the terminal, or later, after the run has ended."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import anyio
import anyio.to_thread

from monitor._util.codec import to_plain
from monitor._util.text import printable
from monitor.errors import ConfigError
from monitor.messages import ApprovalAnswer, ApprovalRequest, bound_hash
from monitor.tools.approvals.judged_call import MISSING, JudgedCall, deciding_files, is_harmless
from monitor.tools.approvals.known_commands import in_directories, table_of, unproven
from monitor.tools.masking import masked
from monitor.tools.registry import ToolEntry

SHOWN_CHARS: Final = 100_000
"""A longer question is not asked on the terminal: nobody would read all of it."""
SHOWN_LINES: Final = 2_000
"""The number of lines of a call that a person is shown at most."""
_GAP: Final = re.compile(r"(?<! ) {40,}")
"""Blanks that move the text behind them out of sight."""


class TerminalApprover:
    """Asks on the terminal, one question after the other.

    The whole call is shown; one that is too long to be read is refused. In text of a model or a
    tool, each character that does not print is escaped. `read`: reads a line, in a worker thread.
    The end of the input is a refusal.
    """

    def __init__(self, *, read: Callable[[str], str] = input, write: Callable[[str], Any] | None = None) -> None:
        self._read = read
        self._write = write if write is not None else _to_stderr
        self._lock = anyio.Lock()

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """The answer that the person types."""
        async with self._lock:
            lines = shown(request)
            if len(lines) > SHOWN_LINES or sum(map(len, lines)) > SHOWN_CHARS:
                return _answer(request, "denied", reason=_TOO_LONG.format(len(lines), sum(map(len, lines))))
            for line in lines:
                self._write(line)
            choices = "[y]es, [n]o, or why not" if request.call_id else "[y] go on, [n] stop, or what to tell the model"
            if request.scopes:
                exact, *more = map(_line, request.scopes)
                wider = f", [w]ider: always {more[0]}" if more else ""
                choices = f"[y]es, [a]lways {exact}{wider}, [n]o, or why not"
            try:
                said = await anyio.to_thread.run_sync(self._read, f"{choices}: ", abandon_on_cancel=True)
            except EOFError:
                return _answer(request, "denied", reason="nobody is at the terminal")
            return _understood(said.strip(), request)


_TOO_LONG: Final = "the call is too long to be shown whole: {:,} lines, {:,} characters; make several smaller calls"


def _understood(said: str, request: ApprovalRequest) -> ApprovalAnswer:
    match said.lower():
        case "y" | "yes":
            return _answer(request, "approved")
        case "a" | "always" if request.scopes:
            return _answer(request, "approved", always=request.scopes[0])
        case "w" | "wider" if len(request.scopes) > 1:
            return _answer(request, "approved", always=request.scopes[1])
        case "n" | "no" | "":
            return _answer(request, "denied")
    return _answer(request, "denied", reason=said)


def shown(request: ApprovalRequest) -> list[str]:
    """The whole question, line by line. Nothing in it acts on a terminal, and nothing is hidden by
    blank lines, by blanks, or by characters that look like blanks.
    """
    if not request.call_id:
        excerpt = request.evidence.evidence.excerpt if request.evidence is not None else ""
        return [f"The run is held: {_line(request.why)}", f"  {_line(excerpt)}"]
    lines = [f"May {_line(request.tool)} be called? ({_line(request.why)})"]
    arguments = request.arguments
    if not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(to_plain(value), ensure_ascii=False)
        lines += [f"  {_line(str(name))}: {part}" for part in _lines(text)]
    lines += [f"  {part}" for part in _lines(request.preview)] if request.preview else []
    decide = sorted(name for name, digest in request.files.items() if digest != MISSING)
    return lines + [f"  depends on {_line(name)} ({request.files[name][:12]})" for name in decide]


def _lines(text: str) -> Iterator[str]:
    """The lines of `text`. Several blank ones become one that says how many they are."""
    for blank, group in groupby(text.split("\n"), key=lambda line: not line.strip()):
        lines = list(group)
        yield from [f"({len(lines):,} blank lines)"] if blank and len(lines) > 1 else map(_line, lines)


def _line(text: str) -> str:
    return _GAP.sub(lambda found: f" ({len(found[0]):,} blanks) ", printable(text).replace("\t", "    "))


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _answer(request: ApprovalRequest, decision: Any, *, reason: str = "", always: str | None = None) -> ApprovalAnswer:
    return ApprovalAnswer(
        id=request.id,
        decision=decision,
        reason=reason,
        always=always,
        bound_to=request.bound_to,
        by="" if decision != "denied" else "the person at the terminal",
    )


class PendingApprovals:
    """Ends the run at a question, and takes the answer in the next run.

        pending = monitor.tools.PendingApprovals()
        outcome = await monitor.Supervisor(model, tools=tools, approver=pending).run(task)
        for request in outcome.pending: ...          # outcome.reason is "paused"
        pending.answer(ApprovalAnswer(id=request.id, decision="approved"))

    Requests and answers are plain records. `request_codec` and `answer_codec` make them JSON for a
    file or a queue. Then another process can go on with
    `PendingApprovals(requests=..., answers=...)`.
    """

    def __init__(
        self,
        *,
        requests: Iterable[ApprovalRequest] = (),
        answers: Iterable[ApprovalAnswer] = (),
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.requests: dict[str, ApprovalRequest] = {request.id: request for request in requests}
        """The questions that are open, by their ids."""
        self._answers: dict[str, ApprovalAnswer] = {}
        """The answers, by `bound_to` of their requests."""
        self._wall = wall
        self._calls: dict[str, str] = {}
        for answer in answers:
            self.answer(answer)

    def answer(self, answer: ApprovalAnswer) -> None:
        """Answer an open question. Raises `ConfigError` if no such question is open, or if the
        answer was given for another call or other arguments.
        """
        request = self.requests.get(answer.id)
        if request is None:
            raise ConfigError(f"no open question has the id {answer.id!r}: it is answered, or was never asked")
        if answer.bound_to and answer.bound_to != request.bound_to:
            raise ConfigError(f"the answer {answer.id!r} was given for another call, or for other arguments")
        if request.expires_at is not None and self._wall() >= request.expires_at:
            raise ConfigError(f"the question {answer.id!r} has expired; a new run asks it again")
        del self.requests[answer.id]
        self._answers[request.bound_to] = answer
        self._calls[request.call_id] = request.bound_to

    @property
    def answered_calls(self) -> frozenset[str]:
        """The ids of the calls that have an answer which was not used yet."""
        return frozenset(call for call, bound_to in self._calls.items() if bound_to in self._answers)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """The answer that was given for this very call. `None`: the question stays open."""
        answer = self._answers.pop(request.bound_to, None)
        if answer is None:
            self.requests[request.id] = request
            return None
        return replace(answer, id=request.id, bound_to=request.bound_to)  # the run asks anew about the same call


# --------------------------------------------------------------------------------------------------
# The meanings of "always" in an answer to a question. It is the call as it was shown, to the
# word. More is offered where it is known what more would be: a tool that reads or edits, a
# command of which a table says that it does no harm.


class Grants:
    """The calls that a person has allowed for the rest of a run. A tool whose description or schema
    has changed is another tool, and a script that has changed is another script.
    """

    def __init__(self) -> None:
        self._tools: set[str] = set()
        """Hashes of the tools that are allowed as a whole."""
        self._calls: set[str] = set()
        """Keys of the very calls that are allowed."""
        self._prefixes: dict[str, set[tuple[str, ...]]] = {}
        """The allowed beginnings of commands, by the hash of their tool."""

    def add(self, entry: ToolEntry, call: JudgedCall, scope: str) -> None:
        """Allow `scope`, one of `scopes_of` the call that was shown."""
        offered = scopes_of(entry, call)
        if scope not in offered:
            return
        schema = schema_hash(entry)
        if call.line is None and scope == entry.spec.name:
            self._tools.add(schema)
        elif scope == offered[0]:
            self._calls.add(_key(schema, call))
        else:
            self._prefixes.setdefault(schema, set()).update(_prefixes_of(call) or ())

    def cover(self, entry: ToolEntry, call: JudgedCall) -> bool:
        """Whether this very call was allowed."""
        if not self._tools and not self._calls and not self._prefixes:
            return False
        schema = schema_hash(entry)
        return (
            (call.line is None and schema in self._tools)
            or (bool(self._calls) and _key(schema, call) in self._calls)
            or self._covered(schema, call)
        )

    def prefixes(self, entry: ToolEntry) -> Sequence[tuple[str, ...]]:
        """The beginnings of commands of this tool that were allowed."""
        return tuple(self._prefixes.get(schema_hash(entry), ())) if self._prefixes else ()

    def _covered(self, schema: str, call: JudgedCall) -> bool:
        prefixes = self._prefixes.get(schema, ())
        if not prefixes or not call.plain or call.other_texts:
            return False
        for command, directories in in_directories(call.plain, call.place.directory):
            if any(one.writes for one in command.redirections):
                return False
            fitting = [prefix for prefix in prefixes if command.texts[: len(prefix)] == prefix]
            if not any(unproven(command, prefix, (), call.place, directories) is None for prefix in fitting):
                return False
        return True


def scopes_of(entry: ToolEntry, call: JudgedCall) -> tuple[str, ...]:
    """The choices for "always", the narrowest first. None for a line that is not plain, or that
    writes a file by a redirection, or whose globs may name other files tomorrow.
    """
    kind = entry.traits.kind
    if call.line is None:
        if kind in {"read", "edit"}:
            return (entry.spec.name,)
        exact = f"{entry.spec.name} {json.dumps(to_plain(masked(call.arguments)), ensure_ascii=False)}"
        return (exact,) if kind == "execute" else (exact, entry.spec.name)
    if not call.plain:
        return ()
    for command in call.plain:
        if any(one.writes for one in command.redirections) or (
            not is_harmless(command) and not all(word.known and not word.glob for word in command.words)
        ):
            return ()
    exact = " ".join(f"{command.after} {shlex.join(command.texts)}".strip() for command in call.plain)
    prefixes = _prefixes_of(call)
    wide = " ; ".join(dict.fromkeys(shlex.join(prefix) for prefix in prefixes)) if prefixes else exact
    return (exact,) if wide == exact else (exact, wide)


def schema_hash(entry: ToolEntry) -> str:
    """Names a tool as it was described to the model."""
    return bound_hash(entry.spec.name, entry.spec.description, entry.spec.parameters)


def _key(schema: str, call: JudgedCall) -> str:
    """Names a call to the word: its tool, its arguments without numbers, where it runs, and
    the files that decide what it does.
    """
    arguments = {
        name: value
        for name, value in call.arguments.items()
        if isinstance(value, bool) or not isinstance(value, int | float)
    }
    words: object = None
    if call.command is not None:
        arguments.pop(call.command)
        arguments.pop("directory", None)
        words = [
            [
                command.after,
                [(word.text, word.glob, word.home) for word in command.words],
                [(one.path.text, one.path.home) for one in command.redirections],
            ]
            for command in call.plain or ()
        ]
    shown = [schema, to_plain(arguments), words, str(call.place.directory), deciding_files(call)]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def _prefixes_of(call: JudgedCall) -> list[tuple[str, ...]] | None:
    """The names of the commands of a line, if each of them is harmless whatever words follow."""
    made: list[tuple[str, ...]] = []
    for command in call.plain or ():
        found = table_of(command.words)
        if found is None or not is_harmless(command):
            return None
        made.append(command.texts[: found[0]])
    return made
