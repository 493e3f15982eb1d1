"""The names of telemetry, in one dated table.

Source: the OpenTelemetry GenAI conventions (`open-telemetry/semantic-conventions-genai`, status
Development) and the OpenInference conventions, as both stood on `AS_OF`. The names still move: a
change of a convention is a change of this file, and of the golden files of its test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from monitor.errors import TerminateReason

AS_OF: Final = "2026-11"
"""Month in which the names below were compared with the conventions."""

Dialect: TypeAlias = Literal["genai", "openinference"]
"""The convention that names the attributes of a span."""
DIALECTS: Final[tuple[Dialect, ...]] = get_args(Dialect)

_NAMES: Final[Mapping[str, tuple[str | None, str | None]]] = {
    "kind": (None, "openinference.span.kind"),
    "operation": ("gen_ai.operation.name", None),
    "provider": ("gen_ai.provider.name", "llm.provider"),
    "agent": ("gen_ai.agent.name", "agent.name"),
    "agent_id": ("gen_ai.agent.id", None),
    "agent_version": ("gen_ai.agent.version", None),
    "node": (None, "graph.node.id"),
    "parent_node": (None, "graph.node.parent_id"),
    "conversation": ("gen_ai.conversation.id", "session.id"),
    "compacted": ("gen_ai.conversation.compacted", None),
    "model": ("gen_ai.request.model", "llm.model_name"),
    "stream": ("gen_ai.request.stream", None),
    "finish_reasons": ("gen_ai.response.finish_reasons", "llm.finish_reason"),
    "first_chunk": ("gen_ai.response.time_to_first_chunk", None),
    "agent_finish": ("gen_ai.agent.finish_reason", None),  # genai: a proposal, see REASONS
    "input_tokens": ("gen_ai.usage.input_tokens", "llm.token_count.prompt"),
    "output_tokens": ("gen_ai.usage.output_tokens", "llm.token_count.completion"),
    "total_tokens": (None, "llm.token_count.total"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"),
    "tool": ("gen_ai.tool.name", "tool.name"),
    "tool_type": ("gen_ai.tool.type", None),
    "call": ("gen_ai.tool.call.id", "tool_call.id"),
    "arguments": ("gen_ai.tool.call.arguments", "input.value"),
    "result": ("gen_ai.tool.call.result", "output.value"),
    "input": ("gen_ai.input.messages", "input.value"),
    "output": ("gen_ai.output.messages", "output.value"),
    "evaluation": ("gen_ai.evaluation.name", None),
    "score": ("gen_ai.evaluation.score.value", None),
    "label": ("gen_ai.evaluation.score.label", None),
    "explanation": ("gen_ai.evaluation.explanation", None),
    "error": ("error.type", "error.type"),
}
"""A neutral key of this package -> the attribute in each of `DIALECTS`. A dialect
leaves out a key that has no name in it.
"""
NAMES: Final[Mapping[Dialect, Mapping[str, str]]] = {
    dialect: {key: name for key, row in _NAMES.items() if (name := row[column]) is not None}
    for column, dialect in enumerate(DIALECTS)
}
"""The names of one dialect, by the neutral keys."""

REASON: Final = "monitor.reason"
"""Our own reason of the end: one query finds every looped run, in every dialect."""
LANGFUSE_REASON: Final = "langfuse.observation.metadata.monitor_reason"
"""The same where Langfuse can filter by it: not by the attributes that it does not know."""

REASONS: Final[Mapping[TerminateReason, str]] = {
    TerminateReason.GOAL: "completed",
    TerminateReason.TERMINATED: "completed",
    TerminateReason.STREAM_ENDED: "completed",
    TerminateReason.MAX_TURNS: "max_iterations",
    TerminateReason.MODEL_CALL_LIMIT: "max_iterations",
    TerminateReason.TOOL_CALL_LIMIT: "max_iterations",
    TerminateReason.TOKEN_LIMIT: "max_tokens",
    TerminateReason.COST_LIMIT: "max_tokens",
    TerminateReason.PROMPT_TOO_LONG: "max_tokens",
    TerminateReason.WINDOW_TOO_SMALL: "max_tokens",
    TerminateReason.COMPACTION_INEFFECTIVE: "max_tokens",
    TerminateReason.TIMEOUT: "time_budget",
    TerminateReason.IDLE_TIMEOUT: "time_budget",
    TerminateReason.LOOP_DETECTED: "guardrail",
    TerminateReason.CONDITION_MET: "guardrail",
    TerminateReason.MISSING_OUTPUTS: "guardrail",
    TerminateReason.BLOCKED: "guardrail",
    TerminateReason.CONSECUTIVE_ERRORS: "tool_failure",
    TerminateReason.PAUSED: "handoff",
    TerminateReason.WORKER_STOPPING: "handoff",
    TerminateReason.ABORTED: "cancelled",
    TerminateReason.CANCELLED: "cancelled",
    TerminateReason.CLOSED_BY_CALLER: "cancelled",
    TerminateReason.BUDGET_UNREACHABLE: "error",
    TerminateReason.BUDGET_BUSY: "error",
    TerminateReason.RATE_LIMITED: "error",
    TerminateReason.INVALID_STREAM: "error",
    TerminateReason.TRUNCATED: "error",
    TerminateReason.ERROR: "error",
}
"""Our reason -> `gen_ai.agent.finish_reason`, which is a proposal for the conventions. It has no
value for a loop: that is `guardrail`, and `monitor.reason` is exact. `paused` is `handoff`: a
person goes on. So is `worker_stopping`: another process does.
"""

PROVIDERS: Final[Mapping[str, str]] = {
    "openai-responses": "openai",
    "google": "gcp.gemini",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "xai": "x_ai",
    "grok": "x_ai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
}
"""Provider in the names of models of this package -> `gen_ai.provider.name`. Others are the same
word (`openai`, `anthropic`, `deepseek`, `groq`).
"""

GENERATES: Final = frozenset({"gcp.gemini", "gcp.vertex_ai"})
"""Providers whose model call is `generate_content`; that of all others is `chat`."""

INSTRUMENTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "gcp.gemini": (
        "opentelemetry.instrumentation.google_genai",
        "opentelemetry.instrumentation.google_generativeai",
        "openinference.instrumentation.google_genai",
    ),
    "gcp.vertex_ai": (
        "opentelemetry.instrumentation.google_genai",
        "opentelemetry.instrumentation.vertexai",
        "openinference.instrumentation.vertexai",
    ),
    "openai": (
        "opentelemetry.instrumentation.genai.openai",
        "opentelemetry.instrumentation.openai_v2",
        "opentelemetry.instrumentation.openai",
        "openinference.instrumentation.openai",
        "langfuse.openai",
    ),
    "anthropic": (
        "opentelemetry.instrumentation.genai.anthropic",
        "opentelemetry.instrumentation.anthropic",
        "openinference.instrumentation.anthropic",
    ),
}
"""Modules that make a span of each call of a provider's SDK. A program that has imported one has
two spans a call if this package makes one too.
"""

FRAMEWORK_SCOPES: Final = ("openinference.instrumentation.", "opentelemetry.instrumentation.genai.")
"""Beginnings of the names of the scopes under which instrumentors of frameworks make spans."""

INVOKE: Final = "invoke_agent"
INSIDE: Final = "monitor.run"
"""The span of a run inside a framework's trace, where the framework has the span of the agent."""
TOOL: Final = "execute_tool"
CHAT: Final = "chat"
GENERATE: Final = "generate_content"


