"""Names that a summary must not reword (addresses, paths, numbers, hashes), and what became of
files and calls.

Failure answered: a summary says "the config file in the usual place", and the message with the path
is gone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from monitor._util.arguments import arguments_in
from monitor.chunks import ToolCall, ToolResult
from monitor.context.compaction.hooks import CompactionDetails
from monitor.messages import AssistantMessage, Message, Text
from monitor.verdicts import VETO

MOST_CHARS: Final = 200
"""The longest name. Nobody writes out a longer one, and half of a name is wrong."""
RESULT_CHARS: Final = 2_000
"""The characters at the beginning of a text that are searched for names; half as many at its
end.
"""
NOTE_CHARS: Final = 240
MOST_NOTES: Final = 8
"""The most notes. OpenClaw keeps as many failures, of the same length."""
MOST_FILES: Final = 100
MOST_ARTIFACTS: Final = 50
MOST_REMEMBERED: Final = 4_096
"""The most names whose kind and family are remembered: every compaction asks for those of the
earlier ones again.
"""
ARTIFACTS_PER_CALL: Final = 3

_TOKEN: Final = re.compile(r"""</[\w:.-]*|[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s<>"'`|]+|[^\s<>"'`(){}\[\]|,;*=]+""")
"""The end of an element (no path), an address, or a word. Linear: how a word begins is bounded, and
no character is in two words.
"""
_BEHIND: Final = ".:!?-\u2026"

_EXTENSION: Final = r"[A-Za-z][A-Za-z0-9]{0,9}"
_FILE_KINDS: Final = (
    "bash|bat|bin|bz2|c|cc|cfg|clj|cpp|cs|css|csv|db|diff|docx?|env|ex|exs|gif|go|gz|h|hpp|hs|html?|ini|ipynb|jar|java|jpe?g|js|jsonl?|jsx"
    "|kt|lock|log|lua|md|mjs|mp3|mp4|parquet|patch|pdf|php|pl|png|pptx?|proto|py|pyi|rb|rs|rst|scala|sh|sql|sqlite|svg|swift|tar|tf|toml"
    "|ts|tsv|tsx|txt|vue|wav|wasm|webp|xlsx?|xml|ya?ml|zip|zsh"
)
LEAST_HASH_CHARS: Final = 32
LEAST_DIGITS: Final = 5

_KINDS: Final = (
    # 0: names that mean one thing in the world
    r"[A-Za-z][A-Za-z0-9+.-]{0,20}://.+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|(?:sha\d+:)?[0-9a-f]{32,128}",
    # 1: places: paths (with a root, which no mere backslash is, an extension or three parts), hosts
    # with a port
    (
        rf"(?:(?:~|\.{{1,2}}|[A-Za-z]:)[/\\]|/)[^/\\:]+(?:[/\\][^/\\:]*)*(?::\d+)*|(?:[^/\\:]+[/\\])+[^/\\:]*\.{_EXTENSION}(?::\d+)*"
        rf"|(?:[^/\\:]+/){{2,}}[^/\\:]*|[\w.-]+\.(?:{_FILE_KINDS})(?::\d+)*|\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?::\d+)?|[A-Za-z][\w.-]*:\d{{2,5}}"
        r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    ),
    # 2: what systems number: tickets, versions of a tree, ids of requests
    r"[A-Z][A-Z0-9]{1,9}-\d{1,9}|#\d{1,9}|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,31}|(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_-]{10,}",
    # 3: constants, codes of errors, long numbers
    rf"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z]{{1,6}}\d{{2,6}}|-?\d{{{LEAST_DIGITS},}}(?:\.\d+)?|\d+(?:[,_]\d{{3}})+",
)
_ANY_KIND: Final = re.compile("|".join(f"({pattern})" for pattern in _KINDS))
_QUOTED: Final = re.compile(r"""(["'`])([A-Za-z][\w.:/-]{2,80})\1""")
_NUMBERED: Final = re.compile(r"[A-Za-z0-9_]+(?:[.:-][A-Za-z0-9_]+)+|[A-Za-z0-9]+_[A-Za-z0-9_]+|[A-Za-z]+\d+")
_QUOTED_KIND: Final = len(_KINDS)


def identifiers(text: str) -> list[str]:
    """The opaque names in `text`, each once: the most specific kind first, in each kind in the
    order of the text. Linear.
    """
    kinds: dict[str, int] = {}
    for token in dict.fromkeys(_TOKEN.findall(text)):
        if token.isalpha() and len(token) < LEAST_HASH_CHARS and not token.isupper():
            continue  # an ordinary word
        whole, _, part = token.partition(".")
        if whole.isdigit() and len(whole) < LEAST_DIGITS and (not part or part.isdigit()):
            continue  # an ordinary number
        word = token.lstrip(":!?").rstrip(_BEHIND) if "://" not in token else token.rstrip(".,;:!?)]}")
        if len(word) <= MOST_CHARS and word not in kinds and (kind := _kind(word)) is not None:
            kinds[word] = kind
    for found in _QUOTED.finditer(text):
        if found[2] not in kinds and _NUMBERED.fullmatch(found[2]):
            kinds[found[2]] = _QUOTED_KIND
    return sorted(kinds, key=lambda word: kinds[word])


@lru_cache(maxsize=MOST_REMEMBERED)
def _kind(word: str) -> int | None:
    found = _ANY_KIND.fullmatch(word)
    return found.lastindex - 1 if found is not None and found.lastindex else None


# --- which of them are worth a place


MOST_LISTED: Final = 12
"""The most names that one pass takes over from results. OpenClaw's number, for its newest ten
messages.
"""
MOST_SAID: Final = 12
"""The most names of one text that a user or a model wrote."""
LISTING: Final = 20
"""A result with names of more families than this is a listing: its names are worth nothing.
"""
OF_A_FAMILY: Final = 12
"""The most names of one family: names that differ only in their numbers."""
FEW: Final = 2
"""The most names of one family from the results of one pass."""


@dataclass(slots=True, frozen=True)
class MessageNames:
    """The names in one message, by where they stand."""

    said: tuple[str, ...] = ()
    """Names in what the model or the user wrote."""
    asked: tuple[str, ...] = ()
    """Names in arguments of calls."""
    answered: tuple[str, ...] = ()
    """Names in the results of calls."""
    listed: tuple[str, ...] = ()
    """Names in arguments and results that are not listings, three of each family."""


@dataclass(slots=True, frozen=True)
class RankedNames:
    """The names of many messages by their worth, the newest first."""

    used: tuple[str, ...]
    """Names that a user or the model wrote, and names that a result of one message and an argument
    of another have: they were found, then used.
    """
    listed: tuple[str, ...]
    """Names that only calls or only results have, of the rarest families and kinds."""


def named_in(message: Message) -> MessageNames:
    """The names in a message. Of a long text only both ends are searched: a listing is full of
    names that nobody needs.
    """
    said = [
        name for part in message.content if isinstance(part, Text) for name in identifiers(_ends(part.text))[:MOST_SAID]
    ]
    if not isinstance(message, AssistantMessage):
        return MessageNames(said=tuple(dict.fromkeys(said)))
    asked = [
        identifiers(_ends("\n".join(_leaves(part.arguments)))) for part in message.content if isinstance(part, ToolCall)
    ]
    answered = [identifiers(_ends(result.text)) for result in message.results if not result.vetoed]
    return MessageNames(
        said=tuple(dict.fromkeys(said)),
        asked=tuple(dict.fromkeys(chain.from_iterable(asked))),
        answered=tuple(dict.fromkeys(chain.from_iterable(answered))),
        listed=tuple(dict.fromkeys(chain.from_iterable(map(_telling, (*answered, *asked))))),
    )


def _telling(names: Sequence[str]) -> list[str]:
    """A few names of each family; no name where there are more than `LISTING` families."""
    ranked = _ranked(names)
    families = sum(nth == 1 for nth, _, _ in ranked)
    return [name for nth, _, name in ranked if nth <= FEW + 1] if families <= LISTING else []


def names_of(named: Sequence[MessageNames], known: Container[str] = ()) -> RankedNames:
    """The names of some messages that are worth keeping. `known`: names in results before these
    messages. Linear.
    """
    asked: dict[str, set[int]] = {}
    for at, one in enumerate(named):
        for name in one.asked:
            asked.setdefault(name, set()).add(at)
    found = {name for at, one in enumerate(named) for name in one.answered if name in asked and asked[name] != {at}}
    used: dict[str, None] = {}
    for at in reversed(range(len(named))):
        used.update(dict.fromkeys(named[at].said))
        used.update(dict.fromkeys(name for name in named[at].asked if name in found or name in known))
    listed = [name for one in reversed(named) for name in one.listed if name not in used]
    return RankedNames(tuple(_few_of_each(used, OF_A_FAMILY)), tuple(_rarest(list(dict.fromkeys(listed)))))


def _rarest(names: Sequence[str]) -> list[str]:
    """The names of the rarest families and the most specific kinds, the newest first."""
    sizes = Counter(map(family, names))
    few = _few_of_each(names, FEW)
    first = sorted(
        few, key=lambda name: (sizes[family(name)] > FEW, _QUOTED_KIND if (kind := _kind(name)) is None else kind)
    )
    places = frozenset(first[:MOST_LISTED])
    return [name for name in few if name in places]


def _few_of_each(names: Iterable[str], most: int) -> list[str]:
    return [name for nth, _, name in _ranked(names) if nth <= most]


def _ranked(names: Iterable[str]) -> list[tuple[int, int, str]]:
    """Each name with its number in its family, from 1, and its place among all."""
    sizes: Counter[str] = Counter()
    ranked: list[tuple[int, int, str]] = []
    for at, name in enumerate(names):
        sizes[of := family(name)] += 1
        ranked.append((sizes[of], at, name))
    return ranked


def remembered(new: Iterable[str], old: Iterable[str], *, most: int, said: Callable[[str], bool]) -> tuple[str, ...]:
    """At most `most` of the `new` and the `old` names, each once. A name for which `said` is true
    is left out: another place says it.

    Where there are too many, the newest name of each family stays before the second of any. So no
    family takes the places of all others.
    """
    ranked = _ranked(name for name in dict.fromkeys((*new, *old)) if not said(name))
    places = [place for place in ranked if place[0] <= OF_A_FAMILY]
    chosen = frozenset(sorted(places)[:most])
    return tuple(place[2] for place in places if place in chosen)


@lru_cache(maxsize=MOST_REMEMBERED)
def family(name: str) -> str:
    """Equal for names that differ only in numbers, hashes and random letters behind a digit."""
    return _NUMBERS.sub("0", _LETTERS_AND_DIGITS.sub(lambda found: "x" if _is_hash(found[0]) else found[0], name))


def _is_hash(part: str) -> bool:
    return (
        len(part) >= LEAST_PART_OF_HASH
        and _HEX.issuperset(part)
        and not part.isdigit()
        and not _DIGITS.isdisjoint(part)
    )


LEAST_PART_OF_HASH: Final = 4
_LETTERS_AND_DIGITS: Final = re.compile(r"[A-Za-z0-9]+")
_NUMBERS: Final = re.compile(r"\d[A-Za-z0-9]*")
_DIGITS: Final = frozenset("0123456789")
_HEX: Final = _DIGITS | frozenset("abcdef")


def _leaves(arguments: Any) -> Iterator[str]:
    """The texts and numbers of an argument. Without recursion: models nest deep."""
    stack = [arguments]
    while stack:
        match stack.pop():
            case str() as text:
                yield text
            case bool():
                pass
            case int() | float() as number:
                yield repr(number) if isinstance(number, float) or number.bit_length() < _LONGEST_BITS else ""
            case Mapping() as entries:
                stack.extend(reversed(list(entries.values())))
            case list() | tuple() as entries:
                stack.extend(reversed(entries))


_LONGEST_BITS: Final = 600
"""Python refuses to write integers of more than 4,300 digits; a name has at most 200 characters."""


def _ends(text: str) -> str:
    if len(text) <= RESULT_CHARS + RESULT_CHARS // 2:
        return text
    return f"{text[:RESULT_CHARS]}\n{text[-(RESULT_CHARS // 2) :]}"


# --- files and calls


_READS: Final = re.compile("cat|get|glob|grep|head|list|load|ls|open|read|search|show|tail|tree|view")
_CHANGES: Final = re.compile(
    "add|append|apply|copy|create|delete|edit|insert|mkdir|modify|move|mv|patch|put|remove|rename|replace|rm|save|store"
    "|touch|update|write"
)
_MAKES: Final = re.compile("build|commit|deploy|export|generate|make|open|post|publish|push|render|send|submit|upload")
"""Words in the names of tools that make something; those that change something make it as well."""
_PATH_WORDS: Final = frozenset({"directory", "file", "filename", "filepath", "files", "path", "paths"})
"""The last word of an argument whose value is a path: `file_path`, `target_file`."""
_PATH_KEYS: Final = frozenset({"destination", "file_name", "source"})
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")


def files_of(messages: Iterable[Message]) -> CompactionDetails:
    """Files that were read and changed, things that were made, and calls that failed or were
    refused, oldest first. A result says which files its call has written. For other calls the names
    of tools and arguments tell.

    A call that failed, was refused or has no result has read and changed nothing.
    """
    found: dict[str, list[str]] = {name: [] for name in ("files_read", "files_modified", "artifacts", "tool_notes")}
    for call, result in answered_calls(messages):
        if result.is_error or result.vetoed:
            found["tool_notes"].append(note_of(result))
            continue
        words, paths = _words(call), result.wrote or _paths(call)
        changes = bool(result.wrote) or _does(_CHANGES, words)
        if changes:
            found["files_modified"] += paths
        elif _does(_READS, words):
            found["files_read"] += paths
        if (changes or _does(_MAKES, words)) and not paths:
            addresses = [name for name in identifiers(_ends(result.text)) if "://" in name]
            found["artifacts"] += addresses[:ARTIFACTS_PER_CALL]
    return merged(CompactionDetails(), CompactionDetails(**{name: tuple(texts) for name, texts in found.items()}))


def answered_calls(messages: Iterable[Message]) -> Iterator[tuple[ToolCall, ToolResult]]:
    """The calls in `messages` that have a result, each with its result."""
    for message in messages:
        if isinstance(message, AssistantMessage):
            results = {result.id: result for result in message.results}
            calls = (part for part in message.content if isinstance(part, ToolCall))
            yield from ((call, results[call.id]) for call in calls if call.id in results)


def merged(old: CompactionDetails, new: CompactionDetails) -> CompactionDetails:
    """`old` and `new` together, each entry once, the newest last. Where there are too many, the
    oldest go. A file that was changed is not listed as read.
    """
    modified = _newest((*old.files_modified, *new.files_modified), MOST_FILES)
    known = frozenset(modified)
    read = (path for path in (*old.files_read, *new.files_read) if path not in known)
    return CompactionDetails(
        files_read=_newest(read, MOST_FILES),
        files_modified=modified,
        artifacts=_newest((*old.artifacts, *new.artifacts), MOST_ARTIFACTS),
        tool_notes=_newest((*old.tool_notes, *new.tool_notes), MOST_NOTES),
    )


def note_of(result: ToolResult) -> str:
    """The end of a call that failed or was refused, on one line."""
    lines = [line.strip() for line in result.text.splitlines() if line.strip()]
    if result.vetoed:
        note = f"{result.name} was refused: {(lines or [''])[0].removeprefix(VETO).strip()}"
    else:
        telling = lines[-1:] if lines and lines[0].startswith("Traceback") else lines[:1]
        note = f"{result.name} failed: {(telling or ['it did not say why'])[0]}"
    return note if len(note) <= NOTE_CHARS else f"{note[: NOTE_CHARS - 3]}..."


def _newest(entries: Iterable[str], most: int) -> tuple[str, ...]:
    newest_first = dict.fromkeys(reversed(tuple(entries)))
    return tuple(newest_first)[:most][::-1]


def _words(call: ToolCall) -> list[str]:
    """The words for what a call does. An argument `command: view` says more than the name of an
    editor that can do everything.
    """
    command = _arguments(call).get("command")
    if isinstance(command, str) and (_does(_READS, [command]) or _does(_CHANGES, [command])):
        return [command]
    return _split(call.name)


def _split(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name[:MOST_CHARS])]


def _does(what: re.Pattern[str], words: Iterable[str]) -> bool:
    return any(map(what.fullmatch, words))


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        return arguments_in(call.arguments)
    except ValueError:  # the model wrote no JSON
        return {}


def _paths(call: ToolCall) -> list[str]:
    found: list[str] = []
    for key, value in _arguments(call).items():
        if key.lower() in _PATH_KEYS or not _PATH_WORDS.isdisjoint(_split(key)[-1:]):
            values = value if isinstance(value, list) else [value]
            found += [path for path in values if isinstance(path, str) and 0 < len(path) <= MOST_CHARS]
    return found
