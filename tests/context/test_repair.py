"""Any history becomes one that every provider takes; what is in order is not touched. Rows H* are
those of the field's own tests.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import AssistantMessage, ConfigError, FinishReason, UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.context import RawMessage, repair
from monitor.context.repairs import BEGINNING
from monitor.errors import AdapterError
from monitor.messages import CUT_OFF, NOT_CARRIED_OUT, Media, Message, Reasoning, RepairKind, Text
from monitor.wires.fields import Unread
from tests.context.dirty import histories

Kind = RepairKind


def user(*parts: Any) -> RawMessage:
    return RawMessage("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def said(*parts: Any, **more: Any) -> RawMessage:
    return RawMessage("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts), **more)


def tool(*results: ToolResult) -> RawMessage:
    return RawMessage("tool", results)


def call(id: str = "1", name: str = "look", arguments: Any = None) -> ToolCall:
    return ToolCall(id, name, {"path": "a.py"} if arguments is None else arguments)


def result(id: str = "1", name: str = "look", text: str = "seen") -> ToolResult:
    return ToolResult(id, name, text)


def asked(text: str = "go") -> UserMessage:
    return UserMessage((Text(text),))


def kinds(history: Any, **options: Any) -> list[RepairKind]:
    return [one.kind for one in repair(history, **options)[1].repairs]


# --- nothing wrong


CLEAN: tuple[Message, ...] = (
    asked(),
    AssistantMessage(
        (Reasoning("hm", "c2ln"), Text("I look."), call("1"), call("2")), (result("1"), result("2")), FinishReason.DONE
    ),
    asked("and?"),
    AssistantMessage((Text("Done."),)),
)


@pytest.mark.parametrize("form", [None, "gemini", "openai-chat", "openai-responses", "anthropic"])
def test_a_history_with_nothing_wrong_comes_back_as_the_same_object(form: Any) -> None:
    messages, report = repair(CLEAN, form=form)
    assert messages is CLEAN
    assert not report


def test_a_message_with_nothing_wrong_comes_back_as_the_same_object_beside_others():
    messages, report = repair((*CLEAN, AssistantMessage((call("3"),))))
    assert all(new is old for new, old in zip(messages, CLEAN, strict=False))
    assert [one.index for one in report.repairs] == [4]


def test_raw_messages_with_nothing_wrong_become_messages_without_a_repair():
    raw = [
        user("go"),
        said("I look.", call("1"), call("2")),
        tool(result("1", name="")),
        tool(result("2", name="")),
        said("Done."),
    ]
    messages, report = repair(raw)
    assert messages == (
        asked(),
        AssistantMessage((Text("I look."), call("1"), call("2")), (result("1"), result("2"))),
        AssistantMessage((Text("Done."),)),
    )
    assert not report


# --- calls and results


@pytest.mark.feature("CL-04")
def test_h1_a_missing_result_is_an_error_and_a_displaced_one_is_moved_before_the_user_message():
    messages, report = repair([user("go"), said(call("1"), call("2")), user("well?"), tool(result("2"))])
    assert messages == (
        asked(),
        AssistantMessage(
            (call("1"), call("2")), (ToolResult("1", "look", NOT_CARRIED_OUT, is_error=True), result("2"))
        ),
        asked("well?"),
    )
    assert [(one.kind, one.index) for one in report.repairs] == [(Kind.RESULT_ADDED, 1), (Kind.RESULT_MOVED, 3)]
    assert report.counts == {Kind.RESULT_ADDED: 1, Kind.RESULT_MOVED: 1}


@pytest.mark.feature("CL-04")
def test_h3_a_result_without_a_call_is_dropped():
    messages, report = repair([user("go"), tool(result("9")), said("Done.")])
    assert messages == (asked(), AssistantMessage((Text("Done."),)))
    assert [one.note for one in report.repairs] == ["a result of look 9"]


@pytest.mark.feature("CL-04")
def test_a_second_result_of_a_call_is_dropped():
    messages, _ = repair([user("go"), said(call()), tool(result(text="first")), tool(result(text="second"))])
    assert messages[1] == AssistantMessage((call(),), (result(text="first"),))
    assert kinds([user("go"), said(call()), tool(result()), tool(result())]) == [Kind.RESULT_REPEATED]


def test_a_real_result_that_comes_late_replaces_the_error_that_stood_for_it():
    before, _ = repair([user("go"), said(call()), user("well?")])
    messages, report = repair((*before, tool(result(text="at last"))))
    assert messages == (asked(), AssistantMessage((call(),), (result(text="at last"),)), asked("well?"))
    assert [one.kind for one in report.repairs] == [Kind.RESULT_REPLACED]
    from_chat = [user("go"), said(call()), tool(result(text=f"Error: {NOT_CARRIED_OUT}")), tool(result(text="at last"))]
    assert repair(from_chat)[0][1] == AssistantMessage((call(),), (result(text="at last"),))


def test_a_result_that_stands_before_its_call_is_moved_behind_it():
    messages, report = repair([user("go"), tool(result()), said(call())])
    assert messages == (asked(), AssistantMessage((call(),), (result(),)))
    assert [one.kind for one in report.repairs] == [Kind.RESULT_MOVED]


def test_calls_that_share_an_id_are_matched_by_occurrence_and_told_apart():
    raw = [user("go"), said(call("a"), call("a")), tool(result("a", text="one")), tool(result("a", text="two"))]
    messages, report = repair(raw)
    assert messages[1] == AssistantMessage(
        (call("a"), call("a_2")), (result("a", text="one"), result("a_2", text="two"))
    )
    assert [one.kind for one in report.repairs] == [Kind.ID_REWRITTEN]


def test_a_result_belongs_to_the_newest_turn_with_an_open_call_of_its_id():
    raw = [user("go"), said(call("a")), user("again"), said(call("a")), tool(result("a", text="new"))]
    messages, _ = repair(raw)
    assert [message.results[0].text for message in messages if isinstance(message, AssistantMessage)] == [
        NOT_CARRIED_OUT,
        "new",
    ]


def test_an_id_that_is_used_again_in_a_later_turn_is_left_where_the_provider_minds_only_the_turn():
    history = (
        asked(),
        AssistantMessage((call("call_0"),), (result("call_0"),)),
        AssistantMessage((call("call_0"),), (result("call_0"),)),
    )
    assert repair(history, form="openai-chat")[0] is history
    assert kinds(history, form="anthropic") == [Kind.ID_REWRITTEN]


def test_results_without_ids_go_by_the_name_of_the_tool():
    raw = [
        user("go"),
        said(call("", "look"), call("", "write"), call("", "look", {"path": "b"})),
        user(result("", "write", "w"), result("", "look", "a"), result("", "look", "b")),
    ]
    messages, _ = repair(raw)
    turn = messages[1]
    assert isinstance(turn, AssistantMessage)
    assert [one.text for one in turn.results] == ["a", "w", "b"]
    calls = [part for part in turn.content if isinstance(part, ToolCall)]
    assert [one.id for one in turn.results] == [one.id for one in calls]
    assert len({one.id for one in calls}) == 3


def test_a_result_with_an_id_answers_a_call_that_lost_its_own():
    messages, _ = repair([user("go"), said(call("")), tool(result("x"))])
    turn = messages[1]
    assert isinstance(turn, AssistantMessage)
    assert turn.results[0].text == "seen"


def test_made_up_ids_are_the_same_whatever_comes_later():
    raw = [user("go"), said(call("")), tool(result("")), said(call("")), tool(result(""))]
    short, long = repair(raw[:3])[0], repair([*raw, user("and?")])[0]
    assert long[:2] == short


def test_results_are_put_into_the_order_of_their_calls():
    history = (asked(), AssistantMessage((call("1"), call("2")), (result("2"), result("1"))))
    messages, report = repair(history)
    assert messages[1] == AssistantMessage((call("1"), call("2")), (result("1"), result("2")))
    assert [one.kind for one in report.repairs] == [Kind.RESULT_MOVED]


# --- turns that did not come to their end


def test_h4_an_open_call_of_an_interrupted_turn_is_dropped_and_not_answered():
    messages, report = repair([user("go"), said("I look", call(), interrupted=True), user("stop")])
    assert messages == (asked(), AssistantMessage((Text("I look"),)), asked("stop"))
    assert [one.kind for one in report.repairs] == [Kind.CALL_DROPPED]


def test_h6_what_an_interrupted_turn_did_carry_out_stays():
    messages, _ = repair([user("go"), said(call("1"), call("2"), interrupted=True), tool(result("1")), user("stop")])
    assert messages == (asked(), AssistantMessage((call("1"),), (result("1"),)), asked("stop"))


def test_the_signature_of_a_dropped_call_goes_with_it():
    raw = [user("go"), said("I look", Reasoning("", "c2ln"), call(), interrupted=True)]
    assert repair(raw)[0][1] == AssistantMessage((Text("I look"),))


def test_an_interruption_is_of_the_whole_turn_though_only_its_last_piece_says_so():
    raw = [user("go"), said("I look", call(), partial=True), said(" and", interrupted=True), user("stop")]
    assert repair(raw)[0] == (asked(), AssistantMessage((Text("I look"), Text(" and"))), asked("stop"))


def test_an_interrupted_turn_and_its_next_attempt_are_two_turns():
    raw = [user("go"), said("I lo", interrupted=True, partial=True), said("I look", call()), tool(result())]
    assert repair(raw)[0][1:] == (
        AssistantMessage((Text("I lo"),)),
        AssistantMessage((Text("I look"), call()), (result(),)),
    )


# --- broken calls


@pytest.mark.parametrize("broken", [ToolCall("1", "look", None), ToolCall("1", " ", {})])
def test_h7_a_call_without_arguments_or_name_is_dropped_and_an_empty_turn_with_it(broken: ToolCall) -> None:
    messages, report = repair([user("go"), said(broken), user("again")])
    assert messages == (asked(), asked("again"))
    assert [one.kind for one in report.repairs] == [Kind.CALL_DROPPED, Kind.MESSAGE_DROPPED]


def test_the_result_of_a_dropped_call_goes_with_it():
    assert repair([user("go"), said("Hm.", call(name="")), tool(result(name=""))])[0] == (
        asked(),
        AssistantMessage((Text("Hm."),)),
    )


def test_a_call_without_a_name_takes_that_of_its_result():
    assert repair([user("go"), said(call(name="")), tool(result())])[0][1] == AssistantMessage((call(),), (result(),))


def test_a_call_that_was_answered_stays_even_without_arguments():
    messages, report = repair([user("go"), said(ToolCall("1", "now", None)), tool(result(name="now"))])
    assert messages[1] == AssistantMessage((ToolCall("1", "now", {}),), (result(name="now"),))
    assert [one.kind for one in report.repairs] == [Kind.ARGUMENTS_READ]


def test_arguments_in_a_string_are_read_and_half_of_them_are_kept_with_an_error():
    half = '{"path": "a'
    messages, report = repair(
        [user("go"), said(call("1", arguments='{"path": "a.py"}'), call("2", arguments=half)), tool(result("1"))]
    )
    assert messages[1] == AssistantMessage(
        (call("1"), call("2", arguments=half)), (result("1"), ToolResult("2", "look", CUT_OFF, is_error=True))
    )
    assert [one.kind for one in report.repairs] == [Kind.ARGUMENTS_READ, Kind.RESULT_ADDED]


def test_h9_names_are_trimmed_and_then_matched_with_the_tools_that_there_are():
    raw = [
        user("go"),
        said("Hm.", call("1", " look "), call("2", "gone"), call("3", "left")),
        tool(result("3", "left")),
    ]
    messages, report = repair(raw, tools={"look"})
    turn = messages[1]
    # what was carried out, was
    assert [part.name for part in turn.content if isinstance(part, ToolCall)] == ["look", "left"]
    assert report.counts == {Kind.NAME_REWRITTEN: 1, Kind.CALL_DROPPED: 1, Kind.RESULT_ADDED: 1}


def test_names_and_ids_that_no_provider_takes_are_rewritten_on_both_sides():
    messages, report = repair(
        [user("go"), said(call("call 1|fc", "web search!")), tool(result("call 1|fc", "web search!"))]
    )
    turn = messages[1]
    assert isinstance(turn, AssistantMessage)
    (one,) = (part for part in turn.content if isinstance(part, ToolCall))
    assert one.name == turn.results[0].name == "web_search_"
    assert one.id == turn.results[0].id == "call_" + one.id[5:]
    assert report.counts == {Kind.ID_REWRITTEN: 1, Kind.NAME_REWRITTEN: 1}
    assert repair(messages)[0] is messages


def test_a_name_that_the_provider_takes_is_left_there():
    history = (asked(), AssistantMessage((call(name="fs.read"),), (result(name="fs.read"),)))
    assert repair(history, form="gemini")[0] is history
    assert kinds(history, form="openai-chat") == [Kind.NAME_REWRITTEN]


def test_h10_whatever_else_a_part_holds_is_preserved():
    raw = object()
    given = ToolCall(" a", "look", {"x": 1}, raw)
    (part,) = repair([user("go"), said(given), tool(ToolResult(" a", "look", "no", is_error=True))])[0][1].content
    assert isinstance(part, ToolCall)
    assert part.raw is raw
    turn = repair([user("go"), said(given, finish_reason=FinishReason.LENGTH)])[0][1]
    assert isinstance(turn, AssistantMessage)
    assert turn.finish_reason is FinishReason.LENGTH


def test_h12_after_a_compaction_only_orphans_are_removed():
    kept = (asked("summary"), AssistantMessage((call("2"),), (result("2"),)))
    messages, report = repair((kept[0], tool(result("1")), kept[1]))
    assert all(new is old for new, old in zip(messages, kept, strict=True))
    assert [one.kind for one in report.repairs] == [Kind.RESULT_ORPHANED]


# --- messages


def test_partial_records_of_the_assistant_one_after_another_are_one_turn():
    """As streams are recorded: parallel calls in pieces of their own belong together, and are
    answered together.
    """
    pieces = [said("I ", partial=True), said("look.", call("1"), partial=True), said(call("2"), partial=True)]
    raw = [user("go"), *pieces, tool(result("1"), result("2")), said("Done.", partial=True)]
    messages, report = repair(raw)
    assert messages[1:] == (
        AssistantMessage((Text("I "), Text("look."), call("1"), call("2")), (result("1"), result("2"))),
        AssistantMessage((Text("Done."),)),
    )
    assert not report


def test_a_record_that_is_whole_is_a_turn_of_its_own():
    assert len(repair([user("go"), said("One."), said("Two.")])[0]) == 3
    assert len(repair([user("go"), said("One, ", partial=True), said("two."), said("Three.")])[0]) == 3


def test_empty_messages_are_dropped():
    raw: list[Any] = [user("go"), said("", " "), UserMessage(()), user(), AssistantMessage(()), asked("on")]
    messages, report = repair(raw)
    assert messages == (asked(), asked("on"))
    assert report.counts == {Kind.MESSAGE_DROPPED: 4}


def test_a_turn_of_thinking_alone_is_dropped_unless_the_provider_wants_it_back():
    alone, signed = AssistantMessage((Reasoning("hm"),)), AssistantMessage((Reasoning("hm", "c2ln"),))
    assert repair((asked(), alone, signed))[0] == (asked(), signed)


def test_a_history_that_begins_with_the_model_is_given_a_beginning():
    assert repair((AssistantMessage((Text("Hello"),)),))[0] == (asked(BEGINNING), AssistantMessage((Text("Hello"),)))


def test_system_messages_at_the_head_are_instructions_and_later_ones_are_said_by_the_user():
    system = RawMessage("system", (Text("Be brief."),))
    messages, report = repair([system, system, user("go"), said("Hi."), system])
    assert report.instructions == "Be brief.\n\nBe brief."
    assert messages == (asked(), AssistantMessage((Text("Hi."),)), asked("Be brief."))
    assert [one.kind for one in report.repairs] == [Kind.SYSTEM_MOVED]


def test_an_image_among_results_is_shown_by_the_user_behind_them():
    image = Media("image/png", "iVBORw0KGgo=")
    messages, report = repair([user("go"), said(call()), RawMessage("tool", (image, result()))])
    assert messages == (asked(), AssistantMessage((call(),), (result(),)), UserMessage((image,)))
    assert not report


@pytest.mark.parametrize("empty", [Media("image/png"), Media("image/png", "no base64"), Media("image/png", uri="")])
def test_media_without_data_say_so(empty: Media) -> None:
    messages, report = repair((UserMessage((Text("see"), empty)),))
    assert messages == (UserMessage((Text("see"), Text("(image/png: its data is missing)"))),)
    assert [one.kind for one in report.repairs] == [Kind.PART_DROPPED]


@pytest.mark.parametrize("bad", [{"role": "user"}, None, "text", "model"])
def test_what_is_no_message_is_an_error(bad: object) -> None:
    with pytest.raises(ConfigError, match="message 1 of the history"):
        repair([user("go"), bad])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("bad", "said_of_it"),
    [
        (said(ToolCall(None, "look", {})), r"ToolCall\.id is None"),  # type: ignore[arg-type]
        (AssistantMessage((), (ToolResult("1", "look", 3),)), r"ToolResult\.text is 3"),  # type: ignore[arg-type]
        (UserMessage((Text(None),)), r"message 0: Text\.text is None"),  # type: ignore[arg-type]
        (UserMessage((call(),)), "message 0 has a part that is ToolCall"),  # type: ignore[arg-type]
        (RawMessage("assistant", ({"text": "a"},)), "message 0 has a part that is dict"),  # type: ignore[arg-type]
    ],
)
def test_a_part_that_is_none_is_an_error(bad: Any, said_of_it: str) -> None:
    with pytest.raises(AdapterError, match=said_of_it):
        repair([bad])


def test_an_unknown_form_is_an_error():
    with pytest.raises(ConfigError, match="unknown form 'bard'; known: gemini"):
        repair(CLEAN, form="bard")  # type: ignore[arg-type]


# --- laws


FORMS = st.sampled_from([None, "gemini", "openai-chat", "openai-responses", "anthropic"])


@given(histories, FORMS)
def test_what_was_repaired_needs_no_repair(history: Any, form: Any) -> None:
    messages, _ = repair(history, form=form)
    again, report = repair(messages, form=form)
    assert again is messages
    assert not report


@given(histories)
def test_every_call_is_answered_in_order_and_no_result_is_left_over(history: Any) -> None:
    messages, _ = repair(history)
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls = [part for part in message.content if isinstance(part, ToolCall)]
            assert [one.id for one in calls] == [one.id for one in message.results]
    assert not messages or isinstance(messages[0], UserMessage)


@given(histories)
def test_a_report_says_of_every_result_and_call_what_became_of_it(history: Any) -> None:
    messages, report = repair(history)
    parts = [
        part for message in history for part in (message.parts if isinstance(message, RawMessage) else message.content)
    ]
    parts += [part for message in history if isinstance(message, AssistantMessage) for part in message.results]
    turns = [message for message in messages if isinstance(message, AssistantMessage)]
    given, kept = (
        Counter(map(type, parts)),
        Counter(type(part) for turn in turns for part in (*turn.content, *turn.results)),
    )
    in_the_wrong_role = Counter(
        one.note.split()[0]
        for one in report.repairs
        if one.kind is Kind.PART_DROPPED and one.note.split()[0] in ("ToolCall", "ToolResult")
    )
    counts = report.counts
    assert given[ToolCall] == kept[ToolCall] + counts.get(Kind.CALL_DROPPED, 0) + in_the_wrong_role["ToolCall"]
    dropped = sum(counts.get(kind, 0) for kind in (Kind.RESULT_ORPHANED, Kind.RESULT_REPEATED, Kind.RESULT_REPLACED))
    with_their_call = (
        given[ToolResult]
        + counts.get(Kind.RESULT_ADDED, 0)
        - kept[ToolResult]
        - dropped
        - in_the_wrong_role["ToolResult"]
    )
    assert 0 <= with_their_call <= counts.get(Kind.CALL_DROPPED, 0)


@given(histories)
def test_nothing_is_changed_without_a_word(history: Any) -> None:
    messages_only = tuple(message for message in history if not isinstance(message, RawMessage))
    messages, report = repair(messages_only)
    assert (messages is messages_only) is not bool(report)


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system"])
@pytest.mark.parametrize(
    ("part", "roles"),
    [
        (Unread("a thing"), {"user", "assistant", "tool", "system"}),
        (Media("image/png", "iVBORw0KGgo="), {"assistant", "system"}),
        (Reasoning("hm"), {"user", "tool", "system"}),
        (call(), {"user", "tool", "system"}),
    ],
)
def test_a_part_that_its_role_cannot_say_is_dropped_and_told(role: Any, part: Any, roles: set[str]) -> None:
    told = repair([user("go"), said("yes"), RawMessage(role, (Text("words"), part))])[1].repairs
    assert (Kind.PART_DROPPED in {one.kind for one in told}) == (role in roles)
