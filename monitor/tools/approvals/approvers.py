"""Approvers, which ask the person: on the terminal, or later, after the run has ended."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
import time
import unicodedata
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
from monitor.tools.approvals.judged_call import MISSING, JudgedCall, texts_in
from monitor.tools.approvals.known_commands import is_harmless, table_of
from monitor.tools.approvals.plain_words import PlainCommand
from monitor.tools.masking import secrets_in
from monitor.tools.registry import ToolEntry

SHOWN_CHARS: Final = 100_000
"""A longer question is not asked on the terminal: nobody would read all of it."""
SHOWN_LINES: Final = 2_000
"""The number of lines of a call that a person is shown at most."""
LEAST_S: Final = 0.3
"""The seconds within which nobody has read a question."""
_TRIES: Final = 5
_MOST_NAMED: Final = 8
"""The most characters that are named."""
_GAP: Final = re.compile(r"(?<! ) {40,}")
"""Blanks that move the text behind them out of sight."""


class TerminalApprover:
    """Asks on the terminal, one question after the other.

    The whole call is shown; one that is too long to be read is refused. In text of a model or a
    tool, each character that does not print is escaped. Keys that were typed before the
    question are dropped. An answer within 0.3 s does not count, because nobody can have read the
    question. `read`: reads a line, in a worker thread. The end of the input is a refusal. `now`:
    the time in seconds.
    """

    def __init__(
        self,
        *,
        read: Callable[[str], str] = input,
        write: Callable[[str], Any] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._write = write if write is not None else _to_stderr
        self._now = now
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
            for _ in range(_TRIES):
                _drop_typed()
                asked_at = self._now()
                try:
                    said = await anyio.to_thread.run_sync(self._read, f"{choices}: ", abandon_on_cancel=True)
                except EOFError:
                    return _answer(request, "denied", reason="nobody is at the terminal")
                if self._now() - asked_at >= LEAST_S:
                    return _understood(said.strip(), request)
                self._write("That came before you can have read the question. Please answer once more.")
            return _answer(request, "denied", reason="every answer came before the question can have been read")


def _drop_typed() -> None:
    """Drop what was typed on the terminal before."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # no terminal, or a system without
        import termios  # noqa: PLC0415 - Windows has none

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


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
    if odd := _odd_in("\n".join([*texts_in(arguments), request.preview])):
        more = f" and {len(odd) - _MOST_NAMED} more" if len(odd) > _MOST_NAMED else ""
        lines.append(f"  take care, it has {', '.join(map(_name, odd[:_MOST_NAMED]))}{more}")
    decide = sorted(name for name, digest in request.files.items() if digest != MISSING)
    return lines + [f"  depends on {_line(name)} ({request.files[name][:12]})" for name in decide]


def _lines(text: str) -> Iterator[str]:
    """The lines of `text`. Several blank ones become one that says how many they are."""
    for blank, group in groupby(text.split("\n"), key=lambda line: not line.strip()):
        lines = list(group)
        yield from [f"({len(lines):,} blank lines)"] if blank and len(lines) > 1 else map(_line, lines)


def _line(text: str) -> str:
    return _GAP.sub(lambda found: f" ({len(found[0]):,} blanks) ", printable(text).replace("\t", "    "))


def _odd_in(text: str) -> list[str]:
    """The characters of a text that do not show what they are: controls, marks of direction, blanks
    that are none, and signs and letters that look like others.
    """
    other = {char for char in text if not char.isascii() and char.isalpha() and "LATIN" not in _name(char)}
    few = sum(map(other.__contains__, text)) < sum(char.isascii() and char.isalpha() for char in text)
    return [
        char
        for char in sorted(set(text) - {"\n", "\t"})
        if printable(char) != char
        or (not char.isascii() and len(like := unicodedata.normalize("NFKC", char)) == 1 and like.isascii())
        or (few and char in other)
    ]


def _name(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, 'CONTROL CHARACTER')}"


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
# The meanings of "always" in an answer to a question. Each is a text, which the person reads, and
# which another call has as well if it means the same. It is the call as it was shown, to the word.
# Of a line that runs code it holds in a sandbox only, because nothing else bounds what the code
# does tomorrow. More is offered where it is known what more would be: a tool that reads or edits, a
# command of which a table says that it does no harm.

