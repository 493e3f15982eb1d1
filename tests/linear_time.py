"""Whether a regular expression takes linear time on every text: by its parse tree, and by running
it on texts made to slow it down.

`ambiguities(pattern, how)` builds the automaton that a backtracking matcher walks and looks in it
for two loops that read the same text: from one into the other (time grows with the square), or
twice around one (it doubles with each character). Where a pattern is searched for, "begin one
character later" is such a loop as well. What it finds it names, with the text to repeat. A repeat
of at most `COUNTED` rounds counts as a constant; lookarounds are branches that are walked and left.
Unknown parts are refused.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from re import _constants as constants  # type: ignore[attr-defined]  # isort: skip
from re import _parser as parser  # type: ignore[attr-defined]  # isort: skip

How = Literal["search", "match", "fullmatch"]
COUNTED = 128
"""A repeat that may go on for more rounds counts as one without a bound."""
FEW = 8
"""A repeat of no more rounds is not worth a text of its own."""
SAMPLES = "".join(map(chr, range(128))) + "\x85\xa0\u2028\u3000\u00e9\u00df\u4e2d\u0663\uff08\U0001f600\ud800"
"""Of each kind of character a few; those of a pattern are added."""
_BEGIN, _NEWLINE, _WORD, _OTHER = range(4)
"""What was read last, as far as an anchor asks for it."""
_CATEGORIES = {
    constants.CATEGORY_DIGIT: r"\d",
    constants.CATEGORY_NOT_DIGIT: r"\D",
    constants.CATEGORY_SPACE: r"\s",
    constants.CATEGORY_NOT_SPACE: r"\S",
    constants.CATEGORY_WORD: r"\w",
    constants.CATEGORY_NOT_WORD: r"\W",
}
_REPEATS = {constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT}
_ATOMS = {constants.LITERAL, constants.NOT_LITERAL, constants.ANY, constants.IN}
_UNBOUNDED = constants.MAXREPEAT


class Unreadable(Exception):
    """The pattern has a part that the analysis does not know."""


# --- characters


def _alphabet(pattern: re.Pattern[str]) -> str:
    return "".join(
        dict.fromkeys(
            (
                *SAMPLES,
                *(char for char in pattern.pattern for char in {char, char.lower(), char.upper()} if len(char) == 1),
            )
        )
    )


@lru_cache(maxsize=4096)
def _category(code: Any, flags: int) -> re.Pattern[str]:
    return re.compile(_CATEGORIES[code], flags & re.ASCII)


def _has(op: Any, value: Any, char: str, flags: int) -> bool:
    """Whether the atom takes `char`, which case aside stands for itself."""
    code = ord(char)
    if op is constants.ANY:
        return bool(flags & re.DOTALL) or char != "\n"
    if op is constants.LITERAL:
        return bool(code == value)
    if op is constants.NOT_LITERAL:
        return bool(code != value)
    negated, found = False, False
    for kind, one in value:
        if kind is constants.NEGATE:
            negated = True
        elif kind is constants.LITERAL:
            found |= code == one
        elif kind is constants.RANGE:
            found |= one[0] <= code <= one[1]
        elif kind is constants.CATEGORY:
            found |= _category(one, flags).match(char) is not None
        else:
            raise Unreadable(f"{kind} in a set")
    return found is not negated


def _takes(op: Any, value: Any, alphabet: str, flags: int) -> frozenset[str]:
    return _taken(op, tuple(value) if isinstance(value, list) else value, alphabet, int(flags))


@lru_cache(maxsize=4096)
def _taken(op: Any, value: Any, alphabet: str, flags: int) -> frozenset[str]:
    def takes(char: str) -> bool:
        if not flags & re.IGNORECASE:
            return _has(op, value, char, flags)
        cases = {case for case in (char, char.lower(), char.upper()) if len(case) == 1}
        if op is constants.NOT_LITERAL or (op is constants.IN and value[0][0] is constants.NEGATE):
            return all(_has(op, value, case, flags) for case in cases)
        return any(_has(op, value, case, flags) for case in cases)

    return frozenset(char for char in alphabet if takes(char))


def _kind(char: str) -> int:
    return _NEWLINE if char == "\n" else _WORD if re.match(r"\w", char) else _OTHER


# --- the automaton


@dataclass(slots=True)
class _Automaton:
    """States with edges that read nothing (and may ask what stands around), and edges that read one
    character.
    """

    alphabet: str
    flags: int
    silent: list[list[tuple[int, Any]]] = field(default_factory=list)
    reads: list[tuple[frozenset[str], int] | None] = field(default_factory=list)

    def state(self) -> int:
        self.silent.append([])
        self.reads.append(None)
        return len(self.silent) - 1

    def link(self, source: int, target: int, asks: Any = None) -> None:
        self.silent[source].append((target, asks))

    def read(self, source: int, takes: frozenset[str]) -> int:
        """A new state behind one character."""
        at, behind = self.state(), self.state()
        self.link(source, at)
        self.reads[at] = (takes, behind)
        return behind

    def sequence(self, parts: Any, at: int) -> int:
        for op, value in parts:
            at = self.part(op, value, at)
        return at

    def part(self, op: Any, value: Any, at: int) -> int:
        if op in _ATOMS:
            return self.read(at, _takes(op, value, self.alphabet, self.flags))
        if op in _REPEATS:
            least, most, inside = value
            return self.repeat(least, most, inside, at)
        if op is constants.SUBPATTERN:
            if value[1] or value[2]:
                raise Unreadable("flags of a group")
            return self.sequence(value[3], at)
        if op is constants.ATOMIC_GROUP:
            return self.sequence(value, at)
        if op is constants.BRANCH:
            end = self.state()
            for alternative in value[1]:
                self.link(self.sequence(alternative, at), end)
            return end
        if op is constants.AT:
            behind = self.state()
            self.link(at, behind, value)
            return behind
        if op in {constants.ASSERT, constants.ASSERT_NOT}:
            direction, inside = value
            if direction > 0:
                self.sequence(inside, at)  # walked, and left: nothing comes behind it
            return at
        if op is constants.GROUPREF:
            return self.repeat(0, COUNTED, [(constants.ANY, None)], at)
        raise Unreadable(str(op))

    def repeat(self, least: int, most: Any, inside: Any, at: int) -> int:
        end = self.state()
        counted = most if most is not _UNBOUNDED and most <= COUNTED else None
        for _ in range(min(least, COUNTED)):
            at = self.sequence(inside, at)
        if counted is not None:
            for _ in range(counted - least):
                self.link(at, end)
                at = self.sequence(inside, at)
        else:
            start = self.state()
            self.link(at, start)
            more = self.sequence(inside, start)
            self.link(more, start)
            self.link(more, end)
        self.link(at, end)
        return end


_Place = tuple[int, int]
"""A reading state, and the kind of character that it read last."""


@dataclass(slots=True)
class _Walk:
    """What a matcher can read next after each character that it read."""

    nexts: dict[_Place, list[tuple[_Place, frozenset[str]]]]
    """Once for each way that leads there."""
    accepts: frozenset[_Place]
    """Where the pattern may end whatever follows."""
    restart: frozenset[_Place]
    """Where a search has not begun yet."""


def _met(asks: Any, last: int, following: int | None) -> bool:
    """Whether an anchor holds between two kinds of characters; `None` is any, or the end."""
    if asks is None:
        return True
    if asks in {constants.AT_BEGINNING, constants.AT_BEGINNING_STRING}:
        return last == _BEGIN
    if asks is constants.AT_BEGINNING_LINE:
        return last in {_BEGIN, _NEWLINE}
    if following is None:
        return False
    if asks in {constants.AT_END, constants.AT_END_LINE}:
        return following == _NEWLINE
    if asks is constants.AT_END_STRING:
        return False
    if asks is constants.AT_BOUNDARY:
        return (last == _WORD) is not (following == _WORD)
    if asks is constants.AT_NON_BOUNDARY:
        return (last == _WORD) is (following == _WORD)
    raise Unreadable(str(asks))


_ANCHORS_BY_FLAG = {constants.AT_BEGINNING: constants.AT_BEGINNING_LINE, constants.AT_END: constants.AT_END_LINE}


def _walk(pattern: re.Pattern[str], how: How) -> tuple[_Walk, _Place]:
    flags = pattern.flags
    made = _Automaton(_alphabet(pattern), flags)
    begin = made.state()
    end = made.sequence(parser.parse(pattern.pattern, flags & ~re.UNICODE), begin)
    kinds = {
        kind: frozenset(char for char in made.alphabet if _kind(char) == kind) for kind in (_NEWLINE, _WORD, _OTHER)
    }

    def steps(state: int, seen: frozenset[int], asks: tuple[Any, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Each way over silent edges to a state that reads, or to the end."""
        if made.reads[state] is not None or state == end:
            yield state, asks
        for target, asked in made.silent[state]:
            if target not in seen:
                anchor = _ANCHORS_BY_FLAG.get(asked, asked) if flags & re.MULTILINE else asked
                yield from steps(target, seen | {target}, asks if asked is None else (*asks, anchor))

    ways = {
        state: list(steps(state, frozenset({state}), ()))
        for state in {begin, *(read[1] for read in made.reads if read is not None)}
    }
    nexts: dict[_Place, list[tuple[_Place, frozenset[str]]]] = {}
    accepts: set[_Place] = set()
    start: _Place = (-1, _BEGIN)
    waiting = [start]
    while waiting:
        place = waiting.pop()
        if place in nexts:
            continue
        state, last = place
        found: list[tuple[_Place, frozenset[str]]] = []
        if state == -1 and how == "search":
            found += [((-1, kind), chars) for kind, chars in kinds.items()]
        for reading, asks in ways[begin if state == -1 else state]:
            read = made.reads[reading]
            if reading == end and how != "fullmatch" and all(_met(one, last, None) for one in asks):
                accepts.add(place)
            if read is None:
                continue
            for kind, chars in kinds.items():
                if (common := read[0] & chars) and all(_met(one, last, kind) for one in asks):
                    found.append(((read[1], kind), common))
        nexts[place] = found
        waiting += [target for target, _ in found]
    restart = frozenset(place for place in nexts if place[0] == -1)
    return _Walk(nexts, frozenset(accepts), restart), start


