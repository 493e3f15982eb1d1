"""A summary without a model: what was asked, said, called and named, in short, under the sections
that are wanted.

It is what is left when no model answers, and costs nothing. Deterministic and linear. The newest is
kept where not all has room; from the earlier summary each section takes over what still has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from monitor._util.arguments import arguments_in
from monitor._util.tokens import weigh
from monitor.chunks import ToolCall
from monitor.compaction.base import Checkpoint, Progress, Summary, SummaryTask
from monitor.compaction.identifiers import MOST_LISTED, identifiers, named_in, names_of
from monitor.compaction.pinned import is_own, text_of_user
from monitor.compaction.records import AskTurn, CompactionDetails
from monitor.compaction.templates import NOTHING, section_key
from monitor.messages import AssistantMessage, Text

NAME: Final = "extractive"
ENTRY_CHARS: Final = 240
ARGUMENT_CHARS: Final = 80
MOST_ENTRIES: Final = 60
"""Of each kind, from one task: more than a summary has room for."""
NAMES_SHARE: Final = 4
"""A quarter of the room is for names: what nothing else in the text can be guessed from."""
MOST_NAMES: Final = 200
_NAMES: Final = "Names: "
_TIMES: Final = re.compile(r"(called .*) \(([0-9]{1,9}) times\)")


class Extractive:
    """A `Summarizer` that asks no model."""

    name: Final = NAME

    async def summarize(
        self,
        task: SummaryTask,
        ask: AskTurn,
        *,
        progress: Callable[[Progress], None],
        checkpoint: Checkpoint | None = None,
    ) -> Summary:
        """At once, of at most `task.max_tokens` (estimated), or of empty sections where there is
        room for no more.
        """
        text = extracted(task)
        progress(Progress(done_messages=len(task.messages), of_messages=len(task.messages)))
        missing = tuple(name for name in task.identifiers if name not in text and name not in task.pinned)
        return Summary(text=text, by=NAME, missing_identifiers=missing)


def extracted(task: SummaryTask) -> str:
    """The summary that `Extractive` gives."""
    sections = task.template.sections
    bodies = _entries_by_section(task)
    room = 8 * task.max_tokens - _weight(task.template.skeleton())
    names = _fitting_names(_names(task), room // NAMES_SHARE)
    room -= _weight(f"- {_NAMES}{', '.join(names)}\n") if names else 0
    chosen: dict[str, list[str]] = {section: [] for section in sections}
    # One entry of each section after another, so that no section takes the room of all.
    for row in zip_longest(*(bodies[section] for section in sections)):
        for section, entry in zip(sections, row, strict=True):
            if entry is not None and (weight := _weight(f"- {entry}\n")) <= room:
                chosen[section].append(entry)
                room -= weight
    text = "\n".join(entry for entries in chosen.values() for entry in entries)
    if unsaid := [name for name in names if name not in text]:
        chosen[_section_for("names", sections)].append(_NAMES + ", ".join(unsaid))
    return task.template.skeleton(
        {section: "\n".join(f"- {entry}" for entry in entries) for section, entries in chosen.items()}
    )


# --- what there is to say


@dataclass(slots=True)
class _Material:
    """Entries by kind, the newest first."""

    goal: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    key_lines: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


_KINDS_OF_SECTIONS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"user messages", ("users",)),
    (r"file|artifact", ("files",)),
    (r"goal|request|intent", ("goal",)),
    (r"error|runtime|tool", ("failures",)),
    (r"constraint|preference|rule", ("rules",)),
    (r"decision", ("decisions",)),
    (r"next|pending|plan|todo|ask", ("open",)),
    (r"current", ("current",)),
    (r"progress|action|done|work", ("said", "calls")),
    (r"problem", ("calls",)),
    (r"knowledge|context|concept|identifier", ("key_lines", "names")),
)
"""What belongs into a section, by a word of its title. What finds none goes into the last."""


_SAID_ELSEWHERE: Final = frozenset({"users", "current"})
"""Only for sections that ask for them: the goal, what was said and called say it as well."""


def _section_for(kind: str, sections: Sequence[str]) -> str:
    for section in sections:
        if kind in _kinds_of(section):
            return section
    return sections[-1]


def _kinds_of(section: str) -> tuple[str, ...]:
    title = section_key(section)
    return next((kinds for words, kinds in _KINDS_OF_SECTIONS if re.search(words, title)), ())


def _entries_by_section(task: SummaryTask) -> dict[str, list[str]]:
    """New entries, and behind them those of the earlier summary. None that says no more than what
    is pinned.
    """
    sections = task.template.sections
    material = _material(task)
    earlier = _read(task.previous or "", sections)
    entries: dict[str, list[str]] = {section: [] for section in sections}
    goal = _section_for("goal", sections)
    first_goal = earlier[goal][:1]
    entries[goal] += first_goal  # what was wanted at first stays at the top
    for kind in _Material.__slots__:
        if kind not in _SAID_ELSEWHERE or any(kind in _kinds_of(section) for section in sections):
            entries[_section_for(kind, sections)] += getattr(material, kind)
    pinned = frozenset(line.removeprefix("- ") for line in task.pinned.splitlines())
    return {
        section: [entry for entry in _once((*entries[section], *earlier[section])) if not _is_pinned(entry, pinned)]
        for section in sections
    }


_ABOUT: Final = re.compile(r"called \S+: (.*?)(?: \([0-9]{1,9} times\))?|(.*) \((?:changed|made|read)\)")
"""An entry that only says that something was done with a thing."""


def _is_pinned(entry: str, pinned: AbstractSet[str]) -> bool:
    about = _ABOUT.fullmatch(entry)
    return entry in pinned or (about is not None and (about[1] or about[2]) in pinned)


def _once(entries: Iterable[str]) -> list[str]:
    """Each entry once, where it stands first; the same call, as often as it was made in all."""
    times: dict[str, int] = {}
    for entry in entries:
        repeated = _TIMES.fullmatch(entry)
        base = repeated[1] if repeated else entry
        times[base] = times.get(base, 0) + (int(repeated[2]) if repeated else 1)
    return [
        f"{entry} ({count} times)" if count > 1 and entry.startswith("called ") else entry
        for entry, count in times.items()
    ]


def _material(task: SummaryTask) -> _Material:
    found = _Material()
    own = {id(message) for message in task.messages if is_own(message)}
    for message in reversed(task.messages):
        if isinstance(message, AssistantMessage):
            _add_assistant(found, message)
        elif id(message) not in own:
            _add_user(found, text_of_user(message), pinned=bool(task.pinned.strip()))
    if len(found.goal) > 1:
        found.goal = [found.goal[-1], found.goal[0]]
    found.current = (found.said[:1] + found.calls[:1]) or found.goal[:1]
    found.calls = _once(found.calls)
    found.failures = list(reversed(task.details.tool_notes))
    found.files = list(_files(task.details))
    for kind in _Material.__slots__:
        entries = [entry for entry in (_entry(text) for text in getattr(found, kind)) if entry]
        setattr(found, kind, list(dict.fromkeys(entries))[:MOST_ENTRIES])
    if not any(getattr(found, kind) for kind in _Material.__slots__):
        found.said.append(f"{len(task.messages)} messages without words")
    return found


def _files(details: CompactionDetails) -> Iterator[str]:
    for what, paths in (("changed", details.files_modified), ("made", details.artifacts), ("read", details.files_read)):
        yield from (f"{path} ({what})" for path in reversed(paths))


_HEADING: Final = re.compile(r"^[ ]{0,3}#{1,6}[ ]+\S.*$", re.MULTILINE)
_KEY_LINE: Final = re.compile(
    r"^[ \t*_-]{0,6}(?:answer|because|caution|cause|conclusion|finding|fix|found|important|note|result|root"
    r" cause|solution|warning)\b"
    r"[^\n:]{0,40}:.*$",
    re.MULTILINE | re.IGNORECASE,
)
_OPEN: Final = re.compile(
    r"^[ \t*_-]{0,6}(?:\[ \]|todo\b|next\b|remaining\b|still to\b|open\b).*$", re.MULTILINE | re.IGNORECASE
)
_RULE: Final = re.compile(r"\b(?:must|never|always|only|do not|don't|avoid|prefer)\b", re.IGNORECASE)
_DECISION: Final = re.compile(r"\b(?:decided|chose|instead of|i will use|we use|settled on|because)\b", re.IGNORECASE)
_SENTENCE: Final = re.compile(r".*?[.!?](?=\s|$)|.+", re.DOTALL)


def _add_user(found: _Material, text: str, *, pinned: bool) -> None:
    if not text.strip():
        return
    found.goal.append(text[: 4 * ENTRY_CHARS])
    found.users.append("word for word beside this summary" if pinned else text[: 4 * ENTRY_CHARS])
    found.rules += [sentence for sentence in _sentences(text, 40) if _RULE.search(sentence)]


def _add_assistant(found: _Material, message: AssistantMessage) -> None:
    for part in reversed(message.content):
        if isinstance(part, ToolCall):
            found.calls.append(_called(part))
        elif isinstance(part, Text) and part.text.strip():
            text = part.text
            found.said += _sentences(_HEADING.sub("", text[: 8 * ENTRY_CHARS]), 1)
            found.key_lines += [*_lines(_KEY_LINE, text), *_lines(_HEADING, text)]
            found.open += _lines(_OPEN, text)
            found.decisions += [sentence for sentence in _sentences(text, 20) if _DECISION.search(sentence)]


def _lines(pattern: re.Pattern[str], text: str) -> list[str]:
    return [line[0] for line, _ in zip(pattern.finditer(text), range(MOST_ENTRIES), strict=False)]


def _sentences(text: str, most: int) -> list[str]:
    """The first sentences of the beginning of a text."""
    beginning = text.strip()[: most * ENTRY_CHARS]
    return [sentence[0] for sentence, _ in zip(_SENTENCE.finditer(beginning), range(most), strict=False)]


def _called(call: ToolCall) -> str:
    """The call and the first argument that says something."""
    try:
        values = arguments_in(call.arguments).values()
    except ValueError:  # the model wrote no JSON
        values = {"": str(call.arguments)}.values()
    said = next((_line(value, ARGUMENT_CHARS) for value in values if isinstance(value, str) and value.strip()), "")
    return f"called {_line(call.name, ARGUMENT_CHARS)}{': ' if said else ''}{said}"


def _line(text: str, chars: int) -> str:
    """`text` on one line; the words that have room, so that no name is cut in two."""
    words = text[: 4 * chars].split()
    line = " ".join(words)
    if len(line) <= chars and len(text) <= 4 * chars:
        return line
    cut = line[: chars - 3]
    return f"{cut.rpartition(' ')[0] or cut}..."


def _entry(text: str) -> str:
    return _line(text.strip().strip("#*_`- \t").strip(), ENTRY_CHARS)


# --- names


def _names(task: SummaryTask) -> list[str]:
    """The task's own, those of its messages, and those that the earlier summary knew, in this
    order. Not those that are pinned.

    Where something is pinned, those of the messages have been looked for already.
    """
    # no line of it can pass for a heading
    own = [name for name in task.identifiers if name and name == " ".join(name.split())]
    if not task.pinned:
        found = names_of([named_in(message) for message in task.messages if not is_own(message)])
        own += (*found.used[:MOST_LISTED], *found.listed)
    pinned = frozenset(identifiers(task.pinned))
    return [name for name in dict.fromkeys((*own, *_known_names(task.previous or ""))) if name not in pinned]


def _known_names(previous: str) -> Iterator[str]:
    """Those of the line of names, in its order; then all others."""
    for line in previous.splitlines():
        if line.startswith(f"- {_NAMES}"):
            yield from line.removeprefix(f"- {_NAMES}").split(", ")
    yield from identifiers(previous)


def _fitting_names(names: Iterable[str], room: int) -> list[str]:
    fitting: list[str] = []
    for name in names:
        room -= _weight(f"{name}, ")
        if room < 0 or len(fitting) == MOST_NAMES:
            break
        fitting.append(name)
    return fitting


# --- sections


def _weight(text: str) -> int:
    return sum(weigh(text))


_TAG: Final = re.compile(r"</?([\w ]{1,80})\s*/?>")
_TITLE: Final = re.compile(
    r"[ ]{0,3}(?:#{1,6}|\*\*|__)?\s*(?:\d{1,2}[.)])?\s*([^#*\n]{1,120}?)\s*(?:\*\*|__)?:?\s*(?:\*\*|__)?\s*"
)
_BULLET: Final = re.compile(r"\s*(?:[-*\u2022]|\d{1,3}[.)])\s+")


def _read(summary: str, sections: Sequence[str]) -> dict[str, list[str]]:
    """The entries of an earlier summary by section, whoever wrote it. What stands in none of them
    is for the last.
    """
    known = {section_key(section): section for section in sections}
    entries: dict[str, list[str]] = {section: [] for section in sections}
    section = sections[-1]
    for line in summary.splitlines():
        title = _TAG.fullmatch(line.strip()) or _TITLE.fullmatch(line)
        if title is not None and (found := known.get(section_key(title[1]))):
            section = found
            continue
        text = line[bullet.end() :] if (bullet := _BULLET.match(line)) else line
        if _TAG.fullmatch(text.strip()) or text.startswith(_NAMES) or text.strip() in {NOTHING, "```", "---"}:
            continue
        if entry := _entry(text):
            entries[section].append(entry)
    return entries
