"""Runs for `doctor`: one loop of each kind, and repetitive work that is not a loop. They are made,
not recorded, and always the same.

Each loop is much longer than any sensible threshold, so a loop that is not seen here is never seen.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, ToolResult, TurnFinished
from monitor.detectors import ToolPolicy
from monitor.reasons import FinishReason

T = TypeVar("T")

CALLS = 60
"""Turns of a loop of calls; the default thresholds are 3 to 16."""
ANSWERS = 30
CHARS = 24_000
"""Length of a loop of text; the slowest rule reads 5,000 characters."""
PIECE_CHARS = 1_000

Chunks: TypeAlias = Iterator[tuple[int, Chunk]]
Answer: TypeAlias = str | tuple[str, bool]
"""A tool's answer, and whether it is an error."""


@dataclass(slots=True, frozen=True)
class Case:
    """A run."""

    title: str
    chunks: Callable[[], Chunks]
    """Its chunks from the start, each with the number of its message."""
    unseen_because: str = ""
    """Why a loop need not be seen."""


def loops(tools: Mapping[str, ToolPolicy]) -> list[Case]:
    """One loop of each kind, and one of each tool that the settings name."""
    return [
        Case(
            "the same call, the same result",
            _calls(_always(("read_file", {"path": "notes.md"})), _always("1 line: todo")),
        ),
        Case(
            "the same call, only a request id changes",
            _calls(
                _always(("lookup_user", {"id": 7})), lambda n: json.dumps({"user": None, "request_id": _hash(n)[:12]})
            ),
            unseen_because=(
                'a changed result counts as progress, unless settings say: [tools.NAME] volatile = ["request_id"]'
            ),
        ),
        Case(
            "the same call, rejected each time",
            _calls(_always(("run_shell", {"command": "rm -r build"})), _always(("Error: permission denied", True))),
        ),
        Case("an unknown tool, other arguments each time", _calls(_wrong_tool, _wrong_tool_says)),
        *(Case(f"a cycle of {period} calls", _cycle(period)) for period in (2, 3, 5)),
        Case(
            "the same error, other arguments each time",
            _calls(
                lambda n: ("query", {"table": "orders", "column": f"{_NOUNS[n % 13]}_{n}"}),
                _always(("Error: relation 'orders' does not exist", True)),
            ),
        ),
        Case(
            "a side effect again and again",
            _calls(
                _always(("create_event", {"title": "Standup", "at": "09:00"})),
                lambda n: json.dumps({"created": True, "id": 7 + 13 * n}),
            ),
        ),
        Case("one sentence over and over", _text(_always("Let me check the file again. "))),
        Case(
            "one sentence, other words between",
            _text(lambda n: f"{_NOUNS[_number(n, 13)]} {_number(n, 90)}: {_SENTENCE}"),
        ),
        Case("a long passage over and over", _text(_always(_PASSAGE))),
        Case("a paragraph with small changes", _text(lambda n: f"{_SMALL[n % 4]} {_PARAGRAPH}\n\n")),
        Case("a plan whose counter advances", _text(lambda n: f"Step {n + 1}: {_STEP}\n\n")),
        Case("one word over and over", _text(_always("felt "))),
        Case("one character over and over", _text(_always("1"))),
        Case(
            "a sentence in Chinese over and over",
            _text(_always("\u6211\u518d\u68c0\u67e5\u4e00\u4e0b\u8fd9\u4e2a\u6587\u4ef6\u3002")),
        ),
        Case(
            "a loop in the thinking", _text(_always("Wait, I should look at the file once more. "), channel="reasoning")
        ),
        Case(
            "a loop in the arguments of a call",
            _text(_always("import os\\nimport sys\\nimport json\\n"), channel="arguments"),
        ),
        Case("the same answer turn after turn", _answers(_always(_PROMISE.format("now")))),
        Case("nearly the same answer turn after turn", _answers(lambda n: _PROMISE.format(_SOON[n % 5]))),
        *(_of_tool(name, policy) for name, policy in tools.items()),
    ]


