from __future__ import annotations

import codecs
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ConfigError, ToolError, ToolErrorKind
from monitor.tools.base import traits_of
from monitor.tools.files import search_program
from monitor.tools.files.edits import difference, replaced
from monitor.tools.files.file_tools import ENTRIES, MATCHES, PAGE_CHARS, PAGE_LINES, FileTools
from monitor.tools.processes import printed_output
from monitor.tools.processes.command import Command
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.workspace import Workspace, decoded
from tests.processes import ask, nothing_left  # noqa: F401 - a fixture

pytestmark = [pytest.mark.anyio, pytest.mark.feature("GT-01")]


def tools(path: Path, **options: Any) -> FileTools:
    return FileTools(Workspace(path), **options)


async def use(path: Path, name: str, /, **arguments: Any) -> ToolAnswer:
    """What a tool answers, where it does not matter what was read before."""
    return await ask(tools(path, read_first=False).tools(), name, **arguments)


async def refused(path: Path, name: str, /, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await use(path, name, **arguments)
    return caught.value


# --- read


async def test_a_short_file_is_read_as_it_is(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\n  two\n")
    answer = await use(tmp_path, "read_file", path="a.txt")
    assert (answer.text, answer.status) == ("one\n  two", None)


async def test_a_long_file_says_where_to_continue_until_all_is_read(tmp_path: Path):
    lines = [f"line {number} {'x' * (number % 50)}" for number in range(1, 5_002)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    read: list[str] = []
    offset = 1
    while True:
        answer = await use(tmp_path, "read_file", path="a.txt", offset=offset)
        page = answer.text.split("\n")
        assert len(page) <= PAGE_LINES
        assert len(answer.text) <= PAGE_CHARS
        read += page
        assert answer.status is not None
        if "continue at line" not in answer.status:
            break
        offset = len(read) + 1
        assert f"continue at line {offset}: offset={offset}" in answer.status
    assert read == lines


async def test_a_part_of_a_file_can_be_read(tmp_path: Path):
    (tmp_path / "a.txt").write_text("1\n2\n3\n4\n")
    answer = await use(tmp_path, "read_file", path="a.txt", offset=2, limit=2)
    assert (answer.text, answer.status) == ("2\n3", "lines 2 to 3 of 4; continue at line 4: offset=4")
    assert (await use(tmp_path, "read_file", path="a.txt", offset=4)).text == "4"
    assert "4 lines" in str(await refused(tmp_path, "read_file", path="a.txt", offset=5))


async def test_a_line_that_is_longer_than_a_page_is_cut_and_the_next_one_can_be_read(tmp_path: Path):
    (tmp_path / "a.js").write_text("first\n" + "x" * 1_000_000 + "\nlast\n")
    first = await use(tmp_path, "read_file", path="a.js")
    assert (first.text, first.status) == ("first", "lines 1 to 1 of 3; continue at line 2: offset=2")
    second = await use(tmp_path, "read_file", path="a.js", offset=2)
    assert second.text == "x" * PAGE_CHARS
    assert second.status is not None
    assert "line 2 has 1,000,000 characters" in second.status
    assert (await use(tmp_path, "read_file", path="a.js", offset=3)).text == "last"


async def test_an_empty_file_says_so(tmp_path: Path):
    (tmp_path / "a.txt").write_text("")
    answer = await use(tmp_path, "read_file", path="a.txt")
    assert (answer.text, answer.status) == ("", "the file is empty")


async def test_a_binary_file_is_refused_clearly(tmp_path: Path):
    for name, content in {"elf": b"\x7fELF\x02\0\0", "noise": bytes([*range(1, 9), 0x80, 0xFF] * 10)}.items():
        (tmp_path / name).write_bytes(content)
        for tool, arguments in {"read_file": {}, "edit": {"old": "a", "new": "b"}}.items():
            error = await refused(tmp_path, tool, path=name, **arguments)
            assert error.kind is ToolErrorKind.INVALID_ARGUMENTS
            assert "binary" in str(error)


async def test_of_a_huge_file_the_beginning_is_read_and_no_more(tmp_path: Path):
    with (tmp_path / "big").open("wb") as file:
        file.write("ä\n".encode() * 1_000)
        file.truncate(10**12)  # a hole: no memory and no disk would hold it
    answer = await ask(tools(tmp_path, file_bytes=2_000).tools(), "read_file", path="big")
    assert answer.status is not None
    assert answer.status.startswith("lines 1 to 667 of more than 667; the rest, after 2,000 bytes")
    with pytest.raises(ToolError, match="use shell"):
        await ask(tools(tmp_path, file_bytes=2_000).tools(), "edit", path="big", old="ä", new="b")


# --- encodings

STANDS = {
    "utf-8": b"caf\xc3\xa9\nna\xc3\xafve\n",
    "utf-8 with a mark": codecs.BOM_UTF8 + "café\nnaïve\n".encode(),
    "utf-16 little": codecs.BOM_UTF16_LE + "café\nnaïve\n".encode("utf-16-le"),
    "utf-16 big": codecs.BOM_UTF16_BE + "café\nnaïve\n".encode("utf-16-be"),
    "utf-32": codecs.BOM_UTF32_LE + "café\nnaïve\n".encode("utf-32-le"),
    "latin-1": "café\nnaïve\n".encode("latin-1"),
    "crlf": "café\r\nnaïve\r\n".encode(),
    "utf-16 crlf": codecs.BOM_UTF16_LE + "café\r\nnaïve\r\n".encode("utf-16-le"),
}


@pytest.mark.parametrize("content", STANDS.values(), ids=STANDS.keys())
async def test_an_edit_keeps_encoding_mark_and_line_ends(tmp_path: Path, content: bytes):
    (tmp_path / "a").write_bytes(content)
    assert (await use(tmp_path, "read_file", path="a")).text == "café\nnaïve"
    await use(tmp_path, "edit", path="a", old="café\nna", new="thé\nna")
    await use(tmp_path, "edit", path="a", old="thé\nna", new="café\nna")
    assert (tmp_path / "a").read_bytes() == content
    await use(tmp_path, "write_file", path="a", content="café\nnaïve\n")
    assert (tmp_path / "a").read_bytes() == content


async def test_mixed_line_ends_stay_as_they_are(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"one\r\ntwo\nthree\r\n")
    await use(tmp_path, "edit", path="a", old="two\n", new="2\n")
    assert (tmp_path / "a").read_bytes() == b"one\r\n2\nthree\r\n"


async def test_what_an_encoding_cannot_hold_is_said_and_a_whole_file_becomes_utf_8(tmp_path: Path):
    content = "café\n".encode("latin-1")
    (tmp_path / "a").write_bytes(content)
    error = await refused(tmp_path, "edit", path="a", old="café", new="5 €")
    assert "latin-1" in str(error)
    assert (tmp_path / "a").read_bytes() == content
    await use(tmp_path, "write_file", path="a", content="5 €\n")
    assert (tmp_path / "a").read_bytes() == "5 €\n".encode()


@given(
    text=st.text(max_size=50),
    name=st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "utf-32-be"]),
    crlf=st.booleans(),
)
def test_what_was_read_is_written_back_byte_for_byte(text: str, name: str, crlf: bool):
    marks = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE, "utf-32-be": codecs.BOM_UTF32_BE}
    content = marks.get(name, b"") + (text.replace("\n", "\r\n") if crlf else text).encode(name)
    found = decoded(content)
    if found is None:
        assert b"\0" in content
        assert name == "utf-8"
        return
    read, encoding = found
    assert encoding.encode(read) == content


