"""Where the spans of a run stand, and which of them somebody else makes already.

A program may have an instrumentor of the model's SDK, or a framework that traces its own agent.
Their spans of model calls and tools have the same tokens and times as ours would have.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext

from monitor.sinks.otel import names

_CALL_OPERATIONS: Final = frozenset({names.CHAT, names.GENERATE, "text_completion"})


@dataclass(slots=True, frozen=True)
class SpanPlace:
    """The place of a run's spans among those of others."""

    parent: Context
    joined: Span | None = None
    """The span of somebody's agent, inside which the run began: it takes the run's data, and the
    run has no span of its own.
    """
    inside: bool = False
    """A framework traces the run's model calls. It began its own trace after the run had begun, so
    the run's span stands in that trace and is no agent's.
    """
    calls_made: bool = True
    """Model calls get spans of ours, and count in the metrics of the conventions."""
    tools_made: bool = True
    """Tool calls get spans of ours, and count in the metrics of the conventions."""
    agent_made: bool = True
    """The run gets a span of ours as an agent, and counts in the metrics of the conventions."""


def of_run(parent: Context, turns: str, provider: str | None) -> tuple[SpanPlace, bool]:
    """The place of a run that begins below `parent`, and whether it is final. If not, the first
    model call decides: a framework may begin its trace between the two.
    """
    outside = trace.get_current_span(parent)
    if turns != "auto":
        return SpanPlace(parent, calls_made=turns == "on"), True
    if _of_agent(outside) or of_call(outside):
        return SpanPlace(parent, outside, calls_made=False, tools_made=False, agent_made=False), True
    return SpanPlace(parent, calls_made=not instrumented(provider)), False


def of_first_call(before: SpanPlace) -> SpanPlace:
    """The place of a run whose first model call begins now."""
    current = trace.get_current_span()
    agent = _of_agent(current)
    if not (agent or of_call(current) or _of_step(current)):
        return before
    above: SpanContext | None = None if agent else getattr(current, "parent", None)
    beside = trace.NonRecordingSpan(above) if above is not None else current
    parent = trace.set_span_in_context(beside, Context())
    return SpanPlace(parent, inside=True, calls_made=False, tools_made=False, agent_made=False)


def of_call(span: Span) -> bool:
    """Whether `span` is one that somebody makes of a model call."""
    operation, kind = _operation_and_kind(span)
    return span.is_recording() and (operation in _CALL_OPERATIONS or kind == "LLM")


def _of_agent(span: Span) -> bool:
    operation, kind = _operation_and_kind(span)
    return span.is_recording() and (operation == names.INVOKE or kind == "AGENT")


def _of_step(span: Span) -> bool:
    """Whether an instrumentor of a framework makes `span` of a step of the framework's loop. A span
    of the same kind may be the program's own, which knows nothing of model calls.
    """
    scope = getattr(getattr(span, "instrumentation_scope", None), "name", "")
    return span.is_recording() and scope.startswith(names.FRAMEWORK_SCOPES)


def _operation_and_kind(span: Span) -> tuple[object, object]:
    given: Mapping[str, Any] = getattr(span, "attributes", None) or {}
    return given.get("gen_ai.operation.name"), given.get("openinference.span.kind")


def instrumented(provider: str | None) -> bool:
    """Whether an instrumentor of the provider's SDK is loaded, and not switched off."""
    modules = (sys.modules.get(name) for name in names.INSTRUMENTORS.get(provider or "", ()))
    return any(_is_on(module) for module in modules if module is not None)


def _is_on(module: ModuleType) -> bool:
    """Instrumentors are singletons that know whether they are switched on. A module without one
    works by being imported. Nothing is called: some constructors change the configuration.
    """
    classes = [
        one for name, one in vars(module).items() if name.endswith("Instrumentor") and name != "BaseInstrumentor"
    ]
    made = [getattr(one, "_instance", None) for one in classes]
    return not classes or any(getattr(one, "_is_instrumented_by_opentelemetry", False) for one in made)
