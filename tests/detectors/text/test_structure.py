"""Structure raises the threshold and never blinds: whole blocks, dialogues, indented lines, stack
traces.
"""

from __future__ import annotations

import pytest

from monitor.detectors.text.structure import is_block, is_dialogue, is_frame, is_indented_prose, lines_of
from tests.detectors.text.test_content_repetition import found, prose

BLOCKS = {
    "numbered list": "1. Read the settings again\n2. Run the tests once more\n3. Fix what is broken\n\n",
    "numbered list with a title": "Here is the plan:\n\n1. Read the settings again\n2. Run the tests\n\n",
    "bullets": "- Read the settings again\n- Run the tests once more\n\n",
    "lettered list": "a) Read the settings again\nb) Run the tests once more\nc) Fix what is broken\n\n",
    "checklist": "- [x] Read the settings\n- [ ] Run the tests\n- [ ] Fix what is broken\n\n",
    "heading": "## Next steps\n\n- Read the settings again\n- Run the tests once more\n\n",
    "table": "| step | state |\n| --- | --- |\n| tests | failed |\n| lint | not run |\n\n",
    "fenced block": "```python\nvalue = load('settings')\nprint(value)\n```\n\n",
    "tildes": "~~~\nmake check\nmake again\n~~~\n\n",
    "fence and words": "I run it again.\n\n```sh\nmake check\n```\n\n",
    "quote": (
        "> I have read the settings again, and I do not see what is wrong with them at all.\n> So I shall run the"
        " tests.\n\n"
    ),
    "tool call": '<tool_call>\n{"name": "read_file", "arguments": {"path": "settings.toml"}}\n</tool_call>\n',
    "tool call in a line": '<tool_call>{"name": "read_file", "arguments": {"path": "settings.toml"}}</tool_call>\n',
    "invoke": '<invoke name="read_file">\n<parameter name="path">settings.toml</parameter>\n</invoke>\n',
    "call as JSON": '{"name": "read_file", "arguments": {"path": "settings.toml"}}\n',
    "call tokens": '<|tool_call_begin|>read_file<|tool_sep|>{"path": "settings.toml"}<|tool_call_end|>\n',
    "tags of tools": "<read_file>\n<path>settings.toml</path>\n</read_file>\n\n",
    "channel": '<|channel|>commentary to=functions.read <|message|>{"path": "settings.toml"}<|call|>\n',
    "table of another kind": "| step | state |\n|------+-------|\n| tests | failed |\n\n",
    "signs for bullets": (
        "\u2705 Read the settings again\n\u2705 Run the tests once more\n\u274c Fix what is broken\n\n"
    ),
    "action": "Action: read_file\nAction Input: settings.toml\nObservation: none\n",
}
DATA = {
    "empty cells": "<tr>\n  <td></td>\n  <td></td>\n</tr>\n",
    "placeholders": '{\n  "name": "none",\n  "size": 0\n},\n',
}


def levels(text: str) -> list[str]:
    return [finding.level for finding in found(prose(500) + "\n\n" + text + "\n" + prose(300, seed=2))]


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_whole_block_is_a_loop_at_the_seventh(kind: str):
    unit = BLOCKS[kind]
    assert "loop" not in levels(unit * 6)
    assert "loop" in levels(unit * 7)


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_block_is_one_wherever_it_is_cut(kind: str):
    unit = BLOCKS[kind]
    assert all(is_block(unit[at:] + unit[:at]) for at in range(len(unit)))


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("kind", DATA)
def test_data_is_no_block(kind: str):
    assert levels(DATA[kind] * 11) == []


def test_code_in_an_open_fence_is_no_block():
    rows = "- name: worker\n  state: idle\n  tasks: 0\n"
    assert levels("```yaml\n" + rows * 11 + "```\n") == []
    assert "loop" in levels(rows * 11)


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize(
    "unit",
    [
        "User: Who has read the settings?\nAssistant: I have read the settings.\n",
        "**User:** Who has read the settings?\n\n**Assistant:** I have read the settings.\n\n",
        "ANNA: Who has read the settings?\nBEN: I have read the settings.\n",
        "\u2014 Who has read the settings?\n\u2014 I have read the settings.\n",
        '"Who has read the settings?" she asked him.\n"I have read the settings," he said to her.\n\n',
        "甲：请再检查一次配置文件好不好啊。\n乙：好的，我再检查一次配置文件。\n",
    ],
)
def test_two_speakers_who_say_the_same_five_times_are_a_loop(unit: str):
    count = max(5, -(-192 // len(unit)))
    assert "loop" not in levels(unit * (count - 1))
    assert "loop" in levels(unit * count)


def test_records_are_no_dialogue():
    assert not is_dialogue("Name: none\nState: open\n")
    assert not is_dialogue("User: Who has read the settings?\nUser: I have read the settings.\n")
    assert not is_dialogue("User: Who has read the settings?\nNobody says a word.\n")
    assert levels("Name: ____________\nDate of birth: ____________\n\n" * 8) in ([], ["suspect"])


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("indentation", ["  ", "    ", "\t", "        "])
def test_an_indented_line_of_prose_is_a_loop_at_the_fifth(indentation: str):
    line = f"{indentation}I read the settings again, and after that I run all of the tests once more to be sure.\n"
    assert levels(line * 4) == ["suspect"]
    assert "loop" in levels(line * 5)


def test_an_indented_line_of_code_is_layout():
    for line in ("    result = compute(result, settings)\n", "    return None\n", "    nop\n", "        </div>\n"):
        assert not is_indented_prose(line)
        assert levels(line * 10) == []


FRAMES = {
    "Java": "\tat com.example.shop.Tree.walk(Tree.java:41)\n",
    "Java, two": "\tat com.example.shop.Tree.walk(Tree.java:41)\n\tat com.example.shop.Tree.visit(Tree.java:77)\n",
    "Node": "    at walk (/srv/app/src/tree.js:41:7)\n",
    "Python": '  File "/srv/app/tree.py", line 41, in walk\n    return self.walk(node.left)\n',
    "C#": "   at Example.Tree.Walk(Node node) in /src/Tree.cs:line 41\n",
    "Go": "main.(*Tree).Walk(0xc000012345)\n\t/srv/app/tree.go:41 +0x1d\n",
}


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_a_stack_are_printed_and_a_flood_of_them_still_ends(kind: str):
    frame = FRAMES[kind]
    assert is_frame(frame)
    assert levels("The stack overflowed:\n" + frame * 32) == []
    assert "loop" in levels("The stack overflowed:\n" + frame * 60)


def test_a_unit_that_begins_within_a_line_is_read_as_if_it_did_not():
    assert lines_of("ings\n2. Run\n1. Read the sett") == ["2. Run", "1. Read the settings"]
    assert lines_of("no line at all") == ["no line at all"]
    assert lines_of("\n \n") == []
