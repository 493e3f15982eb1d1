"""`LiveView`: runs on a terminal, narrow or wide, and where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from rich.cells import cell_len
from rich.live import Live

import monitor
from monitor import events
from monitor.chunks import Price, ReasoningDelta, TextDelta, ToolCall, ToolResult, Usage
from monitor.events import Envelope, Event, Limit, RunIdentity
from monitor.messages import ApprovalAnswer, ApprovalRequest
from monitor.outcome import Outcome, Turn
from monitor.testing import ScriptedModel, call
from monitor.view import LiveView
from tests.runs.test_delivery_envelopes import NAMES, family
from tests.view.terminals import Terminal

LEAD = RunIdentity(run="lead-1", root="lead-1", agent="lead", model="openai:m")


def nested(name: str, parent: RunIdentity = LEAD) -> RunIdentity:
    return RunIdentity(run=name, root=parent.root, parent=parent.run, call=name, agent=name)


def outcome(reason: str = "goal", **more: Any) -> Outcome:
    reason_ = monitor.TerminateReason(reason)
    return Outcome(ok=reason == "goal", reason=reason_, detail=f"why {reason}", source="x", **more)


class Story:
    """Events given to a view, and the time."""

    def __init__(self, terminal: Terminal, **options: Any) -> None:
        self.terminal = terminal
        self.time = 0.0
        self.view = LiveView(terminal.console, now=lambda: self.time, **options)
        self._seq = 0

    def tell(self, *told: Event, of: RunIdentity = LEAD) -> list[str]:
        """The screen after these events."""
        for event in told:
            self._seq += 1
            self.time = max(self.time, event.at_s)
            self.view.receive(Envelope(of, self._seq, event))
        return self.terminal.lines

    def now(self) -> list[str]:
        """The lines below the transcript, as they are drawn next."""
        drawn = Terminal(width=self.terminal.width, tty=False)
        drawn.console.print(self.view)
        return drawn.lines


@pytest.fixture(autouse=True)
def _no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen is drawn when something is printed, and at no other time."""
    whole: Callable[..., None] = Live.__init__

    def still(self: Live, *args: Any, **options: Any) -> None:
        whole(self, *args, **{**options, "auto_refresh": False})

    monkeypatch.setattr(Live, "__init__", still)


LIMITS = (Limit("max_turns", 30), Limit("timeout", 600.0), Limit("Budget.tokens", 1_000))
BEGUN = events.RunStarted(0.0, ("content_repetition",), "x", LIMITS)


def begun(width: int = 100) -> Story:
    story = Story(Terminal(width=width))
    story.tell(
        BEGUN,
        events.TurnStarted(1.0, 1, 1),
        events.TurnEnded(2.0, Turn(number=1, text="I ask the others.", usage=Usage(800, 50, 0, 0, 850))),
        events.ToolStarted(2.0, 1, ToolCall("north", "north", {"task": "look"})),
        events.ToolStarted(2.0, 1, ToolCall("south", "south", {"task": "look"})),
    )
    for name in ("north", "south"):
        story.tell(events.RunStarted(0.0, (), None), events.TurnStarted(0.5, 1, 1), of=nested(name))
    return story


# --- what goes on now


def test_the_limits_are_bars_and_the_nested_runs_a_tree():
    story = begun()
    story.tell(events.ToolStarted(0.7, 1, ToolCall("c", "look", {"at": "the door"})), of=nested("north"))
    story.tell(events.RunStarted(0.0, (), None), events.TurnStarted(0.1, 2, 2), of=nested("inner", nested("north")))
    story.tell(events.RunTerminated(9.0, outcome("loop_detected", turns=3)), of=nested("south"))
    assert story.now() == [
        '● lead  turn 1  2 calls  850 tokens  9 s  → north(task="look") and 1 more',
        "  max_turns ──────────── 1/30  timeout ──────────── 9/600  Budget.tokens ━━━━━━━━━━── 850/1,000",
        '├ ● north  turn 1  1 call  8 s  → look(at="the door")',
        "│ └ ● inner  turn 2  7 s  asks the model",
        "└ ■ south  loop_detected  3 turns",
    ]


def test_time_goes_on_between_two_events_and_stands_still_in_a_pause():
    story = begun()
    story.time += 40
    assert "lead  turn 1  2 calls  850 tokens  42 s" in story.now()[0]
    assert "timeout ━─────────── 42/600" in story.now()[1]
    story.tell(events.Paused(50.0))
    story.time += 100
    assert " 50 s  paused" in story.now()[0]


def test_a_limit_that_only_the_warning_knows_is_shown_when_it_warns():
    story = Story(Terminal())
    story.tell(events.RunStarted(0.0, (), "x", (Limit("Budget.usd", 2.0),)))
    assert len(story.now()) == 1
    story.tell(events.LimitWarning(1.0, "Budget.usd", 1.7, 2.0))
    assert story.now()[1] == "  Budget.usd ━━━━━━━━━━── 1.70/2.00"


