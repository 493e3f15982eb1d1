"""Events of the real anthropic SDK, as chunks; and what its exceptions mean."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.part_options import REDACTED
from monitor.adapters.adapter import ReportedFailure
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.chunks import ReasoningDelta, StreamRetried, TextDelta, ToolCall, ToolCallDelta, TurnFinished, UsageReport
from monitor.chunks import check as check_chunk
from monitor.errors import AdapterError, FinishReason
from monitor.messages import Reasoning
from monitor.models import ErrorKind, ModelError
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import (
    Cut,
    arguments,
    block_delta,
    block_start,
    block_stop,
    call,
    delta,
    finish,
    midstream_error,
    ping,
    redacted,
    say,
    signature,
    start,
    stop,
    text,
    think,
    thought,
    whole,
)
from monitor.wires.anthropic import kept_block
from tests.adapters.anthropic.sdk import ASKED, WAYS, Way, chunks_of, decoded, of_type, sdk, stream

DONE = TurnFinished(FinishReason.DONE, "end_turn")


def said(chunks: list[Any]) -> list[Any]:
    """Without usage, which every answer has."""
    return [chunk for chunk in chunks if not isinstance(chunk, UsageReport)]


# --- text and thinking


@pytest.mark.asyncio
async def test_a_text_comes_piece_by_piece_and_the_message_closes_it():
    chunks = await chunks_of([start(), ping(), *say("Par", "", "is."), *finish()])
    assert said(chunks) == [TextDelta("Par"), TextDelta("is."), DONE]


@pytest.mark.asyncio
async def test_the_signature_comes_with_the_last_piece_of_the_thinking_that_it_signs():
    chunks = await chunks_of(
        [start(), *think("I ", "look", "", " it up.", signed="c2ln"), *say("Paris.", index=1), *finish()]
    )
    assert said(chunks) == [
        ReasoningDelta("I "),
        ReasoningDelta("look"),
        ReasoningDelta(" it up.", "c2ln"),
        TextDelta("Paris."),
        DONE,
    ]


@pytest.mark.asyncio
async def test_thinking_that_is_not_shown_has_its_signature_alone_and_redacted_thinking_its_data():
    omitted, both = think(signed="c2ln"), think("hm", signed="b3RoZXI=", index=2)
    chunks = await chunks_of([start(), *omitted, *redacted("ZGF0YQ==", index=1), *both, *finish()])
    assert said(chunks) == [
        ReasoningDelta("", "c2ln"),
        ReasoningDelta("", REDACTED + "ZGF0YQ=="),
        ReasoningDelta("hm", "b3RoZXI="),
        DONE,
    ]


@pytest.mark.asyncio
async def test_thinking_may_be_unsigned_or_come_with_the_start_of_its_block():
    given = whole({"type": "thinking", "thinking": "all at once", "signature": "c2ln"}, index=1)
    chunks = await chunks_of([start(), *think("hm", signed=None), *given, *finish()])
    assert said(chunks) == [ReasoningDelta("hm"), ReasoningDelta("all at once", "c2ln"), DONE]


@pytest.mark.asyncio
async def test_thinking_that_was_cut_off_is_not_lost():
    script = [
        start(),
        block_start({"type": "thinking", "thinking": "", "signature": ""}),
        thought("one "),
        thought("two"),
    ]
    assert said(await chunks_of(script)) == [ReasoningDelta("one "), ReasoningDelta("two")]
    assert said(await chunks_of([*script, signature("c2ln")])) == [
        ReasoningDelta("one "),
        ReasoningDelta("two", "c2ln"),
    ]


# --- calls


@pytest.mark.asyncio
async def test_the_pieces_of_a_call_join_to_its_json_text():
    chunks = said(
        await chunks_of([start(), *call("look", {"q": "é", "n": [1]}, id="toolu_a", cut=5), *finish("tool_use")])
    )
    *pieces, made, finished = chunks
    assert pieces[0] == ToolCallDelta("toolu_a", "look", "")
    assert "".join(piece.arguments_text for piece in pieces) == '{"q": "é", "n": [1]}'
    assert {piece.name for piece in pieces[1:]} == {None}
    assert made == ToolCall("toolu_a", "look", {"q": "é", "n": [1]})
    assert (made.raw.id, made.raw.type) == ("toolu_a", "tool_use")
    assert finished == TurnFinished(FinishReason.DONE, "tool_use")


@pytest.mark.asyncio
async def test_several_calls_may_be_written_at_once():
    blocks = [
        block_start({"type": "tool_use", "id": f"toolu_{n}", "name": "look", "input": {}}, index=n) for n in (0, 1)
    ]
    pieces = [
        arguments('{"q":', index=0),
        arguments('{"q":', index=1),
        arguments("1}", index=1),
        arguments("0}", index=0),
    ]
    ends = [block_stop(index=1), block_stop(index=0)]
    calls = of_type(ToolCall, await chunks_of([start(), *blocks, *pieces, *ends, *finish("tool_use")]))
    assert [(made.id, made.arguments) for made in calls] == [("toolu_1", {"q": 1}), ("toolu_0", {"q": 0})]


@pytest.mark.asyncio
async def test_a_call_without_arguments_has_an_empty_object():
    both = [*call("now", id="toolu_a"), *call("now", id="toolu_b", index=1)]
    chunks = said(await chunks_of([start(), *both, *finish("tool_use")]))
    assert chunks == [
        ToolCallDelta("toolu_a", "now", ""),
        ToolCallDelta("toolu_a", None, "{}"),
        ToolCall("toolu_a", "now", {}),
        ToolCallDelta("toolu_b", "now", ""),
        ToolCallDelta("toolu_b", None, "{}"),
        ToolCall("toolu_b", "now", {}),
        TurnFinished(FinishReason.DONE, "tool_use"),
    ]


@pytest.mark.asyncio
async def test_arguments_may_come_whole_with_the_start_of_the_call():
    block = {"type": "tool_use", "id": "toolu_a", "name": "roll", "input": {"player": 1}}
    assert said(await chunks_of([start(), *whole(block), *finish("tool_use")]))[:-1] == [
        ToolCall("toolu_a", "roll", {"player": 1})
    ]
    replaced = said(await chunks_of([start(), *whole(block, arguments('{"player": 2}')), *finish("tool_use")]))
    assert replaced[:-1] == [
        ToolCallDelta("toolu_a", "roll", '{"player": 2}'),
        ToolCall("toolu_a", "roll", {"player": 2}),
    ]


HALF = block_start({"type": "tool_use", "id": "toolu_a", "name": "look", "input": {}})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "ending",
    [
        [],
        [Cut()],
        [block_stop(), *finish("max_tokens")],
        finish("max_tokens"),
        [block_stop(), *finish("model_context_window_exceeded")],
    ],
    ids=["end", "cut", "max_tokens", "no stop of the block", "window"],
)
@pytest.mark.parametrize("written", [[], [arguments("")], [arguments('{"q": "ha')]], ids=["nothing", "empty", "half"])
async def test_a_call_that_was_cut_off_does_not_look_like_a_whole_one(written: list[Any], ending: list[Any]):
    with LocalAnthropic([[start(), HALF, *written, *ending]]) as server:
        async with sdk(server) as client:
            adapter = AnthropicAdapter()
            chunks: list[Any] = []
            with suppress(httpx2.RemoteProtocolError):
                async for item in await stream(client):
                    chunks += adapter.decode(item)
            chunks += adapter.finish()
    (made,) = of_type(ToolCall, chunks)
    assert made.arguments == "".join(piece["delta"]["partial_json"] for piece in written)


@pytest.mark.asyncio
@pytest.mark.parametrize("words", ['{"q": }', "[1, 2]", "null", '"text"', "{" * 5000, "1" * 5000])
async def test_what_is_no_json_object_is_kept_as_text(words: str):
    (made,) = of_type(
        ToolCall, await chunks_of([start(), *whole(HALF["content_block"], arguments(words)), *finish("tool_use")])
    )
    assert made.arguments == words


@pytest.mark.asyncio
async def test_a_call_without_an_id_gets_one_that_no_other_stream_of_the_run_has():
    block = {"type": "tool_use", "name": "look", "input": {}}
    script = [start(), *whole(block), *whole(block, index=1), *finish("tool_use")]
    calls = of_type(ToolCall, await chunks_of(script, adapter=AnthropicAdapter(3)))
    assert [made.id for made in calls] == ["call_3_0", "call_3_1"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("script", "what"),
    [
        ([start(), block_start({"type": "tool_use", "id": "a", "input": {}})], "has no name"),
        ([start(), arguments('{"q": 1}', index=4)], "arguments came for block 4, which has not begun"),
        ([start(), text(5)], "`text` of .* is int, not str"),  # type: ignore[arg-type]
        ([{"type": "message_start", "message": {"content": 5}}], "`content` is int, not a list"),
        ([{"type": "message_delta", "usage": {}}], "has no `delta`"),
        ([start(), arguments("a", index="x")], "`index` of .* is str, not int"),  # type: ignore[arg-type]
    ],
)
async def test_a_broken_event_is_an_adapter_error_that_says_what_is_wrong(script: list[Any], what: str):
    with pytest.raises(AdapterError, match=what):
        await chunks_of(script)


# --- what the service does by itself

SERVED: list[Any] = [
    {"type": "server_tool_use", "id": "srvtoolu_0", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_0", "content": []},
    {"type": "mcp_tool_use", "id": "mcptoolu_0", "name": "x", "server_name": "y", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_0", "is_error": False, "content": []},
    {"type": "container_upload", "file_id": "file_0"},
    {"type": "compaction", "content": None},
    {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": {"type": "refusal"}},
    {"type": "a_block_of_tomorrow", "text": "whatever"},
]


ONLY_BETA = {"compaction"}  # the plain helper does not know it


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("block", "way"),
    [(block, way) for block in SERVED for way in WAYS if "beta" in way.__name__ or block["type"] not in ONLY_BETA],
    ids=lambda value: value["type"] if isinstance(value, dict) else value.__name__,
)
async def test_what_the_model_writes_for_the_service_is_read_and_is_no_call_of_the_callers(
    block: dict[str, Any], way: Way
):
    pieces = [arguments('{"q": "ha')] if "input" in block else []
    pieces += (
        [block_delta({"type": "compaction_delta", "content": "the summary"})] if block["type"] == "compaction" else []
    )
    cited = block_delta({"type": "citations_delta", "citation": {"type": "char_location"}})
    script = [
        start(),
        *whole(block, *pieces),
        *whole({"type": "text", "text": ""}, cited, text("So."), index=1),
        *finish(),
    ]
    chunks = said(await chunks_of(script, way=way))
    written = {"server_tool_use": '{"q": "ha', "mcp_tool_use": '{"q": "ha', "compaction": "the summary"}
    deltas = [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    assert "".join(one.arguments_text for one in deltas) == written.get(block["type"], "")
    kept = [chunk for chunk in chunks if isinstance(chunk, ReasoningDelta)]
    assert [chunk for chunk in chunks if chunk not in deltas + kept] == [TextDelta("So."), DONE]
    blocks = [kept_block(Reasoning("", chunk.signature)) for chunk in kept]
    whole_block = block | ({"content": "the summary"} if block["type"] == "compaction" else {})
    cut_off = "input" in block  # half of an input is no input
    assert [one for one in blocks if one is not None] == ([] if cut_off else [whole_block])


@pytest.mark.asyncio
async def test_a_message_may_bring_its_content_and_its_end_at_once():
    content: list[Any] = [
        {"type": "text", "text": "Rolled."},
        {"type": "tool_use", "id": "toolu_a", "name": "roll", "input": {"player": 1}},
    ]
    script = [start(content=content, stop_reason="tool_use"), stop()]
    assert said(await chunks_of(script)) == [
        TextDelta("Rolled."),
        ToolCall("toolu_a", "roll", {"player": 1}),
        TurnFinished(FinishReason.DONE, "tool_use"),
    ]


@pytest.mark.asyncio
async def test_a_message_after_another_goes_on_with_the_turn_and_finishes_it_again_only_in_another_way():
    adapter = AnthropicAdapter()
    script = [
        start(10),
        *say("one "),
        *finish("tool_use", output_tokens=5),
        start(20),
        *say("two"),
        *finish(output_tokens=6),
    ]
    assert said(await chunks_of(script, adapter=adapter)) == [
        TextDelta("one "),
        TurnFinished(FinishReason.DONE, "tool_use"),
        TextDelta("two"),
    ]
    assert adapter.requests == 2


@pytest.mark.asyncio
async def test_what_is_void_is_so_with_all_that_came_before_it():
    script = [
        start(10),
        *say("one"),
        *finish(output_tokens=5),
        start(20),
        text("tw"),
        start(30),
        *say("all"),
        *finish(output_tokens=6),
    ]
    chunks = await chunks_of(script)
    (retried,) = [at for at, chunk in enumerate(chunks) if isinstance(chunk, StreamRetried)]
    assert said(chunks[retried + 1 :]) == [TextDelta("all"), DONE]
    assert of_type(UsageReport, chunks)[-1] == UsageReport(30, 6, None, None, 36)


@pytest.mark.asyncio
async def test_the_tokens_of_the_messages_of_a_stream_are_added():
    adapter = AnthropicAdapter()
    script = [
        start(10),
        *say("one "),
        *finish(output_tokens=5),
        start(20),
        *say("two"),
        *finish("max_tokens", output_tokens=6),
    ]
    chunks = await chunks_of(script, adapter=adapter)
    assert adapter.requests == 2
    assert said(chunks) == [TextDelta("one "), DONE, TextDelta("two"), TurnFinished(FinishReason.LENGTH, "max_tokens")]
    assert of_type(UsageReport, chunks)[-1] == UsageReport(30, 11, None, None, 41)


@pytest.mark.asyncio
@pytest.mark.parametrize("way", WAYS[1:], ids=lambda way: way.__name__)
async def test_every_way_to_stream_gives_the_same_chunks_and_nothing_twice(way: Way):
    script = [
        start(),
        *think("a", "b"),
        *say("c", "d", index=1),
        *call("f", {"x": 1}, index=2),
        *finish("tool_use", output_tokens=9),
    ]
    assert await chunks_of(script, way=way) == await chunks_of(script)


@pytest.mark.asyncio
async def test_the_helpers_stream_of_plain_text_is_text_and_ends_by_ending():
    with LocalAnthropic([[start(), *think("hm"), *say("Par", "is.", index=1), *finish()]]) as server:
        async with sdk(server) as client, client.messages.stream(**ASKED) as helper:
            adapter = AnthropicAdapter()
            chunks = [chunk async for item in helper.text_stream for chunk in adapter.decode(item)]
    assert chunks == [TextDelta("Par"), TextDelta("is.")]
    assert not adapter.needs_finish
    assert list(adapter.decode("")) == []


@pytest.mark.asyncio
async def test_plain_text_is_told_without_a_second_look_and_only_where_nothing_else_is_due():
    with LocalAnthropic([[start(), text("a"), thought("b"), text("c"), text("d"), stop()]]) as server:
        async with sdk(server) as client:
            adapter = AnthropicAdapter()
            told = []
            async for item in await stream(client):
                told.append(adapter.plain_text(item))
                adapter.decode(item)
    assert told == [None, "a", None, None, "d", None]


# --- whatever comes

EVENT_TYPES = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "ping",
    ]
)
KINDS = st.sampled_from(
    [
        *("text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"),
        *("text_delta", "thinking_delta", "signature_delta", "input_json_delta", "compaction_delta"),
    ]
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.integers(-1, 3),
    st.booleans(),
    st.just({"q": 1}),
    st.just("max_tokens"),
    st.just([]),
    st.floats(),
)
FIELDS = st.sampled_from(
    [
        *(
            "text",
            "thinking",
            "signature",
            "data",
            "id",
            "name",
            "input",
            "partial_json",
            "stop_reason",
            "stop_details",
            "usage",
            "content",
        ),
        *(
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "output_tokens_details",
            "message",
            "explanation",
        ),
    ]
)
PARTS = st.builds(
    lambda kind, fields: SimpleNamespace(**({"type": kind} | fields)),
    KINDS,
    st.dictionaries(FIELDS, VALUES, max_size=4),
)
EVENTS = st.builds(
    lambda kind, index, part, usage: SimpleNamespace(
        type=kind, index=index, delta=part, content_block=part, message=part, error=part, usage=usage
    ),
    EVENT_TYPES,
    st.integers(0, 2),
    PARTS,
    PARTS,
)


@given(st.lists(EVENTS, max_size=8))
def test_whatever_events_come_there_are_chunks_or_an_adapter_error(events: list[Any]):
    adapter = AnthropicAdapter()
    chunks: list[Any] = []
    for event in events:
        with suppress(AdapterError):
            chunks += adapter.decode(event)
    chunks += adapter.finish()
    for chunk in chunks:
        check_chunk(chunk)
    since = max((at + 1 for at, chunk in enumerate(chunks) if isinstance(chunk, StreamRetried)), default=0)
    for count in ("input_tokens", "output_tokens"):
        totals = [getattr(report, count) or 0 for report in of_type(UsageReport, chunks[since:])]
        assert totals == sorted(totals)


# --- usage


@pytest.mark.asyncio
async def test_usage_is_a_running_total_whose_fields_are_merged_and_which_includes_the_cache():
    first = start(10, cache_creation_input_tokens=100, cache_read_input_tokens=1000)
    last = delta("end_turn", output_tokens=50, output_tokens_details={"thinking_tokens": 30}, input_tokens=12)
    reports = of_type(UsageReport, await chunks_of([first, *say("a"), delta(None, output_tokens=20), last, stop()]))
    assert reports == [
        UsageReport(1110, 1, None, 1000, 1111, 100),
        UsageReport(1110, 20, None, 1000, 1130, 100),
        UsageReport(1112, 50, 30, 1000, 1162, 100),
    ]


@pytest.mark.asyncio
async def test_input_written_to_the_cache_for_an_hour_is_told_apart():
    first = start(10, cache_creation_input_tokens=100, cache_creation={"ephemeral_1h_input_tokens": 40})
    reports = of_type(UsageReport, await chunks_of([first, *say("a"), *finish()]))
    assert (reports[-1].cache_write_tokens, reports[-1].cache_write_1h_tokens) == (100, 40)


@pytest.mark.asyncio
async def test_a_total_that_becomes_smaller_or_is_none_is_not_believed():
    odd = [delta(None, output_tokens=n) for n in (5, 3, -1, True, None)]  # type: ignore[arg-type]
    reports = of_type(UsageReport, await chunks_of([start(10), *odd, stop()]))
    assert [report.output_tokens for report in reports] == [1, 5]


# --- why it ended


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("word", "finish_reason"),
    [
        ("end_turn", FinishReason.DONE),
        ("tool_use", FinishReason.DONE),
        ("stop_sequence", FinishReason.DONE),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("pause_turn", FinishReason.INTERRUPTED),
        ("compaction", FinishReason.INTERRUPTED),
        ("a_word_of_tomorrow", FinishReason.UNKNOWN),
        ("refusal", FinishReason.BLOCKED),
    ],
)
async def test_stop_reasons_have_a_class(word: str, finish_reason: FinishReason):
    chunks = await chunks_of([start(), *say("a"), *finish(word)])
    assert of_type(TurnFinished, chunks) == [TurnFinished(finish_reason, word)]


@pytest.mark.asyncio
async def test_a_refusal_says_why():
    (finished,) = of_type(TurnFinished, await chunks_of([start(), *finish("refusal", explanation="No cyber.")]))
    assert finished == TurnFinished(FinishReason.BLOCKED, "refusal: No cyber.")


@pytest.mark.asyncio
async def test_a_stream_without_the_end_of_the_message_has_no_finish():
    assert of_type(TurnFinished, await chunks_of([start(), *say("a"), delta("end_turn")])) == []


@pytest.mark.asyncio
async def test_a_message_may_be_closed_without_a_word():
    assert said(await chunks_of([start(), *say("a"), stop()]))[-1] == TurnFinished(FinishReason.DONE, None)


# --- failures


async def failure(script: list[Any], *, transport: str = "httpx2", way: Way = stream) -> ModelError:
    with LocalAnthropic([script]) as server:
        async with sdk(server, transport) as client:
            with pytest.raises(Exception, match=r"\A") as raised:  # whatever it is
                await decoded(client, way)
    return AnthropicAdapter().classify(raised.value)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "script",
    [
        [start(), *whole(HALF["content_block"], arguments('{"q": }'))],
        [start(), midstream_error("api_error"), *finish()],
    ],
    ids=str,
)
async def test_what_the_helper_cannot_put_together_is_classed_as_well(script: list[Any]):
    for way in WAYS[2:]:
        assert (await failure(script, way=way)).kind in {ErrorKind.MALFORMED, ErrorKind.SERVER}


@pytest.mark.asyncio
async def test_no_key_is_a_matter_of_authentication(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    async with anthropic.AsyncAnthropic(base_url="http://127.0.0.1:1") as client:
        with pytest.raises(TypeError) as raised:
            await stream(client)
    assert AnthropicAdapter().classify(raised.value).kind is ErrorKind.AUTH
    assert AnthropicAdapter().classify(anthropic.CredentialsError("no file")).kind is ErrorKind.AUTH


@pytest.mark.asyncio
async def test_an_error_that_comes_as_an_event_like_any_other_is_a_failure_of_the_call():
    event = SimpleNamespace(type="error", error=SimpleNamespace(type="overloaded_error", message="Overloaded"))
    adapter = AnthropicAdapter()
    with pytest.raises(ReportedFailure) as raised:
        adapter.decode(event)
    assert adapter.classify(raised.value) == ModelError(ErrorKind.SERVER, "Overloaded", code="overloaded_error")
