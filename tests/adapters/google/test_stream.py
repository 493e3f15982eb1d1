"""GoogleAdapter: the real SDK's objects from a local server, hand-made ones, and junk."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
from google.genai import errors, types
from hypothesis import given
from hypothesis import strategies as st

from monitor.adapters.adapter import StreamAdapter
from monitor.adapters.google.stream import GoogleAdapter
from monitor.chunks import (
    CHUNK_TYPES,
    Chunk,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    TurnFinished,
    UsageReport,
)
from monitor.errors import AdapterError, FinishReason
from monitor.models import ErrorKind
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import (
    Cut,
    Event,
    Script,
    blocked,
    call,
    chunk,
    finish,
    partial_call,
    piece,
    text,
    thought,
    usage,
    usage_only,
)
from tests.adapters.google.sdk import PLAIN, TRANSPORTS, decoded, of_type, sdk, sdk_warnings, stream

pytestmark = sdk_warnings

SIGNATURE = b64encode(b"sign").decode()


def response(event: Event) -> types.GenerateContentResponse:
    return types.GenerateContentResponse.model_validate(event)


def read(*events: Event, turn: int = 0) -> list[Chunk]:
    """The chunks of a stream of these wire events, the end of the stream included."""
    adapter = GoogleAdapter(turn)
    chunks = [one for event in events for one in adapter.decode(response(event))]
    return [*chunks, *adapter.finish()]


def test_it_is_a_stream_adapter():
    adapter: StreamAdapter = GoogleAdapter()
    assert adapter.needs_finish
    assert adapter.drains


# --- content


@pytest.mark.parametrize("response_id", [None, "r1"])
def test_text_and_thoughts_come_in_order(response_id: str | None):
    options: dict[str, Any] = {"response_id": response_id}
    chunks = read(
        thought("hm", **options), text("a", **options), text("b", **options), text("", **options), finish(**options)
    )
    assert chunks == [
        ReasoningDelta("hm"),
        TextDelta("a"),
        TextDelta("b"),
        UsageReport(input_tokens=7, output_tokens=3, total_tokens=10),
        TurnFinished(FinishReason.DONE, "STOP"),
    ]


def test_all_parts_of_a_chunk_are_read():
    parts: list[Event] = [
        {"text": "a"},
        {"text": "b", "thought": True},
        {"executableCode": {"code": "1", "language": "PYTHON"}},
        {"text": "c"},
    ]
    ran = ToolCallDelta("executable_code_0_1", "executable_code", "1")
    chunks = read(chunk(parts))
    kept = [one for one in chunks if isinstance(one, ReasoningDelta) and one.signature is not None]
    assert [one for one in chunks if one not in kept] == [TextDelta("a"), ReasoningDelta("b"), ran, TextDelta("c")]
    assert len(kept) == 1


def test_a_signature_comes_before_what_it_signs():
    chunks = read(
        thought("hm", signature=SIGNATURE),
        chunk([{"text": "a", "thoughtSignature": SIGNATURE}]),
        call("look", signature=SIGNATURE),
        chunk([{"text": "", "thoughtSignature": SIGNATURE}]),
    )
    assert chunks == [
        ReasoningDelta("hm", SIGNATURE),
        ReasoningDelta("", SIGNATURE),
        TextDelta("a"),
        ReasoningDelta("", SIGNATURE),
        ToolCall("call_0_0", "look", {}),
        ReasoningDelta("", SIGNATURE),
    ]


def test_calls_without_an_id_are_numbered_within_the_turn():
    chunks = read(call("look", {"q": [1, {"a": None}]}), call("see", id="its-own"), call("look"), turn=4)
    calls = of_type(ToolCall, chunks)
    assert [(one.id, one.name, one.arguments) for one in calls] == [
        ("call_4_0", "look", {"q": [1, {"a": None}]}),
        ("its-own", "see", {}),
        ("call_4_2", "look", {}),
    ]
    assert all(isinstance(one.raw, types.FunctionCall) for one in calls)


def test_the_end_of_a_streamed_text_that_comes_twice_does_not_empty_it():
    begun = partial_call(pieces=[piece("$.city", "Boston", more=True)], more=True)
    over = partial_call(pieces=[piece("$.city", "")], more=True)
    (one,) = of_type(ToolCall, read(partial_call("look", more=True), begun, over, over, partial_call()))
    assert one.arguments == {"city": "Boston"}


def test_a_call_that_comes_twice_with_its_id_is_one_call():
    chunks = read(call("pay", {"n": 1}, id="a"), call("pay", {"n": 1}, id="a"), call("pay", {"n": 1}, id="b"))
    assert [one.id for one in of_type(ToolCall, chunks)] == ["a", "b"]
    again = read(call("pay", {"n": 1}, id="a"), call("pay", {"n": 2}, id="a"), call("pay", {"n": 1}))
    assert [one.arguments for one in of_type(ToolCall, again)] == [{"n": 1}, {"n": 2}, {"n": 1}]


def test_only_the_first_candidate_is_read():
    other = {"index": 1, "content": {"parts": [{"text": "other"}]}, "finishReason": "STOP"}
    first = {"index": 0, "content": {"parts": [{"text": "first"}]}}
    assert read({"candidates": [other, first]}, {"candidates": [other]}) == [TextDelta("first")]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"candidates": []},
        {"candidates": [{}]},
        chunk(None),
        chunk([]),
        chunk([{}]),
        {"candidates": [{"content": {}}]},
        {"usageMetadata": {}},
    ],
)
def test_chunks_without_content_say_nothing(event: Event):
    assert read(event) == []


# --- usage


def test_usage_is_a_running_total_merged_field_by_field():
    chunks = read(
        usage_only(100, cached=40, tool_use=5),
        text("a", usage=usage(100, thoughts=20)),
        text("b", usage={"trafficType": "ON_DEMAND"}),
        text("c", usage=usage(100, output=3, thoughts=20)),
        text("d", usage=usage(90, output=2)),
        finish(usage=usage(100, output=9, thoughts=20)),
    )
    assert of_type(UsageReport, chunks) == [
        UsageReport(input_tokens=105, cached_tokens=40, total_tokens=105),
        UsageReport(input_tokens=105, output_tokens=20, reasoning_tokens=20, cached_tokens=40, total_tokens=120),
        UsageReport(input_tokens=105, output_tokens=23, reasoning_tokens=20, cached_tokens=40, total_tokens=123),
        UsageReport(input_tokens=105, output_tokens=29, reasoning_tokens=20, cached_tokens=40, total_tokens=129),
    ]


@given(
    st.lists(
        st.fixed_dictionaries(
            {}, optional=dict.fromkeys(["prompt", "output", "thoughts", "cached"], st.integers(0, 9))
        ),
        max_size=9,
    )
)
def test_usage_never_decreases(counts: list[dict[str, int]]):
    events = [text("a", usage=usage(one.pop("prompt", 0), **one), response_id="r") for one in counts]
    reports = of_type(UsageReport, read(*events))
    for field in ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "total_tokens"):
        values = [getattr(report, field) or 0 for report in reports]
        assert values == sorted(values)
    assert len(set(reports)) == len(reports), "only what grew is reported"


# --- the end of a turn


@pytest.mark.parametrize(
    ("word", "finish_reason"),
    [
        ("STOP", FinishReason.DONE),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("CONTINUATION", FinishReason.INTERRUPTED),
        ("MALFORMED_FUNCTION_CALL", FinishReason.MALFORMED),
        ("UNEXPECTED_TOOL_CALL", FinishReason.MALFORMED),
        ("MALFORMED_RESPONSE", FinishReason.MALFORMED),
        ("MISSING_THOUGHT_SIGNATURE", FinishReason.MALFORMED),
        ("TOO_MANY_TOOL_CALLS", FinishReason.MALFORMED),
        ("SAFETY", FinishReason.BLOCKED),
        ("RECITATION", FinishReason.BLOCKED),
        ("OTHER", FinishReason.BLOCKED),
    ],
)
def test_finish_reasons_have_a_class_and_keep_their_word(word: str, finish_reason: FinishReason):
    assert read(finish(word, parts=None, usage=None)) == [TurnFinished(finish_reason, word)]
    assert read(finish(word, usage=None, message="why")) == [TurnFinished(finish_reason, f"{word}: why")]


# the SDK's own, for the word that is the test
@pytest.mark.filterwarnings("ignore:BRAND_NEW is not a valid FinishReason:UserWarning")
def test_an_unknown_finish_reason_is_unknown():
    assert read(finish("BRAND_NEW", usage=None)) == [TurnFinished(FinishReason.UNKNOWN, "BRAND_NEW")]


def test_a_blocked_prompt_ends_the_turn():
    assert read(blocked("SAFETY"))[-1] == TurnFinished(FinishReason.BLOCKED, "SAFETY")
    said = {"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "no"}}
    assert read(said) == [TurnFinished(FinishReason.BLOCKED, "OTHER: no")]


def test_a_stream_without_a_finish_reason_is_given_none():
    assert read(text("half"), finish("FINISH_REASON_UNSPECIFIED", usage=None)) == [TextDelta("half")]


def test_a_finish_reason_on_every_chunk_ends_the_turn_once():
    events = [text(word, finish_reason="STOP", response_id="r") for word in "ab"]
    assert read(*events) == [TextDelta("a"), TurnFinished(FinishReason.DONE, "STOP"), TextDelta("b")]
    calls = [call("look", finish_reason="STOP"), call("see", finish_reason="STOP")]
    assert [type(one) for one in read(*calls)] == [ToolCall, TurnFinished, ToolCall], (
        "some gateways send no response id"
    )
    last = of_type(TurnFinished, read(*events, finish("SAFETY", response_id="r")))
    assert [one.finish_reason for one in last] == [FinishReason.DONE, FinishReason.BLOCKED], "another word is said"


# --- streamed arguments


def call_text(chunks: list[Chunk]) -> str:
    return "".join(delta.arguments_text for delta in of_type(ToolCallDelta, chunks))


def test_a_streamed_call_comes_in_pieces_and_then_whole():
    chunks = read(
        partial_call("write", more=True, signature=SIGNATURE),
        partial_call(pieces=[piece("$.path", "/tm", more=True)], more=True),
        partial_call(pieces=[piece("$.path", 'p/"x"', more=True)], more=True),
        partial_call(pieces=[piece("$.path", "")], more=True),
        partial_call(
            pieces=[piece("$.n", 3), piece("$.ratio", 0.5), piece("$.flag", value=True), piece("$.gone", None)],
            more=True,
        ),
        partial_call(),
        finish(usage=None),
    )
    arguments = {"path": '/tmp/"x"', "n": 3, "ratio": 0.5, "flag": True, "gone": None}
    assert chunks[:3] == [
        ReasoningDelta("", SIGNATURE),
        ToolCallDelta("call_0_0", "write", ""),
        ToolCallDelta("call_0_0", None, '{"path":"/tm'),
    ]
    assert chunks[-2:] == [ToolCall("call_0_0", "write", arguments), TurnFinished(FinishReason.DONE, "STOP")]
    assert json.loads(call_text(chunks)) == arguments
    (made,) = of_type(ToolCall, chunks)
    assert made.raw.name == "write", "the SDK's first object of the call"
    assert type(made.arguments["n"]) is int


def leaves(value: Any, path: str) -> Iterator[dict[str, Any]]:
    """A value as the pieces in which the provider streams it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}['{key}']" if "." in key or "'" in key or "[" in key else f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    elif isinstance(value, str):
        for letter in value:
            yield piece(path, letter, more=True)
        yield piece(path, "")
    else:
        yield piece(path, value)