@given(content=st.binary(max_size=200))
def test_any_bytes_are_text_that_is_written_back_or_no_text(content: bytes):
    found = decoded(content)
    assert found is None or found[1].encode(found[0]) == content


@given(text=st.text(min_size=1), cut=st.integers(min_value=0, max_value=20))
def test_a_beginning_that_ends_within_a_character_is_text(text: str, cut: int):
    content = b"x" + text.replace("\0", "").encode()
    found = decoded(content[: len(content) - min(cut, len(content) - 1)], whole=False)
    assert found is not None
    assert found[1].name == "utf-8"


# --- write


async def test_a_new_file_is_made_with_its_folders(tmp_path: Path):
    answer = await use(tmp_path, "write_file", path="new/deep/a.py", content="x = 1\n")
    assert answer.status == "made new/deep/a.py: 1 lines"
    assert (tmp_path / "new/deep/a.py").read_text() == "x = 1\n"


async def test_a_file_that_is_replaced_is_answered_with_the_difference(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    answer = await use(tmp_path, "write_file", path="a.py", content="x = 1\ny = 3\n")
    assert answer.text == "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3\n"


async def test_half_a_character_is_not_written(tmp_path: Path):
    error = await refused(tmp_path, "write_file", path="a", content="x\ud800")
    assert error.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert not (tmp_path / "a").exists()


# --- edit


async def test_an_edit_is_answered_with_the_difference_and_the_right_lines(tmp_path: Path):
    (tmp_path / "a").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    answer = await use(tmp_path, "edit", path="a", old="line 50\n", new="line fifty\nand more\n")
    assert answer.status == "edited a in 1 place"
    assert answer.text.splitlines()[2:] == [
        "@@ -47,7 +47,8 @@",
        *(f" line {number}" for number in (47, 48, 49)),
        "-line 50",
        "+line fifty",
        "+and more",
        *(f" line {number}" for number in (51, 52, 53)),
    ]


async def test_an_edit_that_is_not_unique_says_where(tmp_path: Path):
    (tmp_path / "a").write_text("x\ny\nx\nz\nx\n")
    error = await refused(tmp_path, "edit", path="a", old="x", new="w")
    assert "3 times, at the lines 1, 3, 5" in str(error)
    answer = await use(tmp_path, "edit", path="a", old="x", new="w", replace_all=True)
    assert answer.status == "edited a in 3 places"
    assert (tmp_path / "a").read_text() == "w\ny\nw\nz\nw\n"


async def test_an_edit_of_what_is_not_there_names_the_nearest_line(tmp_path: Path):
    (tmp_path / "a").write_text("def first():\n    return 1\n\ndef second():\n    return 2\n")
    error = await refused(tmp_path, "edit", path="a", old="def secnd():\n    return 3", new="")
    assert error.kind is ToolErrorKind.NOT_FOUND
    assert 'line 4, "def second():"' in str(error)
    by_space = await refused(tmp_path, "edit", path="a", old="def second():\n  return 2", new="")
    assert "the lines 4 to 5 differ from it in spaces" in str(by_space)
    by_nothing = await refused(tmp_path, "edit", path="a", old="%%%%", new="")
    assert "no line is like its first one" in str(by_nothing)


@pytest.mark.parametrize(("old", "new", "said"), [("", "x", "write_file"), ("x", "x", "nothing would change")])
async def test_an_edit_that_edits_nothing_is_refused(tmp_path: Path, old: str, new: str, said: str):
    (tmp_path / "a").write_text("x\n")
    assert said in str(await refused(tmp_path, "edit", path="a", old=old, new=new))


async def test_two_edits_at_once_are_both_made(tmp_path: Path):
    (tmp_path / "a").write_text("".join(f"<{number}>\n" for number in range(20)))
    group_of = tools(tmp_path)
    await ask(group_of.tools(), "read_file", path="a")
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(
                lambda number=number: ask(group_of.tools(), "edit", path="a", old=f"<{number}>", new=f"[{number}]")  # type: ignore[misc]
            )
    assert (tmp_path / "a").read_text() == "".join(f"[{number}]\n" for number in range(20))


@pytest.mark.parametrize("prefix", ["", "fs_"])
def test_a_preview_shows_the_change_and_makes_none(tmp_path: Path, prefix: str):
    (tmp_path / "a").write_text("x = 1\n")
    group = {tool.spec.name.removeprefix("fs_"): tool for tool in tools(tmp_path, prefix=prefix).tools()}

    def preview(name: str, **arguments: Any) -> str:
        return str(getattr(group[name], "preview")(arguments))  # noqa: B009 - not every tool has it

    assert preview("edit", path="a", old="1", new="2") == "--- a\n+++ a\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    assert preview("write_file", path="b", content="y\n") == "--- b\n+++ b\n@@ -0,0 +1 @@\n+y\n"
    assert (tmp_path / "a").read_text() == "x = 1\n"
    assert not (tmp_path / "b").exists()
    with pytest.raises(ToolError):
        preview("edit", path="a", old="absent", new="2")
    assert not hasattr(group["ls"], "preview")


lines_of_text = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "a"]), max_size=12).map("".join)