IN_BOX: Final = ", in the sandbox only"


class Grants:
    """The calls that a person has allowed for the rest of a run. A tool whose description or schema
    has changed is another tool.
    """

    def __init__(self) -> None:
        self._exact: set[tuple[str, str]] = set()
        """The calls that are allowed to the word, with the hash of their tool."""
        self._wide: set[tuple[str, str]] = set()
        """The tools that are allowed as a whole, and the beginnings of commands."""

    def add(self, request: ApprovalRequest, scope: str | None) -> None:
        """Allow `scope`, one of those that were offered."""
        if scope in request.scopes[1:] or (scope == request.tool and scope in request.scopes):
            self._wide.update((request.schema_hash, part) for part in scope.split(" ; "))
        elif scope in request.scopes:
            self._exact.add((request.schema_hash, scope))

    def cover(self, entry: ToolEntry, call: JudgedCall) -> bool:
        """Whether this very call was allowed."""
        if not self._exact and not self._wide:
            return False
        schema = schema_hash(entry)
        exact, parts = _meant(entry, call)
        return (schema, exact) in self._exact or bool(parts and self._wide.issuperset((schema, one) for one in parts))

    def prefixes(self, entry: ToolEntry) -> Sequence[tuple[str, ...]]:
        """The beginnings of commands of this tool that were allowed."""
        return (
            [tuple(part.split()) for schema, part in self._wide if schema == schema_hash(entry)] if self._wide else []
        )


def scopes_of(entry: ToolEntry, call: JudgedCall) -> tuple[str, ...]:
    """The choices for "always", the narrowest first."""
    exact, parts = _meant(entry, call)
    return tuple(dict.fromkeys(one for one in (exact, " ; ".join(dict.fromkeys(parts))) if one))


def _meant(entry: ToolEntry, call: JudgedCall) -> tuple[str, Sequence[str]]:
    """The call as a text, and the texts that would stand for more than this call. They are empty
    for a call with a secret, and for code that runs in no sandbox. So they are for a line that is
    not plain, or that writes a file by a redirection.
    """
    kind, place = entry.traits.kind, call.place
    others = {name: call.arguments[name] for name in call.other_texts}
    hides = secrets_in(call.arguments) != {}
    if call.line is None:
        shown = f"{entry.spec.name} {json.dumps(to_plain(call.arguments), ensure_ascii=False, sort_keys=True)}"
        if kind == "execute":
            return f"{shown}{IN_BOX}" if place.boxed and not hides else "", ()
        return "" if hides or kind in {"read", "edit"} else shown, (entry.spec.name,)
    plain = call.plain or ()
    if not plain or hides or any(one.writes for command in plain for one in command.redirections):
        return "", ()
    harmless = all(is_harmless(command, place) for command in plain)
    known = all(word.known and not word.glob for command in plain for word in command.words)
    exact = " ".join(f"{command.after} {_written(command)}".strip() for command in plain)
    if others:
        exact += f" {json.dumps(to_plain(others), ensure_ascii=False, sort_keys=True)}"
    if place.directory != place.root:
        exact += f" in {place.directory}"
    if not (harmless or (known and place.boxed)):
        return "", ()
    named = [(command, table_of(command.words)) for command in plain] if harmless and not others else []
    parts = [shlex.join(command.texts[: found[0]]) for command, found in named if found is not None]
    return exact if harmless else f"{exact}{IN_BOX}", parts


def _written(command: PlainCommand) -> str:
    """The command, so that no other one is written like it."""
    words = [
        shlex.quote(word.text) if word.literal else f"{word.text} (as the shell reads it)" for word in command.words
    ]
    return " ".join([*words, *(f"< {shlex.quote(one.path.text)}" for one in command.redirections)])


def schema_hash(entry: ToolEntry) -> str:
    """Names a tool as it was described to the model."""
    return bound_hash(entry.spec.name, entry.spec.description, entry.spec.parameters)
