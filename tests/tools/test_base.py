import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from monitor.chunks import ToolCall, ToolResult
from monitor.detectors import UnknownTool
from monitor.errors import ToolError
from monitor.messages import CUT_OFF
from monitor.tools import ToolContext, carry_out, tool
from monitor.tools.calls.scheduler import Scheduler
from monitor.tools.registry import Registry

pytestmark = pytest.mark.anyio

on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def call(name: str, id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments)


async def run(fn: Callable[..., Any], **arguments: Any) -> ToolResult:
    """The answer to one call of `fn`."""
    made = tool(name="it")(fn)
    return await carry_out(call("it", **arguments), Registry([made]))


def error(text: str) -> ToolResult:
    return ToolResult("c1", "it", f"Error: {text}", is_error=True)


def ok(text: str) -> ToolResult:
    return ToolResult("c1", "it", text)


# --- answers


async def test_text_is_the_answer_as_it_is_and_anything_else_is_json():
    assert await run(lambda: "plain\ntext \ud800\0") == ok("plain\ntext \ud800\0")
    assert await run(lambda: {"b": 1, "a": [None, True, "ü"]}) == ok('{"a": [null, true, "ü"], "b": 1}')
    assert await run(lambda: None) == ok("null")
    assert await run(lambda: "") == ok("")


async def test_the_answer_has_the_id_and_the_name_of_its_call():
    result = await carry_out(ToolCall("id-7", "echo", {"x": "y"}), Registry([tool(name="echo")(lambda x: x)]))
    assert result == ToolResult("id-7", "echo", "y")


async def test_a_tool_is_told_its_call_and_the_run():
    seen: list[ToolContext] = []

    def look(context: ToolContext) -> None:
        seen.append(context)

    this_call = call("look")
    this_run: Any = object()
    await carry_out(this_call, Registry([look]), this_run)
    assert seen == [ToolContext(this_call, this_run)]


async def test_a_tool_that_asks_a_person_works_where_there_is_no_run():
    async def ask(context: ToolContext) -> str:
        with context.run.paused():
            context.run.abort("never mind")
            return f"yes, {len(context.run.history)}"

    async def compact(context: ToolContext) -> None:
        await context.run.compact()

    assert (await carry_out(call("ask"), Registry([ask]))).text == "yes, 0"
    assert "made by no run" in (await carry_out(call("compact"), Registry([compact]))).text


async def test_what_a_tool_does_to_its_arguments_does_not_change_the_call():
    def spoil(given: Any) -> int:
        given["list"].append(1)
        return len(given["list"])

    this_call = call("spoil", given={"list": []})
    assert (await carry_out(this_call, Registry([spoil]))).text == "1"
    assert this_call.arguments == {"given": {"list": []}}


@pytest.mark.parametrize("nothing", [None, {}])
async def test_a_call_may_have_no_arguments(nothing: Any):
    assert not (await carry_out(ToolCall("c1", "it", nothing), Registry([tool(name="it")(lambda: 1)]))).is_error


@pytest.mark.parametrize("text", ["", "  ", "{}", '{"q": 1}'])
async def test_a_call_that_was_cut_off_is_not_carried_out(text: str):
    done: list[int] = []

    def it(q: int = 0) -> None:
        done.append(q)

    assert await carry_out(ToolCall("c1", "it", text), Registry([it])) == error(CUT_OFF)
    assert not done


# --- calls that are wrong


async def test_an_unknown_tool_is_answered_with_the_tools_there_are():
    tools = Registry([tool(name=name)(lambda: 1) for name in ("search", "fetch")])
    result = await carry_out(call("serch"), tools)
    assert result == ToolResult(
        "c1", "serch", "Error: unknown tool 'serch'. Did you mean search? The tools are: fetch, search.", is_error=True
    )
    assert "Did you mean" not in (await carry_out(call("xyz"), tools)).text
    assert (await carry_out(call("x"), {})).text == "Error: unknown tool 'x'. There are no tools; answer without one."