@given(before=lines_of_text, after=lines_of_text)
def test_a_difference_holds_the_lines_that_change(before: str, after: str):
    shown = difference("f", before, after)
    assert (shown == "") == (before == after)
    lines = shown.splitlines()
    removed = sum(line.startswith("-") for line in lines[2:])
    added = sum(line.startswith("+") for line in lines[2:])
    ends = [len([*text.split("\n")]) - text.endswith("\n") * 1 - (not text) for text in (before, after)]
    assert added - removed == ends[1] - ends[0]


@given(text=st.text("ab \n", max_size=40), old=st.text("ab \n", min_size=1, max_size=6), new=st.text("xy", max_size=3))
def test_an_edit_replaces_what_is_there_once_or_says_why_not(text: str, old: str, new: str):
    if text.count(old) == 1:
        before, _, after = text.partition(old)
        assert replaced(text, old, new, every=False) == before + new + after
    else:
        with pytest.raises(ToolError) as caught:
            replaced(text, old, new, every=False)
        assert (caught.value.kind is ToolErrorKind.NOT_FOUND) == (old not in text)


def test_hostile_edits_take_little_time():
    began = time.process_time()
    for text, old in (
        ("x\n" * 500_000, "y\n" * 500_000),
        ("a" * 5_000_000, "b" * 5_000_000),
        ("ab" * 2_000_000, "ba\nc"),
    ):
        with pytest.raises(ToolError):
            replaced(text, old, "z", every=False)
    difference("f", "x\n" * 200_000, "y\n" * 200_000)
    difference("f", "\n".join(map(str, range(1_500))), "\n".join(map(str, range(1_500, 0, -1))))
    assert time.process_time() - began < 8


