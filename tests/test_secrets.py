"""A secret of a call is in nothing that leaves a run; the tool and the model get it."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, SecretStr

import monitor
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished
from monitor.detectors import ToolCallRepetition
from monitor.errors import FinishReason, ToolError
from monitor.events import TurnEnded, event_codec
from monitor.messages import ApprovalAnswer, ApprovalRequest
from monitor.outcome import Turn
from monitor.report.report_page import ReportPage
from monitor.report.run_details import StoryWatcher
from monitor.sessions import InMemorySession
from monitor.sinks import JsonlSink, LogSink, OtelSink
from monitor.testing import ScriptedModel, call
from monitor.tools import ToolAnswer
from monitor.tools.masking import MASK, MaskedChunks, Secrets
from monitor.transcripts.analysis.survey import survey
from monitor.transcripts.source import Source

PASSWORD = "correct horse 7 battery"
KEY = "sk-proj-" + "Ab3_" * 8
SECRETS = (PASSWORD, KEY)


@dataclass
class Case:
    """One place where a call can carry a secret."""

    answers: list[Any]
    tool: Callable[..., Any]
    got: list[Any] = field(default_factory=list)


def cases() -> dict[str, Case]:
    made: dict[str, Case] = {}

    def add(name: str, *answers: Any, does: Callable[[Any], Any] = lambda _: "ok") -> None:
        case = Case([*answers, "done"], print)

        async def act(context: monitor.ToolContext, x: Any = None, password: Any = None) -> Any:
            case.got.append((x, password))
            await context.output(f"working with {KEY}")
            context.progress(1, 2, f"the key is {KEY}")
            made = does(password)
            if isinstance(made, Exception):
                raise made
            return made

        case.tool = act
        made[name] = case

    typed = json.dumps({"x": {"api_key": PASSWORD}, "password": PASSWORD})
    add("under its name", call("act", password=PASSWORD))
    add("within objects and lists", call("act", x=[{"auth": {"access-token": PASSWORD}}]))
    add("as a key of a service", call("act", x=f"curl -H 'Authorization: Bearer {KEY}'"))
    add("in text of JSON", call("act", x=typed))
    add("in a tool that is unknown", call("nothing", password=PASSWORD, x=KEY))
    add("in arguments that do not fit", call("act", password=PASSWORD, y=1))
    add(
        "in arguments as they come",
        [*(ToolCallDelta("c", "act", sign) for sign in typed), ToolCall("c", "act", json.loads(typed))],
    )
    add("in text as it comes", [*(TextDelta(sign) for sign in f"I use {KEY}. "), call("act", x=1)])
    add("in thinking as it comes", [*(ReasoningDelta(sign) for sign in f"I use {KEY}"), call("act", x=1)])
    add(
        "in what the tool says",
        call("act", password=PASSWORD),
        does=lambda password: f"logged in with {password}, {KEY}",
    )
    add("in what the tool returns", call("act"), does=lambda _: {"token": PASSWORD, "more": [KEY]})
    add("in an answer", call("act"), does=lambda _: ToolAnswer(json.dumps({"token": PASSWORD}), status=KEY))
    add("as a secret of pydantic", call("act"), does=lambda _: Login(password=SecretStr(PASSWORD)))
    add("in an error", call("act", password=PASSWORD), does=lambda password: ToolError(f"{password} is wrong, {KEY}"))
    add(
        "in an exception",
        call("act", password=PASSWORD),
        does=lambda password: ValueError(f"{password} is wrong, {KEY}"),
    )
    add("in a loop of calls", *[call("act", password=PASSWORD, x=KEY)] * 6)
    add("in a loop of text", "I log in. " + f"Bearer {KEY} " * 60)
    return made


class Login(BaseModel):
    password: SecretStr


async def yes(request: ApprovalRequest) -> ApprovalAnswer:
    return ApprovalAnswer(id=request.id, decision="approved", reason=f"with {KEY}", arguments=None)


def shown(where: str, text: str) -> None:
    for secret in SECRETS:
        assert secret not in text, f"{where}: ...{text[max(0, text.index(secret) - 300) :][:400]}"


@pytest.mark.asyncio
@pytest.mark.parametrize("place", cases())
async def test_nothing_that_leaves_a_run_has_a_secret(place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    case = cases()[place]
    spans, tracers = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    store = InMemorySession()
    caplog.set_level(logging.DEBUG)
    model = ScriptedModel(*case.answers)
    file = tmp_path / "events.jsonl"
    with JsonlSink(file) as lines, OtelSink(tracer_provider=tracers, content=True) as otel:
        supervisor = monitor.Supervisor(
            model,
            tools=[case.tool],
            calls=monitor.runs.ToolCalls(approval="default", approver=yes),
            detectors=[ToolCallRepetition(loop_at=5), monitor.detectors.ContentRepetition()],
            policy=monitor.StopAtFirstLoop(),
            sinks=[lines, LogSink(), otel],
            session=store,
        )
        async with supervisor.stream("go") as run:
            events = [event async for event in run]
    outcome = run.outcome
    for event in events:
        shown(type(event).__name__, repr(event))
        shown(type(event).__name__, event_codec.dumps(event))
    shown("the file of events", file.read_text())
    shown("the log", caplog.text)
    shown("the spans", "".join(span.to_json() for span in spans.get_finished_spans()))
    shown("the events of the session", repr(await store.events()))
    shown("the outcome", json.dumps({**outcome.to_dict(), "text": "", "emitted": {}, "output": None}))
    if len(model.requests) > 1:  # the model sees its own calls, and the results, as they are
        assert any(secret in repr(model.requests[-1].messages) for secret in SECRETS) or "pydantic" in place


def test_a_report_has_no_secret():
    used = {"name": "login", "args": {"password": PASSWORD, "url": f"https://x?k={KEY}"}}
    said = {"role": "assistant", "text": f"I use {KEY}.", "tool_calls": [used]}
    result = {"role": "tool", "tool_results": [{"name": "login", "text": f"no: {KEY}", "is_error": True}]}
    run = {"id": "r", "messages": [{"role": "user", "text": f"Use {KEY}."}, *[said, result] * 7]}
    page = ReportPage()
    for told in survey(Source.of_bytes("r.jsonl", json.dumps(run).encode()), watcher=StoryWatcher):
        page.add(told)
    text = "".join(page.pieces())
    shown("the report", text)
    assert "login" in text


@pytest.mark.asyncio
async def test_the_tool_gets_its_secrets():
    case = cases()["under its name"]
    await monitor.Supervisor(ScriptedModel(*case.answers), tools=[case.tool]).run("go")
    assert case.got == [(None, PASSWORD)]


# --- a text that comes in pieces

WORDS = st.lists(
    st.sampled_from(
        ["a task", "sk", "sk-learn", KEY, f"Bearer {KEY[8:]}", "Bearer", " ", ", ", "é", "x" * 90, PASSWORD, "corr"]
    ),
    max_size=8,
)


@given(WORDS, st.sampled_from(["", " ", "="]), st.lists(st.integers(1, 30), max_size=60))
def test_however_a_text_is_cut_the_same_is_shown_and_no_secret(words: list[str], joint: str, sizes: list[int]):
    text = joint.join(words)

    def pieces(cuts: list[int]) -> str:
        secrets = Secrets()
        secrets.learn(TurnEnded(0.0, Turn(number=1, tool_calls=(ToolCall("c", "login", {"password": PASSWORD}),))))
        chunks, at, out = MaskedChunks(secrets), 0, []
        for size in [*cuts, len(text) + 1]:
            out += list(chunks.feed(TextDelta(text[at : at + size])))
            at += size
        return "".join(getattr(chunk, "text", "") for chunk in [*out, *chunks.feed(TurnFinished(FinishReason.DONE))])

    cut = pieces(sizes)
    if joint:  # within a word no key begins
        shown("the text", cut)
    assert cut == pieces([])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "x y", 'b"c', "n"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, JSON, st.integers(1, 9))
def test_however_arguments_are_cut_what_is_shown_is_json_without_its_secrets(secret: Any, rest: Any, size: int):
    given_ = json.dumps({"n": rest, "password": secret, "m": [rest, {"api_key": secret}], "z": rest})
    chunks = MaskedChunks(Secrets())
    parts: list[Chunk] = []
    for at in range(0, len(given_), size):
        parts += chunks.feed(ToolCallDelta("c", None, given_[at : at + size]))
    parts += chunks.flush()
    said = json.loads("".join(part.arguments_text for part in parts if isinstance(part, ToolCallDelta)))
    assert said == {"n": rest, "password": MASK, "m": [rest, {"api_key": MASK}], "z": rest}


def test_chunks_without_a_secret_pass_as_they_are():
    chunks = MaskedChunks(Secrets())
    given_: list[Chunk] = [
        TextDelta("The task "),
        TextDelta("is done."),
        ReasoningDelta("Hm."),
        ToolCallDelta("c", "f", '{"a": 1}'),
    ]
    assert [made for chunk in given_ for made in chunks.feed(chunk)] == given_
