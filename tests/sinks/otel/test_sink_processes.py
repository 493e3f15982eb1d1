"""Telemetry when processes fork and end: real processes, which say what they have exported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest

SET_UP = """
    import json, os, sys, threading
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from monitor.sinks import OtelSink
    from tests.sinks.otel.run import whole_run

    class Kept(SpanProcessor):
        names = []
        hangs = threading.Event()
        hangs.set()

        def on_end(self, span):
            self.hangs.wait()
            self.names.append(span.name)

    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(Kept())

    def feed(sink):
        for event in whole_run():
            sink.emit(event)

    def say(**what):
        os.write(1, (json.dumps(what) + "\\n").encode())
"""


def said(program: str) -> list[dict[str, Any]]:
    """What a process, and those that it forks, have said."""
    code = dedent(SET_UP) + dedent(program)
    # Python 3.12 and later warn of a fork beside threads, which is what is tested.
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_that_forks_exports_each_span_once_in_the_process_that_made_it():
    """The parent's exporter hangs while it forks, so its queue is full and its thread is busy."""
    lines = said("""
        sink = OtelSink(agent="a", model="m", tracer_provider=tracers)
        Kept.hangs.clear()
        feed(sink)
        child = os.fork()
        Kept.hangs.set()
        if child == 0:
            Kept.hangs = threading.Event()
            Kept.hangs.set()
            Kept.names = []
            first = sink.flush(5)
            feed(sink)
            say(who="child", at_first=first, flushed=sink.close(5), names=Kept.names)
            os._exit(0)
        os.waitpid(child, 0)
        feed(sink)
        say(who="parent", flushed=sink.close(5), names=Kept.names)
    """)
    child, parent = lines
    assert child["at_first"], "it waited for spans of its parent"
    assert child["flushed"]
    assert parent["flushed"]
    assert child["names"].count("invoke_agent a") == 1
    assert parent["names"].count("invoke_agent a") == 2
    assert len(parent["names"]) == 2 * len(child["names"])


def test_a_program_that_ends_at_once_loses_no_span_if_it_asks_for_that():
    [line] = said("""
        import atexit
        atexit.register(lambda: say(names=Kept.names))  # called after what is registered later
        sink = OtelSink(agent="a", model="m", tracer_provider=tracers, flush_at_exit_s=5)
        feed(sink)
    """)
    assert "invoke_agent a" in line["names"]
