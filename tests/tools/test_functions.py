import contextvars
import functools
import json
import math
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import anyio
import pytest
from pydantic import BaseModel, Field
from trio.testing import MockClock

from monitor.chunks import ToolCall
from monitor.errors import ConfigError, ToolError
from monitor.models import ToolSpec
from monitor.tools import FunctionTool, Tool, ToolContext, tool
from monitor.tools.registry import Registry

RUN: Any = object()
CONTEXT = ToolContext(ToolCall("c1", "f", {}), run=RUN)
NO_JSON = object()


class Filter(BaseModel):
    field: str
    at_least: int = 0


def search(
    query: Annotated[str, Field(description="what to look for")],
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
    order: Literal["new", "best"] = "best",
    filter: Optional[Filter] = None,  # noqa: A002, UP045 - as users write it
) -> dict[str, Any]:
    """Search the index.

    Use it before you answer.
    """
    return {"query": query, "limit": limit, "order": order, "filter": filter}


async def answer(fn: Any, arguments: Mapping[str, Any], **options: Any) -> object:
    return await FunctionTool(fn, **options).call(arguments, CONTEXT)


# --- what the model is told


def test_the_declaration_comes_from_the_signature_and_the_docstring():
    assert tool(search).spec == ToolSpec(
        "search",
        "Search the index.\n\nUse it before you answer.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "what to look for"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
                "order": {"type": "string", "enum": ["new", "best"], "default": "best"},
                "filter": {
                    "anyOf": [
                        {
                            "type": "object",
                            "properties": {"field": {"type": "string"}, "at_least": {"type": "integer", "default": 0}},
                            "required": ["field"],
                        },
                        {"type": "null"},
                    ],
                    "default": None,
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )


def test_a_function_without_parameters_takes_an_empty_object():
    def now() -> str:
        return "12:00"

    assert FunctionTool(now).spec == ToolSpec(
        "now", "", {"type": "object", "properties": {}, "additionalProperties": False}
    )


def test_name_and_description_can_be_given():
    spec = tool(name="find", description="Find it.")(search).spec
    assert (spec.name, spec.description) == ("find", "Find it.")


def test_a_default_that_json_cannot_hold_is_not_shown():
    def wait(seconds: float = math.inf, until: Any = NO_JSON) -> None: ...

    assert FunctionTool(wait).spec.parameters["properties"] == {"seconds": {"type": "number"}, "until": {}}
    json.dumps(FunctionTool(wait).spec.parameters, allow_nan=False)


@pytest.mark.anyio
async def test_parameters_may_have_names_that_pydantic_uses_itself():
    def odd(schema: int, copy: int, model_config: int, _private: int, p0: int) -> list[int]:
        return [schema, copy, model_config, _private, p0]

    given = {"schema": 1, "copy": 2, "model_config": 3, "_private": 4, "p0": 5}
    assert list(FunctionTool(odd).spec.parameters["properties"]) == list(given)
    assert await answer(odd, given) == [1, 2, 3, 4, 5]


@pytest.mark.anyio
async def test_a_parameter_without_annotation_takes_anything():
    add = FunctionTool(lambda a, b=1: a + b, name="add")
    assert add.spec.parameters["properties"] == {"a": {}, "b": {"default": 1}}
    assert await add.call({"a": [1], "b": [2]}, CONTEXT) == [1, 2]


# --- what can be a tool


class Index:
    """An index."""

    def find(self, word: str) -> str:
        """Find a word."""
        return f"found {word}"

    @classmethod
    def kinds(cls, prefix: str) -> str:
        return f"{cls.__name__} {prefix}"

    @staticmethod
    def size(of: str) -> str:
        return f"size {of}"

    def __call__(self, word: str) -> str:
        return f"called {word}"


class Fetcher:
    async def __call__(self, word: str) -> str:
        """Fetch a word."""
        await anyio.lowlevel.checkpoint()
        return f"fetched {word}"


async def fetch(word: str, client: object = None) -> str:
    """Fetch a word."""
    await anyio.lowlevel.checkpoint()
    return f"fetched {word} by {client}"


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("fn", "options", "name", "description", "expected"),
    [
        (Index().find, {}, "find", "Find a word.", "found x"),
        (Index.kinds, {}, "kinds", "", "Index x"),
        (Index.size, {}, "size", "", "size x"),
        (Index(), {"name": "index"}, "index", "An index.", "called x"),
        (Fetcher(), {"name": "fetcher"}, "fetcher", "Fetch a word.", "fetched x"),
        (fetch, {}, "fetch", "Fetch a word.", "fetched x by None"),
        (functools.partial(fetch, client="me"), {}, "fetch", "Fetch a word.", "fetched x by me"),
        (functools.partial(functools.partial(Index().find)), {}, "find", "Find a word.", "found x"),
        (logged(Index().find), {}, "find", "Find a word.", "found x"),
        (logged(fetch), {}, "fetch", "Fetch a word.", "fetched x by None"),
        (lambda word: fetch(word, "lambda"), {"name": "fetch"}, "fetch", "", "fetched x by lambda"),
        (tool(fetch), {"name": "again"}, "again", "Fetch a word.", "fetched x by None"),
    ],
)
async def test_anything_that_can_be_called_by_name_can_be_a_tool(
    fn: Any, options: Any, name: str, description: str, expected: str
):
    made = FunctionTool(fn, **options)
    assert (made.spec.name, made.spec.description) == (name, description)
    (parameter,) = {"word", "prefix", "of"} & set(made.spec.parameters["properties"])
    assert await made.call({parameter: "x"}, CONTEXT) == expected