_scalars = st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.floats(-9, 9), st.text(max_size=4))
_keys = st.text('ab\u00e9 .["', min_size=1, max_size=4)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3), st.dictionaries(_keys, inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(_keys, _values, max_size=4), st.integers(1, 5))
def test_nested_arguments_are_put_together_from_their_paths(arguments: dict[str, Any], together: int):
    pieces = list(leaves(arguments, "$"))
    groups = [pieces[at : at + together] for at in range(0, len(pieces), together)]
    chunks = read(
        partial_call("write", more=True), *[partial_call(pieces=group, more=True) for group in groups], partial_call()
    )
    assert of_type(ToolCall, chunks) == [ToolCall("call_0_0", "write", arguments)]
    assert json.loads(call_text(chunks)) == arguments


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("$.a.b", {"a": {"b": 1}}),
        ("$.a[1].b", {"a": [None, {"b": 1}]}),
        ("$['a b'][\"c.d\"]", {"a b": {"c.d": 1}}),
        (r"$['it\'s']", {"it's": 1}),
    ],
)
def test_json_paths_are_read(path: str, arguments: Mapping[str, Any]):
    assert of_type(ToolCall, read(partial_call("f", [piece(path, 1)])))[0].arguments == arguments


def test_arguments_that_come_back_to_an_open_object_are_still_right():
    pieces = [piece("$.a.x", 1), piece("$.b", 2), piece("$.a.y", 3), piece("$.b", 4)]
    assert of_type(ToolCall, read(partial_call("f", pieces)))[0].arguments == {"a": {"x": 1, "y": 3}, "b": 4}


