"""What the commands look like."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from monitor.cli import _view


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
    live = _view.LiveText(out)
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
    live = _view.LiveText(out)
    for char in text:
        live.write(char)
    live.end()
    lines = shown(out).splitlines()
    assert "".join(line.removeprefix("  │ ") for line in lines) == text
    assert all(cell_len(line) <= 30 for line in lines)


def test_a_line_of_its_own_ends_the_text():
    out = console(40)
    live = _view.LiveText(out)
    live.write("  I look")
    live.line("→ look()")
    live.write("\nAgain")
    live.end()
    assert shown(out) == "  │ I look\n  → look()\n  │ Again\n"


@pytest.mark.parametrize(
    ("text", "same"), [("a\nb", "a\nb"), ("a\tb", "a    b"), ("a\x1b[31m\r", r"a\x1b[31m\r"), ("\ud800", r"\ud800")]
)
def test_control_characters_are_shown_not_obeyed(text: str, same: str):
    assert _view.printable(text) == same


@pytest.mark.parametrize("width", [5, 20, 33])
def test_ids_are_shortened_in_the_middle(width: int):
    id = "suite/2024-03-20/run#17"
    short = _view.shortened(id, width)
    assert len(short) == min(width, len(id))
    assert short.endswith("#17")


def test_a_card_has_a_frame_on_a_terminal_only():
    for terminal in (True, False):
        out = console(40, terminal=terminal)
        _view.card(out, "stopped", [("reason", "loop_detected")], style="red")
        assert ("╭" in shown(out)) is terminal
        assert "loop_detected" in shown(out)


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = _view.stdout()
    with out.capture() as captured:
        _view.card(out, "stopped", [("reason", "loop_detected")], style="red")
    assert "\x1b[31m" not in captured.get()
    assert "31" not in captured.get()
