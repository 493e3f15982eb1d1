"""Law 2: the same stored chunks and times give the same events, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor
from monitor.chunks import ReasoningDelta, StreamRetried, TextDelta, ToolCallDelta, TurnFinished, UsageReport
from monitor.core.replay.recorded_parts import NotRecorded
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError, FinishReason, SessionDamaged
from monitor.events import DetectionRaised, Nudged, RunStarted, StopDecided, event_codec
from monitor.messages import ApprovalAnswer
from monitor.runs.record.replay import FROM_TURNS, NO_CHUNKS
from monitor.sessions import InMemorySession, SessionReader, SessionStore, SQLiteSession, TurnChunks, exported, imported
from monitor.testing import FakeClock, ScriptedModel, call
from monitor.testing.scripted import Do
from monitor.tools import PendingApprovals, ToolContext
from tests.examples import FEWER_EACH
from tests.runs.context.test_run_context_compaction import WINDOW, Agent, read
from tests.runs.driving import SENTENCE, Reason, look
from tests.runs.test_run_session import Died, Mortal

JUDGED = '{"analysis": "the same again", "confidence": 0.95, "is_stuck": true}'


# ---------------------------------------------------------------------- random runs


class World:
    """A random run: a script for its model, its options, and a clock that moves while it runs."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.clock = FakeClock(start=chance.choice([0.0, 12345.678901234]))
        self.nested = False

    def model(self) -> Any:
        turns = [self.turn() for _ in range(self.chance.randint(1, 8))]
        return Agent(*turns, *[self.ending() for _ in range(30)])

    def pass_time(self) -> Do:
        seconds = self.chance.choice([0.001, 0.25, 1 / 3, 2.0, 11.0])
        return Do(lambda: self.clock.advance(seconds))

    def turn(self) -> Any:
        chance = self.chance
        if chance.random() < 0.12:
            return [
                TextDelta("half of "),
                self.pass_time(),
                chance.choice([ConnectionError("gone"), ValueError("odd")]),
            ]
        pieces: list[Any] = []
        for _ in range(chance.randint(1, 6)):
            pieces += self.piece()
            if chance.random() < 0.4:
                pieces.append(self.pass_time())
        if chance.random() < 0.3:
            pieces.append(UsageReport(chance.randint(0, 900), chance.randint(0, 90), None, None, None))
        if chance.random() < 0.1:
            pieces.append(TurnFinished(chance.choice([FinishReason.LENGTH, FinishReason.MALFORMED])))
        return pieces

    def piece(self) -> list[Any]:
        chance = self.chance
        match chance.choice(["text", "text", "loop", "thought", "call", "call", "emit", "delta", "retried", "flood"]):
            case "text":
                return [TextDelta(word) for word in ("I ", "look \ud800", f"at {chance.randint(0, 9)}. ")]
            case "loop":
                return [TextDelta(SENTENCE)] * chance.randint(3, 40)
            case "thought":
                return [ReasoningDelta("Hm, "), ReasoningDelta("again.", "c2ln")]
            case "call":
                name = chance.choice(["look", "look", "read", "fail", "dig", "sub", "missing"])
                given = {"n": chance.choice([3, 40_000])} if name == "read" else {"q": chance.choice("ab")}
                return [call(name, **({"task": "dig"} if name == "sub" else given))]
            case "emit":
                return [self.emit()]
            case "delta":
                return [ToolCallDelta("c9", "look", '{"q": '), ToolCallDelta("c9", None, '"b"}')]
            case "retried":
                return [StreamRetried("the SDK tries again")]
            case _:
                return [TextDelta("word " * chance.choice([2_000, 9_000]))]

    def emit(self) -> Any:
        value = self.chance.choice(["yes", 7, "", None])
        return call("emit_value", name=self.chance.choice(["answer", "score", "nothing"]), value=value)

    def ending(self) -> Any:
        whole = [call("emit_value", name="answer", value="yes"), call("emit_value", name="score", value=0.5)]
        plan = [call("update_plan", step=n, status="completed") for n in (1, 2)]
        return self.chance.choice(["Done.", whole, plan, [call("terminate", status="failure", reason="no")]])

    def options(self) -> dict[str, Any]:
        chance = self.chance
        return {
            "clock": self.clock,
            "tools": [look, read, self.fail, self.dig, self.child()],
            "outputs": chance.choice([None, {"answer": str, "score": float}]),
            "plan": chance.choice([None, None, monitor.Plan(["Look.", "Tell."])]),
            "stop_when": self.limits(),
            "budget": chance.choice([None, monitor.Budget(tokens=3_000), monitor.Budget(usd=0.01)]),
            "prices": monitor.Price(1.0, 10.0),
            "policy": chance.choice(
                [None, monitor.StopAtFirstLoop(), monitor.policy.ObserveOnly(), monitor.Ladder(max_nudges=1)]
            ),
            "detectors": chance.choice(
                [monitor.default_detectors(), [monitor.ToolCallRepetition(loop_at=2, suspect_at=2)]]
            ),
            "judge": chance.choice([None, None, monitor.LoopJudge(ScriptedModel(*[JUDGED] * 50), first_turn=1)]),
            "window": chance.choice([WINDOW, 20_000, None]),
            "requests": monitor.runs.Requests(
                retries=monitor.Retries(2, first_delay_s=0.0),
                max_nudges=chance.choice([0, 2]),
                looped_text=chance.choice(["trim", "keep"]),
                keep_text_chars=chance.choice([50, 1_000_000]),
            ),
            "last_turn": chance.choice([None, monitor.LastTurn(30)]),
        }

    def limits(self) -> Any:
        turns, calls, silence = monitor.MaxTurns(6), monitor.MaxToolCalls(5), monitor.IdleTimeout(10)
        both = (monitor.Timeout(20) & monitor.MaxToolCalls(2)) | turns
        return self.chance.choice([turns, turns | calls, turns | silence, both, monitor.TokenLimit(2_000) | turns])

    def child(self) -> Any:
        inner = ScriptedModel(*[[TextDelta("dug "), self.pass_time(), call("look", q="a")], "dug"] * 40)
        return monitor.Supervisor(inner, tools=[look], clock=self.clock, prices=monitor.Price(1.0, 10.0)).as_tool(
            name="sub", description="Dig."
        )

    async def fail(self, q: str) -> str:
        """Fail."""
        self.clock.advance(0.5)
        raise RuntimeError(f"{q} failed")

    async def dig(self, q: str, context: ToolContext) -> str:
        """Dig, and ask a person where."""
        with context.run.paused():
            self.clock.advance(7.0)
        await context.output(f"dug {q}")
        return f"dug {q}"