@pytest.mark.parametrize(
    "path", [None, "", "a", "$", "$[0].a", "$.", "$.a[", "$.a[x]", "$.a]", "$" + ".a" * 101, "$.a[9999]"]
)
def test_json_paths_that_cannot_be_right_are_refused(path: str | None):
    bad = piece("$.a", 1) | {"jsonPath": path}
    with pytest.raises(AdapterError, match="argument"):
        read(partial_call("f", [bad]))


@pytest.mark.parametrize(
    ("one", "other"), [("$.a", "$.a.b"), ("$.a", "$.a[0]"), ("$.a[0]", "$.a.b.c"), ("$.a.b", "$.a[0].b")]
)
def test_arguments_that_contradict_one_another_are_refused(one: str, other: str):
    with pytest.raises(AdapterError, match="contradict"):
        read(partial_call("f", [piece(one, 1), piece(other, 2)]))


def test_a_call_that_the_stream_cuts_off_is_no_whole_call():
    cut_off = [partial_call("delete", more=True), partial_call(pieces=[piece("$.path", "/tmp/", more=True)], more=True)]
    assert read(*cut_off)[-1] == ToolCall("call_0_0", "delete", '{"path":"/tmp/')
    assert read(*cut_off, finish("MAX_TOKENS", usage=None))[-2:] == [
        ToolCall("call_0_0", "delete", '{"path":"/tmp/'),
        TurnFinished(FinishReason.LENGTH, "MAX_TOKENS"),
    ]
    assert read(*cut_off, finish(usage=None))[-2] == ToolCall("call_0_0", "delete", '{"path":"/tmp/'), (
        "its string was still open"
    )
    assert read(*cut_off, partial_call("next", more=True))[2] == ToolCall("call_0_0", "delete", '{"path":"/tmp/')


