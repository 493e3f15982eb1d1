"""Makes loops, and repetitive work that is no loop: texts and runs of calls, from templates.

A kind is a JSON object; `text_of`, `rounds_of` and `run_of` say what its keys mean. Its strings are
templates: format strings whose fields are drawn anew wherever they stand.

- `{noun}` draws from the list of this name, `{Noun}` and `{NOUN}` write the word in capitals.
- `{3-9}` draws a number, `{red|green}` one of these words.
- `{hex8}`, `{uuid4}`, `{page3}`, `{prose600}` and others are made; the number is a size.
- `{i}` is the number of the round; `{i+1}`, `{50i}` and `{300-20i}` are computed from it.

The same seed makes the same text and the same run. `agent-monitor doctor`, the tests of the
detectors and the benches are fed from here.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, ToolResult, TurnFinished
from monitor.detectors import ToolPolicy
from monitor.errors import FinishReason

Lists: TypeAlias = Mapping[str, Any]
"""Words by the name of their list. A string in the place of a list is a template."""
Kind: TypeAlias = Mapping[str, Any]
"""The JSON object that describes texts or runs of one kind."""
TextPart: TypeAlias = str | list[Any] | dict[str, Any]
"""A template, several parts in a row, or a dictionary of rows: see `written`."""

OPENINGS = {
    "text": "\n\n",
    "line": " ",
    "fence": "\n\nHere is the file:\n\n```python\nimport os\n\n",
    "string": '\n\n{"answer": "',
    "list": "\n\n- The first point.\n- The second point: ",
    "heading": "\n\n## The answer\n",
    "table": "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
}
"""The places of a text where a loop may begin, and what stands before it there."""

CHARS = 24_000
"""A loop of text that doctor makes is this long; the slowest rule reads 5,000 characters."""
PIECE_CHARS = 1_000
"""Doctor sends texts in pieces of this many characters or a few more."""

_CASES = Path(__file__).with_suffix(".json")
_RANGE = re.compile(r"(\d+)-(\d+)")
_LINEAR = re.compile(r"(?:(\d+)([+-]))?(\d*)i(?:([+-]\d+))?")
_SIZED = re.compile(r"([a-z]+?)(\d*)")
_ONE_FIELD = re.compile(r"\{[^{}:\[]+\}")
_SAFE = "ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz23456789"
_PLAN = {"kind", "group", "request", "once", "row", "turns", "then", "times", "each", "sample"}
_PLAN |= {"unseen_because", "choices", "first", "down", "sep", "same"}
"""The keys of a kind and of a part that are no fields of its own."""


def read_kinds(file: Path) -> dict[str, Kind]:
    """The kinds of a file of JSON lines, by their names."""
    with file.open(encoding="utf-8") as lines:
        return {kind["kind"]: kind for kind in map(json.loads, lines)}


# ------------------------------------------------------------------ fields of templates


class Fields(dict[str, Any]):
    """What the fields of a template stand for: fixed values, the words of `lists`, and draws."""

    def __init__(self, rng: random.Random, lists: Lists, **fixed: object) -> None:
        super().__init__(fixed)
        self.rng = rng
        self.lists = lists

    def __getitem__(self, field: str) -> Any:
        """The value of `field`, drawn anew unless it is fixed. A fixed list is drawn from."""
        if field in self:
            value = super().__getitem__(field)
            return self.rng.choice(value) if isinstance(value, list) else value
        lower = field.lower()
        if lower != field and (lower in self or lower in self.lists):
            word: str = self[lower]
            return word.title() if field.istitle() else word.upper()
        if field in self.lists:
            return self.word(field)
        if "|" in field:
            return self.rng.choice([self._number(one) for one in field.split("|")])
        if (number := self._number(field)) != field:
            return number
        if linear := _LINEAR.fullmatch(field):
            start, sign, times, more = linear.groups()
            product = int(times or 1) * self["i"]
            return int(start or 0) + (-product if sign == "-" else product) + int(more or 0)
        sized = _SIZED.fullmatch(field)
        if sized is None or sized[1] not in _MADE:
            raise KeyError(field)
        return _MADE[sized[1]](self, int(sized[2] or 0))

    def _number(self, field: str) -> int | str:
        """The number that `field` stands for, or `field` itself."""
        if found := _RANGE.fullmatch(field):
            return self.rng.randint(int(found[1]), int(found[2]))
        return int(field) if field.isdigit() else field

    def word(self, name: str) -> str:
        """A word of the list `name`."""
        words = self.lists[name]
        word: str = words if isinstance(words, str) else self.rng.choice(words)
        return word.format_map(self) if "{" in word else word

    def listed(self, words: str | Sequence[Any]) -> Sequence[Any]:
        """The words themselves, or those of the list of this name."""
        named: Mapping[str, Any] = {**self.lists, **self}
        return named.get(words, words) if isinstance(words, str) else words

    def sentence(self) -> str:
        """A sentence of the list `sentences`. Its nouns, its adjective and its verb are drawn
        before the rest.
        """
        noun, other = self.rng.sample(self.lists["noun"], 2)
        shape: str = self.rng.choice(self.lists["sentences"])
        words = {"noun": noun, "other": other, "kind": self.word("kind"), "verb": self.word("verb")}
        return shape.format_map(Fields(self.rng, self.lists, **words))

    def prose(self, chars: int) -> str:
        """Paragraphs of sentences, of `chars` characters or a few more."""
        paragraphs, size = list[str](), 0
        while size < chars:
            paragraphs.append(" ".join(self.sentence() for _ in range(self.rng.randint(2, 6))))
            size += len(paragraphs[-1]) + 2
        return "\n\n".join(paragraphs)

    def filled(self, value: Any) -> Any:
        """`value` with all of its templates filled. A string that is one field only becomes what
        the field stands for, such as a number.
        """
        if isinstance(value, dict):
            return {key: self.filled(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.filled(one) for one in value]
        if not isinstance(value, str):
            return value
        return self[value[1:-1]] if _ONE_FIELD.fullmatch(value) else value.format_map(self)

    def fix(self, once: Mapping[str, Any]) -> None:
        """Draw the fields of `once` now, so that they stay the same. The words of a list are filled
        now and drawn later.
        """
        for name, value in once.items():
            if isinstance(value, dict) and "sample" in value:
                self[name] = tuple(self.rng.sample(self.listed(value["sample"]), value["times"]))
            elif isinstance(value, list):
                self[name] = [written(one, self) for one in value]
            else:
                self[name] = written(value, self)

    def per_round(self, plan: Mapping[str, Any], times: int) -> Iterator[Fields]:
        """The fields of `times` rounds: `i`, `each`, and those of which `plan` has a value for
        each round.
        """
        each = [written(one, self) for one in self.listed(plan.get("each", ()))]
        if plan.get("sample"):
            each = self.rng.sample(each, times)
        values = {name: value for name, value in plan.items() if name not in _PLAN}
        for number in range(times):
            fixed = {name: value[number] for name, value in values.items()}
            if each:
                fixed["each"] = each[number]
            fixed["i"] = times - number if plan.get("down") else plan.get("first", 0) + number
            yield Fields(self.rng, self.lists, **{**self, **fixed})


_MADE: dict[str, Callable[[Fields, int], Any]] = {
    "real": lambda fields, size: (size or 1) * fields.rng.random(),
    "gauss": lambda fields, _: fields.rng.gauss(0, 1),
    "uuid": lambda fields, version: str(uuid.UUID(int=fields.rng.getrandbits(128), version=version or None)),
    "hex": lambda fields, size: f"{fields.rng.randrange(16**size):0{size}x}",
    "digest": lambda fields, size: "".join(fields.rng.choice("0123456789abcdef") for _ in range(size - 2)) + "a1",
    "token": lambda fields, size: "".join(fields.rng.choice(_SAFE) for _ in range(size - 1)) + "7",
    "nouns": lambda fields, size: " ".join(fields.rng.sample(fields.lists["noun"], size)),
    "names": lambda fields, size: ", ".join(fields.rng.sample(fields.lists["noun"], size)),
    "page": lambda fields, lines: "\n".join(
        " ".join(fields.rng.choices(fields.lists["noun"], k=9)) for _ in range(lines)
    ),
    "sentence": lambda fields, _: fields.sentence(),
    "clause": lambda fields, _: fields.sentence()[:-1],
    "prose": Fields.prose,
}
"""Fields that are made, by their names. A number behind the name is a size."""


# ------------------------------------------------------------------ texts


def written(part: TextPart, fields: Fields) -> str:
    """The text of `part`. A dictionary stands for rows:

    - `row`: the part that is written `times` times; with `same` it is filled only once
    - `each`: the words of which one is the field `{each}` of a row; with `sample` in any order
    - `choices`: the words from which the rows are drawn, in the place of `row`
    - `chance`: the row is written once with this probability, or else the part `else`
    - `first`: the number `{i}` of the first row; with `down` it counts down to 1
    - `sep`: what stands between two rows

    Any other key is a field that has a value for each row.
    """
    if isinstance(part, str):
        return part.format_map(fields)
    if isinstance(part, list):
        return "".join(written(one, fields) for one in part)
    if "chance" in part:
        return written(part["row"] if fields.rng.random() < part["chance"] else part.get("else", ""), fields)
    separator: str = part.get("sep", "")
    return separator.join(_rows(part, fields))


def _rows(part: dict[str, Any], fields: Fields) -> Iterable[str]:
    unit = written(part["row"], fields) if part.get("same") else None
    times = part.get("times") or len(fields.listed(part["each"]))
    times = times if isinstance(times, int) else int(fields[times])
    if unit is not None:
        return [unit] * times
    if "choices" in part:
        return fields.rng.choices(fields.listed(part["choices"]), k=times)
    return [written(part["row"], row) for row in fields.per_round(part, times)]


def text_of(kind: Kind, rng: random.Random, lists: Lists) -> str:
    """A text: the part `text` of `kind`. The fields of `once` are drawn before."""
    fields = Fields(rng, lists)
    fields.fix(kind.get("once", {}))
    return written(kind["text"], fields)


def rounds_of(kind: Kind, rng: random.Random, lists: Lists) -> Iterator[str]:
    """The rounds of an endless loop of text. The fields of `once` are drawn before.

    - `same`: every round is this unit, which is drawn or filled once
    - `cycle`: the rounds, filled anew, again and again; `{i}` counts from 1
    - `grow`: what is added to fields before each round
    - `drift`: the list of which a word takes the place of a word of `{said}`, every third round

    Any other key is a field that has a value for each round.
    """
    fields = Fields(rng, lists)
    fields.fix(kind.get("once", {}))
    if "same" in kind:
        same = kind["same"]
        return itertools.repeat(rng.choice(same) if isinstance(same, list) else written(same, fields))
    return _changing(kind, fields)


def _changing(kind: Kind, fields: Fields) -> Iterator[str]:
    values = {name: value for name, value in kind.items() if isinstance(value, list) and name != "cycle"}
    for number, template in enumerate(itertools.cycle(kind["cycle"])):
        fields.update({name: value[number % len(value)] for name, value in values.items()}, i=number + 1)
        for name, more in kind.get("grow", {}).items():
            fields[name] += written(more, fields)
        if "drift" in kind and number % 3 == 2:  # noqa: PLR2004 - the third round, counted from 0
            said = fields["said"].split(" ")
            said[fields.rng.randrange(len(said))] = fields.word(kind["drift"])
            fields["said"] = " ".join(said)
        yield written(template, fields)


def flood_of(
    kind: Kind, rng: random.Random, lists: Lists, *, chars: int, opening: str = OPENINGS["text"]
) -> tuple[str, list[int]]:
    """Healthy text, then `chars` characters of a loop; and the places where its rounds end."""
    parts = [Fields(rng, lists).prose(rng.randint(200, 2600)) + opening]
    start = end = len(parts[0])
    ends: list[int] = []
    for one in itertools.islice(rounds_of(kind, rng, lists), chars):
        parts.append(one)
        end += len(one)
        ends.append(end)
        if end - start >= chars:
            break
    return "".join(parts), ends


# ------------------------------------------------------------------ runs of calls


class MadeCall(NamedTuple):
    """A call, and its result."""

    tool: str
    arguments: Mapping[str, Any]
    result: str | None = "ok"
    """`None`: the result is not seen."""
    is_error: bool = False


MadeTurn: TypeAlias = Sequence[MadeCall | str]
"""What the model says in a turn, and its calls."""


def run_of(kind: Kind, rng: random.Random, lists: Lists) -> Iterator[MadeTurn]:
    """A run of calls, turn by turn: the `turns` of `kind`, `times` times, then those of `then`.

    A turn is a list of texts, which the model says, and of calls. A call is a list of a tool, its
    arguments, the result, and whether the result is an error. All of them hold templates. A result
    that is no string is written as JSON. The keys `once`, `each`, `sample` and those of fields mean
    the same as in `written`.
    """
    fields = Fields(rng, lists)
    fields.fix(kind.get("once", {}))
    times = kind.get("times") or len(fields.listed(kind["each"]))
    for one in fields.per_round(kind, times):
        for turn in kind["turns"]:
            yield [_said_or_called(one, what) for what in turn]
    for turn in kind.get("then", ()):
        yield [_said_or_called(fields, what) for what in turn]


def _said_or_called(fields: Fields, what: str | list[Any]) -> MadeCall | str:
    return what.format_map(fields) if isinstance(what, str) else _made_call(fields, *what)


def _made_call(fields: Fields, tool: str, arguments: Any, result: Any = "ok", error: Any = None) -> MadeCall:
    given, said = fields.filled(arguments), fields.filled(result)
    text = said if said is None or isinstance(said, str) else json.dumps(said)
    return MadeCall(tool, given, text, bool(fields.filled(error)))


def chunks_of(turns: Iterable[MadeTurn]) -> Iterator[tuple[int, Chunk]]:
    """The chunks of a run, each with the number of its message."""
    calls = 0
    for number, steps in enumerate(turns):
        results: list[ToolResult] = []
        for step in steps:
            if isinstance(step, str):
                yield 2 * number, TextDelta(step)
                continue
            yield 2 * number, ToolCall(f"call_{calls}", step.tool, dict(step.arguments))
            if step.result is not None:
                results.append(ToolResult(f"call_{calls}", step.tool, step.result, step.is_error))
            calls += 1
        yield 2 * number, TurnFinished(FinishReason.DONE)
        for result in results:
            yield 2 * number + 1, result


# ------------------------------------------------------------------ the cases of doctor


@dataclass(slots=True, frozen=True)
class Case:
    """A run of doctor. It is made, not recorded, and always the same."""

    title: str
    chunks: Callable[[], Iterator[tuple[int, Chunk]]]
    """Makes the chunks of the run from the start, each with the number of its message."""
    unseen_because: str = ""
    """Why a loop need not be seen."""


def loops(tools: Mapping[str, ToolPolicy]) -> list[Case]:
    """One loop of each kind, and one of each tool that the settings name. Each is much longer than
    any sensible threshold, so a loop that is not seen here is never seen.
    """
    return [*map(_case, _cases()["loops"]), *(_of_tool(name, policy) for name, policy in tools.items())]


def healthy() -> list[Case]:
    """Repetitive work that is not a loop."""
    return [*map(_case, _cases()["healthy"])]


@cache
def _cases() -> Any:
    return json.loads(_CASES.read_text("utf-8"))


def _case(kind: Kind) -> Case:
    return Case(kind["kind"], partial(_chunks, kind), kind.get("unseen_because", ""))


def _of_tool(name: str, policy: ToolPolicy) -> Case:
    """A loop of one of the user's tools, with the fields that its policy calls volatile."""
    result = {"status": "nothing new", **dict.fromkeys(policy.volatile, "{hex8}")}
    why = (
        "the settings exempt it"
        if policy.exempt
        else "its loop_key decides which calls count"
        if policy.loop_key
        else ""
    )
    title = f"{name}: the same call" + (f", only {', '.join(policy.volatile)} changes" if policy.volatile else "")
    return _case({"kind": title, "times": 60, "turns": [[[name, {"of": "x"}, result]]], "unseen_because": why})