# --- list, glob


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "src/app.py",
        "src/app.test.ts",
        "src/deep/er/x.tsx",
        "README.md",
        ".env",
        "node_modules/dep/index.js",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}\n")
    (tmp_path / "link").symlink_to("/etc")
    return tmp_path


async def test_a_folder_is_listed_with_what_its_entries_are(tree: Path):
    os.mkfifo(tree / "pipe")
    answer = await use(tree, "ls")
    assert answer.text.splitlines() == [
        ".env  13 bytes",
        "README.md  18 bytes",
        "link -> /etc",
        "node_modules/",
        "pipe  (no ordinary file)",
        "src/",
    ]


async def test_a_folder_of_very_many_entries_is_listed_in_part(tmp_path: Path):
    for number in range(ENTRIES + 5):
        (tmp_path / f"f{number}").touch()
    answer = await use(tmp_path, "ls")
    assert answer.text.count("\n") == ENTRIES - 1
    assert answer.status == "1,005 entries; the first 1,000 are shown"


async def test_names_are_data_and_stay_on_one_line(tmp_path: Path):
    names = ["a\nb", "\x1b[31mred", "\u202eevil", os.fsdecode(b"\xff\xfe")]
    for name in names:
        (tmp_path / name).write_text("needle")
    for answer in (
        await use(tmp_path, "ls"),
        await use(tmp_path, "glob", pattern="*"),
        await use(tmp_path, "grep", pattern="needle"),
    ):
        assert len(answer.text.splitlines()) == len(names)
        assert all(line.isprintable() for line in answer.text.splitlines())


GLOBS = {
    "*.py": ["src/app.py"],
    "**/*.py": ["src/app.py"],
    "src/*.py": ["src/app.py"],
    "*.{ts,tsx}": ["src/app.test.ts", "src/deep/er/x.tsx"],
    "src/**": ["src/app.py", "src/app.test.ts", "src/deep/", "src/deep/er/", "src/deep/er/x.tsx"],
    "**/er/*": ["src/deep/er/x.tsx"],
    "README.??": ["README.md"],
    "[Rx]*": ["README.md", "src/deep/er/x.tsx"],
    "node_modules/*": [],
    "link/passwd": [],
    "nothing": [],
}


@pytest.mark.parametrize(("pattern", "found"), GLOBS.items(), ids=GLOBS.keys())
async def test_files_are_found_by_name(tree: Path, pattern: str, found: list[str]):
    assert sorted((await use(tree, "glob", pattern=pattern)).text.splitlines()) == found


async def test_an_ignored_folder_is_looked_into_when_it_is_named(tree: Path):
    assert (await use(tree, "glob", pattern="**/*.js", path="node_modules")).text == "node_modules/dep/index.js"
    assert (await use(tree, "grep", pattern="text", path="node_modules")).text.startswith(
        "node_modules/dep/index.js:1: "
    )


async def test_hostile_patterns_of_names_end(tree: Path):
    began = time.monotonic()
    await use(tree, "glob", pattern="/".join(["**"] * 200))
    await use(tree, "glob", pattern="*a" * 2_000)
    assert "64 patterns" in str(await refused(tree, "glob", pattern="{a,b}" * 20))
    assert time.monotonic() - began < 30