def _loops(nexts: dict[_Place, list[tuple[_Place, frozenset[str]]]]) -> list[frozenset[_Place]]:
    """The parts of the automaton in which each place is reached from each."""
    ahead = {place: [target for target, _ in targets] for place, targets in nexts.items()}
    behind: dict[_Place, list[_Place]] = {place: [] for place in ahead}
    for place, targets in ahead.items():
        for target in targets:
            behind[target].append(place)
    found: list[frozenset[_Place]] = []
    assigned: set[_Place] = set()
    for root in reversed(_finished(ahead)):
        part, waiting = set[_Place](), [root]
        while waiting:
            place = waiting.pop()
            if place not in assigned:
                assigned.add(place)
                part.add(place)
                waiting += behind[place]
        if len(part) > 1 or (part and root in ahead[root]):
            found.append(frozenset(part))
    return found


def _finished(ahead: dict[_Place, list[_Place]]) -> list[_Place]:
    """All places, each behind those that it leads to."""
    order: list[_Place] = []
    seen: set[_Place] = set()
    for root, first in ahead.items():
        stack = [] if root in seen else [(root, iter(first))]
        seen.add(root)
        while stack:
            place, targets = stack[-1]
            target = next((one for one in targets if one not in seen), None)
            if target is None:
                order.append(place)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(ahead[target])))
    return order


