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

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from monitor._util.codec import to_plain
from monitor._util.explained_options import explains_options
from monitor.errors import ConfigError, message_of
from monitor.tools.approvals.judged_call import COMMAND, JudgedCall, bare_call, texts_in
from monitor.tools.approvals.known_commands import in_directories, is_proven, unproven
from monitor.tools.approvals.path_patterns import Match, allows, denied_words, denies, may_hold, touches_below
from monitor.tools.approvals.plain_words import ANY, PlainCommand, PlainWord, known_options, need_parser
from monitor.tools.approvals.started_commands import StartedCommands, name_of_program

Decision: TypeAlias = Literal["allow", "ask", "deny"]
_STRICTNESS: Final = ("allow", "ask", "deny")
_SURENESS: Final[tuple[Match, ...]] = ("", "maybe", "yes")
_SPLIT: Final = re.compile(r"[^A-Za-z0-9_-]+")
_QUIET: Final = frozenset({"git", "sed", "awk"})
"""Commands whose words have been read as far as they start others."""
UNSURE: Final = "the command cannot be read for sure"
Example: TypeAlias = str | dict[str, Any]
"""Arguments of a call. A text stands for the arguments of a call with this `command`."""


class Rule(BaseModel):
    """One rule. It matches a call if all its conditions are true of the call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str = "*"
    """Name of the tool; `*` and `?` stand for any characters."""
    arguments: dict[str, str] = Field(default_factory=dict)
    """Patterns with `*` and `?`, one for each argument that counts. A path is compared as the place
    that it names, so `a/../.env` is `.env`. An argument that is not a text is compared as it is
    written in Python. A tool that runs a line for a shell may not have the argument. Then a rule
    that asks or refuses is compared with the words of the line.
    """
    command: str | list[str] | None = None
    """The beginning of a command, in whole words: `git push`. Of a list, any one counts. A rule
    that allows matches only if each command of the line is allowed, and proven to do no more than
    its name says. Any other rule matches if one command of the line begins in this way.
    """
    options: list[str] = Field(default_factory=list)
    """Further options that a rule allows, beside those that are known to be harmless: `-v`, `-j:`
    (with a value), `--level:`. `["*"]`: any words, for which the author of the rule answers.
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
    @explains_options(example="monitor.tools.Rules.parse(Path('rules.toml').read_text())")
    def parse(cls, text: str) -> Rules:
        """The rules that stand in a text of TOML."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"the rules are no TOML: {message_of(error)}") from None
        if not set(data) <= {"rules"} or not isinstance(data.get("rules", []), list):
            raise ConfigError("rules are written as [[rules]] and nothing else")
        return cls(data.get("rules", []))

    def judge(self, tool: str, arguments: Mapping[str, Any]) -> Ruling | None:
        """The decision of the strictest matching rule about a call. `None`: no rule matches."""
        return self.ruling(bare_call(tool, arguments))

    def ruling(self, call: JudgedCall, granted: Sequence[Sequence[str]] = ()) -> Ruling | None:
        """Judge like `judge` a call of which more is known. `granted`: beginnings of commands that
        a person has allowed.
        """
        rulings: list[Ruling] = []
        for rule in self.rules:
            if not _means_tool(rule, call):
                continue
            match = _match(rule, call)
            if match == "yes":
                rulings.append(Ruling(rule.decision, rule.name, rule.reason))
            elif match:
                rulings.append(Ruling("ask", rule.name, UNSURE, unsure=rule.decision == "deny"))
        if call.plain is not None and (ruling := self._all_allowed(call, call.plain, granted)) is not None:
            rulings.append(ruling)
        return max(rulings, key=lambda ruling: (_STRICTNESS.index(ruling.decision), ruling.unsure), default=None)

    def _all_allowed(
        self, call: JudgedCall, commands: Sequence[PlainCommand], granted: Sequence[Sequence[str]]
    ) -> Ruling | None:
        """The decision about a line whose commands are all allowed by some rule. `None`: one is not
        allowed.
        """
        rules = [
            rule
            for rule in self.rules
            if rule.command is not None
            and rule.decision == "allow"
            and fnmatchcase(call.tool, rule.tool)
            and _arguments_match(rule, call) == "yes"
        ]
        by: Rule | None = None
        doubt: str | None = None
        for command, directories in in_directories(commands, call.place.directory):
            ways: list[tuple[Rule | None, Sequence[str], Sequence[str]]] = []
            ways += [(rule, prefix, rule.options) for rule in rules for prefix in rule.prefixes]
            ways += [(None, prefix, ()) for prefix in granted]
            fitting = [way for way in ways if command.texts[: len(way[1])] == tuple(way[1])]
            if not fitting:
                return None
            reasons = [unproven(command, prefix, options, call.place, directories) for _, prefix, options in fitting]
            at = reasons.index(None) if None in reasons else 0
            by, doubt = by or fitting[at][0], doubt or reasons[at]
            if any(redirection.writes for redirection in command.redirections):
                doubt = doubt or "the command writes a file by a redirection"
        if by is None:
            return None
        if not call.placed:
            doubt = doubt or "the folder in which it runs is not known"
        if unknown := [name for name in call.other_texts if name not in by.arguments]:
            doubt = doubt or f"the rule says nothing of the argument {unknown[0]}"
        return Ruling("ask", by.name, doubt) if doubt is not None else Ruling("allow", by.name, by.reason)


# ---------------------------------------------------------------------- which calls a rule means


def _means_tool(rule: Rule, call: JudgedCall) -> bool:
    """Whether a rule is about the tool. A rule that refuses a line refuses to write it, too."""
    told = rule.decision != "allow" and call.writes_to != "" and fnmatchcase(call.writes_to, rule.tool)
    return told or fnmatchcase(call.tool, rule.tool)


def _match(rule: Rule, call: JudgedCall) -> Match:
    """Whether a rule means a call. Of a rule that allows commands it is only said here whether the
    line can be read: all rules together allow a line.
    """
    if rule.command is None:
        return _arguments_match(rule, call)
    fits = _arguments_match(rule, call)
    if not fits or call.started is None:
        return ""
    if rule.decision == "allow":
        return "maybe" if call.line is not None and call.plain is None else ""
    found = _weaker(fits, _starts(call.started, rule.prefixes))
    return found or ("" if call.started.certain else "maybe")


def _weaker(one: Match, other: Match) -> Match:
    """The weaker of two matches."""
    return one if _SURENESS.index(one) <= _SURENESS.index(other) else other


def _arguments_match(rule: Rule, call: JudgedCall) -> Match:
    """Whether the arguments of a call fit the patterns of a rule. A pattern of an argument that the
    tool does not have is compared with the words of the line, if the rule does not allow.
    """
    found: Match = "yes"
    for name, pattern in rule.arguments.items():
        if name in call.arguments:
            found = _weaker(found, _value_match(rule, call, name, pattern))
        elif call.place.changes and name not in call.parameters:
            found = _weaker(found, _texts_match(rule, call, call.place.changes, pattern))
        elif rule.decision != "allow" and call.line is not None and name not in call.parameters:
            found = _weaker(found, _line_match(call, pattern))
        elif rule.decision != "allow" and _holds_below(call, pattern):
            found = _weaker(found, "maybe")
        else:
            return ""
    return found


def _value_match(rule: Rule, call: JudgedCall, name: str, pattern: str) -> Match:
    value = call.arguments[name]
    texts = list(texts_in(value))
    if rule.decision == "allow" and not texts:
        return "yes" if fnmatchcase(_as_text(value), pattern) else ""
    if rule.decision != "allow" and fnmatchcase(_as_text(value), pattern):
        return "yes"
    return _texts_match(rule, call, texts, pattern)


def _texts_match(rule: Rule, call: JudgedCall, texts: Sequence[str], pattern: str) -> Match:
    """Whether the places that `texts` name fit a pattern."""
    root = call.place.root
    if rule.decision == "allow":
        return "yes" if all(allows(text, pattern, root) for text in texts) else ""
    matches = [denies(text, pattern, root, [root, call.place.directory]) for text in texts]
    if "yes" in matches:
        return "yes"
    return "maybe" if "maybe" in matches or _holds_below(call, pattern) else ""


def _holds_below(call: JudgedCall, pattern: str) -> bool:
    """Whether the call reads a folder below which a file fits `pattern`."""
    return any(may_hold(call.place.root / folder, pattern, call.place.root) for folder in call.place.reads_below)


def _line_match(call: JudgedCall, pattern: str) -> Match:
    """Whether the line of a call may touch a place that fits `pattern`."""
    assert call.started is not None  # noqa: S101 - the call has a line
    plain = call.plain
    places = {one for _, those in in_directories(plain or (), call.place.directory) for one in those}
    directories = [one for one in places if one is not None] or [call.place.directory]
    found: Match = "" if call.started.certain and None not in places else "maybe"
    redirected = [one.path for command in plain or () for one in command.redirections]
    for words in (*call.started.commands, tuple(redirected)):
        match = denied_words(words, pattern, call.place.root, directories)
        if match == "yes":
            return "yes"
        if match or (words and touches_below(words, pattern, call.place.root, directories)):
            found = "maybe"
    return found


def _starts(started: StartedCommands, prefixes: Sequence[Sequence[str]]) -> Match:
    """Whether a command that is started begins with one of `prefixes`. This is for rules that ask
    or refuse: `/usr/bin/git -C x push` counts as `git push`.
    """
    found = {_begins(words, prefix) for words in started.commands for prefix in prefixes}
    return "yes" if "yes" in found else "maybe" if "maybe" in found else ""


def _begins(words: Sequence[PlainWord], prefix: Sequence[str]) -> Match:
    """Whether `words` begin with `prefix`, where options and their values may stand in between."""
    first, *wanted = prefix
    names = {words[0].text, name_of_program(words[0])}
    if first not in names and first.casefold() not in names:
        return _mentions(words, prefix)
    after_option = False
    for word in words[1:]:
        if not wanted:
            break
        text = word.text
        if not word.literal:
            return "maybe"
        if text == wanted[0]:
            wanted.pop(0)
        elif text and wanted[0].startswith(text):
            return "maybe"  # npm takes `pub` for `publish`
        elif not (after_option or text.startswith("-")):
            return ""
        after_option = text.startswith("-")
    return "" if wanted else "yes"


def _mentions(words: Sequence[PlainWord], prefix: Sequence[str]) -> Match:
    """Whether a command of which little is known is given the words of `prefix`, so that it may
    start what they say: `foo git push`, `python -c "os.system('git push')"`.
    """
    if is_proven(words):
        return ""
    if words[0].text.rpartition("/")[2] in _QUIET:
        return ""
    for word in words[1:]:
        text = word.text
        pieces = [] if text.replace("_", "").isalnum() else _SPLIT.split(text)
        attached = any(one.endswith(prefix[0]) for one in pieces if one[:1] == "-" != one[1:2])
        if name_of_program(word) == prefix[0].casefold() or prefix[0] in pieces or attached:
            return "maybe"
    return ""


def _as_text(value: object) -> str:
    plain = to_plain(value)  # an integer of thousands of digits has no `repr`
    return plain if isinstance(plain, str) else repr(plain)


def _check(rule: Rule) -> None:
    """Raise `ConfigError` if the rule does not fit its own examples."""
    if rule.command is not None:
        need_parser()
        if not all(rule.prefixes):
            raise ConfigError(f"{rule.name}: command is empty")
    if rule.options and (rule.command is None or rule.decision != "allow"):
        raise ConfigError(f'{rule.name}: options belong to a rule that allows commands: write decision = "allow"')
    if ANY not in rule.options:
        known_options(" ".join(rule.options))
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