def healthy() -> list[Case]:
    """Repetitive work that is not a loop."""
    return [
        Case(
            "polling, the result changes",
            _calls(_always(("get_build", {"id": 7})), lambda n: f"running, {n} of {CALLS} steps done"),
        ),
        Case(
            "reading page after page",
            _calls(
                lambda n: ("list_orders", {"page": n + 1}),
                lambda n: json.dumps([_hash(f"order {n} {i}") for i in range(5)]),
            ),
        ),
        Case("edit and test, the error moves", _calls(_edit_or_test, _error_moves)),
        Case("a table", _text(_table_row, chars=6_000)),
        Case("rules and boxes", _once(_BOX * 4 + "-" * 120 + "\n" + "." * 200 + "\n")),
        Case("base64", _once(base64.b64encode(bytes.fromhex("".join(map(_hash, range(190))))).decode())),
        Case("code", _once(_code())),
        Case("a list of log lines", _text(_log_line, chars=8_000)),
        Case(
            "data as JSON",
            _once(
                json.dumps([{"id": n, "name": _hash(n)[:9], "price": _number(n, 400)} for n in range(120)], indent=2)
            ),
        ),
        Case("answers that differ", _answers(lambda n: f"Part {n + 1} is done: {_words(n)}.")),
    ]


# ------------------------------------------------------------------ runs


def _calls(call: Callable[[int], tuple[str, dict[str, Any]]], answer: Callable[[int], Answer]) -> Callable[[], Chunks]:
    """One call a turn, and its answer."""

    def chunks() -> Chunks:
        for n in range(CALLS):
            name, arguments = call(n)
            said = answer(n)
            text, is_error = said if isinstance(said, tuple) else (said, False)
            yield 2 * n, ToolCall(f"call_{n}", name, arguments)
            yield 2 * n, TurnFinished(FinishReason.DONE)
            yield 2 * n + 1, ToolResult(f"call_{n}", name, text, is_error)

    return chunks


def _cycle(period: int) -> Callable[[], Chunks]:
    return _calls(lambda n: ("view_page", {"page": n % period}), lambda n: f"page {n % period}: nothing here")


def _answers(text: Callable[[int], str]) -> Callable[[], Chunks]:
    """One answer a turn, nothing done between them."""

    def chunks() -> Chunks:
        for n in range(ANSWERS):
            yield n, TextDelta(text(n))
            yield n, TurnFinished(FinishReason.DONE)

    return chunks


def _text(unit: Callable[[int], str], *, channel: str = "text", chars: int = CHARS) -> Callable[[], Chunks]:
    """One answer made of repeated units, after a beginning that is not repeated."""

    def chunks() -> Chunks:
        given, n, piece = 0, 0, '{"path": "app.py", "text": "' if channel == "arguments" else "Here is what I found. "
        while given < chars:
            while len(piece) < PIECE_CHARS:
                piece += unit(n)
                n += 1
            given += len(piece)
            yield 0, _delta(channel, piece)
            piece = ""
        yield 0, TurnFinished(FinishReason.DONE)

    return chunks


def _once(text: str) -> Callable[[], Chunks]:
    def chunks() -> Chunks:
        yield 0, TextDelta(text)
        yield 0, TurnFinished(FinishReason.DONE)

    return chunks


def _delta(channel: str, text: str) -> Chunk:
    match channel:
        case "reasoning":
            return ReasoningDelta(text)
        case "arguments":
            return ToolCallDelta("call_0", "write_file", text)
        case _:
            return TextDelta(text)


# ------------------------------------------------------------------ calls


def _always(value: T) -> Callable[[int], T]:
    return lambda _: value


def _wrong_tool(n: int) -> tuple[str, dict[str, Any]]:
    """Every second call is one of a real tool."""
    return ("google_search", {"q": f"part {n}"}) if n % 2 else ("list_files", {"folder": f"src/{n}"})


def _wrong_tool_says(n: int) -> Answer:
    return ("Error: tool 'google_search' not found", True) if n % 2 else f"file_{n}.py"


def _edit_or_test(n: int) -> tuple[str, dict[str, Any]]:
    return ("run_tests", {}) if n % 2 else ("edit_file", {"path": "app.py", "line": 10 + n, "text": _hash(n)})


def _error_moves(n: int) -> Answer:
    return (f"FAILED at line {40 + n}: {_hash(n)}", True) if n % 2 else "File updated."


