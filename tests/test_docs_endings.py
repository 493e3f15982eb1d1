"""The loops of README, docs and examples, as they stand there, against services that fail: no
failure may look like a success.

Each program is run by the real SDK against the local server of its provider, which plays another
script than the page wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import pytest

import monitor
from monitor.testing import (
    LocalAnthropic,
    LocalGemini,
    LocalOpenAI,
    anthropic_steps,
    capture_events,
    gemini_steps,
    openai_steps,
)
from scripts.snippets import PAGES, snippets
from tests.adapters.google.sdk import sdk_warnings

ROOT = Path(__file__).parent.parent
Reason = monitor.TerminateReason
Script = list[Any]

ONCE = {"x-should-retry": "false"}
"""What spares a test the pauses between the SDK's own attempts."""


@dataclass(frozen=True)
class Wire:
    """One provider's server, and how it says things."""

    attribute: str
    """The server's name in `monitor.testing`."""
    server: Callable[[Any], Any]
    answers: Script
    calls: Callable[[Mapping[str, Any]], Script]
    faults: Mapping[str, Script]


def _google() -> Wire:
    steps = gemini_steps
    faults: dict[str, Script] = {
        "401": [steps.error_reply(401)],
        "429": [steps.rate_limited()],
        "503": [steps.error_reply(503)],
        "503 in mid-stream": [steps.text("It is"), steps.midstream_error()],
        "connection cut": [steps.text("It is"), steps.Cut()],
        "connection reset": [steps.text("It is"), steps.Reset()],
        "no finish reason": [steps.text("It is")],
        "output limit": steps.events_of("It is", finish_reason="MAX_TOKENS"),
        "blocked answer": steps.events_of("It is", finish_reason="SAFETY"),
        "blocked prompt": [steps.blocked()],
        "malformed call": [steps.finish("MALFORMED_FUNCTION_CALL", parts=None)],
        "empty answer": [steps.finish()],
        "thoughts only": steps.events_of("", reasoning="Let me think."),
        "overflow": [steps.overflow(40_000, 32_000)],
    }
    return Wire(
        "LocalGemini",
        LocalGemini,
        steps.events_of("It is 42."),
        lambda given: steps.events_of("", [("f", given)]),
        faults,
    )


def _chat() -> Wire:
    steps = openai_steps
    faults: dict[str, Script] = {
        "401": [steps.error_reply(401, headers=ONCE)],
        "429": [
            steps.error_reply(429, "Rate limit reached.", code="rate_limit_exceeded", kind="requests", headers=ONCE)
        ],
        "503": [steps.error_reply(503, headers=ONCE)],
        "503 in mid-stream": [steps.text("It is"), steps.midstream_error()],
        "connection cut": [steps.text("It is"), steps.Cut()],
        "connection reset": [steps.text("It is"), steps.Reset()],
        "no finish reason": [steps.text("It is")],
        "output limit": steps.events_of("It is", finish_reason="length"),
        "blocked answer": steps.events_of("It is", finish_reason="content_filter"),
        "empty answer": [steps.finish()],
        "thoughts only": steps.events_of("", reasoning="Let me think."),
        "overflow": [steps.overflow(40_000, 32_000)],
    }
    return Wire(
        "LocalOpenAI",
        LocalOpenAI,
        steps.events_of("It is 42."),
        lambda given: steps.events_of("", [("f", given)]),
        faults,
    )


def _responses() -> Wire:
    steps = openai_steps
    begun = [steps.response_created(), *steps.response_message(), steps.response_text("It is")]
    faults: dict[str, Script] = {
        **{name: script for name, script in _chat().faults.items() if name in ("401", "429", "503", "overflow")},
        "503 in mid-stream": [*begun, steps.response_error()],
        "a response that failed": [*begun, steps.response_failed()],
        "connection cut": [*begun, steps.Cut()],
        "connection reset": [*begun, steps.Reset()],
        "no finish reason": begun,
        "output limit": [*begun, steps.response_finish("incomplete", reason="max_output_tokens")],
        "blocked answer": [*begun, steps.response_finish("incomplete", reason="content_filter")],
        "empty answer": [steps.response_created(), steps.response_finish()],
        "thoughts only": [
            steps.response_created(),
            *steps.response_reasoning("Let me think."),
            steps.response_finish(),
        ],
    }
    answers = steps.response_events_of("It is 42.")
    return Wire("LocalOpenAI", LocalOpenAI, answers, lambda given: steps.response_events_of("", [("f", given)]), faults)


def _anthropic() -> Wire:
    steps = anthropic_steps
    begun = [steps.start(), *steps.say("It is")]
    faults: dict[str, Script] = {
        "401": [steps.error_reply(401, headers=ONCE)],
        "429": [steps.error_reply(429, headers=ONCE)],
        "503": [steps.error_reply(503, headers=ONCE)],
        "503 in mid-stream": [*begun, steps.midstream_error()],
        "connection cut": [*begun, steps.Cut()],
        "connection reset": [*begun, steps.Reset()],
        "no finish reason": begun,
        "output limit": [*begun, *steps.finish("max_tokens")],
        "blocked answer": [*begun, *steps.finish("refusal")],
        "empty answer": [steps.start(), *steps.finish()],
        "thoughts only": [steps.start(), *steps.think("Let me think."), *steps.finish()],
        "overflow": [steps.overflow(40_000, 32_000)],
    }
    return Wire(
        "LocalAnthropic",
        LocalAnthropic,
        steps.events_of("It is 42."),
        lambda given: steps.events_of("", [("f", given)]),
        faults,
    )