@given(
    path=st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
    pattern=st.lists(st.sampled_from(["a", "b", "*", "?", "**"]), min_size=1, max_size=4),
)
def test_a_pattern_means_the_same_as_its_definition(path: list[str], pattern: list[str]):
    def means(names: list[str], parts: list[str]) -> bool:
        if not parts:
            return not names
        if parts == ["**"]:
            return bool(names)
        if parts[0] == "**":
            return any(means(names[at:], parts[1:]) for at in range(len(names) + 1))
        return bool(names) and (parts[0] in {"*", "?", names[0]}) and means(names[1:], parts[1:])

    assert search_program.matches("/".join(path), "/".join(pattern)) == means(path, pattern)


# --- grep

grepping = pytest.mark.usefixtures("nothing_left")


@grepping
async def test_lines_are_found_by_content(tree: Path):
    answer = await use(tree, "grep", pattern=r"text of \S+\.tsx?")
    assert answer.text.splitlines() == [
        "src/app.test.ts:1: text of src/app.test.ts",
        "src/deep/er/x.tsx:1: text of src/deep/er/x.tsx",
    ]
    assert answer.status == "2 lines in 2 of 5 files"
    assert (
        await use(tree, "grep", pattern="TEXT", files="*.md", ignore_case=True)
    ).text == "README.md:1: text of README.md"
    assert (await use(tree, "grep", pattern="text", path="src/app.py")).text == "src/app.py:1: text of src/app.py"
    assert (await use(tree, "grep", pattern="text", files="src/*.py")).text == "src/app.py:1: text of src/app.py"
    assert (await use(tree, "grep", pattern="absent")).status == "0 lines in 0 of 5 files"


@grepping
async def test_files_in_any_encoding_are_searched_and_binary_ones_are_not(tmp_path: Path):
    for name, content in STANDS.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "binary").write_bytes("naïve".encode() + b"\0")
    answer = await use(tmp_path, "grep", pattern="na.ve$")
    assert len(answer.text.splitlines()) == len(STANDS) - 1  # utf-32 holds NUL
    assert all(line.split(":")[1] == "2" for line in answer.text.splitlines())


@grepping
async def test_line_numbers_are_those_of_read_file(tmp_path: Path):
    (tmp_path / "a").write_text("one\x0ctwo\u2028three\nneedle\n")
    number = int((await use(tmp_path, "grep", pattern="needle")).text.split(":")[1])
    assert (await use(tmp_path, "read_file", path="a", offset=number)).text == "needle"


@grepping
async def test_a_pattern_of_exponential_time_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    taken: list[bytes] = []

    class Heard(Command):
        def take(self) -> bytes:
            taken.append(super().take())
            return taken[-1]

    began = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + (1_000 if any(taken) else 0))
    monkeypatch.setattr(printed_output, "Command", Heard)
    monkeypatch.setattr(printed_output, "time", clock)
    (tmp_path / "a").write_text("first aX\n")
    (tmp_path / "b").write_text("a" * 60 + "!\n")
    answer = await ask(tools(tmp_path, grep_s=100).tools(), "grep", pattern="(a+)+X|(a+)+$")
    assert time.monotonic() - began < 30
    assert (answer.is_error, answer.error_kind) == (True, ToolErrorKind.TIMEOUT)
    assert answer.text == "a:1: first aX"  # what was found before
    assert answer.status is not None
    assert "simpler pattern" in answer.status


@grepping
async def test_a_search_ends_with_its_call(tmp_path: Path):
    (tmp_path / "b").write_text("a" * 60 + "!\n")
    with anyio.move_on_after(0.3) as scope:
        await use(tmp_path, "grep", pattern="(a+)+$")
    assert scope.cancelled_caught


@grepping
async def test_very_many_and_very_long_lines_are_bounded(tmp_path: Path):
    (tmp_path / "a").write_text("needle\n" * (MATCHES + 500) + "x" * 1_000_000 + "needle" + "y" * 1_000_000 + "\n")
    answer = await use(tmp_path, "grep", pattern="needle")
    assert len(answer.text.splitlines()) == MATCHES
    assert answer.status == f"{MATCHES + 501:,} lines in 1 of 1 files; the first {MATCHES:,} are shown"
    long = await use(tmp_path, "grep", pattern="xneedle")
    assert "needle" in long.text
    assert len(long.text) < 1_000


