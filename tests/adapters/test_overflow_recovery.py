"""A request that the provider refuses for its size, over every wire format and through the real
SDKs: the run recovers and gets there.
"""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.context.compaction.templates import CHECKPOINT
from monitor.context.cut import KeepTokens
from monitor.testing import anthropic_steps, gemini_steps, openai_steps
from monitor.testing.gemini_steps import error_reply as gemini_error
from monitor.testing.local_server import ReceivedRequest
from monitor.testing.openai_steps import Reply, Script
from tests.adapters.google import sdk as google_sdk
from tests.adapters.provider import Provider
from tests.adapters.providers import PROVIDERS, each_provider
from tests.adapters.test_every_wire import emit

pytestmark = [pytest.mark.asyncio, google_sdk.sdk_warnings]

Reason = monitor.TerminateReason
SUMMARY = CHECKPOINT.skeleton({"Goal": "Say which city it is.", "Next Steps": "Emit it."})
KEYS = {"google": "contents", "anthropic": "messages", "openai": "messages", "openai-responses": "input"}
VERTEX = "Unable to submit request because the input token count is 60000 but it exceeds the maximum number of tokens."
SUM = "input length and `max_tokens` exceed context limit: 42000 + 9000 > 50000, decrease input length or `max_tokens`"
OPENROUTER = "This endpoint's maximum context length is 50000 tokens. However, you requested about 60000 tokens."
LLAMA = "the request exceeds the available context size. try increasing the context size"
XAI = "This model's maximum prompt length is 50000 but the request contains 60000 tokens."

REFUSALS: list[tuple[str, str, Reply]] = [
    ("google", "its own", gemini_steps.overflow(60_000, 50_000)),
    ("google", "on Vertex", gemini_error(400, VERTEX)),
    ("anthropic", "its own", anthropic_steps.overflow(60_000, 50_000)),
    ("anthropic", "of prompt and answer", anthropic_steps.error_reply(400, SUM)),
    ("anthropic", "of bytes", anthropic_steps.too_large()),
    ("openai", "its own", openai_steps.overflow(60_000, 50_000)),
    ("openai", "by its code alone", openai_steps.error_reply(400, "Bad input.", code="context_length_exceeded")),
    ("openai", "of OpenRouter", openai_steps.error_reply(400, OPENROUTER, code="400")),
    ("openai", "of llama.cpp", openai_steps.error_reply(400, LLAMA)),
    ("openai", "of xAI", openai_steps.error_reply(400, XAI)),
    ("openai", "of Cerebras: a bare 413", Reply(413, b"")),
    ("openai-responses", "its own", openai_steps.overflow(60_000, 50_000)),
]


def text(n: int) -> str:
    """A text of so many tokens."""
    return "word " * n


def served(provider: Provider, refusal: Reply, refused: int) -> Any:
    """Asks for two texts, refuses `refused` times, and goes on; whoever asks without tools gets a
    summary.
    """
    seen: dict[str, list[ReceivedRequest]] = {"work": [], "summaries": []}

    def answer(request: ReceivedRequest) -> Script:
        if not request.body.get("tools"):
            seen["summaries"].append(request)
            return provider.turn(SUMMARY)
        seen["work"].append(request)
        number = len(seen["work"])
        if number <= 2:
            return provider.turn("I look.", [("text", {"n": 6_000})])
        return [refusal] if number <= 2 + refused else provider.turn("", [emit("Paris")])

    return answer, seen


def size(provider: Provider, request: ReceivedRequest) -> int:
    return len(str(request.body[KEYS[provider.name]]))


@pytest.mark.feature("CL-07")
@pytest.mark.parametrize(
    ("name", "refusal"), [(name, reply) for name, _, reply in REFUSALS], ids=[f"{n}: {w}" for n, w, _ in REFUSALS]
)
async def test_a_refused_request_goes_out_again_smaller_and_the_run_reaches_its_goal(name: str, refusal: Reply):
    provider = next(one for one in PROVIDERS if one.name == name)
    answer, seen = served(provider, refusal, 1)
    sink = monitor.sinks.MemorySink()
    with provider.server(answer) as server:
        async with provider.sdk(server) as client:
            model = monitor.model(f"{name}:local", client=client)
            compaction = monitor.Compaction(steps=(), keep=KeepTokens(100))
            supervisor = monitor.Supervisor(
                model, tools=[text], outputs={"city": str}, compaction=compaction, detectors=[], sinks=[sink]
            )
            outcome = await supervisor.run("Which city?")
    assert (outcome.reason, outcome.emitted) == (Reason.GOAL, {"city": "Paris"}), outcome
    assert len(seen["work"]) == 4
    assert len(seen["summaries"]) == 1
    refused, again = seen["work"][2:]
    assert size(provider, again) < 0.6 * size(provider, refused)
    assert "Say which city it is." in str(again.body)
    assert "Which city?" in str(again.body)
    ran = [event for event in sink.events if isinstance(event, monitor.events.ToolStarted)]
    assert len(ran) == 2
    (finished,) = [event for event in sink.events if isinstance(event, monitor.events.CompactionFinished)]
    assert finished.summarised_by == f"{name}:local"


@pytest.mark.feature("CL-07", "AC-08")
@each_provider
async def test_refused_for_ever_it_ends_with_what_to_do_and_the_sdk_s_own_exception(provider: Provider):
    answer, seen = served(provider, provider.steps.overflow(), 100)
    with provider.server(answer) as server:
        async with provider.sdk(server) as client:
            model = monitor.model(f"{provider.name}:local", client=client)
            compaction = monitor.Compaction(steps=(), attempts=1)
            outcome = await monitor.Supervisor(
                model, tools=[text], outputs={"city": str}, compaction=compaction, detectors=[]
            ).run("Which?")
    assert (outcome.reason, outcome.source) == (Reason.PROMPT_TOO_LONG, "compaction")
    assert "use a model with a larger window" in outcome.detail
    assert outcome.error is not None
    assert type(outcome.error).__module__.partition(".")[0] in {"google", "openai", "anthropic"}
    assert len(seen["work"]) <= 2 + 3


@pytest.mark.feature("CL-07")
async def test_a_limit_per_minute_of_groq_that_the_request_alone_exceeds_ends_the_run_at_once():
    provider = next(one for one in PROVIDERS if one.name == "openai")
    message = (
        "Request too large for model `llama` on tokens per minute (TPM): Limit 6000, Requested 12000, please reduce it."
    )
    refusal = openai_steps.error_reply(413, message, code="rate_limit_exceeded", kind="tokens")
    answer, seen = served(provider, refusal, 100)
    with provider.server(answer) as server:
        async with provider.sdk(server) as client:
            model = monitor.model("openai:local", client=client)
            outcome = await monitor.Supervisor(model, tools=[text], outputs={"city": str}, detectors=[]).run("Which?")
    assert outcome.reason is Reason.PROMPT_TOO_LONG
    assert "12,000 tokens, and the account may use 6,000 in a minute" in outcome.detail
    assert (len(seen["work"]), len(seen["summaries"])) == (3, 0)
