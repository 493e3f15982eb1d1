"""Rules as data: which calls may be made, which a person is asked about, which are refused.

    [[rules]]
    name = "no pushes"
    tool = "shell"
    command = "git push"
    decision = "deny"
    reason = "pushes are made by people"
    match = ["git push origin main", "cd x && git push"]
    not_match = ["git status"]

A rule carries examples of its own, `match` and `not_match`. They are checked when the rules are
loaded, so a rule that does not say what its author meant is refused before anything runs. Of all
rules that match a call the strictest decides: `deny`, then `ask`, then `allow`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from monitor._util.codec import to_plain
from monitor.errors import ConfigError, message_of
from monitor.tools.approvals.command_line import Line, need_parser, read_line

Decision: TypeAlias = Literal["allow", "ask", "deny"]
_STRICTNESS: Final = ("allow", "ask", "deny")
COMMAND: Final = "command"
"""The argument that holds a line for a shell."""
UNSURE: Final = "the command cannot be read for sure"
Example: TypeAlias = str | dict[str, Any]
"""Arguments of a call. A text stands for the arguments of a call with this `command`."""


class Rule(BaseModel):
    """One rule. It matches a call if all its conditions are true of the call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str = "*"
    """Name of the tool; `*` and `?` stand for any characters."""
    arguments: dict[str, str] = Field(default_factory=dict)
    """Patterns with `*` and `?`, one for each argument that counts. An argument that is not a text
    is compared as it is written in Python.
    """
    command: str | list[str] | None = None
    """The beginning of a command, in whole words: `git push`. Of a list, any one counts. A rule
    that allows matches only if each command of the line is allowed. Any other rule matches if one
    command of the line begins in this way.
    """
    decision: Decision
    reason: str = ""
    """The reason, for the model and for the person who is asked."""
    name: str = ""
    match: list[Example] = Field(default_factory=list)
    """Calls that the rule must match."""
    not_match: list[Example] = Field(default_factory=list)
    """Calls that the rule must not match."""

    @property
    def prefixes(self) -> tuple[tuple[str, ...], ...]:
        """`command`, word by word."""
        given = [self.command] if isinstance(self.command, str) else self.command or []
        return tuple(tuple(one.split()) for one in given)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rules: list[Rule] = Field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Ruling:
    """The decision of the rules about a call."""

    decision: Decision
    rule: str
    """The name of the rule that has decided."""
    reason: str = ""
    unsure: bool = False
    """The rule refuses calls, and may mean this one: so a person is asked in every mode."""

    def __str__(self) -> str:
        return f"rule {self.rule!r}" + (f": {self.reason}" if self.reason else "")