@grepping
async def test_what_cannot_be_searched_is_said(tmp_path: Path):
    with (tmp_path / "big").open("wb") as file:
        file.truncate(10**10)
    assert (await use(tmp_path, "grep", pattern="x")).status == (
        "0 lines in 0 of 0 files; 1 files of more than 8,388,608 bytes were not searched"
    )
    for pattern, kind in {
        "(": ToolErrorKind.INVALID_ARGUMENTS,
        "x{99999999999}": ToolErrorKind.INVALID_ARGUMENTS,
    }.items():
        assert (await refused(tmp_path, "grep", pattern=pattern)).kind is kind
    assert (await refused(tmp_path, "grep", pattern="x", path="nowhere")).kind is ToolErrorKind.NOT_FOUND
    assert (await refused(tmp_path, "grep", pattern="x", path="..")).kind is ToolErrorKind.OUTSIDE_WORKSPACE


def test_the_program_that_searches_prints_what_it_finds(tree: Path, capsys: pytest.CaptureFixture[str]):
    import sys

    request = {
        "root": str(tree), "start": ".", "pattern": "README", "files": "", "ignore_case": False, "ignored": [],
        "most": 1,
    }  # fmt: skip
    search_program.grep(request, sys.stdout)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [["README.md", 1, "text of README.md"], {"lines": 1, "hits": 1, "searched": 6, "large": 0}]


# --- the group


@pytest.mark.feature("GT-09")
async def test_each_tool_stays_in_the_workspace(tmp_path: Path):
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret").write_text("x")
    calls: dict[str, dict[str, Any]] = {
        "ls": {},
        "read_file": {},
        "write_file": {"content": "y"},
        "edit": {"old": "x", "new": "y"},
        "glob": {"pattern": "*"},
        "grep": {"pattern": "x"},
    }
    for name, arguments in calls.items():
        error = await refused(inside, name, path="../secret", **arguments)
        assert error.kind is ToolErrorKind.OUTSIDE_WORKSPACE
    assert (await use(inside, "glob", pattern="../*")).text == ""
    assert (tmp_path / "secret").read_text() == "x"


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".git/config", "sub/.GIT/config", ".git", "link/config"])
async def test_what_would_run_programs_is_not_written(tmp_path: Path, path: str):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("[core]\n")
    (tmp_path / "link").symlink_to(tmp_path / ".git")
    assert (await refused(tmp_path, "write_file", path=path, content="#!")).kind is ToolErrorKind.PERMISSION
    assert (await refused(tmp_path, "edit", path=path, old="[core]", new="x")).kind is ToolErrorKind.PERMISSION
    assert (await use(tmp_path, "read_file", path=".git/config")).text == "[core]"
    await ask(tools(tmp_path, protected=()).tools(), "write_file", path=".git/new", content="x")
    assert (tmp_path / ".git" / "new").exists()


def test_each_tool_says_what_it_does_and_can_be_off(tmp_path: Path):
    traits = {tool.spec.name: traits_of(tool) for tool in tools(tmp_path).tools()}
    assert {name: (one.kind, one.keep) for name, one in traits.items()} == {
        "ls": ("read", "head"),
        "read_file": ("read", "head"),
        "write_file": ("edit", "ends"),
        "edit": ("edit", "ends"),
        "glob": ("read", "head"),
        "grep": ("read", "matches"),
    }
    for name in traits:
        left = [
            tool.spec.name for tool in tools(tmp_path, filter=lambda tool, name=name: tool.spec.name != name).tools()
        ]
        assert left == [other for other in traits if other != name]
    asking = tools(tmp_path, needs_approval=True, prefix="fs_").tools()
    assert [tool.spec.name for tool in asking if traits_of(tool).needs_approval] == ["fs_write_file", "fs_edit"]


@pytest.mark.parametrize("options", [{"grep_s": 0}, {"file_bytes": 0}, {"ignored": ".git"}])
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any]):
    with pytest.raises(ConfigError):
        tools(tmp_path, **options)


async def test_a_tree_of_very_many_folders_is_searched(tmp_path: Path):
    """One in the other, deeper than the recursion and the descriptors of a process, and beside each
    other.
    """
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for name in ["d"] * 1_200:
        os.mkdir(name, dir_fd=descriptor)
        below = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    file = os.open("deep.txt", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor)
    os.write(file, b"needle\n")
    os.close(file)
    os.close(descriptor)
    (tmp_path / "loop").symlink_to(tmp_path)
    tools = FileTools(Workspace(tmp_path)).tools()
    try:
        assert (await ask(tools, "glob", pattern="**/*.txt")).text.endswith("/deep.txt")
        assert (await ask(tools, "grep", pattern="needle")).text.strip().endswith("/deep.txt:1: needle")
    finally:  # pytest removes old folders by recursion, which 1,000 levels end
        await anyio.run_process(["rm", "-rf", str(tmp_path / "d")])
