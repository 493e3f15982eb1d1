"""The names of telemetry, in one dated table.

Source: the OpenTelemetry GenAI conventions (`open-telemetry/semantic-conventions-genai`, status
Development) and the OpenInference conventions, as both stood on `AS_OF`. The names still move: a
change of a convention is a change of this file, and of the golden files of its test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from monitor.errors import TerminateReason

AS_OF: Final = "2026-11"
"""Month in which the names below were compared with the conventions."""

Dialect: TypeAlias = Literal["genai", "openinference"]
"""The convention that names the attributes of a span."""
DIALECTS: Final = get_args(Dialect)

# Neutral keys of this package -> the attribute in each dialect. A key without a name in a dialect
# is left out there.
NAMES: Final[Mapping[Dialect, Mapping[str, str]]] = {
    "genai": {
        "operation": "gen_ai.operation.name",
        "provider": "gen_ai.provider.name",
        "agent": "gen_ai.agent.name",
        "agent_id": "gen_ai.agent.id",
        "agent_version": "gen_ai.agent.version",
        "conversation": "gen_ai.conversation.id",
        "compacted": "gen_ai.conversation.compacted",
        "model": "gen_ai.request.model",
        "stream": "gen_ai.request.stream",
        "finish_reasons": "gen_ai.response.finish_reasons",
        "first_chunk": "gen_ai.response.time_to_first_chunk",
        "agent_finish": "gen_ai.agent.finish_reason",  # a proposal, see REASONS
        "input_tokens": "gen_ai.usage.input_tokens",
        "output_tokens": "gen_ai.usage.output_tokens",
        "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
        "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
        "tool": "gen_ai.tool.name",
        "tool_type": "gen_ai.tool.type",
        "call": "gen_ai.tool.call.id",
        "arguments": "gen_ai.tool.call.arguments",
        "result": "gen_ai.tool.call.result",
        "input": "gen_ai.input.messages",
        "output": "gen_ai.output.messages",
        "evaluation": "gen_ai.evaluation.name",
        "score": "gen_ai.evaluation.score.value",
        "label": "gen_ai.evaluation.score.label",
        "explanation": "gen_ai.evaluation.explanation",
        "error": "error.type",
    },
    "openinference": {
        "kind": "openinference.span.kind",
        "provider": "llm.provider",
        "agent": "agent.name",
        "conversation": "session.id",
        "model": "llm.model_name",
        "node": "graph.node.id",
        "parent_node": "graph.node.parent_id",
        "finish_reasons": "llm.finish_reason",
        "input_tokens": "llm.token_count.prompt",
        "output_tokens": "llm.token_count.completion",
        "total_tokens": "llm.token_count.total",
        "cached_tokens": "llm.token_count.prompt_details.cache_read",
        "reasoning_tokens": "llm.token_count.completion_details.reasoning",
        "tool": "tool.name",
        "call": "tool_call.id",
        "arguments": "input.value",
        "result": "output.value",
        "input": "input.value",
        "output": "output.value",
        "error": "error.type",
    },
}

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

METRIC_DURATION_RUN: Final = "gen_ai.invoke_agent.duration"
METRIC_CALLS_RUN: Final = "gen_ai.invoke_agent.inference_calls"
METRIC_TOOLS_RUN: Final = "gen_ai.invoke_agent.tool_calls"
METRIC_DURATION_TOOL: Final = "gen_ai.execute_tool.duration"
METRIC_DURATION_CALL: Final = "gen_ai.client.operation.duration"
METRIC_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
METRIC_TOKENS: Final = "gen_ai.client.token.usage"
METRIC_STOPS: Final = "monitor.stops"
METRIC_DETECTIONS: Final = "monitor.detections"
METRIC_REFUSED: Final = "monitor.budget.refused"
METRIC_ACTIVE: Final = "monitor.runs.active"
METRIC_CLOSE: Final = "monitor.close.duration"
METRIC_STOP_TOKENS: Final = "monitor.stop.tokens"
METRIC_STOP_CHARS: Final = "monitor.stop.chars"


def provider_and_model(name: str | None) -> tuple[str | None, str | None]:
    """`gen_ai.provider.name` and the model of a name such as `google:gemini-2.5-flash`."""
    if name is None:
        return None, None
    provider, colon, model = name.partition(":")
    return (PROVIDERS.get(provider, provider), model) if colon else (None, name)