def test_a_call_whose_end_is_missing_is_whole_where_the_turn_is_done():
    begun = [partial_call("look", more=True), partial_call(pieces=[piece("$.q", "x")], more=True)]
    assert ToolCall("call_0_0", "look", {"q": "x"}) in read(*begun, finish())
    two = read(*begun, partial_call("see", more=True), finish())
    assert [(one.id, one.arguments) for one in of_type(ToolCall, two)] == [("call_0_0", {"q": "x"}), ("call_0_1", "")]


def test_a_call_that_announced_arguments_is_whole_without_them_only_where_its_end_came():
    begun = partial_call("now", more=True)
    for events in ([begun], [begun, finish()], [begun, finish("MAX_TOKENS")], [begun, call("look")]):
        assert of_type(ToolCall, read(*events))[0].arguments == ""
    assert of_type(ToolCall, read(begun, partial_call(), finish()))[0].arguments == {}


def test_a_streamed_call_may_name_itself_in_every_piece():
    begun = [
        partial_call("look", [piece("$.q", "x", more=True)], more=True, id="c1"),
        partial_call("look", [piece("$.q", "y")], id="c1"),
    ]
    assert of_type(ToolCall, read(*begun)) == [ToolCall("c1", "look", {"q": "xy"})]


def test_whole_arguments_may_come_beside_streamed_ones():
    event = chunk([{"functionCall": {"args": {"n": [1]}}}])
    assert of_type(ToolCall, read(partial_call("f", [piece("$.q", "x")], more=True), event)) == [
        ToolCall("call_0_0", "f", {"q": "x", "n": [1]})
    ]


