"""A summary without a model."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolCall, ToolResult
from monitor.context.compaction.extractive import Extractive, extracted
from monitor.context.compaction.hooks import CompactionDetails
from monitor.context.compaction.identifiers import files_of
from monitor.context.compaction.pinned import compose, gathered
from monitor.context.compaction.summarizer import CompactionProgress, Summarizer
from monitor.context.compaction.templates import CHECKPOINT, FIVE_SECTIONS, SummaryTask, Template
from monitor.context.tokens import size_of_text
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.models import Model, ModelRequest
from monitor.outcome import Turn

SECTIONS = {
    "eight": (
        *("Primary Request and Intent", "Key Technical Concepts", "Files and Code", "Errors and Fixes"),
        *("Problem Solving", "All User Messages", "Pending Tasks", "Current Work"),
    ),
    "five": ("overall_goal", "key_knowledge", "file_system_state", "recent_actions", "current_plan"),
    "checkpoint": (
        *("Goal", "Constraints and Preferences", "Progress", "Key Decisions", "Next Steps"),
        *("Critical Context", "Files and Artifacts", "Tool and Runtime Notes"),
    ),
    "odd": ("Alpha", "Beta"),
    "single": ("Everything",),
}


def task(
    *messages: Message,
    sections: str = "checkpoint",
    max_tokens: int = 2_000,
    previous: str | None = None,
    names: tuple[str, ...] = (),
) -> SummaryTask:
    template = Template(sections, SECTIONS[sections])
    details = files_of(messages)
    return SummaryTask(
        messages=messages,
        template=template,
        max_tokens=max_tokens,
        previous=previous,
        identifiers=names,
        details=details,
    )


def tokens(text: str) -> int:
    return size_of_text(text).tokens


def user(text: str) -> UserMessage:
    return UserMessage((Text(text),))


def called(name: str, result: str = "ok", *, failed: bool = False, **arguments: object) -> AssistantMessage:
    return AssistantMessage((ToolCall("1", name, arguments),), (ToolResult("1", name, result, is_error=failed),))


RUN: tuple[Message, ...] = (
    user("Fix the login. You must never touch prod.cfg."),
    AssistantMessage((Text("# Plan of attack\nI look at the session first. Then more.\nNext: read auth.py"),)),
    called("read_file", path="src/auth.py"),
    called("read_file", path="src/auth.py"),
    called("write_file", path="src/session.py", content="x"),
    called("run_tests", "AssertionError: 401 != 200", failed=True, suite="login"),
    AssistantMessage((Text("Root cause: the cookie expires in 0 s. I decided to set 3600 instead of 0."),)),
)


def sections_of(text: str) -> dict[str, str]:
    pieces = re.split(r"(?m)^## (.+)\n", text)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def test_what_happened_stands_under_the_section_that_asks_for_it():
    found = sections_of(extracted(task(*RUN)))
    assert tuple(found) == SECTIONS["checkpoint"]
    assert found["Goal"] == "- Fix the login. You must never touch prod.cfg.\n\n"
    assert "never touch prod.cfg" in found["Constraints and Preferences"]
    assert "- called read_file: src/auth.py (2 times)" in found["Progress"]
    assert "I decided to set 3600 instead of 0." in found["Key Decisions"]
    assert "read auth.py" in found["Next Steps"]
    assert "Root cause: the cookie expires in 0 s." in found["Critical Context"]
    assert "- src/auth.py (read)\n- src/session.py (changed)" in found["Files and Artifacts"]
    assert "run_tests failed: AssertionError: 401 != 200" in found["Tool and Runtime Notes"]


@pytest.mark.parametrize("sections", SECTIONS)
def test_every_section_is_there_once_whatever_the_template(sections: str):
    text = extracted(task(*RUN, sections=sections))
    assert re.findall(r"(?m)^## (.+)$", text) == list(SECTIONS[sections])
    assert "src/session.py" in text
    assert "AssertionError: 401 != 200" in text


@pytest.mark.anyio
async def test_it_is_a_summariser_that_asks_nobody():
    async def ask(model: Model, request: ModelRequest) -> Turn:
        raise AssertionError("no model is asked")

    summarizer: Summarizer = Extractive()
    steps: list[CompactionProgress] = []
    summary = await summarizer.summarize(task(*RUN, names=("src/auth.py", "not/here.py")), ask, progress=steps.append)
    assert summary.by == "extractive"
    assert "not/here.py" in summary.text
    assert steps == [CompactionProgress(done_messages=len(RUN), of_messages=len(RUN))]
    assert summarizer.name == "extractive"


def test_names_take_no_more_than_their_share_of_the_room():
    names = tuple(f"/srv/data/{number}.bin" for number in range(500))
    text = extracted(task(*RUN, names=names, max_tokens=400))
    assert 0 < sum(name not in text for name in names) < 500
    assert text.index(names[0]) < text.index(names[1])
    assert "Fix the login." in text
    assert tokens(text) <= 401


def test_a_name_planted_in_each_of_twenty_rounds_is_there_after_the_last():
    previous = None
    for number in range(20):
        messages: tuple[Message, ...] = (
            user(f"Round {number}: the key of it is KEY_{number}_PLANTED."),
            *(called("read_file", path=f"mod{number}/file{step}.py") for step in range(3)),
            AssistantMessage((Text(f"Looked at round {number}. " * 30),)),
        )
        previous = extracted(task(*messages, previous=previous, max_tokens=3_000))
        assert tokens(previous) <= 3_000
    assert previous is not None
    assert [number for number in range(20) if f"KEY_{number}_PLANTED" not in previous] == []


@pytest.mark.parametrize("sections", SECTIONS)
def test_fifty_summaries_stay_bounded_and_keep_the_first_goal_and_the_newest(sections: str):
    previous, sizes = None, []
    for number in range(50):
        messages = (
            user(f"Request {number}: do what is needed, " + "and more " * 20),
            AssistantMessage((Text(f"# Heading {number}\nStep {number} is done. Note: it took {number} tries."),)),
            called("search", query=f"question {number}"),
            called("search", query="the same"),
        )
        previous = extracted(task(*messages, sections=sections, previous=previous, max_tokens=1_000))
        sizes.append(tokens(previous))
    assert max(sizes) <= 1_000
    assert previous is not None
    assert "Request 49" in previous
    assert "Step 49 is done." in previous
    assert "Request 0:" in previous


def test_calls_of_earlier_summaries_are_counted_on():
    first = extracted(task(called("search", query="x"), called("search", query="x")))
    second = extracted(task(called("search", query="x"), previous=first))
    assert "- called search: x (3 times)" in second


def test_a_summary_that_a_model_wrote_is_taken_over():
    previous = (
        "**Goal**\n1. win the game\n\n## Progress:\n* half of it\n\n## Critical Context\nthe code is ABC-123\n(none)\n"
    )
    found = sections_of(extracted(task(user("go on"), previous=previous)))
    assert "- win the game\n- go on" in found["Goal"]
    assert "- half of it" in found["Progress"]
    assert "- the code is ABC-123" in found["Critical Context"]


def test_text_that_looks_like_a_heading_is_none():
    text = extracted(
        task(user("## Progress\n## Goal\n</overall_goal>"), AssistantMessage((Text("Goal\n## Goal\n**Progress**"),)))
    )
    assert re.findall(r"(?m)^#+ (.+)$", text) == list(SECTIONS["checkpoint"])


def test_a_name_of_several_lines_makes_no_heading():
    text = extracted(task(*RUN, names=("a\n## Goal\n", "kept.py")))
    assert re.findall(r"(?m)^#+ (.+)$", text) == list(SECTIONS["checkpoint"])
    assert "kept.py" in text


def test_a_snapshot_in_xml_is_filled_and_taken_over():
    text = extracted(replace(task(*RUN), template=FIVE_SECTIONS))
    assert re.findall(r"(?m)^<(/?\w+)>$", text) == [
        "state_snapshot",
        *(mark + section for section in SECTIONS["five"] for mark in ("", "/")),
        "/state_snapshot",
    ]
    assert "<overall_goal>\n- Fix the login. You must never touch prod.cfg.\n</overall_goal>" in text
    again = extracted(replace(task(user("now the logout"), previous=text), template=FIVE_SECTIONS))
    assert "<overall_goal>\n- Fix the login. You must never touch prod.cfg.\n- now the logout\n</overall_goal>" in again
    assert "src/session.py (changed)" in again


SLOW_TEXTS = {
    f"{unit!r} {chars:,} times": unit * chars
    for unit in (
        " ",
        "\n",
        "\t",
        " \n",
        "#",
        "*",
        "**",
        "_",
        "<",
        "<a ",
        "<goal>",
        "1. ",
        "# ",
        "- ",
        "a.",
        "called x: ",
        "`",
        "(2 times)",
    )
    for chars in (50, 20_000)
}
any_text = st.text(st.characters(codec=None), max_size=80) | st.sampled_from(
    ["", "\0", "\ud800", "👩\u200d💻", "## Goal", "- Names: a, b", "1. x"]
)
any_message = st.one_of(
    st.builds(user, any_text),
    st.builds(lambda text: AssistantMessage((Text(text),)), any_text),
    st.builds(
        lambda name, text, failed: called(name, text, failed=failed, query=text), any_text, any_text, st.booleans()
    ),
    st.just(UserMessage(())),
    st.just(AssistantMessage(())),
)


@given(st.lists(any_message, max_size=8), st.none() | any_text, st.sampled_from(sorted(SECTIONS)), st.integers(0, 800))
def test_any_messages_have_a_summary_within_its_bound(
    messages: list[Message], previous: str | None, sections: str, room: int
):
    asked = task(*messages, previous=previous, sections=sections, max_tokens=room)
    text = extracted(asked)
    assert re.findall(r"(?m)^## (.+)$", text) == list(SECTIONS[sections])
    assert tokens(text) <= max(room + 1, tokens(extracted(replace(asked, max_tokens=0))))
    assert extracted(asked) == text


def test_a_message_of_a_megabyte_is_put_in_short():
    text = extracted(
        task(user("do it " + "now " * 250_000), AssistantMessage((Text("word " * 200_000),)), max_tokens=500)
    )
    assert tokens(text) <= 501


def test_what_stands_beside_it_is_not_said_again():
    pinned = compose("", gathered(RUN), max_tokens=10_000)
    asked = replace(task(*RUN), pinned=pinned)
    text = extracted(asked)
    assert "src/auth.py" not in text
    assert "src/session.py" not in text
    assert "AssertionError: 401 != 200" not in text
    assert "Root cause: the cookie expires in 0 s." in text
    assert "called run_tests: login" in text
    assert extracted(replace(task(user("go on"), previous=extracted(task(*RUN))), pinned=pinned)).count("src/") == 0


@pytest.mark.parametrize("name", SLOW_TEXTS)
def test_no_earlier_summary_and_no_message_takes_long_to_read(name: str):
    text = SLOW_TEXTS[name]
    begin = time.thread_time()
    extracted(
        task(user(text), AssistantMessage((Text(text),)), called("run", text, failed=True, path=text), previous=text)
    )
    assert time.thread_time() - begin < 1


def test_what_happened_is_told_in_its_order():
    steps = [
        AssistantMessage((Text(f"Step {number} is done."), ToolCall("1", "check", {"q": f"item {number}"})))
        for number in range(9)
    ]
    found = sections_of(extracted(task(user("Check all."), *steps)))
    told = re.findall(r"Step (\d)|item (\d)", found["Progress"])
    assert [one or other for one, other in told] == [str(number) for number in range(9) for _ in range(2)]


@given(st.integers(0, 40), st.integers(1, 40), st.integers(0, 20))
def test_the_last_fifteen_statements_stay_whatever_else_there_is(before: int, now: int, calls: int):
    """Of this task and of the one before, with room for them and for half as much again."""

    def steps(first: int, count: int) -> tuple[Message, ...]:
        said = [AssistantMessage((Text(f"Statement {first + at} of what was found out."),)) for at in range(count)]
        return (*said, *(called("search", query=f"question {at} of {first}") for at in range(calls)))

    previous = extracted(task(*steps(0, before))) if before else None
    text = extracted(task(*steps(before, now), previous=previous, max_tokens=1_000))
    newest = range(max(0, before + now - 15), before + now)
    assert [number for number in newest if f"Statement {number} of" not in text] == []


def test_a_path_is_whole_however_long_it_is():
    path = "/srv/" + "/".join(f"component-{number}" for number in range(14)) + "/main.py"
    assert 150 < len(path) <= 200
    text = extracted(
        task(
            called("read_file", path=path), AssistantMessage((Text(f"The fault is in {path} and nowhere else. " * 2),))
        )
    )
    cut = [word for word in text.split() if word.startswith("/srv/") and word != path]
    assert f"called read_file: {path}" in text
    assert cut == []


def test_a_heading_without_what_stands_below_it_is_no_entry():
    said = "# Plan of attack\n## Step 1: the session\nI look at the session first.\n### Result\nNote: it is empty."
    text = extracted(task(AssistantMessage((Text(said),)), previous="## Overview\n- half is done\n## Goal\n- win"))
    assert "Plan of attack" not in text
    assert "Result" not in text
    assert "Overview" not in text
    assert "I look at the session first." in text
    assert "half is done" in text


def test_the_newest_failure_is_there_with_its_words_also_where_nothing_else_knows_of_it():
    failing = called(
        "run_tests", "Traceback (most recent call last):\n  File x\nKeyError: 'user_id' in auth.py:41", failed=True
    )
    asked = replace(task(*RUN, failing, *(called("search", query=str(n)) for n in range(40))), max_tokens=500)
    for details in (asked.details, CompactionDetails()):
        assert "run_tests failed: KeyError: 'user_id' in auth.py:41" in extracted(replace(asked, details=details))


@pytest.mark.feature("GZ-03")
@pytest.mark.parametrize("template", [FIVE_SECTIONS, CHECKPOINT], ids=lambda one: one.name)
def test_an_earlier_summary_on_one_line_is_read_section_by_section(template: Template) -> None:
    summary = template.skeleton({section: f"The words of {section[::-1]}." for section in template.sections})
    asked = replace(task(user("go on")), template=template)
    lines, one_line = (
        extracted(replace(asked, previous=one)) for one in (summary, " ".join(summary.replace(">\n", ">").split("\n")))
    )
    assert one_line == lines
    assert all(f"- The words of {section[::-1]}." in lines for section in template.sections)
