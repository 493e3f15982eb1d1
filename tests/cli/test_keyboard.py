"""Keys that are typed while a run goes on are said to it."""

from __future__ import annotations

import os
import sys

import pytest

import monitor
from monitor.cli.foreground import can_type, typed_to
from monitor.events import SteerAccepted
from monitor.testing import Do, Pause, ScriptedModel
from monitor.view import LiveView
from monitor.view.status import InputLine
from tests.runs.driving import text_of_user
from tests.view.terminals import Terminal

if sys.platform == "win32":
    pytest.skip("the line needs a terminal of POSIX", allow_module_level=True)
import termios


@pytest.mark.asyncio
@pytest.mark.feature("GC-12")
async def test_a_line_that_is_typed_goes_to_the_model_and_the_terminal_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
):
    keys, terminal = os.openpty()
    with os.fdopen(terminal, "r") as stdin, os.fdopen(keys, "wb", buffering=0) as person:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert can_type()
        before = termios.tcgetattr(terminal)
        line, screen, pause = InputLine(), Terminal(), Pause()

        class Heard:
            def emit(self, event: monitor.events.Event) -> None:
                if isinstance(event, SteerAccepted):
                    assert not termios.tcgetattr(terminal)[3] & termios.ECHO
                    pause.release()

        typed = Do(lambda: person.write("schau auf Größe\r".encode()))
        model = ScriptedModel([typed, pause, "I look."], "Done.")
        with LiveView(screen.console, line=line) as view:
            async with monitor.Supervisor(model, sinks=[Heard()]).stream("do it") as run:
                with typed_to(run, line):
                    async for envelope in run.envelopes():
                        view.receive(envelope)
        assert termios.tcgetattr(terminal) == before
    assert text_of_user(model.requests[1].messages[-1]) == "schau auf Größe"
    assert "say > " in screen.file.getvalue()
    assert any("message of the person at the terminal: schau auf Größe" in line for line in screen.lines)