def test_what_a_partial_has_bound_is_not_offered_to_the_model():
    assert list(FunctionTool(functools.partial(fetch, client=object())).spec.parameters["properties"]) == ["word"]


@pytest.mark.anyio
async def test_a_parameter_for_the_context_is_not_offered_and_is_given():
    async def nested(task: str, context: ToolContext) -> list[Any]:
        return [task, context.run, context.call.id]

    made = FunctionTool(nested)
    assert list(made.spec.parameters["properties"]) == ["task"]
    assert await made.call({"task": "t"}, CONTEXT) == ["t", RUN, "c1"]
    with pytest.raises(ToolError, match="context: is not known"):
        await made.call({"task": "t", "context": {}}, CONTEXT)


def test_a_decorated_function_can_be_called_as_before():
    @tool
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    @tool(name="triple", alone=True, timeout_s=5)
    def times_three(n: int) -> int:
        return 3 * n

    assert double(4) == 8
    assert double.__doc__ == "Twice."
    assert times_three(4) == 12
    assert (times_three.spec.name, times_three.alone, times_three.timeout_s) == ("triple", True, 5)
    assert (double.alone, double.timeout_s) == (False, None)


def star(*words: str) -> None: ...
def stars(**words: str) -> None: ...
def positional(word: str, /) -> None: ...
def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


class Opaque: ...


def opaque(client: Opaque) -> None: ...
def unknown_type(word: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def callback(then: Callable[[int], int]) -> None: ...
def field_default(limit: int = Field(ge=1)) -> None: ...
def größe() -> None: ...  # noqa: PLC2401
def named_in_german(größe: int) -> None: ...  # noqa: PLC2401
def broken_pattern(word: Annotated[str, Field(pattern="(")]) -> None: ...
def terminate() -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "says"),
    [
        (star, {}, r"star: the parameter 'words' is variadic positional"),
        (stars, {}, r"'words' is variadic keyword"),
        (positional, {}, r"'word' is positional-only"),
        (len, {}, r"positional-only"),
        (dict.fromkeys, {}, r"positional-only"),
        (generator, {}, r"generator is a generator.*return a list"),
        (async_generator, {}, r"is a generator"),
        (opaque, {}, r"opaque: its parameters cannot be described.*Opaque"),
        (unknown_type, {}, r"'word': its annotation 'Missing' cannot be read \(NameError"),
        (callback, {}, r"callback: its parameters cannot be described"),
        (field_default, {}, r"'limit' has a Field\(\) as its default; write Annotated"),
        (broken_pattern, {}, r"broken_pattern: its parameters cannot be described"),
        (größe, {}, r"'größe' cannot be the name of a tool.*give name="),
        (named_in_german, {}, r"'größe': not every provider takes this name"),
        (Index.find, {}, r"'self' belongs to an object; give the bound method"),
        (Index, {}, r"is no tool"),
        ("search", {}, r"'search' is no tool"),
        (lambda: 1, {}, r"has no name; give name="),
        (Index(), {}, r"has no name; give name="),
        (functools.partial(Index()), {}, r"has no name; give name="),
        (search, {"name": ""}, r"'' cannot be the name"),
        (search, {"name": "a b"}, r"'a b' cannot be the name"),
        (search, {"name": "1st"}, r"'1st' cannot be the name"),
        (search, {"name": "x" * 65}, r"cannot be the name"),
        (search, {"name": 7}, r"7 cannot be the name"),
        (terminate, {}, r"a tool cannot be called 'terminate'"),
        (search, {"timeout_s": 0}, r"timeout_s=0: give seconds above 0"),
        (search, {"timeout_s": -1}, r"timeout_s=-1"),
        (search, {"timeout_s": math.nan}, r"timeout_s takes a number, not nan"),
        (search, {"timeout_s": math.inf}, r"timeout_s=inf"),
        (search, {"timeout_s": True}, r"timeout_s takes a number, not True"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_when_it_is_made(fn: Any, options: Any, says: str):
    with pytest.raises(ConfigError, match=says):
        FunctionTool(fn, **options)


def test_a_return_annotation_that_is_not_there_at_run_time_does_no_harm():
    def look(word: str) -> "Missing":  # type: ignore[name-defined]  # noqa: F821
        return word

    assert FunctionTool(look).spec.name == "look"


# --- several


def test_functions_and_tools_are_collected_by_name():
    class Mine:
        spec = ToolSpec("mine", "", {"type": "object"})

        async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
            return 1

    mine: Tool = Mine()
    made = Registry([search, mine, tool(name="find")(search)])
    assert list(made) == ["search", "mine", "find"]
    assert made["mine"] is mine
    assert isinstance(made["search"], FunctionTool)
    assert dict(Registry([])) == {}


class Declared:
    def __init__(self, name: str) -> None:
        self.spec = ToolSpec(name, "", {})

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        return None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([Declared("emit_value")], "cannot be called 'emit_value'"),
        ([Declared("update_plan")], "cannot be called 'update_plan'"),
        ([Declared("a.b")], "'a.b' cannot be the name"),
        ([Declared], "is no tool"),
        ([{"name": "search"}], "is no tool"),
        ([None], "None is no tool"),
        (search, "give a list"),
        (None, "give a list"),
        ("search", "give a list"),
    ],
)
def test_what_cannot_be_collected_is_refused(given: Any, says: str):
    with pytest.raises(ConfigError, match=says):
        Registry(given)


