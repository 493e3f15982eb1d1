"""A summary without a model: what was asked, said, called and named, in short, under the sections
of the template.

It is used when no model answers, and costs nothing. It is deterministic and takes linear time. Each
section is in the order of time. Where there is too little room, the newest entries stay, and as
much of the earlier summary as still fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain, pairwise, zip_longest
from typing import Final, TypeAlias

from monitor._util.arguments import arguments_in
from monitor.chunks import ToolCall
from monitor.context.compaction.hooks import AskTurn, CompactionDetails
from monitor.context.compaction.identifiers import MOST_CHARS, MOST_LISTED, identifiers, named_in, names_of, note_of
from monitor.context.compaction.pinned import text_of_user, weight
from monitor.context.compaction.summarizer import Checkpoint, CompactionProgress, Summary
from monitor.context.compaction.templates import CLEAREST, NOTHING, SummaryTask, heading_of, section_key
from monitor.messages import AssistantMessage, Text

NAME: Final = "extractive"
ENTRY_CHARS: Final = 240
ARGUMENT_CHARS: Final = 80
MOST_ENTRIES: Final = 60
"""The most entries of each kind from one task: more than a summary has room for."""
MOST_STATEMENTS: Final = 15
"""The most statements of the model, the newest, that get room before all else but the request and
the newest failure.
"""
NAMES_SHARE: Final = 4
"""A quarter of the room is for names: nobody can guess them from the rest of the text."""
MOST_NAMES: Final = 200
_NAMES: Final = "Names: "
_TIMES: Final = re.compile(r"(called .*) \(([0-9]{1,9}) times\)")


class Extractive:
    """A `Summarizer` that asks no model."""

    name: str = NAME

    async def summarize(
        self,
        task: SummaryTask,
        ask: AskTurn,
        *,
        progress: Callable[[CompactionProgress], None],
        checkpoint: Checkpoint | None = None,
    ) -> Summary:
        """See `Summarizer`. The summary has at most `task.max_tokens`, estimated, or empty sections
        where there is no room for more.
        """
        text = extracted(task)
        progress(CompactionProgress(done_messages=len(task.messages), of_messages=len(task.messages)))
        return Summary(text=text, by=NAME)


def extracted(task: SummaryTask) -> str:
    """The summary that `Extractive` gives."""
    sections = task.template.sections
    bodies, first = _entries_by_section(task)
    room = 8 * task.max_tokens - weight(task.template.skeleton())
    names = _fitting_names(_names(task), room // NAMES_SHARE)
    room -= weight(f"- {_NAMES}{', '.join(names)}\n") if names else 0
    taken: set[tuple[str, str]] = set()
    for entry, spared in _by_claim(bodies, first, room // 2):
        if entry not in taken and (heavy := weight(f"- {entry[1]}\n")) <= room - spared:
            taken.add(entry)
            room -= heavy
    chosen = {section: [text for text in bodies[section] if (section, text) in taken] for section in sections}
    text = "\n".join(chain.from_iterable(chosen.values()))
    if unsaid := [name for name in names if name not in text]:
        chosen[_section_for("names", sections)].append(_NAMES + ", ".join(unsaid))
    return task.template.skeleton(
        {section: "\n".join(f"- {entry}" for entry in texts) for section, texts in chosen.items()}
    )


def _by_claim(
    bodies: Mapping[str, Sequence[str]], first: AbstractSet[str], half: int
) -> Iterator[tuple[tuple[str, str], int]]:
    """The sections and their entries in the order in which they get room, with the room that each
    must leave to those after it: those that are `first`, then all.

    One of each section after another, the newest before older ones, so that no section takes the
    room of all.
    """
    entries = [[(section, text) for text in reversed(texts)] for section, texts in bodies.items()]
    for at, row in enumerate(zip_longest(*([one for one in of_section if one[1] in first] for of_section in entries))):
        yield from ((one, half if at >= _NEVER_SPARED else 0) for one in row if one is not None)
    for row in zip_longest(*entries):
        yield from ((one, 0) for one in row if one is not None)


_NEVER_SPARED: Final = 2
"""The number of first entries of each section that may take all the room; the others leave half."""


# --- what there is to say


_KINDS_OF_SECTIONS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("user messages",), ("users",)),
    (("file", "artifact"), ("files",)),
    (("goal", "request", "intent"), ("goal",)),
    (("error", "runtime", "tool"), ("failures",)),
    (("constraint", "preference", "rule"), ("rules",)),
    (("decision",), ("decisions",)),
    (("next", "pending", "plan", "todo", "ask"), ("open",)),
    (("current", "where it stands"), ("current",)),
    (("progress", "action", "done", "work"), ("said", "calls")),
    (("problem",), ("calls",)),
    (("knowledge", "context", "concept", "identifier"), ("key_lines", "names")),
)
"""The kinds of entries in a section, by a part of its title. Other kinds go into the last one."""


_SAID_ELSEWHERE: Final = frozenset({"users", "current"})
"""Kinds that only a section of their own shows: other kinds say the same."""


def _section_for(kind: str, sections: Sequence[str]) -> str:
    return next((section for section in sections if kind in _kinds_of(section)), sections[-1])


def _kinds_of(section: str) -> tuple[str, ...]:
    title = section_key(section)
    return next((kinds for words, kinds in _KINDS_OF_SECTIONS if any(word in title for word in words)), ())


def _entries_by_section(task: SummaryTask) -> tuple[dict[str, list[str]], set[str]]:
    """The entries of the earlier summary, then the new ones, in the order of time; and those that
    get room before the others: the first and the newest request, the newest failure, the newest
    statements. An entry that only repeats a pinned text is left out.
    """
    sections = task.template.sections
    texts = _read(task.template.apart(task.previous or ""), sections)
    material = _material(task)
    of = partial(_of_kind, material)
    statements = [text for text in texts[_section_for("said", sections)] if not text.startswith(_CALLED)] + of("said")
    first = {
        *texts[_section_for("goal", sections)][:1],
        *of("goal"),
        *of("failures")[-1:],
        *statements[-MOST_STATEMENTS:],
    }
    for kind, entry in material:
        if kind not in _SAID_ELSEWHERE or any(kind in _kinds_of(section) for section in sections):
            texts[_section_for(kind, sections)].append(entry)
    pinned = frozenset(line.removeprefix("- ") for line in task.pinned.splitlines())
    return {
        section: [one for one in _once(texts[section]) if not _is_pinned(one, pinned)] for section in sections
    }, first


_CALLED: Final = "called "
_ABOUT: Final = re.compile(r"called \S+: (.*?)(?: \([0-9]{1,9} times\))?|(.*) \((?:changed|made|read)\)")
"""An entry that only says that something was done with a thing."""


def _is_pinned(entry: str, pinned: AbstractSet[str]) -> bool:
    about = _ABOUT.fullmatch(entry)
    return entry in pinned or (about is not None and (about[1] or about[2]) in pinned)


def _once(entries: Iterable[str]) -> list[str]:
    """Each entry once, at its last place. An entry for a call says how often the call was made."""
    times: dict[str, int] = {}
    for entry in entries:
        repeated = _TIMES.fullmatch(entry)
        base = repeated[1] if repeated else entry
        times[base] = times.pop(base, 0) + (int(repeated[2]) if repeated else 1)
    return [
        f"{entry} ({count} times)" if count > 1 and entry.startswith(_CALLED) else entry
        for entry, count in times.items()
    ]


_Material: TypeAlias = list[tuple[str, str]]
"""Kinds, as in `_KINDS_OF_SECTIONS`, each with a text, in the order of time."""


def _of_kind(material: _Material, kind: str) -> list[str]:
    return [text for its, text in material if its == kind]


def _material(task: SummaryTask) -> _Material:
    """The entries that the messages give."""
    found: _Material = [("failures", note) for note in task.details.tool_notes]
    for message in task.messages:
        if isinstance(message, AssistantMessage):
            found += _of_assistant(message)
        elif not message.synthetic:
            found += _of_user(text_of_user(message), pinned=bool(task.pinned.strip()))
    of = partial(_of_kind, found)
    goals = of("goal")
    found = [one for one in found if one[0] != "goal" or one[1] in {goals[0], goals[-1]}]
    stands = [*of("said")[-1:], *of("calls")[-1:], *of("failures")[-1:]]
    found += [("current", text) for text in stands or goals[-1:]]
    found += [("files", file) for file in _files(task.details)]
    entries = [(kind, entry) for kind, text in _newest(found) if (entry := _entry(text))]
    return entries or [("said", f"{len(task.messages)} messages without words")]


def _newest(found: _Material) -> _Material:
    """`MOST_ENTRIES` of each kind."""
    left = dict.fromkeys((kind for kind, _ in found), MOST_ENTRIES)
    newest: _Material = []
    for kind, text in reversed(found):
        left[kind] -= 1
        if left[kind] >= 0:
            newest.append((kind, text))
    return newest[::-1]


def _files(details: CompactionDetails) -> Iterator[str]:
    for what, paths in (("read", details.files_read), ("made", details.artifacts), ("changed", details.files_modified)):
        yield from (f"{path} ({what})" for path in paths)


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
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)")


def _of_user(text: str, *, pinned: bool) -> Iterator[tuple[str, str]]:
    if text.strip():
        beginning = text[: 4 * ENTRY_CHARS]
        yield "goal", beginning
        yield "users", "word for word beside this summary" if pinned else beginning
        yield from (("rules", sentence) for sentence in _sentences(text, 40) if _RULE.search(sentence))


def _of_assistant(message: AssistantMessage) -> Iterator[tuple[str, str]]:
    for part in message.content:
        if isinstance(part, ToolCall):
            yield "calls", _called(part)
        elif isinstance(part, Text) and part.text.strip():
            text = _without_headings(part.text)
            yield from (("said", sentence) for sentence in _sentences(text[: 8 * ENTRY_CHARS], 1))
            yield from (("key_lines", line) for line in _lines(_KEY_LINE, text))
            yield from (("open", line) for line in _lines(_OPEN, text))
            yield from (("decisions", sentence) for sentence in _sentences(text, 20) if _DECISION.search(sentence))
    yield from (("failures", note_of(result)) for result in message.results if result.is_error)


def _without_headings(text: str) -> str:
    """`text` without its headings, which say nothing by themselves. A line in bold, or of two
    words, stays: it may be all that was said.
    """
    lines = text.splitlines()
    return "\n".join(
        line for line in lines if (title := heading_of(line)) is None or title.clear < CLEAREST or title.rest
    )


def _lines(pattern: re.Pattern[str], text: str) -> list[str]:
    return [line[0] for line, _ in zip(pattern.finditer(text), range(MOST_ENTRIES), strict=False)]


def _sentences(text: str, most: int) -> list[str]:
    """The first sentences of the beginning of a text."""
    beginning = text.strip()[: most * ENTRY_CHARS]
    ends = [found.end() for found, _ in zip(_SENTENCE_END.finditer(beginning), range(most), strict=False)]
    ends += [len(beginning)] if len(ends) < most else []
    return [sentence for begin, end in pairwise([0, *ends]) if (sentence := beginning[begin:end]).strip()]


def _called(call: ToolCall) -> str:
    """The call, and its first argument that is a text."""
    try:
        values = arguments_in(call.arguments).values()
    except ValueError:  # the model wrote no JSON
        values = {"": str(call.arguments)}.values()
    said = next((_line(value, ARGUMENT_CHARS) for value in values if isinstance(value, str) and value.strip()), "")
    return f"{_CALLED}{_line(call.name, ARGUMENT_CHARS)}{': ' if said else ''}{said}"


def _line(text: str, chars: int) -> str:
    """`text` on one line: as many of its words as have room. No name is cut in two: the first word
    is whole up to `MOST_CHARS`.
    """
    beginning = text[: 4 * chars + MOST_CHARS]
    words = beginning.split()
    line = " ".join(words)
    if len(line) <= chars and len(beginning) == len(text):
        return line
    if words and chars < len(words[0]) <= MOST_CHARS:
        return words[0] if len(words) == 1 and len(beginning) == len(text) else f"{words[0]} ..."
    cut = line[: chars - 3]
    return f"{cut.rpartition(' ')[0] or cut}..."


def _entry(text: str) -> str:
    return _line(text.strip().strip("#*_`- \t").strip(), ENTRY_CHARS)


# --- names


def _names(task: SummaryTask) -> list[str]:
    """The names that the task asks for, those in its messages, and those in the earlier summary, in
    this order; without those that are pinned.

    Where something is pinned, the task has the names of its messages already.
    """
    # a name with a line break could pass for a heading
    own = [name for name in task.identifiers if name and name == " ".join(name.split())]
    if not task.pinned:
        found = names_of([named_in(message) for message in task.messages if not message.synthetic])
        own += (*found.used[:MOST_LISTED], *found.listed)
    pinned = frozenset(identifiers(task.pinned))
    return [name for name in dict.fromkeys((*own, *_known_names(task.previous or ""))) if name not in pinned]


def _known_names(previous: str) -> Iterator[str]:
    """The names in the line of names of `previous`, in order; then all others in it."""
    for line in previous.splitlines():
        if line.startswith(f"- {_NAMES}"):
            yield from line.removeprefix(f"- {_NAMES}").split(", ")
    yield from identifiers(previous)


def _fitting_names(names: Iterable[str], room: int) -> list[str]:
    fitting: list[str] = []
    for name in names:
        room -= weight(f"{name}, ")
        if room < 0 or len(fitting) == MOST_NAMES:
            break
        fitting.append(name)
    return fitting


# --- sections


_BULLET: Final = re.compile(r"\s*(?:[-*\u2022]|\d{1,3}[.)])\s+")


def _read(summary: str, sections: Sequence[str]) -> dict[str, list[str]]:
    """The entries of an earlier summary by section, also of one that a model wrote. Lines outside
    of the sections are entries of the last one.
    """
    known = {section_key(section): section for section in sections}
    entries: dict[str, list[str]] = {section: [] for section in sections}
    section = sections[-1]
    for line in summary.splitlines():
        text, title = line, heading_of(line)
        if _is_mark(line.strip()):
            section = known.get(section_key(line.strip().strip("</>")), section)
            continue
        if title is not None and title.key in known:
            section, text = known[title.key], title.rest  # what stands behind a heading is an entry
        elif title is not None and title.clear == CLEAREST and not title.rest:
            continue  # a heading of another form
        text = text[bullet.end() :] if (bullet := _BULLET.match(text)) else text
        if not text.startswith(_NAMES) and text.strip() != NOTHING and (entry := _entry(text)):
            entries[section].append(entry)
    return entries


def _is_mark(text: str) -> bool:
    """Whether `text` only frames a summary: a fence, a rule, a tag."""
    return text in {"```", "---"} or (text.startswith("<") and text.endswith(">") and text.find("<", 1) < 0)