def test_an_end_without_a_call_says_nothing():
    assert read(partial_call(), text("a")) == [TextDelta("a")]


# --- what is none of the SDK's


@pytest.mark.parametrize("item", [None, 3, "text", {"candidates": []}, object(), TextDelta("a"), types.Part(text="a")])
def test_other_objects_are_refused_by_name(item: object):
    with pytest.raises(AdapterError, match="expected a GenerateContentResponse"):
        GoogleAdapter().decode(item)


class Explosive:
    """Its attributes raise what no attribute should."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("__") else RuntimeError(name)


_junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.just({}),
    st.just({1: object()}),
    st.just([None]),
    st.just("$.a"),
    st.builds(Explosive),
)


def holder(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of these attributes, each as it should be or junk."""
    usual = {name: st.one_of(strategy, strategy, _junk) for name, strategy in fields.items()}
    return st.one_of(_junk, st.fixed_dictionaries({}, optional=usual).map(lambda values: SimpleNamespace(**values)))


_piece = holder(
    json_path=st.sampled_from(["$.a", "$.a.b", "$.a[0]", "$.b[2]", "$"]),
    string_value=st.just("x"),
    will_continue=st.booleans(),
)
_call = holder(
    name=st.just("f"),
    id=st.just("c"),
    args=st.just({"a": 1}),
    will_continue=st.booleans(),
    partial_args=st.lists(_piece, max_size=2),
)
_part = holder(text=st.just("x"), thought=st.booleans(), thought_signature=st.just(b"s"), function_call=_call)
_candidate = holder(
    content=holder(parts=st.lists(_part, max_size=2)),
    finish_reason=st.just("STOP"),
    index=st.just(0),
    continuation_token=st.just(b"t"),
)
_item = holder(
    candidates=st.lists(_candidate, max_size=2),
    usage_metadata=holder(prompt_token_count=st.just(3), total_token_count=st.just(4)),
    prompt_feedback=holder(block_reason=st.just("SAFETY")),
    response_id=st.sampled_from(["r1", "r2"]),
    automatic_function_calling_history=st.just([]),
)


@given(st.lists(_item, max_size=4))
def test_junk_is_read_or_refused_and_nothing_else(items: list[object]):
    adapter = GoogleAdapter()
    for item in items:
        try:
            chunks = adapter.decode(item)
        except AdapterError:
            continue
        assert all(isinstance(one, CHUNK_TYPES) for one in chunks)
        assert all(type(one.text) is str for one in of_type(TextDelta, chunks))
    assert all(isinstance(one, ToolCall) for one in adapter.finish())


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (SimpleNamespace(text=5), "text of a part is int"),
        (SimpleNamespace(thought_signature=5), "signature is int"),
        (SimpleNamespace(function_call=SimpleNamespace(name="f", args=[1])), "args of a function call are list"),
        (SimpleNamespace(function_call=SimpleNamespace(name=5)), "`name` of a function call is int"),
        (SimpleNamespace(function_call=SimpleNamespace(args={"a": 1})), "no name"),
        (SimpleNamespace(function_call=SimpleNamespace(name="f", partial_args=3)), "`partial_args` is int, not a list"),
        (Explosive(), "not a readable GenerateContentResponse: RuntimeError"),
    ],
)
def test_a_broken_chunk_is_refused_with_what_is_broken(part: object, said: str):
    item = SimpleNamespace(candidates=[SimpleNamespace(content=SimpleNamespace(parts=[part]))])
    with pytest.raises(AdapterError, match=said):
        GoogleAdapter().decode(item)