def _reaches(
    walk: _Walk,
    start: tuple[_Place, ...],
    goal: Callable[[tuple[_Place, ...]], bool],
    stay: Sequence[frozenset[_Place] | None],
) -> str | None:
    """The text that leads from `start` to the goal with all of the places reading it at once;
    `None`: there is none.
    """
    came: dict[tuple[_Place, ...], tuple[tuple[_Place, ...], str]] = {}
    waiting = deque([start])
    while waiting:
        places = waiting.popleft()
        ways: list[tuple[tuple[_Place, ...], frozenset[str] | None]] = [((), None)]
        for place, within in zip(places, stay, strict=True):
            targets = {(target, chars) for target, chars in walk.nexts[place] if within is None or target in within}
            ways = [
                ((*before, target), common)
                for before, chars in ways
                for target, others in targets
                if (common := others if chars is None else chars & others)
            ]
        for target, chars in ways:
            if target in came:
                continue
            came[target] = (places, min(chars or " "))
            if goal(target):
                text, at = "", target
                while True:
                    at, char = came[at]
                    text = char + text
                    if at == start:
                        return text
            waiting.append(target)
    return None


def ambiguities(pattern: re.Pattern[str], how: How) -> list[str]:
    """Why the pattern takes more than linear time, in words; empty: it does not."""
    walk, _ = _walk(pattern, how)
    loops = _loops(walk.nexts)
    doubled = (_doubles(walk, loop) for loop in loops if not loop & walk.restart)
    found = [
        f"reads {text!r} in more ways than one, again and again: time doubles with each"
        for text in doubled
        if text is not None
    ]
    reached = {place: _reached(walk.nexts, place) for loop in loops for place in loop}
    for one in loops:
        for other in loops:
            if one is not other and any(other & reached[place] for place in one):
                text = _slides(walk, one, other)
                if text is not None:
                    found.append(f"repeats {text!r} in two places: time grows with the square of its number")
    return found


def _reached(nexts: dict[_Place, list[tuple[_Place, frozenset[str]]]], start: _Place) -> set[_Place]:
    seen, waiting = {start}, [start]
    while waiting:
        for target, _ in nexts[waiting.pop()]:
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen


def _doubles(walk: _Walk, loop: frozenset[_Place]) -> str | None:
    for place in loop:
        inside = [(target, chars) for target, chars in walk.nexts[place] if target in loop]
        for at, (target, chars) in enumerate(inside):
            if any(target == other and chars & others for other, others in inside[at + 1 :]):
                return min(chars)
    return next((text for place in loop if (text := _two_ways_around(walk, place, loop)) is not None), None)


