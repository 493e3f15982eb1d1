"""The meanings of "always" in an answer to a question. It is the call as it was shown, to the word.
More is offered where it is known what more would be: a tool that reads or edits, a command of which
a table says that it does no harm.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence

from monitor._util.codec import to_plain
from monitor.calls import bound_hash
from monitor.tools.approvals.allowed_commands import in_directories, unproven
from monitor.tools.approvals.file_hashes import deciding_files, is_harmless
from monitor.tools.approvals.judged_call import JudgedCall
from monitor.tools.approvals.known_commands import table_of
from monitor.tools.registry import ToolEntry
from monitor.tools.secrets.masking import masked


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