class Rules:
    """A list of rules, checked. `ConfigError` names the rule that is wrong."""

    def __init__(self, rules: Iterable[Rule | Mapping[str, Any]] = ()) -> None:
        made: list[Rule] = []
        for number, given in enumerate(rules, start=1):
            try:
                rule = given if isinstance(given, Rule) else Rule.model_validate(given)
            except ValidationError as error:
                raise ConfigError(f"rule {number}: {_first(error)}") from None
            made.append(rule if rule.name else rule.model_copy(update={"name": f"rule {number}"}))
        self.rules: Final = tuple(made)
        for rule in self.rules:
            _check(rule)

    @classmethod
    def load(cls, source: str | Path) -> Rules:
        """The rules that stand in a TOML file."""
        path = Path(source)
        try:
            return cls.parse(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"the rules cannot be read: {message_of(error)}") from None
        except ConfigError as error:
            raise ConfigError(f"{path.name}: {message_of(error)}") from None

    @classmethod
    def parse(cls, text: str) -> Rules:
        """The rules that stand in a text of TOML."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"the rules are no TOML: {message_of(error)}") from None
        if not set(data) <= {"rules"} or not isinstance(data.get("rules", []), list):
            raise ConfigError("rules are written as [[rules]] and nothing else")
        return cls(data.get("rules", []))

    def judge(
        self, tool: str, arguments: Mapping[str, Any], allowed: Callable[[Sequence[str]], bool] | None = None
    ) -> Ruling | None:
        """The decision of the strictest matching rule about a call. `None`: no rule matches.
        `allowed`: whether a person has allowed a command, given by its words.
        """
        rulings: list[Ruling] = []
        line: Line | None = None
        read = False
        for rule in self.rules:
            if not _fits(rule, tool, arguments):
                continue
            if rule.command is None:
                rulings.append(Ruling(rule.decision, rule.name, rule.reason))
                continue
            if not read:
                read, line = True, read_line(str(arguments.get(COMMAND, "")))
            if line is None:
                rulings.append(_unsure(rule))
            elif rule.decision != "allow" and (matches := _matches(line, rule.prefixes)):
                sure = Ruling(rule.decision, rule.name, rule.reason)
                rulings.append(sure if matches == "yes" else _unsure(rule))
        if line is not None and (ruling := self._all_allowed(tool, arguments, line, allowed)) is not None:
            rulings.append(ruling)
        return max(rulings, key=lambda ruling: (_STRICTNESS.index(ruling.decision), ruling.unsure), default=None)

    def _all_allowed(
        self, tool: str, arguments: Mapping[str, Any], line: Line, allowed: Callable[[Sequence[str]], bool] | None
    ) -> Ruling | None:
        """The decision about a line whose commands are all allowed by some rule. `None`: one is not
        allowed.
        """
        rules = [r for r in self.rules if r.command is not None and r.decision == "allow" and _fits(r, tool, arguments)]
        by: Rule | None = None
        for words in line.commands:
            rule = next((rule for rule in rules if _begins(words, rule.prefixes)), None)
            if rule is None and (allowed is None or not allowed(words)):
                return None
            by = by or rule
        if by is None:
            return None
        if line.writes:
            return Ruling("ask", by.name, "the command writes a file by a redirection")
        return Ruling("allow", by.name, by.reason)


def _unsure(rule: Rule) -> Ruling:
    return Ruling("ask", rule.name, UNSURE, unsure=rule.decision == "deny")


def _begins(words: Sequence[str], prefixes: Sequence[Sequence[str]]) -> bool:
    return any(tuple(words[: len(prefix)]) == tuple(prefix) for prefix in prefixes)


def _matches(line: Line, prefixes: Sequence[Sequence[str]]) -> Literal["yes", "maybe", ""]:
    """Whether a command of `line` begins with one of `prefixes`. This is for rules that ask or
    refuse: `/usr/bin/git -C x push` counts as `git push`. "maybe": a word is only known when the
    command runs.
    """
    found: set[str] = set()
    for words, fixed in zip(line.commands, line.fixed, strict=True):
        plain = [words[0].rpartition("/")[2], *words[1:]]
        found.update(_begins_loosely(one, fixed, prefix) for one in (words, plain) for prefix in prefixes)
    return "yes" if "yes" in found else "maybe" if "maybe" in found else ""


def _begins_loosely(words: Sequence[str], fixed: int, prefix: Sequence[str]) -> Literal["yes", "maybe", ""]:
    """Whether `words` begin with `prefix`, where options and their values may stand in between.
    `fixed`: how many of the first words are known.
    """
    wanted = list(prefix)
    after_option = False
    for at, word in enumerate(words):
        if not wanted:
            return "yes"
        if word == wanted[0] and at < fixed:
            wanted.pop(0)
        elif at == 0 or not (after_option or word.startswith("-")):
            return "maybe" if fixed <= at else ""
        after_option = word.startswith("-")
    return "yes" if not wanted else "maybe" if fixed < len(words) else ""


def _fits(rule: Rule, tool: str, arguments: Mapping[str, Any]) -> bool:
    if not fnmatchcase(tool, rule.tool) or (rule.command is not None and COMMAND not in arguments):
        return False
    return all(
        name in arguments and fnmatchcase(_as_text(arguments[name]), pattern)
        for name, pattern in rule.arguments.items()
    )


def _as_text(value: object) -> str:
    plain = to_plain(value)  # an integer of thousands of digits has no `repr`
    return plain if isinstance(plain, str) else repr(plain)


def _check(rule: Rule) -> None:
    """Raise `ConfigError` if the rule does not fit its own examples."""
    if rule.command is not None:
        need_parser()
        if not all(rule.prefixes):
            raise ConfigError(f"{rule.name}: command is empty")
    alone = Rules.__new__(Rules)
    object.__setattr__(alone, "rules", (rule,))
    for examples, expected in ((rule.match, True), (rule.not_match, False)):
        for example in examples:
            arguments = {COMMAND: example} if isinstance(example, str) else example
            tool = rule.tool if not set(rule.tool) & set("*?[") else str(arguments.get("tool", "tool"))
            ruling = alone.judge(tool, arguments)
            if (ruling is not None and ruling.decision == rule.decision) is not expected:
                says = "does not match" if expected else "matches"
                raise ConfigError(f"{rule.name}: the rule {says} its own example {example!r}")


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'rule'}: {first['msg']}"