def _two_ways_around(walk: _Walk, place: _Place, loop: frozenset[_Place]) -> str | None:
    """A character of a text that leads from `place` to `place` in two ways."""
    sources: dict[tuple[_Place, _Place], list[tuple[_Place, _Place]]] = {}
    waiting = [(place, place)]
    seen = set(waiting)
    while waiting:
        pair = waiting.pop()
        for one, chars in walk.nexts[pair[0]]:
            for other, others in walk.nexts[pair[1]]:
                if one in loop and other in loop and chars & others:
                    sources.setdefault((one, other), []).append(pair)
                    if (one, other) not in seen:
                        seen.add((one, other))
                        waiting.append((one, other))
    back, waiting = {(place, place)}, [(place, place)]
    while waiting:
        pair = waiting.pop()
        if pair[0] != pair[1]:
            return min(next(chars for target, chars in walk.nexts[place] if target in loop))
        for source in sources.get(pair, ()):
            if source not in back:
                back.add(source)
                waiting.append(source)
    return None


def _slides(walk: _Walk, one: frozenset[_Place], other: frozenset[_Place]) -> str | None:
    for p in one:
        for q in other:
            if q in walk.accepts:
                continue  # the first way that gets there is the match
            text = _reaches(walk, (p, p, q), lambda places, p=p, q=q: places == (p, q, q), (one, None, other))  # type: ignore[misc]
            if text is not None:
                return text
    return None


# --- texts that slow a pattern down


class _Pumps:
    """Texts for one pattern."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._flags = pattern.flags
        self._alphabet = _alphabet(pattern)
        self.found: dict[tuple[str, str, str], None] = {}
        tree = list(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
        self.visit(tree, "")
        whole = self.example(tree)
        self.add("", [*" \n\ta0#*<-", " \n", "a ", whole, whole[:-1]], "\x00")

    def chars(self, op: Any, value: Any) -> list[str]:
        """A few that an atom takes."""
        taken = _takes(op, value, self._alphabet, self._flags)
        return [char for char in "a0 \n\t-_#*.:/<" if char in taken][:4] or sorted(taken)[:1]

    def example(self, parts: Any) -> str:
        """A short text that a part of the pattern takes, or nearly."""
        text = ""
        for op, value in parts:
            if op in _REPEATS:
                text += self.example(value[2]) * max(1, min(value[0], COUNTED))
            elif op in _ATOMS:
                text += (self.chars(op, value) or [""])[0]
            elif inside := _inside(op, value):
                text += self.example(inside[0])
        return text

    def add(self, before: str, units: Sequence[str], behind: str) -> None:
        for unit in filter(None, units):
            for end in ("", "\x00", "\n\x00", behind):
                self.found[(before, unit, end)] = None

    def visit(self, parts: Any, before: str) -> None:
        """Adds texts for each repeat in `parts`, behind `before`."""
        for at, (op, value) in enumerate(parts):
            head = before + self.example(parts[:at])
            if op in _REPEATS and value[1] > FEW:
                unit, tail = self.example(value[2]), self.example(parts[at + 1 :])
                atoms = [char for kind, one in value[2] if kind in _ATOMS for char in self.chars(kind, one)]
                self.add(head, [*atoms, unit, unit + tail, head + unit], tail)
            for inside in _inside(op, value):
                self.visit(inside, head)


def _inside(op: Any, value: Any) -> list[Any]:
    """The parts of a part; of alternatives all of them."""
    if op in _REPEATS:
        return [value[2]]
    if op is constants.SUBPATTERN:
        return [value[3]]
    if op is constants.ATOMIC_GROUP:
        return [value]
    if op is constants.BRANCH:
        return list(value[1])
    return [value[1]] if op in {constants.ASSERT, constants.ASSERT_NOT} else []


def pumps(pattern: re.Pattern[str]) -> list[tuple[str, str, str]]:
    """Beginning, what is repeated, end: of each repeat of the pattern what it takes, with what
    stands before and behind it.
    """
    return list(_Pumps(pattern).found)


def slowest(
    run: Callable[[str], object], texts: Sequence[tuple[str, str, str]], *, bound_s: float, chars: int
) -> tuple[float, str]:
    """The longest time that a text of at most `chars` characters takes, and the text. Short ones
    come first: a bad one ends early.
    """
    worst = (0.0, "")
    for before, unit, end in texts:
        for size in (20, 24, 60, chars):
            text = before + unit * (size // len(unit)) + end
            took = _took(run, text)
            if took > bound_s:  # the machine may have been busy
                took = min(took, _took(run, text), _took(run, text))
            worst = max(worst, (took, f"{before!r} + {unit!r} * {size // len(unit)} + {end!r}"))
            if took > bound_s:
                return worst
    return worst


def _took(run: Callable[[str], object], text: str) -> float:
    begin = time.thread_time()
    run(text)
    return time.thread_time() - begin
