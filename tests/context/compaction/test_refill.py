"""What has filled the context again so soon."""

from __future__ import annotations

import re

import pytest

from monitor.chunks import ToolCall, ToolResult
from monitor.context.compaction.triggers import attributed, snapshot
from monitor.context.tokens import sizes_by_source
from monitor.messages import AssistantMessage, Media, Message, Text, UserMessage
from monitor.models import ModelRequest, ToolSpec

SUMMARY = UserMessage((Text("What was done: " + "a step. " * 40),), synthetic=True)
TASK = UserMessage((Text("Find the fault."),))


def words(number: int) -> str:
    return "word " * number


def used(tool: str, size: int) -> AssistantMessage:
    return AssistantMessage(
        (Text("I look."), ToolCall("1", tool, {"path": "x"})), (ToolResult("1", tool, words(size)),)
    )


def request(*messages: Message, instructions: str = "Be brief.", tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest((SUMMARY, *messages), instructions, tools)


def refilled(before: ModelRequest, now: ModelRequest, turns: int = 2) -> str:
    found = attributed(snapshot(before, 10), snapshot(now, 10 + turns))
    assert found is not None
    return found


def source(before: ModelRequest, now: ModelRequest) -> str:
    return refilled(before, now).partition(": ")[0]


STOOD = "of the context from the beginning"
LINE = re.compile(r"(.+): ([0-9,]+) tokens in ([0-9]+) turns?, ([0-9]+)% of .+")


def test_the_tool_whose_results_fill_the_context_is_named():
    found = refilled(
        request(TASK), request(TASK, used("search", 2_000), used("read_file", 6_000), used("search", 2_000))
    )
    line = LINE.fullmatch(found)
    assert line is not None
    assert line[1] == "results of read_file"
    assert int(line[2].replace(",", "")) == pytest.approx(6_000, rel=0.3)
    assert found.endswith("in 2 turns, 60% of what was added")


def test_a_tool_is_not_blamed_for_instructions_that_were_put_in_again():
    before, last = request(TASK), used("read_file", 3_000)
    assert source(before, request(TASK, last, instructions=words(9_000))) == "instructions"
    reinjected = UserMessage((Text(words(9_000)),), synthetic=True)
    assert source(before, request(TASK, reinjected, last)) == "messages of the monitor or of hooks"
    said = UserMessage((Text(words(9_000)),))
    assert source(before, request(TASK, said, last)) == "user messages"


def test_tools_that_are_declared_later_are_named():
    tools = tuple(ToolSpec(f"tool_{number}", words(200), {"type": "object"}) for number in range(40))
    assert source(request(TASK), request(TASK, used("search", 1_000), tools=tools)) == "tool definitions"


def test_media_and_arguments_have_names_of_their_own():
    picture = UserMessage((Text("See."), *[Media("image/png", data="aGk=")] * 20))
    assert source(request(TASK), request(TASK, picture)) == "media"
    wrote = AssistantMessage(
        (ToolCall("1", "write_file", {"text": words(9_000)}),), (ToolResult("1", "write_file", "ok"),)
    )
    assert source(request(TASK), request(TASK, wrote)) == "arguments of calls"


def test_a_tail_that_was_most_of_the_context_has_filled_it_whatever_was_added():
    kept = request(TASK, used("read_file", 10_000), used("search", 4_000))
    found = refilled(kept, request(*kept.messages[1:], used("search", 3_000)), turns=1)
    line = LINE.fullmatch(found)
    assert line is not None
    assert (line[1], line[3]) == ("the kept tail", "1")
    assert int(line[4]) > 70
    assert found.endswith(STOOD)


@pytest.mark.parametrize(
    ("fixed", "its"),
    [
        ({"instructions": words(9_000)}, "instructions"),
        ({"tools": (ToolSpec("t", words(9_000), {}),)}, "tool definitions"),
    ],
)
def test_what_no_compaction_removes_is_named_where_it_is_most_of_the_context(fixed: dict[str, object], its: str):
    found = refilled(request(TASK, **fixed), request(TASK, used("read_file", 3_000), **fixed))  # type: ignore[arg-type]
    assert found.startswith(f"{its}: ")
    assert found.endswith(STOOD)


def test_a_summary_that_is_most_of_the_context_is_named():
    long = UserMessage((Text(words(9_000)),), synthetic=True)
    now = ModelRequest((long, TASK, used("read_file", 2_000)))
    assert source(ModelRequest((long, TASK)), now) == "the summary"


def test_a_context_that_took_its_time_to_fill_is_nobodys_fault():
    before, now = request(TASK), request(TASK, used("read_file", 9_000))
    assert attributed(snapshot(before, 10), snapshot(now, 15)) is not None
    assert attributed(snapshot(before, 10), snapshot(now, 16)) is None


def test_where_nothing_has_grown_nothing_is_named():
    mixed = request(TASK, used("search", 60), instructions=words(60), tools=(ToolSpec("t", words(60), {}),))
    assert attributed(snapshot(mixed, 1), snapshot(mixed, 2)) is None
    assert attributed(snapshot(ModelRequest(()), 1), snapshot(ModelRequest(()), 2)) is None


def test_a_snapshot_leaves_nothing_out_and_counts_nothing_twice():
    nudge = UserMessage((Text("Do go on."),), synthetic=True)
    full = request(
        TASK, used("search", 100), nudge, used("read_file", 50), instructions=words(9), tools=(ToolSpec("t", "d", {}),)
    )
    whole = sum(size.tokens for size in sizes_by_source(full).values())
    assert snapshot(full, 1).tokens == pytest.approx(whole, abs=len(snapshot(full, 1).sizes))
    assert all(size >= 0 for size in snapshot(full, 1).sizes.values())
