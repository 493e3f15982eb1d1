"""Runs as OpenTelemetry spans and metrics: `OtelSink`. Needs the extra `otel`, which is the API
alone; a program that exports has the SDK, and configures it.

Spans are made of events, with the events' own times and explicit parents. Nothing is made current,
so nothing can leak out of a stream that is left early.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal, Self, TypeAlias

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider

from monitor._util.argument_checks import check_word
from monitor._util.explained_options import explained
from monitor.errors import ConfigError
from monitor.events import Event, RunStarted
from monitor.models import Model
from monitor.sinks.otel.content import CONTENT_CHARS
from monitor.sinks.otel.exports import QUEUED_SPANS, Exports, Metrics, Records
from monitor.sinks.otel.names import NAMES, Dialect, provider_and_model
from monitor.sinks.otel.run_spans import RunSpans
from monitor.sinks.otel.spans import CALLS, TraceContext

Turns: TypeAlias = Literal["auto", "on", "off"]
Moments: TypeAlias = Literal["spans", "logs", "both"]

SCOPE: Final = "agent-monitor"
CLOSE_S: Final = 5.0
CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable of the conventions that turns content on: `true`, `span_only`, `span_and_event`."""
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@explained(example="monitor.sinks.OtelSink(agent='reviewer')")
class OtelSink:
    """Makes spans and metrics of the runs that it watches, and of their nested runs. One sink may
    serve many runs at once.

        with monitor.sinks.OtelSink(agent="researcher", model=model) as telemetry:
            outcome = await monitor.Supervisor(model, sinks=[telemetry]).run("...")

    - `agent`, `agent_id`, `agent_version`: who runs, `gen_ai.agent.*`. A nested run has its own
      name, see `Supervisor(agent=)`.
    - `model`: a `Model`, or a name such as `google:gemini-2.5-flash`; by default that of the run.
    - `conversation`: id of the session, `gen_ai.conversation.id`.
    - `dialect`: `genai` for the OpenTelemetry conventions, `openinference` for Phoenix.
    - `turns`: `auto` makes no span of a model call where an instrumentor of the same SDK is loaded,
      or where a framework traces its own calls. Inside a span of a framework's agent, `auto` makes
      no spans: the run's data goes onto that span. `on` and `off` decide it by hand. Metrics of the
      conventions follow the spans.
    - `moments`: detections, nudges, stops and the like stand on the `spans`, or are `logs` with an
      event name, or `both`.
    - `content`: what was said, on the spans. `None`: as the environment variable `CAPTURE` says,
      which is off by default. `content_chars`: size of one attribute at most.
    - `queued_spans`: ended spans that may wait for an exporter; more are dropped and counted.
    - `flush_at_exit_s`: wait so long for the queue when the program ends. `None`: do not.

    The tracer, meter and logger providers are the program's global ones, unless given. This class
    never sets one.
    """

    def __init__(
        self,
        *,
        agent: str | None = None,
        agent_id: str | None = None,
        agent_version: str | None = None,
        model: Model | str | None = None,
        conversation: str | None = None,
        dialect: Dialect = "genai",
        turns: Turns = "auto",
        moments: Moments = "spans",
        content: bool | None = None,
        content_chars: int = CONTENT_CHARS,
        queued_spans: int = QUEUED_SPANS,
        flush_at_exit_s: float | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        now_ns: Callable[[], int] | None = None,
    ) -> None:
        check_word("dialect", dialect, Dialect)
        check_word("turns", turns, Turns)
        check_word("moments", moments, Moments)
        if content_chars < 256 or queued_spans < 1:  # noqa: PLR2004 - room for one message
            raise ConfigError("content_chars is at least 256, queued_spans at least 1")
        if content is None:
            content = os.environ.get(CAPTURE, "").lower() in {"true", "span_only", "span_and_event"}
        provider, model_name = provider_and_model(model if model is None or isinstance(model, str) else model.name)
        installed = _installed_version()
        self._exports = Exports(queued_spans)
        self._shared = TraceContext(
            tracer=trace.get_tracer(SCOPE, installed, tracer_provider=tracer_provider),
            metrics=Metrics(SCOPE, installed, meter_provider),
            exports=self._exports,
            records=None if moments == "spans" else Records(SCOPE, installed, logger_provider, self._exports),
            on_spans=moments != "logs",
            dialect=dialect,
            target=(dialect, id(tracer_provider or trace.get_tracer_provider())),
            turns=turns,
            content_chars=content_chars if content else 0,
            now_ns=now_ns,
            agent=agent,
            agent_id=agent_id,
            agent_version=agent_version,
            provider=provider,
            model=model_name,
        )
        self._conversation = conversation
        self._run: RunSpans | None = None
        if flush_at_exit_s is not None:
            atexit.register(self._exports.flush, flush_at_exit_s)

    @property
    def dropped(self) -> int:
        """Spans and log records that were not exported, because the queue was full."""
        return self._exports.dropped

    def for_run(
        self,
        *,
        task: str | None = None,
        conversation: str | None = None,
        resumes: str | None = None,
        links: tuple[str, ...] = (),
    ) -> RunSpans:
        """A sink for one run, with what is known of that run alone. A run that is given the
        `OtelSink` itself makes its own.

        `task`: what the user asked for, if content is captured. `resumes`: `traceparent` of the run
        that this one goes on from, for a link. `links`: those of other runs.
        """
        given = (*links, resumes) if resumes is not None else links
        return RunSpans(
            self._shared,
            task=task,
            conversation=conversation or self._conversation,
            links=tuple(span_context(one) for one in given),
            resumed=resumes is not None,
        )

    def emit(self, event: Event) -> None:
        """The next event of one run. Events of several runs at once need `for_run`, which a run
        calls by itself.
        """
        if self._run is None or isinstance(event, RunStarted):
            self._run = self.for_run()
        self._run.emit(event)

    def flush(self, timeout_s: float = CLOSE_S) -> bool:
        """Wait until the ended spans are handed to the span processors. False: `timeout_s` seconds
        were not enough.
        """
        return self._exports.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """`flush`, and end the thread that ends the spans."""
        return self._exports.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tool_context() -> Context:
    """The OpenTelemetry context for the spans of a tool: their parent is the span of the call that
    is being carried out. Outside of a call it is the current context.
    """
    call = CALLS.get()
    return otel_context.get_current() if call is None or call.ended else call.context


