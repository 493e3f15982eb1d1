"""What it takes to watch one more stream: counted in calls, objects and bytes, which a busy machine
does not change. `python -m bench.stream` has the times.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import anyio.lowlevel
import pytest

import monitor
from monitor.chunks import Chunk, TextDelta, ToolCall, TurnFinished
from monitor.errors import FinishReason
from monitor.guard import Watch

LIMITS = monitor.Timeout(3600) | monitor.IdleTimeout(600) | monitor.TokenLimit(10**9)
PACKAGE = str(Path(monitor.__file__).parent)
STREAMS = 50
MOST_CALLS = 360
"""Measured: 339 on asyncio, 356 on trio."""
MOST_OBJECTS = 59 if sys.version_info >= (3, 14) else 54
"""Measured: 48 and 53. Python 3.14 counts a dict of plain values as well: 53 and 58."""
MOST_BYTES = 8_000
"""Measured: 5,300 and 6,300."""


async def two_pieces() -> AsyncGenerator[str, None]:
    yield "a few "
    yield "words"


async def a_loop() -> AsyncGenerator[str, None]:
    while True:
        yield "I will now read the file again. "


async def with_a_call() -> AsyncGenerator[Chunk, None]:
    yield TextDelta("words")
    yield ToolCall("a", "read", {"path": "a.py"})
    yield TurnFinished(FinishReason.DONE)


async def watch_one(source: Callable[[], AsyncGenerator[Any, None]] = two_pieces, *, ok: bool = True) -> None:
    async with monitor.watch(source(), stop_when=LIMITS) as watched:
        async for _ in watched:
            pass
    assert watched.outcome.ok is ok


async def calls_of_one() -> Counter[str]:
    """Python functions that one stream calls from its making to its outcome, by their file."""
    await watch_one()  # what is made once for all streams
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_filename] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        await watch_one()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.anyio
async def test_a_stream_with_all_limits_and_detectors_takes_few_calls() -> None:
    calls = await calls_of_one()
    assert sum(number for file, number in calls.items() if file.startswith(PACKAGE)) <= MOST_CALLS


@pytest.mark.anyio
async def test_nothing_is_compiled_copied_or_inspected_for_a_stream() -> None:
    modules = {Path(file).stem for file in await calls_of_one() if not file.startswith(PACKAGE)}
    assert not modules & {"_compiler", "_parser", "re", "copy", "dataclasses", "enum", "functools", "importlib"}


async def read_one_piece_of(streams: int) -> list[Watch[str]]:
    opened = [monitor.watch(two_pieces(), stop_when=LIMITS) for _ in range(streams)]
    for watched in opened:
        await watched.__aenter__()
        await anext(watched)
    return opened


async def close_all(opened: list[Watch[str]]) -> None:
    for watched in opened:
        await watched.__aexit__(None, None, None)


@pytest.mark.anyio
async def test_an_open_stream_is_few_objects_for_the_collector() -> None:
    await close_all(await read_one_piece_of(2))
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        opened = await read_one_piece_of(STREAMS)
        objects = (len(gc.get_objects()) - before) / STREAMS
    finally:
        gc.enable()
    await close_all(opened)
    assert objects <= MOST_OBJECTS


@pytest.mark.anyio
async def test_an_open_stream_holds_few_kilobytes_before_its_text_comes() -> None:
    await close_all(await read_one_piece_of(2))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        opened = await read_one_piece_of(STREAMS)
        held = (tracemalloc.get_traced_memory()[0] - before) / STREAMS
    finally:
        tracemalloc.stop()
    await close_all(opened)
    assert held <= MOST_BYTES


def alive() -> Counter[type]:
    """Objects of the package's classes, which only the collector would free."""
    return Counter(kind for kind in map(type, gc.get_objects()) if kind.__module__.startswith("monitor."))


@pytest.mark.anyio
@pytest.mark.parametrize(("source", "ok"), [(two_pieces, True), (with_a_call, True), (a_loop, False)])
async def test_a_stream_that_is_over_is_freed_with_its_last_user(
    source: Callable[[], AsyncGenerator[Any, None]], *, ok: bool
) -> None:
    """It is in no circle of references, so that the collector has nothing to do. (An exception that
    ended it keeps the frames that it went through.)
    """
    for _ in range(2):  # what is made once for all streams
        await watch_one(source, ok=ok)
    gc.collect()
    gc.disable()
    try:
        before = alive()
        for _ in range(5):
            await watch_one(source, ok=ok)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()  # trio ends the task of an alarm in its next passes
        assert alive() - before == Counter()
    finally:
        gc.enable()