# --- what the SDK does by itself


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


def with_tools(**automatic: bool) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(
        tools=[add], automatic_function_calling=types.AutomaticFunctionCallingConfig(**automatic)
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("ids", "config", "shown"),
    [
        (("r1", "r2"), types.GenerateContentConfig(tools=[add]), True),
        ((None, None), types.GenerateContentConfig(tools=[add]), True),
        (("r1", "r2"), with_tools(ignore_call_history=True), False),
    ],
)
async def test_calls_that_the_sdk_carries_out_end_a_turn_and_begin_another(
    transport: str, ids: tuple[str | None, str | None], config: types.GenerateContentConfig, *, shown: bool
):
    first, second = ids
    scripts = [
        [call("add", {"a": 1, "b": 2}, response_id=first), finish(response_id=first)],
        [text("three", response_id=second), finish(response_id=second)],
    ]
    adapter = GoogleAdapter()
    chunks: list[tuple[int, str]] = []
    with LocalGemini(scripts) as server:
        async with sdk(server, transport) as client:
            async for item in await stream(client, config):
                decoded = adapter.decode(item)
                chunks += [(adapter.turns, type(one).__name__) for one in decoded]
        assert len(server.requests) == 2
    kinds = [(1, "ToolCall"), (1, "UsageReport"), (1, "TurnFinished")]
    assert chunks == [*kinds, (2, "TextDelta"), (2, "UsageReport"), (2, "TurnFinished")]
    assert [(one.name, one.text, one.is_error) for one in adapter.results] == [("add", "3", False)] * shown


@pytest.mark.asyncio
async def test_tools_without_automatic_calling_are_read():
    with LocalGemini([[call("add", {"a": 1, "b": 2}), finish()]]) as server:
        async with sdk(server) as client:
            chunks = await decoded(client, with_tools(disable=True))
        assert len(server.requests) == 1
    assert of_type(ToolCall, chunks)[0].arguments == {"a": 1, "b": 2}


TOKEN = b64encode(b"checkpoint").decode()
CONTINUED: list[Script] = [
    [
        text("one ", response_id="r1"),
        text(
            "two ", finish_reason="CONTINUATION", continuation_token=TOKEN, usage=usage(5, output=2), response_id="r1"
        ),
    ],
    [text("three", response_id="r2"), finish(usage=usage(7, output=1), response_id="r2")],
]
RESUMED: list[Script] = [
    [
        text("one ", continuation_token=TOKEN, usage=usage(5, output=2), response_id="r1"),
        text("two ", response_id="r1"),
        Cut(),
    ],
    [text("three", response_id="r2"), finish(usage=usage(7, output=1), response_id="r2")],
]


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("scripts", [CONTINUED, RESUMED])
async def test_automatic_continuation_is_one_answer_of_several_requests(transport: str, scripts: list[Script]):
    adapter = GoogleAdapter()
    with LocalGemini(scripts) as server:
        async with sdk(server, transport) as client:
            chunks = await decoded(client, PLAIN, adapter)
        assert adapter.requests == len(server.requests) == 2
    assert "".join(one.text for one in of_type(TextDelta, chunks)) == "one two three"
    assert of_type(TurnFinished, chunks) == [TurnFinished(FinishReason.DONE, "STOP")]
    assert of_type(UsageReport, chunks)[-1] == UsageReport(input_tokens=12, output_tokens=3, total_tokens=15), (
        "both requests"
    )


@pytest.mark.asyncio
async def test_without_automatic_continuation_the_answer_is_cut_off():
    adapter = GoogleAdapter()
    config = PLAIN.model_copy(update={"automatic_continuation": False})
    with LocalGemini(CONTINUED) as server:
        async with sdk(server) as client:
            chunks = await decoded(client, config, adapter)
        assert adapter.requests == len(server.requests) == 1
    assert chunks[-1] == TurnFinished(FinishReason.INTERRUPTED, "CONTINUATION")