def _of_tool(name: str, policy: ToolPolicy) -> Case:
    """A loop of one of the user's tools, with the fields that its policy calls volatile."""
    result = {"status": "nothing new", **dict.fromkeys(policy.volatile, "")}

    def answer(n: int) -> str:
        return json.dumps(
            {key: _hash(f"{key} {n}")[:8] if key in policy.volatile else value for key, value in result.items()}
        )

    why = (
        "the settings exempt it"
        if policy.exempt
        else "its loop_key decides which calls count"
        if policy.loop_key
        else ""
    )
    title = f"{name}: the same call" + (f", only {', '.join(policy.volatile)} changes" if policy.volatile else "")
    return Case(title, _calls(_always((name, {"of": "x"})), answer), unseen_because=why)


# ------------------------------------------------------------------ words

_SMALL = ("Hmm.", "Let me see.", "Right.", "So, once more.")
_SOON = ("now", "soon", "shortly", "just", "next")
_SENTENCE = "I will look at the configuration once more before I go on. "
_PASSAGE = (
    "The first thing to do is to open the configuration and see which of the servers are listed there, because the"
    " error says that one of them cannot be reached. After that I compare the ports with those in the documentation,"
    " and where they differ I write down both. If nothing differs, the firewall is the next thing to look at: its rules"
    " are kept in another file, which only the administrator may change, so I ask for the rules by mail. Once they have"
    " come I go through them one after the other, from the top to the bottom, and mark those that mention one of the"
    " servers. When all of this is done I know where the fault is and can start to mend it. "
)
_PARAGRAPH = (
    "I need to understand why the test fails before I change anything. The message says that the value is missing, so"
    " somewhere between the reader and the writer it gets lost. Let me go through the code from the beginning and look"
    " at each function that touches it."
)
_STEP = (
    "I move the smallest disk from the first peg to the third peg, then I look at the board again and think about which"
    " disk has to be moved next, so that no larger disk ever lies on a smaller one."
)
_PROMISE = (
    "I will {} write the report that you asked for, with all of the numbers of the last quarter in it, and send it to"
    " you as soon as it is done. Thank you for your patience, it will not take long."
)
_NOUNS = (
    "parser",
    "report",
    "ledger",
    "index",
    "schema",
    "invoice",
    "module",
    "queue",
    "cache",
    "router",
    "worker",
    "table",
    "label",
)
_VERBS = (
    "reads",
    "checks",
    "builds",
    "sorts",
    "stores",
    "sends",
    "merges",
    "splits",
    "counts",
    "renders",
    "drops",
    "keeps",
    "finds",
)
_BOX = "=" * 78 + "\n|" + " " * 76 + "|\n"


def _hash(of: object) -> str:
    return hashlib.sha256(str(of).encode()).hexdigest()


def _number(n: int, below: int) -> int:
    """A number below `below` for `n`, without a visible order."""
    return int(_hash(n), 16) % below


def _words(n: int) -> str:
    return ", ".join(
        f"the {_NOUNS[_number(17 * n + i, 13)]} {_VERBS[_number(31 * n + i, 13)]} {_number(n * i, 90)} rows"
        for i in range(5)
    )


def _table_row(n: int) -> str:
    return (
        f"| {n + 1} | {_hash(n)[:8]} | {_number(n, 900)} | {_number(n + 1, 50)}.00 EUR | {'yes' if n % 3 else 'no'} |\n"
    )


def _log_line(n: int) -> str:
    return (
        f"2026-03-{1 + n % 28:02} {n % 24:02}:{_number(n, 60):02}:{_number(n + 9, 60):02} INFO  worker-{n % 4} "
        f"job={_hash(n)[:8]} {_VERBS[_number(n, 13)]} {_NOUNS[_number(n + 2, 13)]} in {_number(n + 4, 900)} ms\n"
    )


def _code() -> str:
    return "\n\n".join(
        f"def {_VERBS[n % 13]}_{_NOUNS[n % 12]}({_NOUNS[(n + 3) % 13]}: list[int], limit: int = {_number(n, 90)}) ->"
        " int:\n"
        f'    """{_words(n).capitalize()}."""\n'
        f"    if not {_NOUNS[(n + 3) % 13]}:\n        return {n % 3}\n"
        f"    return sum({_NOUNS[(n + 3) % 13]}[:limit]) // {_number(n + 1, 9) + 1}"
        for n in range(24)
    )