async def test_of_many_tools_some_are_named_and_the_rest_counted():
    tools = Registry([tool(name=f"t{number:03}")(lambda: 1) for number in range(60)])
    text = (await carry_out(call("nothing" * 10_000), tools)).text
    assert text.endswith("t029 and 30 more.")
    assert len(text) < 500


async def test_the_detector_of_invented_tools_knows_the_answer():
    detector = UnknownTool(loop_at=2, suspect_at=None)
    found: list[Any] = []
    for number in range(2):
        this_call = call("no_such", f"c{number}", n=number)
        found += detector.observe(this_call)
        found += detector.observe(await carry_out(this_call, {}))
    assert [detection.level for detection in found] == ["loop"]


@pytest.mark.parametrize("arguments", ['{"q": ', "[1]", [1], 3, True])
async def test_arguments_that_are_no_object_are_an_error(arguments: Any):
    result = await carry_out(ToolCall("c1", "it", arguments), Registry([tool(name="it")(lambda q: q)]))
    assert result == error(f"the arguments must be one JSON object; these are not: {arguments!r}")


async def test_arguments_that_do_not_fit_are_an_error_by_field():
    def it(n: int) -> int:
        return n

    assert await run(it, n=[], m=1) == error(
        "invalid arguments: n: Input should be a valid integer, not []; m: is not known. Arguments of it: n."
    )


async def test_arguments_nested_too_deeply_are_an_error():
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert (await run(lambda x: 1, x=deep)).is_error
    while deep:
        deep = deep[0]  # taken apart here: freeing it at once would overflow the stack of some interpreters


# --- tools that fail


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class UnprintableResult:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def raising(error: BaseException) -> Callable[[], Any]:
    def it() -> Any:
        raise error

    return it


def async_raising(error: BaseException) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def it() -> Any:
        await anyio.lowlevel.checkpoint()
        raise error

    return it


@pytest.mark.parametrize("made", [raising, async_raising])
@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (ValueError("no such file"), "ValueError: no such file"),
        (KeyError("k"), "KeyError: 'k'"),
        (ValueError(), "ValueError"),
        (ToolError("ask for less"), "ask for less"),
        (ToolError(), "ToolError"),
        (TimeoutError("read"), "TimeoutError: read"),
        (Unprintable(), "Unprintable: (its message cannot be read)"),
        (StopAsyncIteration(1), "StopAsyncIteration: 1"),
        (ExceptionGroup("several", [ValueError("a")]), "ValueError: a"),
        (
            ExceptionGroup("several", [ValueError("a"), ExceptionGroup("", [OSError("b"), ValueError("a")])]),
            "ValueError: a; OSError: b",
        ),
        (BaseExceptionGroup("several", [ToolError("ask for less")]), "ask for less"),
    ],
)
async def test_an_exception_is_an_answer_that_names_it(made: Callable[..., Any], raised: BaseException, says: str):
    assert await run(made(raised)) == error(says)


@pytest.mark.parametrize("made", [raising, async_raising])
async def test_a_stop_iteration_is_an_error_too(made: Callable[..., Any]):
    assert (await run(made(StopIteration(1)))).text.startswith("Error: RuntimeError: ")


async def test_a_failing_task_group_in_a_tool_names_what_failed():
    async def it() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(async_raising(ValueError("a")))
            group.start_soon(anyio.sleep_forever)

    assert await run(it) == error("ValueError: a")


async def test_of_a_result_that_cannot_be_read_the_model_reads_what_failed():
    result = await run(lambda: [UnprintableResult()])
    assert result.text == '["<UnprintableResult: repr failed with RuntimeError>"]'


@pytest.mark.parametrize("made", [raising, async_raising])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_what_ends_programs_goes_through_bare_and_stops_the_other_calls(
    made: Callable[..., Any], kind: type[BaseException]
):
    stopped: list[bool] = []

    async def other() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)

    tools = Registry([other, tool(name="it")(made(kind("now")))])
    with pytest.raises(kind, match="now"):
        await Scheduler(tools).carry_out([call("other"), call("it")])
    assert stopped == [True]