async def run_in(store: SessionStore, chance: Random) -> monitor.Outcome:
    world, person = World(chance), Random(chance.randint(0, 1_000))
    supervisor = monitor.Supervisor(world.model(), session=store, **world.options())
    async with supervisor.stream("do it") as run:
        async for event in run:
            if chance.random() < 0.005:
                run.abort("enough")
            if person.random() < 0.05:
                said = person.choice(["look at c", "3 times", "wait"])
                await run.steer(said, now=person.random() < 0.5, data=person.random() < 0.2)
            if person.random() < 0.02:
                await run.follow_up("and then c", by="Ada")
            if isinstance(event, monitor.events.TurnStarted) and chance.random() < 0.02:
                break
    return run.outcome


async def assert_law(store: SessionStore) -> None:
    """Every run of the session is decided again as it was."""
    for run in await store.runs():
        replayed = await monitor.replay(store, run.id)
        stored = [one.event for one in await store.events(run.id)]
        assert [*map(event_codec.dumps, replayed.events)] == [*map(event_codec.dumps, stored)]
        assert (replayed.exact, replayed.as_stored, replayed.departed, replayed.remark) == (True, True, None, None)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.feature("AC-01")
@FEWER_EACH
@given(chance=st.randoms(use_true_random=False))
def test_a_run_is_decided_again_byte_for_byte(backend: str, chance: Random):
    async def law() -> None:
        store = InMemorySession(chunks=True)
        await run_in(store, chance)
        await assert_law(store)

    anyio.run(law, backend=backend)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.anyio
async def test_a_file_keeps_what_a_replay_needs_also_through_an_export(tmp_path: Path, seed: int):
    path = tmp_path / "a.session"
    async with SQLiteSession(path, chunks=True) as store:
        await run_in(store, Random(seed))
        await assert_law(store)
    with SessionReader(path) as session:
        assert (await monitor.replay(session)).as_stored
        imported(exported(session), tmp_path / "b.session")
    with SessionReader(tmp_path / "b.session") as copy:
        assert (await monitor.replay(copy)).as_stored


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.anyio
async def test_a_run_whose_process_died_is_decided_again_up_to_there_and_after_it_was_resumed(steps: int):
    store = InMemorySession(chunks=True)
    answers = [call("look", q="a"), [call("look", q="b"), "I look."], call("emit_value", name="answer", value="yes")]
    options: Any = {"tools": [look], "outputs": {"answer": str}, "plan": monitor.Plan(["Look."])}
    done = call("update_plan", step=1, status="completed")
    mortal: Any = Mortal(store, steps, after=steps % 2 == 0)
    dying = monitor.Supervisor(ScriptedModel(*answers, done), session=mortal, **options)
    with pytest.raises(Died):
        await dying.run("do it")
    if not await store.runs():
        return
    await assert_law(store)
    other = ScriptedModel(call("emit_value", name="answer", value="yes"), done)
    outcome = await monitor.Supervisor(other, session=store, **options).resume()
    assert outcome.ok
    await assert_law(store)
    replayed = await monitor.replay(store)
    assert [type(event) for event in replayed.events].count(RunStarted) == 2
    assert replayed.outcome is not None
    assert replayed.outcome.ok