# --- what the model sends


@pytest.mark.anyio
async def test_what_is_left_out_has_the_default_of_the_function():
    assert await answer(search, {"query": "q"}) == {"query": "q", "limit": 10, "order": "best", "filter": None}

    marker = object()

    def same(x: int, default: Any = marker) -> bool:
        return default is marker

    assert await answer(same, {"x": 1}) is True


@pytest.mark.anyio
async def test_arguments_become_what_the_annotations_say():
    @dataclass
    class Point:
        x: int

    def typed(n: int, points: list[Point], tags: set[str], filter: Filter, maybe: Optional[float] = 1.0) -> list[Any]:  # noqa: A002, UP045
        return [n, points, tags, filter, maybe]

    given = {
        "n": "3",
        "points": [{"x": 1}],
        "tags": ["a", "a"],
        "filter": {"field": "f", "at_least": "2"},
        "maybe": None,
    }
    assert await answer(typed, given) == [3, [Point(1)], {"a"}, Filter(field="f", at_least=2), None]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "query: is required"),
        ({"query": 3}, "query: Input should be a valid string, not 3"),
        ({"query": "q", "limit": 0}, "limit: Input should be greater than or equal to 1, not 0"),
        ({"query": "q", "limit": "many"}, "limit: Input should be a valid integer.*, not 'many'"),
        ({"query": "q", "order": "worst"}, "order: Input should be 'new' or 'best', not 'worst'"),
        ({"query": "q", "filter": {}}, "filter.field: is required"),
        ({"query": "q", "limits": 3}, "limits: is not known"),
        ({"query": "q", "p1": 3}, "p1: is not known"),
        (
            {"limit": 0, "q": 1},
            "query: is required; limit: .*; q: is not known. Arguments of search: query, limit, order, filter",
        ),
        ({"query": ["long"] * 1000}, r"not \['long', .{,100}\.\.\.\."),
        ({"query": "q", **dict.fromkeys("abcdefghijkl", 1)}, "h: is not known; and 4 more"),
    ],
)
async def test_arguments_that_do_not_fit_are_named_with_what_is_allowed(arguments: dict[str, Any], says: str):
    with pytest.raises(ToolError, match=f"^invalid arguments: .*{says}"):
        await answer(search, arguments)


@pytest.mark.anyio
async def test_a_validation_error_of_the_function_itself_is_its_own():
    def strict() -> Filter:
        return Filter.model_validate({})

    with pytest.raises(ValueError, match="1 validation error for Filter"):
        await answer(strict, {})


# --- where it runs


@pytest.mark.anyio
async def test_a_plain_function_runs_in_another_thread_with_the_callers_context_variables():
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")
    who.set("caller")

    def look() -> list[Any]:
        return [threading.get_ident(), who.get()]

    async def look_async() -> list[Any]:
        return look()

    here = threading.get_ident()
    elsewhere: Any = await answer(look, {})
    assert elsewhere[0] != here
    assert elsewhere[1] == "caller"
    assert await answer(look_async, {}) == [here, "caller"]


