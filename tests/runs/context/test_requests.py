"""Every request of a run is as its provider takes it: of the history that was given, of what the
model says, after every edit. Law 8.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import monitor
from monitor import AssistantMessage
from monitor.adapters import to_form
from monitor.chunks import ToolCall, ToolResult
from monitor.context import Form, HistoryEdit, RawMessage, read_history, repair, validate
from monitor.events import HistoryRepaired
from monitor.messages import Reasoning, RepairKind, Text
from monitor.runs.context.requests import ValidHistory, form_of, take_in
from monitor.testing import ScriptedModel, call
from tests.context.dirty import ARGUMENTS, IDS, NAMES, SIGNATURES, TEXTS, histories
from tests.context.talk import IMAGE, ran, said, user
from tests.context.wire import FORMS
from tests.runs.driving import Drive, drive, look

BROKEN: list[RawMessage | monitor.messages.Message] = [
    user("hi"),
    RawMessage("assistant", (ToolCall("1", "look", {}), ToolCall("2", "look", {}))),
    user("hello?"),
    RawMessage("tool", (ToolResult("1", "look", "seen"), ToolResult("9", "look", "lost"))),
    said("Done."),
]


def formed(form: Form | None, *answers: Any) -> ScriptedModel:
    """A scripted model that sends in a known form."""
    model = ScriptedModel(*answers)
    if form is not None:
        model.form = form  # type: ignore[attr-defined]  # optional, as of any model
    return model


def kinds(run: Drive) -> list[list[str]]:
    """What was done, by event."""
    return [[repair.kind.value for repair in event.repairs] for event in run.of(HistoryRepaired)]


def first_words(run: Drive) -> str:
    """Of the instructions."""
    return (run.requests[0].instructions or "").partition("\n")[0]


# --- what was given


@pytest.mark.anyio
async def test_a_broken_history_is_put_in_order_before_the_first_call_and_told_once():
    run = await drive([call("look", q="x")], "done", history=BROKEN, tools=[look])
    assert kinds(run) == [["result_added", "result_moved", "result_orphaned"]]
    (told,) = run.of(HistoryRepaired)
    assert (told.turn, told.problems) == (0, ())
    assert run.kinds(monitor.events.RunStarted, HistoryRepaired, monitor.events.TurnStarted)[:3] == [
        "RunStarted",
        "HistoryRepaired",
        "TurnStarted",
    ]
    assert run.requests[0].messages == (*repair(tuple(BROKEN))[0], user("do it"))


@pytest.mark.anyio
async def test_each_run_of_a_supervisor_tells_of_it():
    supervisor = monitor.Supervisor(ScriptedModel("one", "two"), history=BROKEN)
    for _ in range(2):
        async with supervisor.stream("go") as run:
            assert [type(event) for event in [event async for event in run]].count(HistoryRepaired) == 1


@pytest.mark.anyio
async def test_a_history_in_order_is_sent_as_it_is_and_nothing_is_said():
    before = (user("hi", IMAGE), ran("seen"), said("Done."))
    run = await drive([call("look", q="x")], "done", history=before, tools=[look])
    assert all(one is other for one, other in zip(run.requests[0].messages, before, strict=False))
    assert run.of(HistoryRepaired) == []


@pytest.mark.anyio
async def test_it_is_repaired_by_the_rules_of_the_model_s_form():
    history = [
        user("hi"),
        AssistantMessage((ToolCall("call|1", "fs.read", {}),), (ToolResult("call|1", "fs.read", "x"),)),
    ]
    free = await Drive(model=formed("gemini", "done"), history=history).go()
    strict = await Drive(model=formed("anthropic", "done"), history=history).go()
    assert kinds(free) == []
    assert kinds(strict) == [["id_rewritten", "name_rewritten"]]
    assert kinds(await drive("done", history=history)) == [["id_rewritten", "name_rewritten"]]


@pytest.mark.anyio
async def test_system_messages_at_the_head_are_the_instructions_unless_the_run_has_its_own():
    history = [RawMessage("system", (Text("Be brief."),)), user("hi"), said("Hello.")]
    run = await drive("done", history=history)
    assert (first_words(run), kinds(run)) == ("Be brief.", [])
    run = await drive("done", history=history, instructions="Be long.")
    assert (first_words(run), kinds(run)) == ("Be long.", [["part_dropped"]])
    run = await drive("done", history=history, instructions="Be brief.")
    assert (first_words(run), kinds(run)) == ("Be brief.", [])


@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS)
async def test_a_history_that_was_read_from_a_provider_s_words_goes_out_in_those_of_another(form: Form):
    stored = [
        {"role": "user", "content": "Which files?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "call|1", "type": "function", "function": {"name": "ls", "arguments": "{"}}],
        },
    ]
    run = await Drive(model=formed(form, "done"), history=list(read_history("openai-chat", stored))).go()
    assert validate(form, to_form(form, run.requests[0].messages)) == []
    assert "result_added" in kinds(run)[0]


@pytest.mark.parametrize("history", [None, "hi", ["hi"], [{"role": "user"}], 3])
def test_what_is_no_list_of_messages_is_refused_at_once(history: Any):
    with pytest.raises(monitor.ConfigError, match="history takes"):
        monitor.Supervisor(ScriptedModel("x"), history=history)


def test_a_part_that_is_none_is_refused_at_once():
    with pytest.raises(monitor.errors.AdapterError, match="message 0 has a part that is int"):
        monitor.Supervisor(ScriptedModel("x"), history=[monitor.UserMessage((3,))])  # type: ignore[arg-type]


def test_a_form_that_there_is_not_is_refused_at_once():
    with pytest.raises(monitor.ConfigError, match="its form is 'bard'; known: gemini, openai-chat"):
        monitor.Supervisor(formed("bard", "x"))  # type: ignore[arg-type]


def test_the_models_of_the_providers_say_their_form(monkeypatch: pytest.MonkeyPatch):
    for name, form in {
        "google:gemini-2.5-flash": "gemini",
        "openai:gpt-5": "openai-chat",
        "openai-responses:gpt-5": "openai-responses",
        "anthropic:claude-sonnet-5": "anthropic",
    }.items():
        assert form_of(monitor.model(name)) == form
    assert form_of(ScriptedModel("x")) is None


# --- what the model says


@pytest.mark.anyio
async def test_a_name_that_no_provider_takes_is_rewritten_in_the_message_alone():
    bad = ToolCall("c1", "web search!", {"q": 1})
    run = await Drive(model=formed("gemini", [bad], "done"), tools=[look]).go()
    (told,) = run.of(HistoryRepaired)
    assert [repair.kind for repair in told.repairs] == [RepairKind.NAME_REWRITTEN]
    assert [repair.index for repair in told.repairs] == [1]
    assert told.turn == 1
    reply = run.run.history[1]
    assert isinstance(reply, AssistantMessage)
    assert reply.content == (ToolCall("c1", "web_search_", {"q": 1}),)
    assert reply.results[0].name == "web_search_"
    assert run.of(monitor.events.TurnEnded)[0].turn.tool_calls == (bad,)  # what it said stays readable


@pytest.mark.anyio
async def test_an_id_that_was_used_in_an_earlier_turn_is_another_one_where_that_matters():
    again = ToolCall("call_0", "look", {"q": "x"})
    strict = await Drive(
        model=formed("anthropic", [again], [again], [again], "done"), tools=[look], detectors=None
    ).go()
    free = await Drive(
        model=formed("openai-chat", [again], [again], [again], "done"), tools=[look], detectors=None
    ).go()
    assert kinds(strict) == [["id_rewritten"], ["id_rewritten"]]
    assert [strict.results(number)[0].id for number in range(3)] == ["call_0", "call_0_2", "call_0_3"]
    assert kinds(free) == []


@pytest.mark.anyio
async def test_a_call_without_a_name_gets_one_so_that_the_model_reads_what_it_did():
    run = await Drive(model=formed("openai-chat", ["I look.", ToolCall("1", " ", {})], "done"), tools=[look]).go()
    assert kinds(run) == [["name_rewritten"]]
    assert run.requests[1].messages[1].content == (Text("I look."), ToolCall("1", "unnamed", {}))
    assert "look" in run.results(0)[0].text  # which tools there are


turns = st.lists(
    st.one_of(
        TEXTS,
        st.builds(monitor.chunks.ReasoningDelta, TEXTS, SIGNATURES),
        st.builds(ToolCall, IDS, NAMES, ARGUMENTS),
        st.builds(ToolCall, IDS, NAMES, ARGUMENTS),
    ),
    max_size=5,
)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25)
@given(before=histories, said=st.lists(turns, min_size=1, max_size=4))
def test_whatever_was_given_and_whatever_the_model_says_every_request_is_valid(
    form: Form, before: Any, said: list[Any]
):
    model = formed(form, *said, *(["done"] * 12))
    drive = Drive(
        model=model,
        history=before,
        tools=[look],
        detectors=None,
        stop_when=monitor.MaxTurns(6),
        requests=monitor.runs.Requests(retries=None),
    )
    anyio.run(drive.go)
    assert model.requests
    for request in model.requests:
        assert validate(form, to_form(form, request.messages)) == []
        assert repair(request.messages, form=form)[0] is request.messages


# --- after an edit


def outgoing(
    form: Form | None, *messages: monitor.messages.Message
) -> tuple[monitor.context.History, ValidHistory, list[Any]]:
    history, told = monitor.context.History(messages), []
    keeper = ValidHistory(
        history, form, (), lambda repairs, problems: told.append(([one.kind for one in repairs], problems))
    )
    keeper.before_call()
    return history, keeper, told


def test_after_an_edit_all_of_it_is_put_in_order_again():
    history, keeper, told = outgoing("anthropic", user("a"), ran("1"), user("b"), said("c"), user("d"))
    history.commit(HistoryEdit(history.version, 0, 2, (ran("1", name="a name"),), "compaction"))
    keeper.before_call()
    assert told == [([RepairKind.NAME_REWRITTEN, RepairKind.USER_ADDED], ())]
    assert history.edits[-1].edit.kind == "repair"
    assert history.edits[-1].replaced == (ran("1", name="a name"),)  # the rest stays as it is cached
    assert validate("anthropic", to_form("anthropic", history.messages)) == []
    keeper.before_call()
    assert (len(told), len(history.edits)) == (1, 2)


@pytest.mark.anyio
async def test_so_in_a_run_before_the_next_request_whoever_made_the_edit():
    async def shorten() -> str:
        """Shorten the conversation."""
        history = driven.run._history
        history.commit(HistoryEdit(history.version, 0, 1, (said("(in short)"),), "compaction"))
        return "shorter"

    driven = Drive([call("shorten")], [call("look", q="x")], "done", tools=[shorten, look])
    await driven.go()
    assert kinds(driven) == [["user_added"]]
    assert [event.turn for event in driven.of(HistoryRepaired)] == [1]
    for request in driven.requests[1:]:
        assert request.messages[1] == said("(in short)")
        assert validate("gemini", to_form("gemini", request.messages)) == []


def test_an_edit_that_leaves_nothing_wrong_is_not_told_and_makes_no_other():
    history, keeper, told = outgoing("gemini", user("a"), ran("1"), user("b"), said("c"), user("d"))
    history.commit(HistoryEdit(history.version, 0, 2, (user("in short"),), "compaction"))
    keeper.before_call()
    assert (told, len(history.edits)) == ([], 1)


def test_ids_that_an_edit_took_away_may_be_used_again():
    history, keeper, told = outgoing("anthropic", user("a"), ran("1"), user("b"))
    history.commit(HistoryEdit(history.version, 0, 2, (user("in short"),), "compaction"))
    keeper.before_call()
    keeper.append(ran("2"))
    assert (told, history.messages[-1]) == ([], ran("2"))
    keeper.append(ran("3"))
    assert told == [([RepairKind.ID_REWRITTEN], ())]


def test_what_no_repair_knows_is_told_as_well():
    _, _, told = outgoing("gemini", user("a"), said("The model has had the last word."))
    assert told == [([], ("order in gemini 1: the last content is not the user's",))]


def test_media_that_the_provider_does_not_take_are_the_model_s_to_refuse():
    film = monitor.messages.Media("video/mp4", data="AAAA")
    _, _, told = outgoing("anthropic", user("a", film))
    assert told == []


def test_a_turn_costs_what_it_is_long_and_not_what_the_history_is(monkeypatch: pytest.MonkeyPatch):
    _, keeper, _ = outgoing("openai-chat", *[message for _ in range(50) for message in (user("a"), ran("1"))])
    looked: list[str] = []
    for name in ("repair", "validate", "to_form"):
        monkeypatch.setattr(f"monitor.runs.context.requests.{name}", lambda *_, name=name, **__: looked.append(name))
    for number in range(10):
        keeper.append(ran(str(number)))
        keeper.before_call()
    assert looked == []


def test_what_says_nothing_is_not_added():
    history, keeper, told = outgoing(None, user("a"))
    keeper.append(AssistantMessage((Reasoning("hm"), Text(" "))))
    assert history.messages == (user("a"),)
    assert told == [([RepairKind.MESSAGE_DROPPED], ())]


@given(before=histories)
def test_what_was_taken_in_needs_no_other_repair(before: Any):
    taken = take_in(before, None, None)
    assert repair(taken.messages)[0] is taken.messages


HISTORIES: dict[str, list[Any]] = {
    "broken": BROKEN,
    "none": [],
    "in order": [user("hi"), said("Hello.")],
    "with a system message": [RawMessage("system", (Text("Be brief."),)), user("hi"), said("Hello.")],
}


@pytest.mark.anyio
@pytest.mark.parametrize("own", [(), (user("before"), said("Yes."))])
@pytest.mark.parametrize("instructions", [None, "Be long."])
@pytest.mark.parametrize("kind", HISTORIES)
async def test_a_history_that_is_given_to_a_run_is_as_one_that_is_given_to_its_supervisor_and_takes_its_place(
    kind: str, instructions: str | None, own: tuple[Any, ...]
):
    history = HISTORIES[kind]
    described = await drive("done", history=history, instructions=instructions)
    model, sink = ScriptedModel("done"), monitor.sinks.MemorySink()
    supervisor = monitor.Supervisor(model, history=own, instructions=instructions, sinks=[sink])
    assert (await supervisor.run("do it", history=history)).ok
    assert model.requests == described.requests
    repaired = [event for event in sink.events if isinstance(event, monitor.events.HistoryRepaired)]
    assert [event.repairs for event in repaired] == [
        event.repairs for event in described.of(monitor.events.HistoryRepaired)
    ]
    async with supervisor.stream("do it", history=history) as run:
        async for _ in run:
            pass
    assert model.requests[1] == described.requests[0]
    await supervisor.run("do it")
    assert model.requests[2].messages == (*own, user("do it"))


@pytest.mark.anyio
async def test_what_is_no_history_is_refused_before_the_run_begins():
    supervisor = monitor.Supervisor(ScriptedModel("never"))
    wrong: Any = "hi"
    with pytest.raises(monitor.ConfigError, match="history takes"):
        await supervisor.run("do it", history=wrong)
    with pytest.raises(monitor.ConfigError, match="history takes"):
        supervisor.stream("do it", history=wrong)
