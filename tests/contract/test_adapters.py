"""What holds for every adapter, found by its `decode`. A new one is under the contract as soon as
its file is there.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor.adapters
from monitor.adapters.adapter import _BY_MODULE, FullAdapter, StreamAdapter, find_adapter, find_adapter_of_source
from monitor.chunks import CHUNK_TYPES, Chunk, TextDelta
from monitor.errors import AdapterError
from monitor.models import ErrorKind, ModelError

MODULES = [name for _, name, _ in pkgutil.walk_packages(monitor.adapters.__path__, "monitor.adapters.")]


def adapters() -> Iterator[type]:
    for name in MODULES:
        for value in vars(importlib.import_module(name)).values():
            if (
                inspect.isclass(value)
                and value.__module__ == name
                and hasattr(value, "decode")
                and value not in (StreamAdapter, FullAdapter)
                and not inspect.isabstract(value)
            ):
                yield value


ADAPTERS: list[type[Any]] = sorted(adapters(), key=lambda cls: cls.__name__)
each_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda cls: cls.__name__)


def test_the_adapters_are_found():
    names = {cls.__name__ for cls in ADAPTERS}
    assert {"TextAdapter", "ChunkAdapter"} <= names
    assert {name for _, name in _BY_MODULE.values()} <= names


# --- the protocol


@each_adapter
def test_an_adapter_is_made_for_one_stream_of_a_run(adapter: type[Any]):
    for made in (adapter(), adapter(0), adapter(stream=7)):
        assert isinstance(made.needs_finish, bool)
        assert isinstance(made.drains, bool)


@each_adapter
@pytest.mark.parametrize("method", ["decode", "finish", "classify"])
def test_its_methods_are_those_of_the_protocol(adapter: type[Any], method: str):
    expected = inspect.signature(getattr(StreamAdapter, method)).parameters
    assert list(inspect.signature(getattr(adapter, method)).parameters) == list(expected)
    assert not inspect.iscoroutinefunction(getattr(adapter, method))


@each_adapter
def test_a_stream_of_which_nothing_came_owes_nothing(adapter: type[Any]):
    assert list(adapter().finish()) == []


@each_adapter
def test_an_adapter_is_freed_with_its_stream(adapter: type[Any]):
    """It is in no circle of references: thousands of streams leave nothing to the collector."""
    gc.collect()
    gc.disable()
    try:
        before = Counter(map(type, gc.get_objects()))
        for _ in range(3):
            adapter(0)
        left = Counter(map(type, gc.get_objects())) - before
        assert [kind for kind in left if kind.__module__.startswith("monitor.")] == []
    finally:
        gc.enable()


# --- objects that are none of the SDK's


class Hostile:
    """Every attribute that does not exist raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Text(str):
    __slots__ = ()


ON_THE_WIRE = {"choices": [{"delta": {"content": "x"}}]}

JUNK: list[Any] = [
    None,
    True,
    0,
    1.5,
    b"bytes",
    [],
    ["text"],
    {},
    {"candidates": []},
    ON_THE_WIRE,
    object(),
    object,
    Hostile(),
    SimpleNamespace(),
    SimpleNamespace(candidates=5, choices=5, content=5),
    SimpleNamespace(candidates=[Hostile()], choices=[Hostile()]),
    lambda: None,
    ValueError("x"),
    Exception,
    float("nan"),
    range(3),
]

NAMES = st.sampled_from(
    [
        *(
            "candidates",
            "content",
            "parts",
            "text",
            "thought",
            "thought_signature",
            "function_call",
            "name",
            "id",
            "args",
            "partial_args",
        ),
        *(
            "json_path",
            "string_value",
            "number_value",
            "will_continue",
            "usage_metadata",
            "total_token_count",
            "finish_reason",
            "index",
        ),
        *(
            "prompt_feedback",
            "block_reason",
            "response_id",
            "choices",
            "delta",
            "tool_calls",
            "arguments",
            "usage",
            "type",
            "message",
        ),
    ]
)
SHAPES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(NAMES, inner, max_size=4),
        st.dictionaries(NAMES, inner, max_size=4).map(lambda fields: SimpleNamespace(**fields)),
    ),
    max_leaves=12,
)
"""Objects with the SDKs' own attributes, and anything in them."""


def decoded(adapter: Any, item: object) -> Sequence[Chunk]:
    try:
        chunks: Sequence[Chunk] = adapter.decode(item)
    except AdapterError as error:
        assert str(error)  # noqa: PT017 - what is raised is the answer
        return ()
    assert all(isinstance(chunk, CHUNK_TYPES) for chunk in chunks)
    return chunks


@each_adapter
@pytest.mark.parametrize("item", JUNK, ids=lambda item: type(item).__name__)
def test_what_is_none_of_the_sdks_objects_is_an_adapter_error_and_nothing_else(adapter: type[Any], item: object):
    if adapter.__name__ == "OpenAIAdapter" and item is ON_THE_WIRE:
        assert [*adapter().decode(item)] == [TextDelta("x")]  # it reads plain JSON too
        return
    with pytest.raises(AdapterError):
        adapter().decode(item)