@pytest.mark.anyio
async def test_a_plain_function_may_call_the_event_loop():
    def through(word: str) -> Any:
        return anyio.from_thread.run(fetch, word)

    assert await answer(through, {"word": "x"}) == "fetched x by None"


@pytest.mark.anyio
async def test_a_cancellation_does_not_wait_for_the_thread():
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def stubborn() -> None:
        begun.set()
        go_on.wait(20)
        ended.set()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(answer, stubborn, {})
            await anyio.to_thread.run_sync(begun.wait, 20)
            group.cancel_scope.cancel()
        assert not ended.is_set()
    finally:
        go_on.set()
    assert await anyio.to_thread.run_sync(ended.wait, 20)


@pytest.mark.anyio
async def test_none_is_done_only_where_nothing_else_was_promised():
    def write() -> None: ...

    def look() -> str | None:
        return None

    def silent(): ...

    assert await answer(write, {}) == "done"
    assert await answer(look, {}) is None
    assert await answer(silent, {}) is None


# --- timeouts


@pytest.mark.anyio
async def test_a_function_that_takes_too_long_is_an_error_that_says_so():
    with pytest.raises(ToolError, match=r"sleep_forever did not answer within 0\.01 s"):
        await answer(anyio.sleep_forever, {}, timeout_s=0.01)


@pytest.mark.anyio
async def test_a_thread_that_takes_too_long_is_not_waited_for():
    go_on = threading.Event()

    def stubborn() -> bool:
        return go_on.wait(20)

    try:
        with pytest.raises(ToolError, match=r"did not answer within 0\.01 s"):
            await answer(stubborn, {}, timeout_s=0.01)
    finally:
        go_on.set()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})])
async def test_an_answer_within_the_time_counts_and_one_after_it_does_not():
    async def slow(seconds: float) -> str:
        await anyio.sleep(seconds)
        return "ready"

    assert await answer(slow, {"seconds": 59.9}, timeout_s=60) == "ready"
    with pytest.raises(ToolError, match="slow did not answer within 60 s"):
        await answer(slow, {"seconds": 60.1}, timeout_s=60)


@pytest.mark.anyio
async def test_a_timeout_of_the_functions_own_is_its_own_error():
    async def own() -> None:
        with anyio.fail_after(0):
            await anyio.sleep_forever()

    with pytest.raises(TimeoutError):
        await answer(own, {}, timeout_s=20)


@pytest.mark.anyio
async def test_abandoned_threads_do_not_starve_other_tools():
    """Also on trio, where a thread keeps its place in its limiter until it ends."""
    go_on = threading.Event()

    @tool(timeout_s=0.01)
    def hangs() -> bool:
        return go_on.wait(60)

    @tool
    def answers() -> str:
        return "here"

    async def hang() -> None:
        with pytest.raises(ToolError, match="did not answer"):
            await hangs.call({}, ToolContext(ToolCall("1", "hangs", {})))

    try:
        async with anyio.create_task_group() as group:
            for _ in range(60):
                group.start_soon(hang)
        with anyio.fail_after(30):
            assert await answers.call({}, ToolContext(ToolCall("2", "answers", {}))) == "here"
            assert await anyio.to_thread.run_sync(lambda: "here") == "here"
    finally:
        go_on.set()


def test_very_many_unknown_arguments_are_refused_in_few_words():
    @tool
    def one(a: int) -> int:
        return a

    with pytest.raises(ToolError, match=r"is not known.*and 99,?992 more.*Arguments of one: a\.") as caught:
        one.check({f"k{number}": number for number in range(100_000)})
    assert len(str(caught.value)) < 1_000


def test_equal_arguments_have_one_form_however_they_are_written():
    @tool
    def find(
        text: str,
        count: int = 1,
        tags: frozenset[str] = frozenset(),
        made: Annotated[str, Field(default_factory=lambda: uuid.uuid4().hex)] = ...,  # type: ignore[assignment]
    ) -> str:
        return text

    full = {"text": "a", "count": 1, "tags": ["y", "x", "y"]}
    assert find.normalised(full) == {"text": "a", "count": 1, "tags": ["x", "y"]}
    assert find.normalised({"text": "a", "count": "1", "tags": ["x", "y"]}) == find.normalised(full)
    assert find.normalised({"text": "a"}) == find.normalised({"text": "a", "count": 1, "tags": []})
    assert find.normalised({"text": "a", "count": 2}) != find.normalised({"text": "a"})
    with pytest.raises(ToolError):
        find.normalised({"count": 1})