# --- failures


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def in_context(error: BaseException, context: BaseException) -> BaseException:
    error.__context__ = context
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AdapterError("broken"), ErrorKind.MALFORMED),
        (TimeoutError(), ErrorKind.NETWORK),
        (ConnectionResetError("gone"), ErrorKind.NETWORK),
        (caused(RuntimeError("wrapped"), OSError("down")), ErrorKind.NETWORK),
        (in_context(RuntimeError("wrapped"), OSError("down")), ErrorKind.NETWORK),
        (caused(RuntimeError("wrapped"), errors.ServerError(500, {})), ErrorKind.SERVER),
        (ExceptionGroup("several", [ValueError("no"), OSError("down")]), ErrorKind.NETWORK),
        (json.JSONDecodeError("bad", "", 0), ErrorKind.MALFORMED),
        (errors.UnknownApiResponseError("bad"), ErrorKind.MALFORMED),
        (ValueError("no"), ErrorKind.UNKNOWN),
        (KeyError(), ErrorKind.UNKNOWN),
        (errors.APIError(302, {}), ErrorKind.UNKNOWN),
        (type("RefreshError", (Exception,), {"__module__": "google.auth.exceptions"})(), ErrorKind.AUTH),
    ],
)
def test_exceptions_are_classed_by_what_they_are_and_came_from(error: BaseException, kind: ErrorKind):
    classed = GoogleAdapter().classify(error)
    assert classed.kind is kind
    assert classed.message


def test_a_wrong_configuration_is_no_malformed_stream():
    with pytest.raises(pydantic.ValidationError) as raised:
        types.GenerateContentConfig.model_validate({"temperature": "warm"})
    assert GoogleAdapter().classify(raised.value).kind is ErrorKind.REQUEST


def test_causes_in_a_circle_are_classed():
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__context__, other.__context__ = other, one
    assert GoogleAdapter().classify(one).kind is ErrorKind.UNKNOWN


def limited(details: Any, headers: Any = None) -> errors.ClientError:
    return errors.ClientError(429, {"error": {"details": details}}, SimpleNamespace(headers=headers))


@pytest.mark.parametrize(
    ("details", "headers", "retry_after_s"),
    [
        ([{"@type": "x.RetryInfo", "retryDelay": "0.25s"}], {"Retry-After": "9"}, 0.25),
        ([{"@type": "x.RetryInfo", "retryDelay": "soon"}], {"Retry-After": "9"}, 9),
        ([{"@type": "x.Other", "retryDelay": "1s"}, None, 3], {}, None),
        ([{"@type": "x.RetryInfo"}], {"retry-after": "later"}, None),
        ("nothing", {"retry-after": format_datetime(datetime.now(UTC) - timedelta(hours=1))}, 0),
        ({}, "no mapping", None),
        (None, None, None),
    ],
)
def test_the_wait_that_is_asked_for_is_found(details: Any, headers: Any, retry_after_s: float | None):
    assert GoogleAdapter().classify(limited(details, headers)).retry_after_s == retry_after_s


def test_a_date_to_retry_at_is_a_wait():
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=90))
    waits_s = GoogleAdapter().classify(limited([], {"retry-after": at})).retry_after_s
    assert waits_s is not None
    assert 60 < waits_s <= 90
    assert GoogleAdapter().classify(limited([], {"retry-after": "Fri, 20 Nov 2026 09:00:00"})).retry_after_s is None, (
        "no time zone"
    )


@given(_junk, _junk, _junk, _junk)
def test_classing_never_fails(details: Any, message: Any, status: Any, answer: Any):
    error = errors.APIError(429, {})
    error.details, error.message, error.status, error.response = details, message, status, answer
    assert GoogleAdapter().classify(error).kind is ErrorKind.RATE_LIMITED
