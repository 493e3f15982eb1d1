"""OpenHands: events of V0 (a trajectory, or a line of an evaluation's output) and of V1 (an event a
line). A result names the action that it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from monitor.transcripts.base import (
    Began,
    CompactionSeen,
    EndState,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    Role,
    RunTotals,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import HeldResponse, OpenRun, RecentIds, RunIds, TranscriptReader
from monitor.transcripts.readers.chat import usage_of
from monitor.transcripts.readers.values import (
    answer_of,
    call_of,
    dollars,
    id_of,
    parsed,
    rows,
    seconds,
    table,
    text,
    tokens_of,
    whole,
    words,
)
from monitor.transcripts.source import Source

_NO_CALLS: Final = frozenset({"message", "change_agent_state", "system", "recall", "null", "finish", "reject"})
_QUIET: Final = frozenset({"agent_state_changed", "null", "recall", "system", "agent_thought"})
_ABOUT_CALLS: Final = frozenset({"thought", "hidden", "blocking", "confirmation_state"})
"""Arguments of an action that say how it is carried out and shown."""
_ENDS: Final[Mapping[str, EndState]] = {
    "error": "failed",
    "finished": "finished",
    "stopped": "aborted",
    "rejected": "failed",
}
_V1_QUIET: Final = frozenset(
    {"SystemPromptEvent", "PauseEvent", "CondensationRequest", "TokenEvent", "LLMCompletionLogEvent"}
)


class OpenHandsReader(TranscriptReader):
    """Reads events of OpenHands, of V0 and of V1."""

    format = "openhands"
    agent = "OpenHands"
    places = (
        ".openhands/conversations/*/events.jsonl",
        ".openhands/conversations/**/event-*.json",
    )

    def fits(self, source: Source) -> bool:
        """Events with an action or an observation, or with a kind that ends in `Event`."""
        document = source.document
        if isinstance(document, list):
            return bool(document) and all(map(_is_v0, document[:20]))
        if any(map(_is_v1, source.first_records)):
            return True
        first = source.first_record
        history = first.get("history")
        return isinstance(history, list) and ("instance_id" in first or any(map(_is_v0, _flat(history[:20]))))

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The run of the file, or the runs of an evaluation's output."""
        document = source.document
        if isinstance(document, list):
            yield from _v0(source.stem, document, report)
            return
        first = source.first_record
        if "history" in first:
            names = RunIds()
            for number, record in enumerate(source.records(report, grows=False)):
                issue = table(record.get("issue")).get("number")
                id = names.of(text(record.get("instance_id")) or f"{source.stem}#{id_of(issue or number)}")
                yield from _v0(id, _flat(rows(record.get("history"))), report, table(record.get("metrics")))
            return
        yield from _v1(source, report)


def _is_v0(event: object) -> bool:
    return isinstance(event, dict) and any(isinstance(event.get(name), str) for name in ("action", "observation"))


def _is_v1(event: Mapping[str, Any]) -> bool:
    return text(event.get("kind")).endswith("Event") and "source" in event


def _flat(history: list[Any]) -> Iterator[Any]:
    """Old evaluations have pairs of an action and its observation."""
    for one in history:
        yield from one if isinstance(one, list) else (one,)


def _v0(
    id: str, events: Iterable[Any], report: ReadReport, metrics: Mapping[str, Any] | None = None
) -> Iterator[TranscriptEntry]:
    """`metrics`: the sums that stand beside the events."""
    run = OpenRun(id)
    yield Began(run=id)
    responses = RecentIds()
    for event in map(table, events):
        if latest := table(event.get("llm_metrics")):
            run.totals = _totals(latest)
        action, observation = event.get("action"), event.get("observation")
        at, args = seconds(event.get("timestamp")), table(event.get("args"))
        if isinstance(action, str):
            if action in {"finish", "reject"}:
                run.ended = ("finished" if action == "finish" else "failed", action)
            for said in _action(event, action, args, at):
                yield run.said(_with_usage(said, event, responses))
        elif isinstance(observation, str):
            extras = table(event.get("extras"))
            if observation == "agent_state_changed":
                _agent_state(run, text(extras.get("agent_state")), text(extras.get("reason")))
            elif observation not in _QUIET:
                failed = observation == "error" or extras.get("success") is False
                code = table(extras.get("metadata")).get("exit_code", extras.get("exit_code"))
                failed, cause = failed or whole(code) > 0, str(event["cause"]) if "cause" in event else None
                yield run.said(answer_of("", words(event.get("content")), at=at, is_error=failed, call_id=cause))
        else:
            report.does_not_know("event")
    if metrics:
        run.totals = _totals(metrics)
    yield run.end()