@contextlib.contextmanager
def in_tool_span() -> Iterator[None]:
    """Inside a tool: what the block does, such as an instrumented request, becomes part of the span
    of the call. Do not `yield` inside this block.
    """
    token = otel_context.attach(tool_context())
    try:
        yield
    finally:
        otel_context.detach(token)


def _installed_version() -> str:
    """The version of this library. Empty: it is used from a copy that nobody has installed."""
    with contextlib.suppress(PackageNotFoundError):
        return version("agent-monitor")
    return ""


def span_context(traceparent: str) -> trace.SpanContext:
    """The span that a `traceparent` names. Raises `ConfigError`."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        raise ConfigError(f"a traceparent looks like 00-<32 hex digits>-<16>-<2>, not {traceparent!r}")
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    return trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))


# --------------------------------------------------------------------------------------------------
# One span for each request that a proxy answers. Needs the extra `otel`.
#
# A request has no loop of its own: its client's program has. So its span begins at the client's
# span, if the client sends `traceparent`, and no metrics are made: the proxy has those of its
# own.

_NAMES = NAMES["genai"]
_OWN = "agent_monitor."


class RequestSpan:
    """The span of one request. It is never made current."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def end(self, facts: Mapping[str, str | int | float | None], *, error: str = "") -> None:
        """End the span. `facts`: by the keys of `NAMES`, or of our own; `None` is left out.
        `error`: a word for the failure.
        """
        for name, value in facts.items():
            if value is not None:
                self._span.set_attribute(_NAMES.get(name, f"{_OWN}{name}"), value)
        if error:
            self._span.set_attribute(_NAMES["error"], error)
            self._span.set_status(trace.Status(trace.StatusCode.ERROR))
        self._span.end()


class RequestSpans:
    """Makes the spans. The tracer provider is the program's global one, unless it is given."""

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)

    def begin(self, operation: str, model: str, *, traceparent: str | None = None) -> RequestSpan:
        """A request has come. `traceparent`: of the client's span; one that is none is ignored."""
        try:
            parent = span_context(traceparent) if traceparent is not None else None
        except ConfigError:
            parent = None
        context = Context() if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())
        return RequestSpan(
            self._tracer.start_span(
                f"{operation} {model}".strip(),
                context=context,
                kind=trace.SpanKind.SERVER,
                attributes={_NAMES["operation"]: operation, _NAMES["model"]: model},
            )
        )