# --- cancellation


async def leaked_cancellation() -> BaseException:
    """A cancellation that belongs to a scope which is over, as a tool may keep one by mistake."""
    kept: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class() as cancelled:
            kept.append(cancelled)
            raise
    return kept[0]


async def leak() -> None:
    raise await leaked_cancellation()


async def leak_in_a_group() -> None:
    raise BaseExceptionGroup("", [await leaked_cancellation(), ValueError("a")])


CANCELLED = "something that the tool waited for was cancelled"


async def test_a_cancellation_that_leaks_out_of_a_tool_is_an_error_of_the_tool():
    assert await run(leak) == error(CANCELLED)
    assert await run(leak_in_a_group) == error(f"{CANCELLED}; ValueError: a")
    await anyio.lowlevel.checkpoint()  # and nothing of it stays behind


async def test_a_leaked_cancellation_does_not_touch_the_other_calls():
    started = anyio.Event()

    async def other() -> str:
        started.set()
        await anyio.wait_all_tasks_blocked()
        return "ready"

    async def leak_later() -> None:
        await started.wait()
        await leak()

    results = await Scheduler(Registry([other, leak_later])).carry_out([call("other"), call("leak_later")])
    assert [result.text for result in results] == ["ready", f"Error: {CANCELLED}"]


@on_asyncio
async def test_waiting_for_a_task_that_was_cancelled_is_an_error():
    async def it() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(100))
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    assert await run(it) == error(CANCELLED)


@on_asyncio
@pytest.mark.parametrize("made", [raising, async_raising])
async def test_a_cancelled_error_made_by_hand_is_an_error(made: Callable[..., Any]):
    assert await run(made(asyncio.CancelledError("x"))) == error(CANCELLED)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@on_asyncio
async def test_a_tool_that_cancels_its_own_task_harms_nobody_else():
    async def it() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(100)

    assert await run(it) == error(CANCELLED)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_goes_through():
    seen: list[str] = []

    async def it() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException:
            seen.append("stopped")
            raise

    async def other() -> None:
        await run(it)
        seen.append("went on")

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert seen == ["stopped"]


async def test_a_deadline_from_outside_goes_through():
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.01):
            await run(anyio.sleep_forever)


@on_asyncio
@pytest.mark.parametrize("how", ["task.cancel", "timeout", "wait_for"])
async def test_a_cancellation_by_asyncio_itself_goes_through(how: str):
    begun = asyncio.Event()

    async def it() -> None:
        begun.set()
        await asyncio.sleep(100)

    if how == "timeout":
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await run(it)
    elif how == "wait_for":
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run(it), 0.01)
    else:
        task = asyncio.create_task(run(it))
        await begun.wait()
        task.cancel("mine")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()


@on_asyncio
async def test_a_cancellation_that_was_asked_for_before_the_call_goes_through():
    ran: list[bool] = []

    async def outer() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await run(lambda: ran.append(True))
        ran.append(False)

    task = asyncio.create_task(outer())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert False not in ran


async def test_a_tool_that_answers_a_cancellation_with_an_exception_does_not_hide_it():
    async def it() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("in the clean-up")

    went_on: list[ToolResult] = []

    async def outer() -> None:
        went_on.append(await run(it))
        await anyio.lowlevel.checkpoint()
        went_on.append(error("never"))

    async with anyio.create_task_group() as group:
        group.start_soon(outer)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert error("never") not in went_on


async def test_a_group_that_holds_a_cancellation_from_outside_is_one():
    async def it() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            try:
                await anyio.sleep_forever()
            finally:
                raise ValueError("in the clean-up")

    answered: list[ToolResult] = []

    async def outer() -> None:
        answered.append(await run(it))

    async with anyio.create_task_group() as group:
        group.start_soon(outer)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert answered == []


