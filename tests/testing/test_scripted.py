import traceback

import anyio
import anyio.abc
import pytest

from monitor.testing import Do, Pause, ScriptedStream, Stall

pytestmark = pytest.mark.anyio


async def test_items_come_in_order_and_are_counted():
    stream = ScriptedStream("a", 1, None)
    assert [item async for item in stream] == ["a", 1, None]
    assert (stream.pulled, stream.exhausted, stream.closed) == (3, True, False)


async def test_an_exception_is_raised_where_it_stands_and_ends_the_stream():
    stream = ScriptedStream("a", ValueError("broken"), "never")
    assert await anext(stream) == "a"
    with pytest.raises(ValueError, match="broken"):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert stream.pulled == 1


async def test_an_exception_of_many_streams_keeps_nothing_of_the_earlier_ones():
    error = ValueError("broken")
    lengths = []
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            await anext(ScriptedStream(error))
        lengths.append(len([*traceback.walk_tb(error.__traceback__)]))
    assert len(set(lengths)) == 1


async def test_a_pause_waits_for_its_release():
    pause = Pause()
    stream = ScriptedStream("a", pause, "b")
    items: list[str] = []

    async def read() -> None:
        items.extend([item async for item in stream])

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await pause.reached()
        assert stream.pulled == 1
        pause.release()
    assert items == ["a", "b"]


async def test_a_pause_may_be_released_in_advance():
    pause = Pause()
    pause.release()
    assert [item async for item in ScriptedStream(pause, "a")] == ["a"]


async def test_a_stall_ends_only_by_cancellation():
    stall = Stall()
    stream = ScriptedStream("a", stall, "never")

    async def read() -> None:
        async for _ in stream:
            pass

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await stall.reached()
        group.cancel_scope.cancel()
    assert stream.exhausted
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_do_is_done_between_items():
    seen: list[int] = []
    stream = ScriptedStream("a", Do(lambda: seen.append(stream.pulled)), "b")
    assert [item async for item in stream] == ["a", "b"]
    assert seen == [1]


async def test_closing_ends_it_and_may_be_repeated():
    stream = ScriptedStream("a", "b")
    await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert (stream.closed, stream.closings, stream.pulled) == (True, 2, 1)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_close_that_fails_has_not_closed():
    stream = ScriptedStream("a", at_close=[OSError("reset")])
    with pytest.raises(OSError, match="reset"):
        await stream.aclose()
    assert (stream.closed, stream.closings) == (False, 1)


async def test_a_close_that_hangs_can_be_cancelled():
    stall = Stall()
    stream = ScriptedStream("a", at_close=[stall])
    async with anyio.create_task_group() as group:
        group.start_soon(stream.aclose)
        await stall.reached()
        group.cancel_scope.cancel()
    assert not stream.closed


async def test_reading_or_closing_while_it_is_read_is_refused():
    stall = Stall()
    stream = ScriptedStream(stall)
    async with anyio.create_task_group() as group:
        group.start_soon(anext, stream)
        await stall.reached()
        with pytest.raises(RuntimeError, match="closed while"):
            await stream.aclose()
        with pytest.raises(RuntimeError, match="read while"):
            await anext(stream)
        group.cancel_scope.cancel()


@pytest.mark.parametrize("suspends", [False, True])
async def test_it_lets_others_run_only_if_told_to(suspends: bool):
    stream = ScriptedStream(*range(3), suspends=suspends)
    others: list[int] = []

    async def other(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            await anyio.lowlevel.checkpoint()
            others.append(stream.pulled)

    async with anyio.create_task_group() as group:
        await group.start(other)
        before = len(others)
        async for _ in stream:
            pass
        between = others[before:]
        group.cancel_scope.cancel()
    assert bool(between) is suspends
