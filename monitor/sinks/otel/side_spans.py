"""The spans of what happens beside the turns: judges, and compactions."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import Status, StatusCode

from monitor import events
from monitor.sinks.otel import content, names
from monitor.sinks.otel.notes import Note
from monitor.sinks.otel.spans import DETAIL_CHARS, SpanMaker, counts


class SideSpans(SpanMaker):
    """Makes the spans of judges and compactions."""

    def judge_asked(self, event: events.JudgeAsked) -> None:
        """Open a span for the question to the judge."""
        if self._with_turns:
            attributes = self._named(kind="EVALUATOR", evaluation=event.judge) | {"monitor.judge": event.judge}
            self._open.judges[event.judge] = self._start(
                f"{names.CHAT} {event.judge}",
                event.at_s,
                self._context,
                attributes,
                client=True,
                operation=names.CHAT,
            )

    def judge_answered(self, event: events.JudgeAnswered) -> None:
        """Record the answer of the judge as an evaluation, and end its span."""
        judgement = event.judgement
        said = self._named(
            evaluation=event.judge,
            score=float(judgement.confidence),
            label=f"{event.fact}: {'yes' if judgement.found else 'no'}",
        )
        if self.shared.content_chars:
            said |= self._named(explanation=content.cut(judgement.analysis, self.shared.content_chars))
        span = self._open.judges.pop(event.judge, None)
        target = span or self._span
        if target is None:
            return
        if self._openinference:
            confidence = float(judgement.confidence)
            target.set_attributes({"monitor.judge.confidence": confidence, "monitor.judge.found": judgement.found})
        else:
            self._moment(target, Note("gen_ai.evaluation.result", said), event.at_s)
        if span is not None:
            provider, model = _model_of(judgement.judged_by)
            span.set_attributes(self._named(provider=provider, model=model, **counts(event.cost.usage)))
            self._end(span, event.at_s)

    def judge_failed(self, event: events.JudgeFailed) -> None:
        """End the span of the judge as an error."""
        span = self._open.judges.pop(event.judge, None)
        if span is not None:
            span.set_attributes(self._named(error="judge_failed", **counts(event.cost.usage)))
            span.set_status(Status(StatusCode.ERROR, content.cut(event.why, DETAIL_CHARS)))
            self._end(span, event.at_s)

    def compaction_started(self, event: events.CompactionStarted) -> None:
        """Open a span for the compaction."""
        if self._span is None or not self._span.is_recording() or not self._place.agent_made:
            return
        attributes = self._named(kind="CHAIN", agent="compact") | {
            "monitor.compaction.preset": event.preset,
            "monitor.compaction.reason": event.reason.value,
            "monitor.compaction.tokens_before": event.tokens,
            "monitor.compaction.background": event.background,
        }
        span = self._start(f"{names.INVOKE} compact", event.at_s, self._context, attributes, operation=names.INVOKE)
        self._open.compactions[event.compaction] = (span, event.at_s)

    def compaction_finished(self, event: events.CompactionFinished) -> None:
        """End the span of the compaction with its sizes."""
        self._compacted = True
        attributes = {
            "monitor.compaction.status": "finished",
            "monitor.compaction.tokens_before": event.tokens_before,
            "monitor.compaction.tokens_after": event.tokens_after,
            "monitor.compaction.summarised_by": event.summarised_by,
        }
        self._compaction_over(event, attributes, model=event.summarised_by)

    def compaction_failed(self, event: events.CompactionFailed) -> None:
        """End the span of the compaction as an error."""
        attributes = {"monitor.compaction.status": event.failure.value, **self._named(error=event.failure.value)}
        self._compaction_over(event, attributes, failed=event.detail)

    def _compaction_over(
        self,
        event: events.CompactionFinished | events.CompactionFailed,
        attributes: dict[str, Any],
        *,
        model: str | None = None,
        failed: str | None = None,
    ) -> None:
        at_s, usage = event.at_s, event.cost.usage
        span, since = self._open.compactions.pop(event.compaction, (None, 0.0))
        if span is None:
            return
        span.set_attributes(attributes)
        if failed is not None:
            span.set_status(Status(StatusCode.ERROR, content.cut(failed, DETAIL_CHARS)))
        if usage.total_tokens and self._with_turns:
            # One span for the calls of the summary: events have their tokens, not their times.
            provider, name = _model_of(model)
            inside = self._start(
                f"{names.CHAT} {name}" if name else names.CHAT,
                since,
                self._child(span),
                self._named(kind="LLM", provider=provider, model=name, **counts(usage)),
                client=True,
                operation=names.CHAT,
            )
            self._end(inside, at_s)
        self._end(span, at_s)


def _model_of(name: object) -> tuple[str | None, str | None]:
    """Provider and model of a name such as `google:gemini-2.5-flash`, if it is a name."""
    return names.provider_and_model(name if isinstance(name, str) else None)