async def test_a_shielded_run_is_not_cancelled():
    with anyio.CancelScope() as scope:
        scope.cancel()
        with anyio.CancelScope(shield=True):
            assert await run(leak) == error(CANCELLED)
            assert await run(lambda: 1) == ok("1")


# --- several calls


@pytest.mark.feature("GT-07")
async def test_calls_run_side_by_side_and_answer_in_the_order_of_the_calls():
    second_is_there = anyio.Event()
    finished: list[str] = []

    async def first() -> str:
        await second_is_there.wait()
        return "1"

    async def second() -> str:
        second_is_there.set()
        return "2"

    def note(result: ToolResult, duration_s: float) -> None:
        assert duration_s >= 0
        finished.append(result.id)

    tools = Registry([first, second])
    results = await Scheduler(tools).carry_out(
        [call("first", "a"), call("second", "b"), call("none", "c")], finished=note
    )
    assert [result.id for result in results] == ["a", "b", "c"]
    assert [result.is_error for result in results] == [False, False, True]
    assert sorted(finished) == ["a", "b", "c"]
    assert finished.index("b") < finished.index("a")


async def test_threads_run_side_by_side_too():
    barrier = threading.Barrier(3)

    def meet() -> int:
        return int(barrier.wait(20) >= 0)

    results = await Scheduler(Registry([meet])).carry_out([call("meet")] * 3)
    assert [result.text for result in results] == ["1"] * 3


@pytest.mark.feature("GT-07")
async def test_a_tool_that_wants_to_be_alone_waits_for_those_before_it_and_those_after_it_wait():
    running: set[str] = set()
    seen: list[tuple[str, set[str]]] = []

    async def work(id: str) -> None:
        running.add(id)
        seen.append((id, set(running)))
        await anyio.wait_all_tasks_blocked()
        running.discard(id)

    tools = Registry([tool(name="beside")(work), tool(name="by_itself", alone=True)(work)])
    names = ["beside", "beside", "by_itself", "by_itself", "beside"]
    results = await Scheduler(tools).carry_out([ToolCall(str(n), name, {"id": str(n)}) for n, name in enumerate(names)])
    assert [result.id for result in results] == list("01234")
    assert dict(seen)["2"] == {"2"}
    assert dict(seen)["3"] == {"3"}
    assert dict(seen)["4"] == {"4"}
    assert seen[1][1] == {"0", "1"}
    assert [id for id, _ in seen][2:] == ["2", "3", "4"]


async def test_no_calls_are_no_answers():
    assert await Scheduler({}).carry_out([]) == []


async def test_what_was_ready_before_a_cancellation_has_been_told_and_the_others_have_their_results():
    finished: list[ToolResult] = []

    async def slow() -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(20) as scope:

        def note(result: ToolResult, duration_s: float) -> None:
            finished.append(result)
            scope.cancel()

        await Scheduler(Registry([slow, tool(name="quick")(lambda: 1)])).carry_out(
            [call("slow", "a"), ToolCall("b", "quick", {})], finished=note
        )
    assert scope.cancelled_caught
    assert [result.id for result in finished] == ["b", "a"]
    assert finished[1].vetoed
    assert finished[1].error_kind == "cancelled"


async def test_an_exception_of_the_callers_own_callback_comes_out_bare():
    def note(result: ToolResult, duration_s: float) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await Scheduler(Registry([tool(name="forever")(anyio.sleep_forever)])).carry_out(
            [call("x"), call("forever")], finished=note
        )


async def test_the_context_variables_of_a_tool_stay_its_own():
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="caller")

    async def it() -> str:
        who.set("tool")
        await anyio.lowlevel.checkpoint()
        return who.get()

    assert await run(it) == ok("tool")
    assert who.get() == "caller"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_interrupt_of_a_tool_comes_out_of_the_event_loop_bare(backend: str):
    async def main() -> None:
        await run(raising(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        anyio.run(main, backend=backend)