@pytest.mark.anyio
async def test_a_life_without_chunks_is_shown_as_it_was_stored():
    store = InMemorySession(chunks=True)
    pending = PendingApprovals()
    waits = monitor.Supervisor(
        ScriptedModel(call("look", q="a")),
        tools=[look],
        session=store,
        calls=monitor.runs.ToolCalls(approval="default", approver=pending),
    )
    assert (await waits.run("do it")).reason is Reason.PAUSED
    store.keeps_chunks = False
    (asked,) = await store.approvals(only_open=True)
    knows = PendingApprovals(
        requests=[asked.request], answers=[ApprovalAnswer(id=asked.request.id, decision="approved")]
    )
    assert (
        await monitor.Supervisor(
            ScriptedModel("Done."),
            tools=[look],
            session=store,
            calls=monitor.runs.ToolCalls(approval="default", approver=knows),
        ).resume()
    ).ok
    replayed = await monitor.replay(store)
    assert (replayed.exact, replayed.as_stored, replayed.remark) == (False, True, NO_CHUNKS)


# ---------------------------------------------------------------------- other parts


async def says_instead(store: SessionStore, rows: Sequence[TurnChunks], monkeypatch: pytest.MonkeyPatch) -> None:
    """The session answers with these chunks."""

    async def chunks(run: str | None = None) -> tuple[TurnChunks, ...]:
        return tuple(rows)

    monkeypatch.setattr(store, "chunks", chunks)


async def looping(store: SessionStore, **options: Any) -> monitor.Outcome:
    turns = [call("look", q="a") for _ in range(4)]
    supervisor = monitor.Supervisor(
        ScriptedModel(*turns, [TextDelta(SENTENCE)] * 4, "Done."), tools=[look], session=store, **options
    )
    return await supervisor.run("do it")


@pytest.mark.parametrize("chunks", [True, False])
@pytest.mark.anyio
async def test_another_detector_says_what_it_would_have_found(chunks: bool):
    store = InMemorySession(chunks=chunks)
    assert (await looping(store, detectors=None, outputs=None)).ok
    strict = await monitor.replay(
        store, detectors=[monitor.ToolCallRepetition(loop_at=3)], policy=monitor.StopAtFirstLoop()
    )
    assert strict.outcome is not None
    assert (strict.outcome.reason, strict.outcome.turns) == (Reason.LOOP_DETECTED, 3)
    assert strict.departed == strict.outcome.detail
    assert not strict.as_stored
    assert (strict.exact, strict.remark) == (chunks, None if chunks else FROM_TURNS)
    watching = await monitor.replay(
        store, detectors=[monitor.ToolCallRepetition(loop_at=3)], policy=monitor.policy.ObserveOnly()
    )
    assert watching.departed is None
    assert watching.outcome is not None
    assert watching.outcome.ok
    found = [event.detection for event in watching.events if isinstance(event, DetectionRaised)]
    assert [(one.level, one.count) for one in found] == [("suspect", 3), ("loop", 3), ("loop", 4)][-2:]


@pytest.mark.parametrize("chunks", [True, False])
@pytest.mark.anyio
async def test_another_limit_ends_the_run_where_it_would_have(chunks: bool):
    store = InMemorySession(chunks=chunks)
    assert (await looping(store, detectors=None)).ok
    replayed = await monitor.replay(store, stop_when=monitor.MaxTurns(2))
    assert replayed.outcome is not None
    assert (replayed.outcome.reason, replayed.outcome.turns) == (Reason.MAX_TURNS, 2)
    assert isinstance(replayed.events[-2], StopDecided)


@pytest.mark.anyio
async def test_without_the_part_that_ended_it_a_run_ends_with_its_record():
    store = InMemorySession(chunks=True)
    stopped = await looping(store, policy=monitor.StopAtFirstLoop(), detectors=[monitor.ToolCallRepetition(loop_at=3)])
    assert stopped.reason is Reason.LOOP_DETECTED
    replayed = await monitor.replay(store, detectors=[])
    assert replayed.outcome is not None
    assert replayed.outcome.reason is Reason.CLOSED_BY_CALLER
    assert replayed.departed is not None
    assert replayed.departed.startswith("the recorded run was ended here: loop_detected, look was called 3 times")