def test_with_a_price_the_cost_is_a_bar():
    story = Story(Terminal(), price=Price(1.0, 2.0))
    story.tell(events.RunStarted(0.0, (), "x", (Limit("cost_limit", 0.5),)), events.TurnStarted(0.1, 1, 1))
    usage = Usage(200_000, 25_000, 0, 0, 225_000)
    story.tell(events.TurnEnded(1.0, Turn(number=1, text="x", usage=usage)))
    assert story.now()[1] == "  cost_limit ━━━━━━────── 0.25/0.50"


@pytest.mark.parametrize("width", [20, 30, 49, 50, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int):
    story = begun(width)
    name = "a name that is far too long for a narrow terminal " * 3
    story.tell(events.RunStarted(0.0, (), None), of=nested(name))
    shown = [*story.now(), *story.terminal.lines]
    assert [line for line in shown if cell_len(line) > width] == []
    bars = [line for line in story.now() if "max_turns" in line]
    assert ("━" in "".join(story.now())) is (width >= 50)
    assert "1/30" in bars[0] if width > 20 else bars


def test_of_many_runs_those_that_ended_first_are_left_out():
    story = begun()
    for number in range(40):
        of = nested(f"n{number}")
        story.tell(events.RunStarted(0.0, (), None), of=of)
        if number < 35:
            story.tell(events.RunTerminated(1.0, outcome(turns=1)), of=of)
    lines = story.now()
    assert len(lines) == 2 + 12 + 1
    assert lines[-1] == "└ and 30 runs that ended"
    assert sum("●" in line for line in lines) == 1 + 2 + 5


def test_names_and_arguments_do_not_steer_the_terminal():
    story = begun()
    story.tell(events.RunStarted(0.0, (), None), of=nested("\x1b[2Jgone\n\u202e"))
    story.tell(events.ToolStarted(3.0, 1, ToolCall("c", "x", {"a": "\x1b]0;x\x07"})))
    assert not any(char in line for line in [*story.now(), *story.terminal.lines] for char in "\x1b\x07\u202e")


# --- the lines above


def test_an_answer_that_is_being_written_stands_below_until_its_line_is_whole():
    story = Story(Terminal(width=30))
    story.tell(BEGUN, events.TurnStarted(0.1, 1, 1))
    story.tell(events.ChunkReceived(0.2, 1, TextDelta("The quick brown fox jumps over the ")))
    assert story.terminal.lines[1:2] == ["  │ The quick brown fox jumps"]
    assert story.now()[0] == "  │ over the"
    story.tell(
        events.ChunkReceived(0.3, 1, TextDelta("dog.")),
        events.TurnEnded(0.4, Turn(number=1, text="The quick brown fox jumps over the dog.")),
        events.RunTerminated(0.5, outcome()),
    )
    assert story.terminal.lines[:3] == ["turn 1", "  │ The quick brown fox jumps", "  │ over the dog."]


def test_an_answer_whose_pieces_nobody_gave_is_shown_when_it_is_whole():
    for pieces in ([], [TextDelta("It is "), TextDelta("closed.")]):
        story = Story(Terminal())
        story.tell(BEGUN, events.TurnStarted(0.1, 1, 1))
        story.tell(*[events.ChunkReceived(0.2, 1, piece) for piece in pieces])
        lines = story.tell(
            events.TurnEnded(0.4, Turn(number=1, text="It is closed.")), events.RunTerminated(0.5, outcome())
        )
        assert lines[:2] == ["turn 1", "  │ It is closed."]


def test_thinking_is_shown_where_it_is_asked_for():
    for verbose in (False, True):
        story = Story(Terminal(tty=False), verbose=verbose)
        story.tell(BEGUN, events.TurnStarted(0.1, 1, 1), events.ChunkReceived(0.2, 1, ReasoningDelta("Hm, I see.")))
        story.view.close()
        assert ("┆ Hm, I see." in story.terminal.file.getvalue()) is verbose


def everything() -> list[tuple[RunIdentity, Event]]:
    north = nested("north")
    return [
        (LEAD, BEGUN),
        (LEAD, events.TurnStarted(0.1, 1, 1)),
        (LEAD, events.ChunkReceived(0.2, 1, TextDelta("I ask north, which may take a while, so be patient."))),
        (LEAD, events.TurnEnded(0.3, Turn(number=1, text="..."))),
        (LEAD, events.ToolStarted(0.3, 1, ToolCall("north", "north", {"task": "look"}))),
        (north, events.RunStarted(0.0, (), None)),
        (north, events.TurnStarted(0.1, 1, 1)),
        (north, events.ChunkReceived(0.1, 1, TextDelta("not shown piece by piece"))),
        (north, events.TurnEnded(0.2, Turn(number=1, text="I look\nnorth."))),
        (north, events.ToolStarted(0.2, 1, ToolCall("c", "look", {"at": "x"}))),
        (north, events.ToolFinished(0.3, 1, ToolResult("c", "look", "closed"), 0.1)),
        (north, events.Nudged(0.3, 1, "go on")),
        (north, events.RunTerminated(0.4, outcome("max_turns", turns=1))),
        (LEAD, events.ToolFinished(0.9, 1, ToolResult("north", "north", "max_turns", is_error=True), 2.5)),
        (LEAD, events.TurnStarted(1.0, 2, 2)),
        (LEAD, events.TurnEnded(1.1, Turn(number=2, text="done"))),
        (LEAD, events.RunTerminated(1.2, outcome(turns=2, elapsed_s=1.2))),
    ]


TOLD = [
    "turn 1",
    "  │ I ask north, which may take a while, so be patient.",
    '  → north(task="look")',
    "  ● north begins",
    "  │ north I look north.",
    '  → north look(at="x")',
    "  ← north closed",
    "  ! north nudge: go on",
    "  ■ north max_turns: why max_turns",
    "  ← max_turns (2.5 s)",
    "turn 2",
    "  │ done",
]


@pytest.mark.parametrize("tty", [True, False], ids=["on a terminal", "into a file"])
def test_what_is_left_on_the_screen_is_what_goes_into_a_file(*, tty: bool):
    story = Story(Terminal(tty=tty))
    for of, event in everything():
        story.tell(event, of=of)
    lines = story.terminal.lines
    assert lines[: len(TOLD)] == TOLD
    card = "\n".join(lines[len(TOLD) :])
    assert "goal reached" in card
    assert "2 turns; 1 tool call" in card
    assert ("╭" in card) is tty
    assert story.terminal.cursor_is_shown
    if not tty:
        assert "\x1b" not in story.terminal.file.getvalue()


def test_on_a_terminal_each_step_leaves_the_lines_above_as_they_are():
    story, seen = Story(Terminal()), list[str]()
    for of, event in everything()[:-1]:
        lines = story.tell(event, of=of)
        whole = [line for line in lines if line in TOLD]
        assert whole[: len(seen)] == seen
        seen = whole
        assert sum(line.startswith("● lead") for line in lines) == 1


def test_nothing_is_drawn_while_a_person_is_asked():
    request = ApprovalRequest(
        id="q", run="r", call_id="c", tool="look", arguments={}, schema_hash="s", bound_to="b", why="a rule"
    )
    story = begun()
    assert any(line.startswith("● lead") for line in story.terminal.lines)
    lines = story.tell(events.ApprovalRequested(3.0, 1, request))
    assert not any(line.startswith("● lead") for line in lines)
    assert story.terminal.cursor_is_shown
    lines = story.tell(events.ApprovalAnswered(4.0, 1, ApprovalAnswer(id="q", decision="approved")))
    story.tell(events.Nudged(4.0, 1, "go on"))
    assert any(line.startswith("● lead") for line in story.terminal.lines)


def test_a_terminal_that_shows_something_else_gets_the_lines_alone():
    terminal = Terminal()
    with Live(console=terminal.console, auto_refresh=False):
        story = Story(terminal)
        for of, event in everything():
            story.tell(event, of=of)
    assert "  ● north begins" in terminal.lines


def test_runs_beside_each_other_are_told_apart():
    story = Story(Terminal(tty=False))
    other = RunIdentity(run="other-1", root="other-1", agent="other")
    for of in (LEAD, other):
        story.tell(BEGUN, events.TurnStarted(0.1, 1, 1), events.Nudged(0.2, 1, "go on"), of=of)
    for of in (other, LEAD):
        story.tell(events.RunTerminated(1.0, outcome()), of=of)
    lines = story.terminal.lines
    assert "  ! nudge: go on" in lines
    assert "  ! other nudge: go on" in lines
    assert sum("goal reached" in line for line in lines) == 2


# --- a real run


@pytest.mark.anyio
@pytest.mark.parametrize("read", [True, False], ids=["read", "as a sink"])
async def test_a_real_run_with_three_others_at_once(*, read: bool):
    terminal = Terminal()
    with LiveView(terminal.console) as view:
        if read:
            async with family([]).stream("look everywhere") as run:
                async for envelope in run.envelopes():
                    view.receive(envelope)
        else:
            await family([view]).run("look everywhere")
    lines = terminal.lines
    for name in NAMES:
        assert f"  ● {name} begins" in lines
        assert f"  │ {name} {name} is done." in lines
        assert any(line.startswith(f"  ✓ {name} goal") for line in lines)
    assert "  │ All is closed." in lines
    assert "╭─ goal reached " in "\n".join(lines)
    assert not any(line.startswith("● lead") for line in lines)
    assert terminal.cursor_is_shown


@pytest.mark.anyio
async def test_a_run_that_is_cancelled_leaves_the_terminal_as_it_was():
    terminal = Terminal()

    async def slow() -> str:
        """Takes long."""
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    model = ScriptedModel([call("slow")])
    with anyio.CancelScope() as scope:
        await monitor.Supervisor(model, tools=[slow], sinks=[LiveView(terminal.console)]).run("go")
    assert terminal.cursor_is_shown
    assert "stopped: caller" in "\n".join(terminal.lines)


def test_by_default_it_is_the_standard_output(capsys: pytest.CaptureFixture[str]):
    view = LiveView()
    for of, event in everything():
        view.receive(Envelope(of, 1, event))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "-- goal reached" in shown