def _totals(metrics: Mapping[str, Any]) -> RunTotals:
    """The sums of a run, as the latest event has them."""
    used = table(metrics.get("accumulated_token_usage"))
    cached, written, thinking = "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"
    given, answered = "prompt_tokens", "completion_tokens"
    counted = tokens_of(used, given, answered, thinking=thinking, cached=cached, written=written)
    usage = () if counted is None else ((text(used.get("model")) or text(metrics.get("model_name")), counted),)
    return RunTotals(usage=usage, cost_usd=dollars(metrics.get("accumulated_cost")))


def _with_usage(message: RecordedMessage, event: Mapping[str, Any], responses: RecentIds) -> RecordedMessage:
    """`message` with the tokens of its response, once for all actions of that response."""
    response = table(table(event.get("tool_call_metadata")).get("model_response"))
    if message.role != "assistant" or not response or not responses.is_new(response.get("id")):
        return message
    return replace(message, usage=usage_of(table(response.get("usage"))), model=text(response.get("model")))


def _agent_state(run: OpenRun, name: str, reason: str) -> None:
    if name in _ENDS:
        run.ended = ("loop" if "loop" in reason.lower() else _ENDS[name], reason or name)
    elif name == "running":
        run.ended = None


def _action(
    event: Mapping[str, Any], action: str, args: Mapping[str, Any], at: float | None
) -> Iterator[RecordedMessage]:
    source = event.get("source")
    if action in {"message", "finish", "reject"}:
        said = words(args.get("content", args.get("final_thought"))) or text(event.get("message"))
        yield RecordedMessage("assistant" if source == "agent" else "user", said, at=at)
    elif source == "agent" and action not in _NO_CALLS:
        shown = {key: value for key, value in args.items() if key not in _ABOUT_CALLS}
        call = RecordedCall(action, shown, str(event["id"]) if "id" in event else None)
        yield RecordedMessage("assistant", text(args.get("thought")), (call,), at=at)


def _v1(source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
    run = OpenRun(source.stem)
    yield Began(run=source.stem)
    for event in source.records(report):
        kind, at = text(event.get("kind")), seconds(event.get("timestamp"))
        if kind == "ActionEvent":
            response = text(event.get("llm_response_id")) or text(event.get("id"))
            if run.held.id != response:
                yield from run.flush()
                run.held = HeldResponse(at, id=response)
            _add(run.held, event)
        elif kind in {"ObservationEvent", "AgentErrorEvent", "UserRejectObservation"}:
            answered = _observation(event, kind, at)
            if run.held:
                run.held.results.append(answered)
            else:
                yield run.said(answered)
        elif kind == "ConversationStateUpdateEvent":
            if event.get("key") == "execution_status":
                _agent_state(run, text(event.get("value")), "")
            elif event.get("key") == "stats":
                run.totals = _stats(table(event.get("value"))) or run.totals
        else:
            yield from run.flush()
            if kind == "MessageEvent":
                role: Role = "assistant" if event.get("source") == "agent" else "user"
                said = words(table(event.get("llm_message")).get("content"))
                yield run.said(RecordedMessage(role, said, at=at))
            elif kind.startswith("Condensation"):
                yield CompactionSeen(run=run.id, at=at)
            elif kind not in _V1_QUIET:
                report.does_not_know(kind)
    yield from run.flush()
    yield run.end()


def _stats(stats: Mapping[str, Any]) -> RunTotals | None:
    """The sums of V1, of each use of a model: the agent, its condenser."""
    found = [_totals(table(one)) for one in table(stats.get("usage_to_metrics", stats)).values()]
    costs = [one.cost_usd for one in found if one.cost_usd is not None]
    usage = tuple(pair for one in found for pair in one.usage)
    return RunTotals(usage=usage, cost_usd=sum(costs) if costs else None) if usage or costs else None


def _add(held: HeldResponse, event: Mapping[str, Any]) -> None:
    """Add an action to the model's response."""
    thought, reasoning = words(event.get("thought")), text(event.get("reasoning_content"))
    if thought and thought not in held.text:
        held.text.append(thought)
    if reasoning and reasoning not in held.reasoning:
        held.reasoning.append(reasoning)
    given = parsed(table(event.get("tool_call")).get("arguments")) or event.get("action")
    held.calls.append(call_of(event.get("tool_name"), given, event.get("tool_call_id")))


def _observation(event: Mapping[str, Any], kind: str, at: float | None) -> RecordedMessage:
    inside = table(event.get("observation"))
    failed = kind != "ObservationEvent" or inside.get("is_error") is True or whole(inside.get("exit_code")) > 0
    said = words(inside.get("content", inside.get("output")))
    said = said or text(event.get("error")) or text(event.get("rejection_reason"))
    return answer_of(event.get("tool_name"), said, at=at, is_error=failed, call_id=event.get("tool_call_id"))