WIRES = {"google": _google(), "chat": _chat(), "responses": _responses(), "anthropic": _anthropic()}

ENDS_FOR = {
    "401": Reason.ERROR,
    "429": Reason.RATE_LIMITED,
    "503": Reason.ERROR,
    "503 in mid-stream": Reason.ERROR,
    "a response that failed": Reason.ERROR,
    "connection cut": Reason.ERROR,
    "connection reset": Reason.ERROR,
    "no finish reason": Reason.TRUNCATED,
    "output limit": Reason.TRUNCATED,
    "blocked answer": Reason.BLOCKED,
    "blocked prompt": Reason.BLOCKED,
    "malformed call": Reason.INVALID_STREAM,
    "empty answer": Reason.INVALID_STREAM,
    "thoughts only": Reason.INVALID_STREAM,
    "overflow": Reason.PROMPT_TOO_LONG,
}


@dataclass(frozen=True)
class Program:
    """A program of a page that watches an SDK's stream."""

    name: str
    code: str
    wire: Wire
    loops: bool
    """It is a loop of turns, with tools."""


def _programs() -> list[Program]:
    found = [(f"{one.page.name}:{one.line}", one.code) for page in PAGES for one in snippets(page)]
    found += [(path.name, path.read_text()) for path in sorted((ROOT / "examples").glob("*.py"))]
    programs = []
    for name, code in found:
        sdk = re.search(r"^from (google|openai|anthropic) import", code, re.MULTILINE)
        if sdk and "watch(" in code and ("asyncio.run(" in code or "\nwith " in code):
            wire = {"openai": "responses" if "responses.create" in code else "chat"}.get(sdk[1], sdk[1])
            programs.append(Program(name, code, WIRES[wire], "guard.check()" in code))
    return programs


PROGRAMS = _programs()
LOOPS = [program for program in PROGRAMS if program.loops]
FAULTS = [pytest.param(one, fault, id=f"{one.name}-{fault}") for one in PROGRAMS for fault in one.wire.faults]
LATER = ("429", "connection cut", "output limit", "blocked answer", "overflow")
"""In a later turn nothing is new but that there was a good one: one fault of each kind."""
LATER_FAULTS = [pytest.param(one, fault, id=f"{one.name}-{fault}") for one in LOOPS for fault in LATER]


def test_a_loop_of_turns_has_a_page_and_stands_on_the_page_of_each_sdk():
    assert {program.name.partition(":")[0] for program in LOOPS} >= {
        "own_loop.md",
        "google-genai.md",
        "openai.md",
        "anthropic.md",
        "own_loop.py",
    }


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[[Program, list[Script]], list[monitor.Outcome]]:
    """Runs a program against a service that plays these scripts, one a request, the last again and
    again.
    """

    def play(program: Program, scripts: list[Script]) -> list[monitor.Outcome]:
        wire = program.wire
        monkeypatch.setattr(f"monitor.testing.{wire.attribute}", lambda *_, **__: wire.server(scripts))
        with wire.server(scripts) as server, capture_events() as events:
            # for the program that asks the real service, and so names no server
            monkeypatch.setenv("GEMINI_API_KEY", "none")
            monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
            try:
                exec(compile(program.code, program.name, "exec"), {"__name__": "__main__"})
            except anthropic.APIError:
                # the helper is opened outside of the watch
                if "messages.stream(**QUESTION) as helper" not in program.code:
                    raise
        return events.outcomes

    return play


ARGUMENTS = {"query": "x", "path": "src/f1.py"}


def _given(program: Program) -> dict[str, str]:
    """What the program's tool takes."""
    return {
        name: value for name, value in ARGUMENTS.items() if f"({name}" in program.code or f"{name}:" in program.code
    }


@sdk_warnings
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_an_answer_is_a_success(program: Program, played: Any):
    outcomes = played(program, [program.wire.answers])
    assert [outcome.ok for outcome in outcomes] == [True] * len(outcomes) != []


@sdk_warnings
@pytest.mark.parametrize("program", LOOPS, ids=lambda one: one.name)
def test_an_answer_after_a_tool_call_is_the_goal(program: Program, played: Any):
    (outcome,) = played(program, [program.wire.calls(_given(program)), program.wire.answers])
    assert (outcome.reason, outcome.text, outcome.turns) == (Reason.GOAL, "It is 42.", 2)


@sdk_warnings
@pytest.mark.parametrize(("program", "fault"), FAULTS)
def test_a_failure_is_no_success(program: Program, fault: str, played: Any):
    outcomes = played(program, [program.wire.faults[fault]])
    assert outcomes
    for outcome in outcomes:
        assert (outcome.ok, outcome.reason) == (False, ENDS_FOR[fault])


@sdk_warnings
@pytest.mark.parametrize(("program", "fault"), LATER_FAULTS)
def test_a_failure_after_a_good_turn_is_no_success(program: Program, fault: str, played: Any):
    (outcome,) = played(program, [program.wire.calls(_given(program)), program.wire.faults[fault]])
    assert (outcome.ok, outcome.reason, outcome.turns) == (False, ENDS_FOR[fault], 2)
