"""Names that a summary must not reword."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolCall, ToolResult
from monitor.context.compaction.hooks import CompactionDetails
from monitor.context.compaction.identifiers import (
    MOST_CHARS,
    MOST_FILES,
    MOST_LISTED,
    MOST_NOTES,
    OF_A_FAMILY,
    MessageNames,
    family,
    files_of,
    identifiers,
    merged,
    named_in,
    names_of,
    remembered,
)
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.verdicts import VETO


@pytest.mark.parametrize(
    "name",
    [
        "https://example.org/a/b?c=d&e=1,2#f",
        "postgres://db.internal:5432/main",
        "/etc/hosts",
        "~/notes.md",
        "./run.sh",
        "src/app/main.py:12",
        "C:\\Users\\me\\a.txt",
        "config.toml",
        "localhost:8080",
        "10.0.0.12:443",
        "someone@example.org",
        "3f2b8c1e-1c2d-4e5f-8a9b-0c1d2e3f4a5b",
        "d41d8cd98f00b204e9800998ecf8427e",
        "fd492e9",
        "JIRA-1234",
        "#4711",
        "req_011CSHoEeqs5C35K2UUqR7Fy",
        "MAX_RETRY_COUNT",
        "E501",
        "TS2345",
        "1234567890",
    ],
)
def test_a_name_is_found_in_a_sentence(name: str):
    assert identifiers(f"We looked at {name}, and it was ({name}) again.") == [name]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Just words, and/or more of them: yes!",
        "e.g. this, i.e. that",
        "3.5 of 10",
        "well-known",
        "...",
        "<goal>it</goal>",
        "a\\nb \\n",
        "0.125 of 1234",
    ],
)
def test_ordinary_words_are_no_names(text: str):
    assert identifiers(text) == []


def test_quoted_codes_are_names():
    assert identifiers("it raised 'not_found.user', not \"hello\"") == ["not_found.user"]


def test_the_most_specific_come_first():
    assert identifiers("E501 in a.py, see https://x.org/y.") == ["https://x.org/y", "a.py", "E501"]


@given(st.text(st.characters(codec=None), max_size=300))
def test_names_are_literal_once_each_and_bounded(text: str):
    found = identifiers(text)
    assert len(set(found)) == len(found)
    assert all(name in text and 0 < len(name) <= MOST_CHARS for name in found)
    assert identifiers(text) == found


@pytest.mark.parametrize("piece", ["a", "a/", "A_", "a.", "0", "a-", "a@", "ab:", "'a.", "http://", "\\"])
def test_a_megabyte_takes_no_longer_than_its_length(piece: str):
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()
    identifiers(text)
    assert time.process_time() - began < 5


def test_what_somebody_wrote_and_what_was_found_and_used_is_worth_more_than_what_results_list():
    messages: list[Message] = [
        UserMessage((Text("look at a.py"),)),
        AssistantMessage((ToolCall("1", "ls", {}),), (ToolResult("1", "ls", "b.py JOB-7 c.py"),)),
        AssistantMessage(
            (ToolCall("2", "cat", {"deep": [{"path": "b.py"}], "count": 123456}),), (ToolResult("2", "cat", "d.py"),)
        ),
        AssistantMessage(
            (Text("in e.py"), ToolCall("3", "run", {"command": "f.py"})), (ToolResult("3", "run", "f.py: not found"),)
        ),
    ]
    names = names_of([named_in(message) for message in messages])
    assert names.used == ("e.py", "b.py", "a.py")
    assert names.listed == ("f.py", "d.py", "123456", "c.py", "JOB-7")


def one(text: str) -> AssistantMessage:
    return AssistantMessage((ToolCall("1", "run", {}),), (ToolResult("1", "run", text),))


def test_a_listing_gives_no_names_and_a_family_of_numbered_ones_two():
    kinds = ("xlsx", "toml", "yaml", "html")
    listing = " ".join(f"{letter}{letter}.{kind}" for letter in "abcdefgh" for kind in kinds)
    numbered = " ".join(f"value_{number} at src/part_{number}.py" for number in range(1000, 1050))
    names = names_of(
        [named_in(one(text)) for text in (listing, f"{numbered} by JOB-4711", "made https://example.org/pull/7")]
    )
    assert names.used == ()
    assert names.listed == (
        "https://example.org/pull/7",
        "src/part_1000.py",
        "src/part_1001.py",
        "value_1000",
        "value_1001",
        "JOB-4711",
    )


def test_of_many_names_that_results_list_the_rarest_and_most_specific_have_the_places():
    common = [
        named_in(one(f"row_{number}_of_{number} ERR_{chr(65 + number % 26)}_CODE {number}.log"))
        for number in range(100)
    ]
    rare = named_in(one("sha d41d8cd98f00b204e9800998ecf8427e"))
    listed = names_of([rare, *common]).listed
    assert len(listed) == MOST_LISTED
    assert listed[-1] == "d41d8cd98f00b204e9800998ecf8427e"


def test_names_that_are_known_stay_as_long_as_there_are_places():
    old = tuple(f"/srv/{letter}/{letter}.cfg" for letter in "abcdefgh")
    new = tuple(f"/tmp/{number}.log" for number in range(100))
    known = remembered(new, old, most=20, said=lambda name: name == "/srv/a/a.cfg")
    assert known == (*new[:OF_A_FAMILY], *old[1:])
    assert remembered(new, old, most=12, said=lambda _: False) == (*new[:4], *old), (
        "one of each family, then more of the newest"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("value_12", "value_9876"),
        ("src/a/part_3.py:14", "src/a/part_44.py:2"),
        ("fd492e9", "0c1d2e3"),
        ("d41d8cd98f00b204e9800998ecf8427e", "a1b2c3d4e5f60718293a4b5c6d7e8f90"),
        ("req_011CSHoEeqs5C35K2UUqR7Fy", "req_4Fy"),
    ],
)
def test_names_that_differ_in_their_numbers_are_a_family(one: str, other: str):
    assert family(one) == family(other)


@pytest.mark.parametrize(("one", "other"), [("a.py", "b.py"), ("JOB-1", "TASK-1"), ("/srv/1/in.csv", "/srv/1/out.csv")])
def test_names_that_differ_in_words_are_none(one: str, other: str):
    assert family(one) != family(other)


def test_of_a_long_result_only_both_ends_are_looked_through():
    text = "start.py " + "x " * 5_000 + "middle.py" + " x" * 5_000 + " end.py"
    assert named_in(one(text)).answered == ("start.py", "end.py")


def test_what_was_refused_names_nothing():
    refused = ToolResult("1", "read", "a.py was not read", vetoed=True)
    assert named_in(AssistantMessage((), (refused,))) == MessageNames()
    assert named_in(one(f"{VETO} a.py was not read")).answered == ("a.py",), "a tool may say that too"


def done(*calls: tuple[str, object, str, bool], vetoed: bool = False) -> list[Message]:
    return [
        AssistantMessage(
            (ToolCall(str(at), name, arguments),), (ToolResult(str(at), name, text, failed, vetoed=vetoed),)
        )
        for at, (name, arguments, text, failed) in enumerate(calls)
    ]


def test_files_are_known_by_the_names_of_tools_and_arguments():
    details = files_of(
        done(
            ("read_file", {"path": "a.py"}, "...", False),
            ("readManyFiles", {"paths": ["b.py", "c.py"]}, "...", False),
            ("write_file", {"file_path": "a.py", "content": "x"}, "ok", False),
            ("str_replace_based_edit_tool", {"command": "view", "path": "d.py"}, "...", False),
            ("str_replace_based_edit_tool", {"command": "create", "path": "e.py"}, "ok", False),
            ("search_web", {"query": "a.py"}, "...", False),
            ("read_file", '{"path": "f.py"}', "...", False),
            ("read_file", "no json", "...", False),
            ("create_issue", {"title": "t"}, "made https://x.org/issues/7", False),
        )
    )
    assert details == CompactionDetails(
        files_read=("b.py", "c.py", "d.py", "f.py"),
        files_modified=("a.py", "e.py"),
        artifacts=("https://x.org/issues/7",),
    )


def test_what_failed_or_was_refused_is_a_note_and_has_changed_nothing():
    details = files_of(
        done(
            ("write_file", {"path": "a.py"}, "no space left\non device", True),
            ("run", {"path": "b.py"}, 'Traceback (most recent call last):\n  File "b.py"\nValueError: 3', True),
            ("read_file", {"path": "c.py"}, "", True),
            ("run", {}, "x" * 1_000, True),
        )
        + done(
            ("read_file", {"path": "c.py"}, f"{VETO} This call was not made: it was made before.", False), vetoed=True
        )
    )
    assert (details.files_read, details.files_modified) == ((), ())
    assert details.tool_notes == (
        "write_file failed: no space left",
        "run failed: ValueError: 3",
        "read_file failed: it did not say why",
        f"run failed: {'x' * 225}...",
        "read_file was refused: This call was not made: it was made before.",
    )
    assert len(details.tool_notes[3]) == 240


def test_a_call_that_was_left_open_has_changed_nothing():
    assert files_of([AssistantMessage((ToolCall("1", "write_file", {"path": "a.py"}),))]) == CompactionDetails()


def test_details_add_up_to_a_bound_with_the_newest_last():
    details = CompactionDetails()
    for number in range(300):
        new = CompactionDetails(files_read=(f"{number}.py", "always.py"), tool_notes=(f"failed {number}",))
        details = merged(details, new)
    assert len(details.files_read) == MOST_FILES
    assert details.files_read[-2:] == ("299.py", "always.py")
    assert details.tool_notes == tuple(f"failed {number}" for number in range(300 - MOST_NOTES, 300))


def test_a_file_that_was_changed_is_not_said_to_be_read():
    read, changed = CompactionDetails(files_read=("a.py", "b.py")), CompactionDetails(files_modified=("a.py",))
    expected = CompactionDetails(files_read=("b.py",), files_modified=("a.py",))
    assert merged(read, changed) == expected
    assert merged(changed, read) == expected
