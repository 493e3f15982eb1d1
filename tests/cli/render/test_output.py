"""What the commands look like."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from monitor.cli.render import output
from monitor.cli.render import table as tables


def console(width: int, *, terminal: bool = False) -> Console:
    return Console(
        file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, markup=False, highlight=False
    )


def shown(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_lines_break_between_words_however_the_text_was_cut(size: int):
    said = "The quick brown fox jumps over the lazy dog.\nAnd again."
    out = console(24)
    live = output.LiveText(out)
    for at in range(0, len(said), size):
        live.write(said[at : at + size])
    live.end()
    assert [line.rstrip() for line in shown(out).splitlines()] == [
        "  │ The quick brown fox",
        "  │ jumps over the lazy",
        "  │ dog.",
        "  │ And again.",
    ]


@pytest.mark.parametrize("text", ["x" * 100, "憲法改正に関する討論" * 10])
def test_what_has_no_spaces_is_cut_at_the_width(text: str):
    out = console(30)
    live = output.LiveText(out)
    for char in text:
        live.write(char)
    live.end()
    lines = shown(out).splitlines()
    assert "".join(line.removeprefix("  │ ") for line in lines) == text
    assert all(cell_len(line) <= 30 for line in lines)


def test_a_line_of_its_own_ends_the_text():
    out = console(40)
    live = output.LiveText(out)
    live.write("  I look")
    live.line("→ look()")
    live.write("\nAgain")
    live.end()
    assert shown(out) == "  │ I look\n  → look()\n  │ Again\n"


@pytest.mark.parametrize(
    ("text", "same"), [("a\nb", "a\nb"), ("a\tb", "a    b"), ("a\x1b[31m\r", r"a\x1b[31m\r"), ("\ud800", r"\ud800")]
)
def test_control_characters_are_shown_not_obeyed(text: str, same: str):
    assert output.printable(text) == same


@pytest.mark.parametrize("width", [5, 20, 33])
def test_ids_are_shortened_in_the_middle(width: int):
    id = "suite/2024-03-20/run#17"
    short = output.shortened(id, width)
    assert len(short) == min(width, len(id))
    assert short.endswith("#17")


def test_a_card_has_a_frame_on_a_terminal_only():
    for terminal in (True, False):
        out = console(40, terminal=terminal)
        output.card(out, "stopped", [("reason", "loop_detected")], style="red")
        assert ("╭" in shown(out)) is terminal
        assert "loop_detected" in shown(out)


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = output.stdout()
    with out.capture() as captured:
        output.card(out, "stopped", [("reason", "loop_detected")], style="red")
    assert "\x1b[31m" not in captured.get()
    assert "31" not in captured.get()


# ------------------------------------------------------------------ tables

COLUMNS = (
    tables.Column("run", "middle"),
    tables.Column("loop", "fold"),
    "message",
    tables.Column("saved", right=True),
    tables.Column("why", "end"),
)
ROWS: list[tuple[str | Text, ...]] = [
    (
        "suite/2026-11-20T10:11:12/subset-b/run#000017",
        "identical_calls x 12",
        "13",
        "49,808",
        "look_at_the_door({'at': 'the door of the house'})",
    ),
    ("憲法改正に関する討論/憲法改正に関する討論#7", Text("exact_tail x 7", style="red"), "0", "7", "again and again"),
]


def table(width: int) -> str:
    out = console(width, terminal=True)
    tables.show(out, COLUMNS, ROWS)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(out))


def joined(text: str) -> str:
    """Without line ends and blanks, wherever it was folded."""
    return "".join(text.split())


@pytest.mark.parametrize("width", range(20, 200, 7))
def test_at_every_width_a_value_is_whole_or_has_a_sign(width: int):
    text = table(width)
    assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())
    words = set(text.split())
    for row in ROWS:
        run, loop, message, saved, why = map(str, row)
        assert {message, saved} <= words
        assert loop.split()[-1] in words
        assert joined(run) in joined(text) or re.search(rf"…\S*{re.escape(run[-2:])}\s", text)
        assert joined(why) in joined(text) or "…" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_names_of_columns_are_whole_too(width: int):
    assert {"loop", "message", "saved", "why"} <= set(table(width).split())


def test_in_a_pipe_every_value_is_whole_and_no_line_ends_in_blanks(monkeypatch: pytest.MonkeyPatch):
    out = console(60)
    tables.show(out, COLUMNS, ROWS)
    head, *lines = shown(out).splitlines()
    assert head.split() == ["run", "loop", "message", "saved", "why"]
    for line, row in zip(lines, ROWS, strict=True):
        assert all(str(cell) in line for cell in row)
        assert line == line.rstrip()


@pytest.mark.parametrize("width", [3, 5, 12, 30])
def test_what_is_shortened_is_no_wider_than_it_may_be_in_any_script(width: int):
    assert cell_len(output.shortened("憲法改正に関する討論" * 9, width)) <= width
