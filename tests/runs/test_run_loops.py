"""What follows from a loop: the nudge, the tool that is withdrawn, the last turn, the end; and what
of it goes back to the model.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

import monitor
from monitor._util.hashing import identity
from monitor.messages import AssistantMessage, Reasoning, Text
from monitor.testing import ScriptedModel, call
from tests.runs.driving import SENTENCE, Drive, Reason, drive, look, text_of_user

pytestmark = pytest.mark.anyio

INTRO = "Let me think about what to do with it. "
WORDS = SENTENCE.rstrip(". ")
LOOP = [INTRO, *[SENTENCE] * 60]
LOOPED = ["TurnStarted", "DetectionRaised", "DetectionRaised"]
"""A turn in whose text a loop is suspected, and is sure one copy later."""
TRAIL = (
    monitor.events.DetectionRaised,
    monitor.events.Nudged,
    monitor.events.ToolWithdrawn,
    monitor.events.LastTurnStarted,
    monitor.events.StopDecided,
    monitor.events.TurnStarted,
)


def same(request: monitor.models.ModelRequest) -> monitor.chunks.ToolCall:
    return call("look", q="x")


def prefixes_hold(requests: list[monitor.models.ModelRequest]) -> bool:
    return all(
        after.messages[: len(before.messages)] == before.messages and len(after.messages) > len(before.messages)
        for before, after in itertools.pairwise(requests)
    )


# --- switched off


@pytest.mark.feature("GL-07")
async def test_detection_can_be_switched_off_for_a_run():
    run = await drive(*[call("look", q="x")] * 12, "".join(LOOP), tools=[look], detectors=None)
    assert run.outcome.reason is Reason.GOAL
    assert run.of(monitor.events.DetectionRaised) == []
    assert run.of(monitor.events.RunStarted)[0].detectors == ()


@pytest.mark.feature("GL-07")
async def test_detection_can_be_switched_off_for_a_tool():
    detectors = [monitor.ToolCallRepetition(tools={"look": monitor.ToolPolicy(exempt=True)})]

    async def other(q: str) -> str:
        return "the same"

    run = await drive(*[call("look", q="x")] * 12, "Done.", tools=[look, other], detectors=detectors)
    assert run.outcome.reason is Reason.GOAL
    assert run.of(monitor.events.DetectionRaised) == []
    run = await drive(*[call("other", q="x")] * 4, "Done.", tools=[look, other], detectors=detectors)
    assert run.of(monitor.events.DetectionRaised)


# --- one chance, then the end


@pytest.mark.feature("GL-08")
async def test_the_first_detection_of_a_text_loop_cuts_the_stream_and_gives_one_chance_with_feedback_that_names_it():
    run = await drive(LOOP, "I am sorry: it is noon.")
    assert (run.outcome.reason, run.outcome.text) == (Reason.GOAL, "I am sorry: it is noon.")
    stream = run.model.streams[0]
    assert stream.closed
    assert stream.pulled < 20
    told = run.told(1)
    assert "You are repeating yourself" in told
    assert "check the configuration file again to be sure" in told
    assert run.kinds(*TRAIL) == [*LOOPED, "Nudged", "TurnStarted", "StopDecided"]


@pytest.mark.feature("GL-08")
@pytest.mark.parametrize("chars", [1, 7, 64, 300, 10_000])
async def test_a_text_loop_gets_the_same_one_chance_however_the_provider_cuts_the_text(chars: int):
    """Also where a single chunk holds the suspicion, the loop, and fifty copies more."""
    text = "".join(LOOP)
    pieces = [text[start : start + chars] for start in range(0, len(text), chars)]
    run = await drive(pieces, call("look", q="x"), "It is noon.", tools=[look])
    assert (run.outcome.reason, run.outcome.recovered_from) == (Reason.GOAL, None)
    assert run.kinds(*TRAIL) == [*LOOPED, "Nudged", "TurnStarted", "TurnStarted", "StopDecided"]
    assert run.told(1).count("You are repeating yourself") == 1
    assert run.offered(1) == ["terminate", "look"]


@pytest.mark.feature("GL-08")
async def test_the_same_loop_again_gets_a_last_turn_and_then_the_run_ends():
    run = await drive(LOOP, LOOP, LOOP)
    outcome = run.outcome
    assert (outcome.reason, outcome.ok) == (Reason.LOOP_DETECTED, False)
    assert isinstance(outcome.evidence, monitor.verdicts.Detection)
    assert outcome.source == outcome.evidence.detector
    assert all(stream.closed and stream.pulled < 20 for stream in run.model.streams)
    assert run.kinds(*TRAIL) == [
        *[*LOOPED, "Nudged"],
        *[*LOOPED, "LastTurnStarted"],
        *[*LOOPED, "StopDecided"],
    ]


@pytest.mark.feature("GL-08")
async def test_without_a_last_turn_the_second_detection_ends_the_run():
    run = await drive(LOOP, LOOP, last_turn=None)
    assert (run.outcome.reason, len(run.requests)) == (Reason.LOOP_DETECTED, 2)
    assert run.kinds(*TRAIL) == [*LOOPED, "Nudged", *LOOPED, "StopDecided"]


@pytest.mark.feature("GL-08")
async def test_the_last_turn_for_a_loop_has_the_time_and_the_tools_of_any_last_turn_and_may_reach_the_goal():
    emit = call("emit_value", name="a", value=1)
    run = await drive(LOOP, LOOP, emit, outputs={"a": int}, tools=[look], last_turn=monitor.LastTurn(7))
    assert (run.outcome.reason, run.outcome.recovered_from) == (Reason.GOAL, Reason.LOOP_DETECTED)
    assert run.of(monitor.events.LastTurnStarted)[0].seconds == 7
    assert run.offered(2) == ["emit_value", "terminate"]
    assert "emit what you have for a now, with emit_value" in run.told(2)


@pytest.mark.feature("GL-08")
async def test_a_call_that_is_made_again_and_again_climbs_the_ladder():
    async def other() -> None:
        """Never called."""

    run = await drive(same, tools=[look, other])
    assert run.outcome.reason is Reason.LOOP_DETECTED
    assert run.kinds(
        monitor.events.Nudged, monitor.events.ToolWithdrawn, monitor.events.LastTurnStarted, monitor.events.StopDecided
    ) == [
        "Nudged",
        "ToolWithdrawn",
        "LastTurnStarted",
        "StopDecided",
    ]
    assert len(run.requests) < 12


@pytest.mark.feature("GL-08")
async def test_the_only_tool_of_a_run_is_not_withdrawn_and_the_model_is_nudged_again():
    run = await drive(same, tools=[look])
    assert run.outcome.reason is Reason.LOOP_DETECTED
    assert run.kinds(*TRAIL[1:-1]) == ["Nudged", "Nudged", "LastTurnStarted", "StopDecided"]
    assert all("not available" not in nudge.text for nudge in run.of(monitor.events.Nudged))


async def test_a_withdrawn_tool_is_not_offered_any_more_and_a_call_of_it_is_answered_with_a_veto():
    ran = []

    async def poll(q: str) -> str:
        ran.append(q)
        return "the same"

    run = await drive(lambda request: call("poll", q="x"), tools=[poll, look])
    (withdrawn,) = run.of(monitor.events.ToolWithdrawn)
    assert withdrawn.tool == "poll"
    after = [number for number in range(len(run.requests)) if "poll" not in run.offered(number)]
    assert after
    assert after == list(range(after[0], len(run.requests)))
    assert withdrawn.text in text_of_user(run.requests[after[0]].messages[-1])
    assert "look" in run.offered(after[0])
    assert len(ran) == after[0] - 1  # the call before was refused
    (result,) = run.results(after[0])
    assert result.is_error
    assert result.text.startswith("[agent-monitor]")
    assert "poll is not available any more" in result.text


@pytest.mark.feature("US-01")
async def test_a_repeated_call_is_refused_before_its_tool_is_withdrawn():
    ran = []

    async def fetch(q: str) -> str:
        ran.append(q)
        return "the same" if q == "x" else "A page about lighthouses on the northern coast."

    run = await drive(*[call("fetch", q="x")] * 5, call("fetch", q="y"), "Done.", tools=[fetch, look])
    assert run.outcome.reason is Reason.GOAL
    assert ran == ["x"] * 4 + ["y"]
    refused = run.of(monitor.events.ToolFinished)[4].result
    assert (refused.is_error, refused.vetoed) == (True, True)
    assert refused.text.startswith("[agent-monitor] This call was not carried out. You are repeating yourself")
    assert isinstance(run.requests[5].messages[-1], AssistantMessage)
    assert run.requests[5].messages[-1].results[0].text == refused.text
    # the words stand in the place of the result, and no message repeats them
    assert run.kinds(monitor.events.Nudged, monitor.events.ToolWithdrawn) == ["Nudged"]


async def test_a_model_that_heeds_the_nudge_goes_on_with_the_tool():
    run = await drive(*[call("look", q="x")] * 3, *[call("look", q=str(n)) for n in range(8)], "Done.", tools=[look])
    assert run.outcome.reason is Reason.GOAL
    assert run.kinds(monitor.events.Nudged, monitor.events.ToolWithdrawn) == ["Nudged"]


async def test_a_suspicion_about_calls_is_told_after_their_results_and_the_calls_are_carried_out():
    run = await drive(*[call("look", q="x")] * 3, "Done.", tools=[look])
    assert [len(run.of(kind)) for kind in (monitor.events.ToolStarted, monitor.events.ToolFinished)] == [3, 3]
    assert isinstance(run.requests[3].messages[-2], AssistantMessage)
    assert run.requests[3].messages[-2].results[0].text == "found x"
    assert "You are repeating yourself" in run.told(3)


@pytest.mark.parametrize("policy", [monitor.StopAtFirstLoop(), monitor.policy.ObserveOnly()])
async def test_another_policy_decides_otherwise(policy: monitor.policy.Policy):
    run = await drive(["".join(LOOP)], policy=policy)
    assert run.outcome.reason is (Reason.LOOP_DETECTED if isinstance(policy, monitor.StopAtFirstLoop) else Reason.GOAL)
    assert run.of(monitor.events.DetectionRaised)
    assert run.of(monitor.events.Nudged) == []


async def test_a_loop_that_the_provider_saw_ends_the_run():
    run = await drive(["again and", monitor.chunks.TurnFinished(monitor.FinishReason.REPETITION, "REPETITION")])
    assert (run.outcome.reason, run.outcome.source) == (Reason.LOOP_DETECTED, "provider")


# --- the nudge in the history


async def test_a_nudge_is_one_user_message_at_the_end_and_the_prefix_stays():
    answers = [
        *[call("look", q="x")] * 3,
        LOOP,
        call("emit_value", name="a", value=1),
        "No.",
        call("emit_value", name="b", value=1),
    ]
    run = await drive(*answers, tools=[look], outputs={"a": int, "b": int})
    assert run.outcome.reason is Reason.GOAL
    assert prefixes_hold(run.requests)
    assert len({request.instructions for request in run.requests}) == 1
    for event in run.of(monitor.events.Nudged):
        said = [message for message in run.run.history if message == monitor.UserMessage((Text(event.text),))]
        assert len(said) == 1
    roles = [type(message) for message in run.run.history]
    assert all(pair != (monitor.UserMessage, monitor.UserMessage) for pair in itertools.pairwise(roles))


async def test_what_is_to_be_said_at_the_same_time_is_one_message():
    """A suspicion about the calls of the turn, and a plan whose next step is due."""
    plan = monitor.Plan(["one", "two"])
    looking = [call("look", q="x") for _ in range(3)]
    done = [call("update_plan", step=1, status="completed"), call("update_plan", step=2, status="completed")]
    run = await drive([*looking, done[0]], "next", done[1], "Summary.", tools=[look], plan=plan)
    roles = [type(message) for message in run.run.history[2:]]
    assert all(pair != (monitor.UserMessage, monitor.UserMessage) for pair in itertools.pairwise(roles))


# --- text that looped


def replies(run: Drive) -> list[AssistantMessage]:
    return [message for message in run.requests[1].messages if isinstance(message, AssistantMessage)]


MARKER = re.compile(r"\[([\d,]+) repeated characters removed, xxh3 ([0-9a-f]{16})\]")


def cut_at(run: Drive) -> tuple[str, monitor.verdicts.Detection]:
    """All that came, and the loop in it."""
    (turn,) = [event.turn for event in run.of(monitor.events.TurnEnded) if event.turn.number == 1]
    detection = next(
        event.detection for event in run.of(monitor.events.DetectionRaised) if event.detection.level == "loop"
    )
    return turn.text, detection


async def test_by_default_its_copies_are_trimmed_to_a_marker_with_length_and_hash():
    run = await drive(LOOP, "It is noon.")
    came, detection = cut_at(run)
    (reply,) = replies(run)
    kept, marker = reply.content
    assert isinstance(kept, Text)
    assert isinstance(marker, Text)
    start = detection.evidence.offsets[1]
    assert kept.text == came[:start]
    assert kept.text.startswith(INTRO)
    assert kept.text.count(WORDS) == 1
    found = MARKER.fullmatch(marker.text)
    assert found
    assert int(found[1].replace(",", "")) == len(came) - start
    assert found[2] == identity(came[start:])
    (turn,) = [event.turn for event in run.of(monitor.events.TurnEnded) if event.turn.number == 1]
    assert turn.loop_offset == start


@pytest.mark.parametrize("looped", ["keep", "discard"])
async def test_or_it_is_kept_or_discarded_whole(looped: Any):
    run = await drive(LOOP, "It is noon.", requests=monitor.runs.Requests(looped_text=looped))
    came, _ = cut_at(run)
    (reply,) = replies(run)
    (part,) = reply.content
    assert isinstance(part, Text)
    if looped == "keep":
        assert part.text == came
    else:
        found = MARKER.fullmatch(part.text)
        assert found
        assert found[2] == identity(came)
        assert INTRO not in part.text


async def test_the_offset_of_a_loop_in_a_later_turn_counts_from_where_that_turn_began():
    run = await drive(["First I look. ", call("look", q="x")], LOOP, "It is noon.", tools=[look])
    reply = run.requests[2].messages[2]
    assert isinstance(reply, AssistantMessage)
    kept, marker = reply.content
    assert isinstance(kept, Text)
    assert isinstance(marker, Text)
    assert kept.text.startswith(INTRO)
    assert kept.text.count(WORDS) == 1
    assert MARKER.fullmatch(marker.text)


async def test_thinking_that_loops_is_trimmed_too_and_loses_the_signature_of_what_it_was():
    thoughts = [monitor.chunks.ReasoningDelta(piece) for piece in LOOP]
    run = await drive(["Visible. ", *thoughts, monitor.chunks.ReasoningDelta("", "c2ln")], "It is noon.")
    assert run.model.streams[0].closed
    (reply,) = replies(run)
    visible, kept, marker = reply.content
    assert visible == Text("Visible. ")
    assert isinstance(kept, Reasoning)
    assert isinstance(marker, Reasoning)
    assert kept.text.startswith(INTRO)
    assert kept.signature is None
    assert MARKER.fullmatch(marker.text)


async def test_a_call_before_the_loop_stays_and_is_answered_as_not_carried_out():
    ran: list[str] = []

    async def send(q: str) -> str:
        ran.append(q)
        return "sent"

    run = await drive(["So. ", call("send", q="x"), *[SENTENCE] * 60], "It is noon.", tools=[send])
    assert ran == []
    (reply,) = replies(run)
    assert [part.name for part in reply.content if isinstance(part, monitor.chunks.ToolCall)] == ["send"]
    assert [(result.is_error, result.text[:15]) for result in reply.results] == [(True, "[agent-monitor]")]


async def test_a_loop_that_is_only_observed_stays_in_the_history_as_it_is_if_it_is_to_be_kept():
    run = await drive(
        ["".join(LOOP), call("look", q="x")],
        "Done.",
        tools=[look],
        policy=monitor.policy.ObserveOnly(),
        requests=monitor.runs.Requests(looped_text="keep"),
    )
    (reply,) = replies(run)
    assert reply.content[0] == Text("".join(LOOP))


def test_another_word_for_it_is_refused():
    wrong: Any = "drop"
    with pytest.raises(monitor.ConfigError, match="looped_text"):
        monitor.Supervisor(ScriptedModel("x"), requests=monitor.runs.Requests(looped_text=wrong))
