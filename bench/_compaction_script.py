"""What stands in for models and tools in `bench.compaction`: an agent that follows a script, a
summariser without understanding, a provider that counts for itself.

The summariser is honest about being none: of each message of the record it writes down the first
sentence, of each call its line, of each result the first line, and from the earlier summary it
takes over whole lines, as many of the newest as the words it was allowed have room for (six
characters a word). So what it loses is known: second sentences, what stands deep in results, and,
in the long run, everything old. It never writes a name that it was not shown, and sends a summary
that is given back to it back as it is.
"""

from __future__ import annotations

import json
import operator
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio.lowlevel

from monitor.adapters.anthropic import model as anthropic_model
from monitor.adapters.google import model as google_model
from monitor.adapters.openai import model as _openai_messages
from monitor.adapters.parts import ChunkAdapter
from monitor.chunks import TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.context import validate
from monitor.context.compaction.templates import BEGIN, END, NOTHING
from monitor.errors import FinishReason
from monitor.messages import AssistantMessage, Media, Message, Text, UserMessage
from monitor.models import ErrorKind, ModelError, ModelRequest
from monitor.testing import FakeClock
from monitor.testing.scripted import ScriptedStream, Stall
from monitor.wires.fields import Form

WINDOW_TOKENS: Final = 32_000
BUILDERS: Final[dict[Form, Callable[[Sequence[Message]], list[dict[str, Any]]]]] = {
    "gemini": google_model.to_contents,
    "openai-chat": _openai_messages.to_messages,
    "openai-responses": _openai_messages.to_input,
    "anthropic": anthropic_model.to_messages,
}
FAULTS: Final = ("raises", "hangs", "says nothing", "is cut off", "is too long")
"""What becomes of a summary call."""
CHARS_PER_WORD: Final = 6
FIRST_CHARS: Final = 200
"""Of a sentence."""
LINE_CHARS: Final = 120
SAID_TO_BE_LEFT_OUT: Final = "results of the newest calls were left out"


# --- the provider


_PIECES: Final = re.compile(r" ?[A-Za-z]{1,7}| ?\d{1,3}| ?[^\sA-Za-z\d]{1,3}|\s+")
"""Pieces as tokenizers cut English and code: not what the library estimates by."""
FRAME_TOKENS: Final = 5


class Meter:
    """The bench's own count of a request. Every message object is counted once as long as it is
    sent.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, int]] = {}

    def tokens(self, request: ModelRequest) -> int:
        """Everything that is sent."""
        known = {
            id(message): self._known.get(id(message)) or (message, self._count(message)) for message in request.messages
        }
        self._known = known
        tools = "".join(tool.name + tool.description + json.dumps(tool.parameters) for tool in request.tools)
        return sum(known[id(message)][1] for message in request.messages) + pieces((request.instructions or "") + tools)

    @staticmethod
    def _count(message: Message) -> int:
        texts = [
            json.dumps(part.arguments) + part.name if isinstance(part, ToolCall) else _text(part)
            for part in message.content
        ]
        results = (
            [result.name + result.text for result in message.results] if isinstance(message, AssistantMessage) else []
        )
        return sum(pieces(text) + FRAME_TOKENS for text in (*texts, *results)) + FRAME_TOKENS


def pieces(text: str) -> int:
    """Tokens of a text."""
    return len(_PIECES.findall(text))


def _text(part: object) -> str:
    return "" if isinstance(part, Media) else str(getattr(part, "text", ""))


class TooLongError(Exception):
    """The request is larger than the window."""


class _Adapter(ChunkAdapter):
    def classify(self, error: BaseException) -> ModelError:
        return (
            ModelError(ErrorKind.OVERFLOW, str(error), status=400)
            if isinstance(error, TooLongError)
            else super().classify(error)
        )


@dataclass
class Seen:
    """What was sent to the provider, and what it thinks of it."""

    requests: int = 0
    refused: int = 0
    """Requests of the agent that were larger than the window."""
    summaries: int = 0
    summaries_refused: int = 0
    most_tokens: int = 0
    tokens: int = 0
    """Read and written, all calls together."""
    summary_tokens: int = 0
    checked: int = 0
    """Requests that were looked at as all four providers would."""
    unread_missing: int = 0
    """Results of the newest calls that the next request neither shows nor says to be left out."""
    problems: list[str] = field(default_factory=list)
    struck: dict[str, int] = field(default_factory=dict)
    """Faults, by kind."""
    checking_s: float = 0.0
    """Processor time that the bench took for itself."""


class Checker:
    """Looks at each request as all four providers would.

    A request that begins with the same messages as the one before it is checked from the newest
    turn on that both have: what stands before that was checked, and a rule looks at neighbours
    only, but for the one that ids are unique, which is looked at here. After every change of older
    messages, and every `every`th time, all of it is checked.
    """

    def __init__(self, every: int = 10) -> None:
        self._every = every
        self._before: tuple[Message, ...] = ()
        self._ids: set[str] = set()
        self._bad = False
        self.checked = 0
        self.whole = 0

    def problems(self, messages: tuple[Message, ...]) -> list[tuple[str, str]]:
        """What a provider would refuse it for, by the provider's form."""
        before, self._before = self._before, messages
        self.checked += 1
        goes_on = bool(before) and len(before) <= len(messages) and all(map(operator.is_, before, messages))
        start = self._start(before) if goes_on and not self._bad and self.checked % self._every else None
        if start is not None:
            new = _call_ids(messages[len(before) :])
            start = None if len(set(new)) < len(new) or self._ids & set(new) else start
            self._ids.update(new)
        if start is None:
            self.whole += 1
            self._ids = set(_call_ids(messages))
        looked_at = messages if start is None else (_SOMEBODY, *messages[start:])
        found: list[tuple[str, str]] = [
            (form, str(problem)) for form, build in BUILDERS.items() for problem in validate(form, build(looked_at))
        ]
        self._bad = bool(found)
        return found

    @staticmethod
    def _start(before: tuple[Message, ...]) -> int | None:
        """The newest turn of the model among them."""
        return next((at for at in range(len(before) - 1, 0, -1) if isinstance(before[at], AssistantMessage)), None)