@pytest.mark.anyio
async def test_a_nudge_that_was_not_given_is_shown_and_one_that_was_given_is_not_where_none_follows():
    store = InMemorySession(chunks=True)
    await looping(
        store, detectors=[monitor.ToolCallRepetition(loop_at=4, suspect_at=3)], policy=monitor.policy.ObserveOnly()
    )
    nudged = await monitor.replay(store, policy=monitor.Ladder())
    assert [type(event) for event in nudged.events].count(Nudged) == 1
    silent = InMemorySession(chunks=True)
    await looping(silent, detectors=[monitor.ToolCallRepetition(loop_at=4, suspect_at=3)])
    assert not any(isinstance(one, Nudged) for one in (await monitor.replay(silent, detectors=[])).events)


class Mine:
    """A detector of a program."""

    name = "mine"

    def observe(self, chunk: Any) -> Any:
        return NOTHING

    def reset(self) -> None:
        """Nothing to forget."""

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Any) -> None:
        """No state."""


@pytest.mark.anyio
async def test_a_part_that_is_python_code_must_be_given_again():
    store = InMemorySession(chunks=True)
    never = monitor.Predicate(lambda state: state.turns > 99, name="never")
    await looping(store, detectors=[Mine()], stop_when=never)
    with pytest.raises(NotRecorded, match="the limit never is Python code, which is not on record: give stop_when="):
        await monitor.replay(store)
    with pytest.raises(NotRecorded, match="the detector mine is Python code, which is not on record: give detectors="):
        await monitor.replay(store, stop_when=never)
    assert (await monitor.replay(store, stop_when=never, detectors=[Mine()])).as_stored


# ---------------------------------------------------------------------- what is stored


@pytest.mark.anyio
async def test_without_chunks_the_stored_events_are_the_replay():
    store = InMemorySession()
    await looping(store)
    assert await store.chunks() == ()
    replayed = await monitor.replay(store)
    assert (replayed.exact, replayed.as_stored, replayed.remark) == (False, True, NO_CHUNKS)
    assert [*replayed.events] == [one.event for one in await store.events()]


@pytest.mark.anyio
async def test_chunks_cost_no_step_of_their_own(tmp_path: Path):
    commits = []
    for chunks in (False, True):
        async with SQLiteSession(tmp_path / f"{chunks}.session", chunks=chunks) as store:
            await looping(store, detectors=[])
            commits.append(store.commits)
    assert commits[0] == commits[1]


@pytest.mark.anyio
async def test_a_session_without_such_a_run_is_refused():
    store = InMemorySession(chunks=True)
    with pytest.raises(ConfigError, match="this session has no run"):
        await monitor.replay(store)
    await looping(store)
    with pytest.raises(ConfigError, match="this session has no run x"):
        await monitor.replay(store, "x")


@pytest.mark.anyio
async def test_a_changed_chunk_changes_the_replay(monkeypatch: pytest.MonkeyPatch):
    store = InMemorySession(chunks=True)
    await looping(store)

    def changed(row: TurnChunks) -> TurnChunks:
        pieces = ((at, TextDelta("x") if isinstance(one, TextDelta) else one) for at, one in row.chunks)
        return replace(row, chunks=tuple(pieces))

    await says_instead(store, [changed(row) for row in await store.chunks()], monkeypatch)
    assert not (await monitor.replay(store)).as_stored


@pytest.mark.anyio
async def test_a_chunk_that_no_core_can_read_ends_the_run_and_is_not_stored():
    store = InMemorySession(chunks=True)
    garbage: Any = TextDelta(5)  # type: ignore[arg-type]
    outcome = await monitor.Supervisor(ScriptedModel([TextDelta("a"), garbage]), session=store).run("do it")
    assert outcome.reason is Reason.INVALID_STREAM
    await assert_law(store)


@pytest.mark.parametrize(("row", "what", "harm"), [
    (0, "begin", {"facts": {"parts": {}}}),
    (-1, "terminate", {"facts": {}}),
    (-1, "terminate", {"what": "dance"}),
])  # fmt: skip
@pytest.mark.anyio
async def test_inputs_that_no_core_understands_are_a_damaged_session(
    row: int, what: str, harm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    store = InMemorySession(chunks=True)
    await looping(store)
    rows = [*await store.chunks()]
    harmed = tuple({**one, **harm} if one["what"] == what else one for one in rows[row].inputs)
    assert harmed != rows[row].inputs
    rows[row] = replace(rows[row], inputs=harmed)
    await says_instead(store, rows, monkeypatch)
    with pytest.raises(SessionDamaged, match="the stored chunks of this run cannot be read"):
        await monitor.replay(store)
