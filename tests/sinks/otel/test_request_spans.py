"""The spans of a proxy's requests."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from monitor.proxy import Proxy
from monitor.sinks import RequestSpans
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import finish, text, usage
from tests.proxy.asked import ask, chat, looping
from tests.sinks.otel.recorder import Recorder

pytestmark = pytest.mark.asyncio
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ANSWER = [text("hello"), finish(usage=usage(500, output=100))]


async def span_of(request: dict[str, Any], address: str | None = None, **headers: str) -> Any:
    recorder = Recorder()
    with LocalOpenAI([ANSWER]) as server:
        proxy = Proxy(address or server.base_url.removesuffix("/v1"), spans=RequestSpans(recorder.tracers))
        await ask(proxy, "POST", "/v1/chat/completions", request, headers=headers)
        await proxy.aclose()
    (span,) = recorder.spans
    return span


async def test_a_request_is_a_span_below_the_clients() -> None:
    span = await span_of(chat(), traceparent=PARENT)
    assert (span.name, span.kind) == ("chat m", SpanKind.SERVER)
    assert f"{span.context.trace_id:032x}" == PARENT[3:35]
    assert f"{span.parent.span_id:016x}" == PARENT[36:52]
    told = dict(span.attributes)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (500, 100)
    assert (told["agent_monitor.state"], told["agent_monitor.status"]) == ("ended", 200)


@pytest.mark.parametrize("parent", ["", "nonsense", "00-0-0-0"])
async def test_a_parent_that_is_none_is_ignored(parent: str) -> None:
    assert (await span_of(chat(), traceparent=parent)).parent is None


async def test_a_stop_is_on_the_span_and_a_failure_is_an_error() -> None:
    stopped = await span_of(looping(7))
    assert stopped.attributes["agent_monitor.stop"] == "loop_detected"
    assert "gen_ai.usage.input_tokens" not in stopped.attributes
    failed = await span_of(chat(), "http://127.0.0.1:9")
    assert (failed.status.status_code, failed.attributes["error.type"]) == (StatusCode.ERROR, "upstream")