def _chunks(kind: Kind) -> Iterator[tuple[int, Chunk]]:
    rng, lists = random.Random(kind["kind"]), _cases()["lists"]  # noqa: S311 - the same run each time
    if "turns" in kind:
        yield from chunks_of(run_of(kind, rng, lists))
    elif "answers" in kind:
        for number, text in enumerate(itertools.islice(rounds_of(kind, rng, lists), kind["answers"])):
            yield number, TextDelta(text)
            yield number, TurnFinished(FinishReason.DONE)
    else:
        for piece in [text_of(kind, rng, lists)] if "text" in kind else _pieces(kind, rounds_of(kind, rng, lists)):
            yield 0, _delta(kind.get("channel"), piece)
        yield 0, TurnFinished(FinishReason.DONE)


def _pieces(kind: Kind, rounds: Iterator[str]) -> Iterator[str]:
    """One answer made of the rounds, after a beginning that is not repeated."""
    piece = '{"path": "app.py", "text": "' if kind.get("channel") == "arguments" else "Here is what I found. "
    given = 0
    while given < kind.get("chars", CHARS):
        while len(piece) < PIECE_CHARS:
            piece += next(rounds)
        given += len(piece)
        yield piece
        piece = ""


def _delta(channel: str | None, text: str) -> Chunk:
    match channel:
        case "reasoning":
            return ReasoningDelta(text)
        case "arguments":
            return ToolCallDelta("call_0", "write_file", text)
        case _:
            return TextDelta(text)