@each_adapter
@given(items=st.lists(SHAPES, max_size=4))
def test_whatever_has_the_sdks_shape_gives_chunks_or_an_adapter_error(adapter: type[Any], items: list[Any]):
    made = adapter(2)
    for item in items:
        decoded(made, item)
    assert all(isinstance(chunk, CHUNK_TYPES) for chunk in made.finish())


@each_adapter
def test_an_adapter_that_refused_an_object_can_still_be_asked_to_finish(adapter: type[Any]):
    made = adapter()
    with pytest.raises(AdapterError):
        made.decode(None)
    assert list(made.finish()) == []


# --- failures


class Mute(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")

    __repr__ = __str__


class Trap(Exception):
    """Looks like an SDK's error, and breaks when it is looked at."""

    code = 429
    status_code = 429

    @property
    def details(self) -> Any:
        raise RuntimeError("lazily computed, and broken")

    response = message = body = status = headers = details


class Odd(Exception):
    """Looks like an SDK's error, and has nothing of the right type."""

    code = 400
    details = ({"@type": 5, "retryDelay": []}, None, 7)
    status = 3.5
    message = b"bytes"
    response = SimpleNamespace(headers={5: None, "retry-after": object()})


def cycle() -> Exception:
    first, second = ValueError("first"), OSError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def chain(length: int) -> Exception:
    error = Exception("0")
    for number in range(1, length):
        following = Exception(str(number))
        following.__context__ = error
        error = following
    return error


FAILURES: list[BaseException] = [
    Exception(),
    Exception("\x00\ud800"),
    Exception("x" * 10**6),
    ValueError("bad"),
    json.JSONDecodeError("no", "x", 0),
    OSError(104, "reset"),
    ConnectionResetError(),
    TimeoutError(),
    AdapterError("broken"),
    RecursionError(),
    MemoryError(),
    StopAsyncIteration(),
    KeyboardInterrupt(),
    SystemExit(1),
    GeneratorExit(),
    asyncio.CancelledError(),
    ExceptionGroup("two", [ValueError("one"), ExceptionGroup("inner", [OSError("other")])]),
    BaseExceptionGroup("two", [KeyboardInterrupt(), Mute()]),
    Mute(),
    Trap("x"),
    Odd("x"),
    cycle(),
    chain(5000),
]


@each_adapter
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_every_failure_is_classed_and_classing_never_fails(adapter: type[Any], error: BaseException):
    model_error = adapter().classify(error)
    assert isinstance(model_error, ModelError)
    assert isinstance(model_error.kind, ErrorKind)
    assert isinstance(model_error.message, str)
    assert model_error.message
    assert model_error.retry_after_s is None or model_error.retry_after_s >= 0


@each_adapter
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AdapterError("broken"), ErrorKind.MALFORMED),
        (ConnectionResetError("gone"), ErrorKind.NETWORK),
        (TimeoutError("late"), ErrorKind.NETWORK),
        (ZeroDivisionError("mine"), ErrorKind.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_python_itself_tells_is_classed_alike_everywhere(adapter: type[Any], error: Exception, kind: ErrorKind):
    assert adapter().classify(error).kind is kind


# --- finding and importing them


SDKS = ("google", "openai", "anthropic", "httpx", "httpx2", "aiohttp", "requests", "trio")


def test_importing_an_adapter_imports_no_sdk():
    program = f"""\
import importlib, sys
for module in {MODULES!r}:
    importlib.import_module(module)
    for name in {{name.split(".")[0] for name in sys.modules}} & set({SDKS!r}):
        print(module, "imports", name)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=250, check=True, capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize(("prefix", "place"), _BY_MODULE.items())
def test_an_object_of_an_sdk_is_known_by_where_its_class_stands(prefix: str, place: tuple[str, str]):
    of_theirs = type("Response", (), {"__module__": f"{prefix}.types"})()
    lookalike = type("Response", (), {"__module__": f"{prefix}_of_mine"})()
    expected = getattr(importlib.import_module(place[0]), place[1])
    assert find_adapter(of_theirs) is find_adapter_of_source(of_theirs) is expected
    assert find_adapter(lookalike) is find_adapter_of_source(lookalike) is None


@pytest.mark.parametrize(
    ("item", "name"),
    [("x", "TextAdapter"), (Text("x"), "TextAdapter"), (TextDelta("x"), "ChunkAdapter"), (b"x", None), (None, None)],
)
def test_text_and_our_own_chunks_need_no_sdk(item: object, name: str | None):
    found = find_adapter(item)
    if name is None:
        assert found is None
    else:
        assert found is not None
        assert type(found(0)).__name__ == name
        assert list(found(0).decode(item))