_SOMEBODY: Final = UserMessage((Text("(what was said before)"),))


def _call_ids(messages: Sequence[Message]) -> list[str]:
    return [
        part.id
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.content
        if isinstance(part, ToolCall)
    ]


def missing_from(messages: Sequence[Message], calls: Sequence[str]) -> int:
    """How many of the newest calls' results a request neither shows nor says to be left out."""
    newest = next((message for message in reversed(messages) if isinstance(message, AssistantMessage)), None)
    shown = {result.id for result in newest.results if result.text} if newest is not None else set()
    gone = len(set(calls) - shown)
    return 0 if gone and messages and SAID_TO_BE_LEFT_OUT in _said(messages[0]) else gone


class Model:
    """Agent and summariser in one, as most runs have it. `answer` makes the agent's turn. All
    requests are validated: every `every`th as a whole, of the others what is new.
    """

    name = "stand-in:model"
    adapter = _Adapter

    def __init__(
        self,
        answer: Callable[[ModelRequest], Sequence[Any]],
        clock: FakeClock,
        *,
        window_tokens: int = WINDOW_TOKENS,
        every: int = 10,
        failing: float = 0.0,
        chance: random.Random | None = None,
    ) -> None:
        self._answer = answer
        self._clock = clock
        self._window = window_tokens
        self._checker = Checker(every)
        self._called: list[str] = []
        self._failing = failing
        self._chance = chance or random.Random(0)
        self._meter, self._summary_meter = Meter(), Meter()
        self.seen = Seen()
        self.last: ModelRequest | None = None
        """The newest request of the agent."""

    def stream(self, request: ModelRequest) -> ScriptedStream:
        """The answer, after a look at the request."""
        began = time.process_time()
        try:
            steps = self._summarised(request) if request.tool_choice == "none" else self._worked(request)
        finally:
            self.seen.checking_s += time.process_time() - began
        return ScriptedStream(*steps, suspends=True)

    def _worked(self, request: ModelRequest) -> list[Any]:
        seen, self.last = self.seen, request
        seen.requests += 1
        tokens = self._meter.tokens(request)
        if tokens > self._window:
            seen.refused += 1
            return [self._refusal(tokens)]
        seen.most_tokens = max(seen.most_tokens, tokens)
        seen.checked += 1
        seen.problems += [
            f"request {seen.requests}, {form}: {problem}" for form, problem in self._checker.problems(request.messages)
        ]
        seen.unread_missing += missing_from(request.messages, self._called)
        self._clock.advance(1.0)
        answer = self._answer(request)
        self._called = [part.id for part in answer if isinstance(part, ToolCall)]
        return self._answered(tokens, answer)

    def _answered(self, tokens: int, answer: Sequence[Any]) -> list[Any]:
        wrote = sum(pieces(part.text if isinstance(part, TextDelta) else json.dumps(part.arguments)) for part in answer)
        self.seen.tokens += tokens + wrote
        return [*answer, UsageReport(tokens, wrote), TurnFinished(FinishReason.DONE)]

    def _refusal(self, tokens: int) -> TooLongError:
        return TooLongError(
            f"This model's maximum context length is {self._window} tokens. However, your messages resulted in {tokens}"
            " tokens."
        )

    def _summarised(self, request: ModelRequest) -> list[Any]:
        seen = self.seen
        seen.summaries += 1
        tokens = self._summary_meter.tokens(request)
        if tokens > self._window:
            seen.summaries_refused += 1
            return [self._refusal(tokens)]
        fault = self._chance.choice(FAULTS) if self._chance.random() < self._failing else None
        text = stand_in(request)
        finish = TurnFinished(FinishReason.DONE)
        if fault is not None:
            seen.struck[fault] = seen.struck.get(fault, 0) + 1
        match fault:
            case "raises":
                return [TextDelta(text[:50]), ConnectionError("the connection broke")]
            case "hangs":
                return [TextDelta(text[:50]), Hang(self._clock)]
            case "says nothing":
                text = ""
            case "is cut off":
                text, finish = text[: len(text) // 2], TurnFinished(FinishReason.LENGTH)
            case "is too long":
                text += "".join(f"\n- and then, in other words, step {number} of it" for number in range(tokens // 4))
        wrote = pieces(text)
        seen.tokens += tokens + wrote
        seen.summary_tokens += tokens + wrote
        return [TextDelta(text), UsageReport(tokens, wrote), finish]


class Hang(Stall):
    """A step in which nothing comes any more, while the time goes on."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    async def perform(self) -> None:
        """Until it is cancelled."""
        while True:
            await anyio.lowlevel.checkpoint()
            self._clock.advance(2.0)


# --- the summariser


_WORDS: Final = re.compile(r"At most ([\d,]+) words")
_HEADINGS: Final = re.compile(r"(?m)^## (.+)$")
_TAGS: Final = re.compile(r"(?m)^<(\w+)>$")
_SPEAKER: Final = re.compile(r"\[\d+\] (user|agent|supervisor):")
_CALL: Final = re.compile(r"\[\d+\] call \d+: ")
_RETURNED: Final = re.compile(r"\[\d+\] .*(?:returned|failed):$")
_CLOSED: Final = re.compile(r"\| </")
_ROOT: Final = "state_snapshot"


def stand_in(request: ModelRequest) -> str:
    """The summary that `request` asks for, as the module says it."""
    messages = request.messages
    if (
        len(messages) > 1
        and isinstance(messages[-2], AssistantMessage)
        and _said(messages[-1]).startswith("Your summary cannot stay")
    ):
        return _said(messages[-2])
    question = _said(messages[-1])
    instructions = question if _WORDS.search(question) else request.instructions or ""
    found = _WORDS.search(instructions)
    room = CHARS_PER_WORD * int(found[1].replace(",", "")) if found else 2_000
    if instructions is question:
        asked, others = _of_messages(messages[:-1])
    else:
        asked, others = _of_record(question.partition(BEGIN)[2].rpartition(END)[0])
    return _laid_out(instructions, _newest(asked, room // 4), _newest(others, room * 3 // 4))


def _said(message: Message) -> str:
    return "\n".join(part.text for part in message.content if isinstance(part, Text))


def _of_messages(messages: Sequence[Message]) -> tuple[list[str], list[str]]:
    asked: list[str] = []
    others: list[str] = []
    for message in messages:
        (asked if isinstance(message, UserMessage) else others).append(f"- {_first(_said(message))}")
        if isinstance(message, AssistantMessage):
            others += [
                f"- {part.name} {json.dumps(part.arguments)}"[:LINE_CHARS]
                for part in message.content
                if isinstance(part, ToolCall)
            ]
            others += [f"- {result.text.partition(chr(10))[0]}"[:LINE_CHARS] for result in message.results]
    return asked, others


def _of_record(record: str) -> tuple[list[str], list[str]]:
    """Of the lines with a mark the first after each line without one, which says what it is; of the
    earlier summary all entries.
    """
    asked: list[str] = []
    others: list[str] = []
    into: list[str] | None = None
    earlier, section = False, 0
    first_section = 0 if f"| <{_ROOT}>" in record else 1
    for line in record.splitlines():
        if earlier and line.startswith("| "):
            section += line.startswith("| ## ") or _CLOSED.match(line) is not None
            if line.startswith("| - "):
                (asked if section == first_section else others).append(line[2:])
        elif line.startswith("| "):
            if into is not None:
                into.append(f"- {_first(line[2:])}")
            into = None
        else:
            earlier, section = line == "the earlier summary:", 0
            speaker = _SPEAKER.match(line)
            into = (
                (others if speaker[1] == "agent" else asked) if speaker else others if _RETURNED.match(line) else None
            )
            if _CALL.match(line):
                others.append(f"- {_CALL.sub('', line)}"[:LINE_CHARS])
    return asked, others


def _first(text: str) -> str:
    """The first sentence."""
    line = text.lstrip("| \n").partition("\n")[0]
    return re.split(r"(?<=[.!?]) ", line, maxsplit=1)[0][:FIRST_CHARS]


def _newest(lines: Sequence[str], room: int) -> list[str]:
    chosen: list[str] = []
    for line in reversed(list(dict.fromkeys(lines))):
        room -= len(line) + 1
        if room < 0:
            break
        chosen.append(line)
    return chosen[::-1]


def _laid_out(instructions: str, asked: Sequence[str], others: Sequence[str]) -> str:
    """Below the first heading what was asked, below the third everything else."""
    headings = list(dict.fromkeys(_HEADINGS.findall(instructions)))
    tags = [] if headings else [tag for tag in dict.fromkeys(_TAGS.findall(instructions)) if tag != _ROOT]
    bodies = {0: "\n".join(asked), 2: "\n".join(others)}
    if headings:
        return "\n\n".join(f"## {title}\n{bodies.get(at) or NOTHING}" for at, title in enumerate(headings))
    if tags:
        inside = "\n".join(f"<{tag}>\n{bodies.get(at) or NOTHING}\n</{tag}>" for at, tag in enumerate(tags))
        return f"<{_ROOT}>\n{inside}\n</{_ROOT}>"
    return "\n".join((*asked, *others))