class Instrument(NamedTuple):
    """A measurement of runs as OpenTelemetry has it."""

    kind: Literal["histogram", "counter", "up_down_counter"]
    name: str
    unit: str
    description: str


LENGTHS: Final = (100, 400, 1_600, 6_400, 25_600, 102_400, 409_600)
"""Bounds of the histograms of `BY_LENGTH`: a loop is cut after some hundred characters, a limit
ends a run after some hundred thousand. The bounds of an SDK end at 10,000.
"""
BY_LENGTH: Final = frozenset({"stop_tokens", "stop_chars"})
INSTRUMENTS: Final[Mapping[str, Instrument]] = {
    "run_s": Instrument("histogram", "gen_ai.invoke_agent.duration", "s", "Duration of runs"),
    "run_calls": Instrument("histogram", "gen_ai.invoke_agent.inference_calls", "{call}", "Model calls of runs"),
    "run_tools": Instrument("histogram", "gen_ai.invoke_agent.tool_calls", "{call}", "Tool calls of runs"),
    "tool_s": Instrument("histogram", "gen_ai.execute_tool.duration", "s", "Duration of tool calls"),
    "call_s": Instrument("histogram", "gen_ai.client.operation.duration", "s", "Duration of model calls"),
    "first_chunk_s": Instrument(
        "histogram", "gen_ai.client.operation.time_to_first_chunk", "s", "Time to the first chunk"
    ),
    "tokens": Instrument("histogram", "gen_ai.client.token.usage", "{token}", "Tokens of model calls"),
    "stops": Instrument("counter", "monitor.stops", "{run}", "Ends of runs by reason"),
    "detections": Instrument("counter", "monitor.detections", "{detection}", "Detections"),
    "refused": Instrument("counter", "monitor.budget.refused", "{run}", "Runs that a budget has ended"),
    "active": Instrument("up_down_counter", "monitor.runs.active", "{run}", "Runs under way"),
    "stop_tokens": Instrument(
        "histogram", "monitor.stop.tokens", "{token}", "Output tokens of a run until it was ended without success"
    ),
    "stop_chars": Instrument(
        "histogram",
        "monitor.stop.chars",
        "{char}",
        "Visible characters of the response in which a run was ended without success",
    ),
    "close_s": Instrument("histogram", "monitor.close.duration", "s", "From the decision to the closed stream"),
}
"""The instruments, by our own word for each."""


def provider_and_model(name: str | None) -> tuple[str | None, str | None]:
    """`gen_ai.provider.name` and the model of a name such as `google:gemini-2.5-flash`."""
    if name is None:
        return None, None
    provider, colon, model = name.partition(":")
    return (PROVIDERS.get(provider, provider), model) if colon else (None, name)
