"""Runs of benchmarks and evaluations: SWE-agent, mini-swe-agent, tau-bench, ATIF (Harbor's
trajectories), and Inspect.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from monitor.chunks import Usage
from monitor.transcripts.base import (
    Began,
    EndState,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    RunTotals,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import NO_FACTS, RunIds, TranscriptReader, began_of, whole_run
from monitor.transcripts.readers.chat import are_messages, messages_of, usage_of, with_model
from monitor.transcripts.readers.values import (
    answer_of,
    call_of,
    dollars,
    id_of,
    parsed,
    result_of,
    rows,
    seconds,
    table,
    tables,
    text,
    tokens_of,
    whole,
    with_texts,
    words,
)
from monitor.transcripts.source import MAX_DOCUMENT_BYTES, ZIP_MAGIC, Source, damage

_COMMAND: Final = re.compile(r"```(?:bash|sh|mswea_bash_command)\n([^`]+)```")
"""mini-swe-agent's command: a fenced block of the answer."""
_LIMITS: Final = ("cost", "limit", "context", "timeout", "max_steps")
_SPEAKER: Final = re.compile(r"^(user|assistant|tool|system): ", re.MULTILINE)
_GOOD_ENDS: Final = frozenset({"submitted", "agent_stop", "user_stop", "success"})
"""Exact words: `submitted (exit_cost)` is the end by a limit."""


def _ended(status: str) -> tuple[EndState, str] | None:
    """The end that a benchmark's word for it means."""
    lower = status.lower()
    if not lower:
        return None
    if lower in _GOOD_ENDS:
        return "finished", status
    return ("limit" if any(limit in lower for limit in _LIMITS) else "failed"), status


class SweAgentReader(TranscriptReader):
    """Reads `.traj` files of SWE-agent."""

    format = "swe-agent"
    agent = "SWE-agent"

    def fits(self, source: Source) -> bool:
        """A trajectory and a history, or a history whose messages have an agent."""
        document = table(source.document)
        if not isinstance(document.get("history"), list):
            return False
        return "trajectory" in document or all("agent" in table(one) for one in document["history"][:20])

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The run: its steps, or its history where it has no steps."""
        document = table(source.document)
        info = table(document.get("info"))
        began = Began(run=source.stem, project=text(document.get("environment")))
        steps, history = [*_objects(document.get("trajectory"), report)], rows(document.get("history"))
        messages: Iterable[RecordedMessage]
        if steps:
            task = [one for one in history if text(table(one).get("role")) in {"system", "user"}][:2]
            messages = chain(messages_of(task), *map(_step, steps))
        else:
            messages = messages_of(history, report)
        totals = _stats(table(info.get("model_stats")))
        yield from whole_run(began, messages, ended=_ended(text(info.get("exit_status"))), totals=totals)


def _objects(steps: object, report: ReadReport) -> Iterator[Mapping[str, Any]]:
    """The steps that are JSON objects. The others are noted."""
    for step in rows(steps):
        if isinstance(step, dict):
            yield step
        else:
            report.does_not_know(step)


def _totals(model: str, usage: Usage | None, cost: object) -> RunTotals:
    return RunTotals(usage=() if usage is None else ((model, usage),), cost_usd=dollars(cost))


def _stats(stats: Mapping[str, Any]) -> RunTotals | None:
    """The sums of SWE-agent and mini-swe-agent. A demonstration, which asks no model, has zeros."""
    if not whole(stats.get("api_calls")):
        return None
    usage = tokens_of(stats, "tokens_sent", "tokens_received")
    return _totals("", usage, stats.get("instance_cost", stats.get("total_cost")))


def _step(step: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    action = text(step.get("action")).strip()
    thought = text(step.get("thought")).strip()
    calls = (RecordedCall("act", {"action": action}),) if action else ()
    yield RecordedMessage("assistant", thought or ("" if action else text(step.get("response"))), calls)
    if action:
        yield answer_of("act", text(step.get("observation")))


class MiniSweAgentReader(TranscriptReader):
    """Reads `.traj.json` files of mini-swe-agent."""

    format = "mini-swe-agent"
    agent = "mini-swe-agent"

    def fits(self, source: Source) -> bool:
        """Messages whose commands stand in fenced blocks, with or without `trajectory_format`."""
        document = source.document
        if isinstance(document, dict):
            return "trajectory_format" in document and are_messages(document.get("messages"))
        return are_messages(document) and any(
            one.get("role") == "assistant" and _COMMAND.search(words(one.get("content"))) for one in document[:20]
        )

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        document = source.document
        info = table(table(document).get("info"))
        messages = rows(document if isinstance(document, list) else table(document).get("messages"))
        yield from whole_run(
            Began(run=source.stem),
            _with_commands(messages_of(messages, report)),
            ended=_ended(text(info.get("exit_status"))),
            totals=_stats(table(info.get("model_stats"))),
        )


def _with_commands(messages: Iterator[RecordedMessage]) -> Iterator[RecordedMessage]:
    """A command in a fenced block is a call, and the user message after it is its result."""
    waits = False
    for message in messages:
        command = _COMMAND.search(message.text) if message.role == "assistant" and not message.tool_calls else None
        if command is not None:
            said = message.text[: command.start()] + message.text[command.end() :]
            call = RecordedCall("bash", {"command": command[1].strip()})
            yield RecordedMessage("assistant", said.strip(), (call,), reasoning=message.reasoning)
            waits = True
        elif waits and message.role == "user":
            yield answer_of("bash", message.text)
            waits = False
        else:
            yield message


class TauBenchReader(TranscriptReader):
    """Reads results of tau-bench and tau2-bench."""

    format = "tau-bench"
    agent = "tau-bench"

    def fits(self, source: Source) -> bool:
        """Tasks with their trajectories, simulations beside tasks, or dialogues as text."""
        if _is_dialogue(source.first_record):
            return True
        document = source.document
        if isinstance(document, dict):
            return isinstance(document.get("simulations"), list) and "tasks" in document
        trials = tables(document)[:20]
        return bool(trials) and all({"task_id", "traj", "reward"} <= trial.keys() for trial in trials)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """A run for each trial of each task."""
        if _is_dialogue(source.first_record):
            for number, record in enumerate(source.records(report, grows=False), 1):
                began = Began(run=f"{source.stem}#{number}", project="tau-bench")
                yield from whole_run(began, _dialogue(text(record.get("messages_display"))))
            return
        document = source.document
        simulations = rows(document if isinstance(document, list) else table(document).get("simulations"))
        names = RunIds()
        for number, one in enumerate(map(table, simulations)):
            messages = one.get("traj", one.get("messages"))
            if not isinstance(messages, list):
                report.cannot_read(number + 1, "a trial without messages")
                continue
            id = names.of(f"{source.stem}#{id_of(one.get('task_id'))}.{id_of(one.get('trial', number))}")
            reward = one.get("reward", table(one.get("reward_info")).get("reward"))
            yield from whole_run(
                Began(run=id, project="tau-bench"),
                messages_of(messages, report),
                ended=_ended(text(one.get("termination_reason"))) or ("finished", f"reward {reward}"),
            )


def _is_dialogue(record: Mapping[str, Any]) -> bool:
    return _SPEAKER.match(text(record.get("messages_display"))) is not None


def _dialogue(display: str) -> Iterator[RecordedMessage]:
    """The messages of a text. It has no calls: where the assistant says `None`, it has made one."""
    pieces = _SPEAKER.split(display)
    said_by = zip(pieces[1::2], map(str.strip, pieces[2::2]), strict=True)
    for number, (role, said) in enumerate(said_by):
        if role == "tool":
            yield answer_of("", said)
        elif role == "assistant":
            calls = (RecordedCall("?", {"call": number}),) if said == "None" else ()  # no two are known to be equal
            yield RecordedMessage("assistant", "" if calls else said, calls)
        else:
            yield RecordedMessage("user" if role == "user" else "system", said)


class AtifReader(TranscriptReader):
    """Reads trajectories in the Agent Trajectory Interchange Format."""

    format = "atif"
    agent = "ATIF"

    def fits(self, source: Source) -> bool:
        """The version of its schema, and steps."""
        document = table(source.document)
        is_atif = text(document.get("schema_version")).startswith("ATIF-") or "agent" in document
        return is_atif and isinstance(document.get("steps"), list)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        document = table(source.document)
        agent, metrics = table(document.get("agent")), table(document.get("final_metrics"))
        facts = {**agent, "session_id": document.get("session_id")}
        began = began_of(facts, source.stem, run="session_id", project="name", model="model_name")
        cached = "total_cached_tokens"
        usage = tokens_of(metrics, "total_prompt_tokens", "total_completion_tokens", cached=cached)
        totals = _totals(began.model, usage, metrics.get("total_cost_usd")) if metrics else None
        steps = _objects(document.get("steps"), report)
        found = (message for step in steps for message in _atif_step(step, began.model, report))
        yield from whole_run(began, found, totals=totals)


def _atif_step(step: Mapping[str, Any], model: str, report: ReadReport) -> Iterator[RecordedMessage]:
    source, at = text(step.get("source")), seconds(step.get("timestamp"))
    said, metrics = words(step.get("message")), table(step.get("metrics"))
    if source == "agent":
        usage = tokens_of(metrics, "prompt_tokens", "completion_tokens", cached="cached_tokens")
        yield RecordedMessage(
            "assistant",
            said,
            tuple(
                call_of(one.get("function_name"), parsed(one.get("arguments")), one.get("tool_call_id"))
                for one in tables(step.get("tool_calls"))
            ),
            reasoning=text(step.get("reasoning_content")),
            at=at,
            usage=usage,
            cost_usd=dollars(metrics.get("cost_usd")),
            model=text(step.get("model_name")) or model,
        )
    elif source in {"user", "system"}:
        yield RecordedMessage("user" if source == "user" else "system", said, at=at)
    else:
        report.does_not_know(source)
    results = tuple(
        result_of("", words(one.get("content")), call_id=one.get("source_call_id"))
        for one in tables(table(step.get("observation")).get("results"))
    )
    if results:
        yield RecordedMessage("tool", tool_results=results, at=at)


# --------------------------------------------------------------------------------------------------
# Inspect: `.eval` archives (ZIP, a member a sample) and logs as one JSON document. A long text may
# stand once among the attachments of its sample, and be named elsewhere.

_HEADS: Final = ("header.json", "_journal/start.json")
"""The members of an archive that say what was evaluated."""


class InspectAiReader(TranscriptReader):
    """Reads evaluation logs of Inspect."""

    format = "inspect"
    agent = "Inspect"

    def fits(self, source: Source) -> bool:
        """An archive with the journal of an evaluation, or a document with one."""
        if source.head.startswith(ZIP_MAGIC):
            return any(name in _HEADS for name in _names(source))
        document = table(source.document)
        is_log = "samples" in document or {"version", "status"} <= document.keys()
        return is_log and isinstance(document.get("eval"), dict)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        if source.head.startswith(ZIP_MAGIC):
            yield from _archive(source, report)
            return
        document = table(source.document)
        head, names = table(document.get("eval")), RunIds()
        for sample in rows(document.get("samples")):
            yield from _sample(table(sample), head, source, names, report)


def _names(source: Source) -> list[str]:
    try:
        with source.open() as file, zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except damage():
        return []


def _archive(source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
    try:
        with source.open() as file, zipfile.ZipFile(file) as archive:
            ids, names = RunIds(), archive.namelist()
            heads = (table(_member(archive, name, report)).get("eval") for name in _HEADS if name in names)
            head = next(filter(None, map(table, heads)), NO_FACTS)
            for name in names:
                if name.startswith("samples/"):
                    yield from _sample(table(_member(archive, name, report)), head, source, ids, report)
    except damage(NotImplementedError) as error:
        report.cannot_read(1, f"the archive cannot be read: {error}")


def _member(archive: zipfile.ZipFile, name: str, report: ReadReport) -> object:
    if archive.getinfo(name).file_size > MAX_DOCUMENT_BYTES:
        report.cannot_read(1, f"{name} is longer than {MAX_DOCUMENT_BYTES} bytes")
        return None
    try:
        return json.loads(archive.read(name))
    except damage(ValueError, RecursionError, NotImplementedError) as error:
        report.cannot_read(1, f"{name}: {error}")
        return None


def _sample(
    sample: Mapping[str, Any], head: Mapping[str, Any], source: Source, names: RunIds, report: ReadReport
) -> Iterator[TranscriptEntry]:
    if not sample:
        return
    attached = {f"attachment://{name}": said for name, said in table(sample.get("attachments")).items()}
    model = text(head.get("model"))
    ended: tuple[EndState, str] | None = None
    if limit := table(sample.get("limit")):
        ended = ("limit", text(limit.get("type")) or "limit")
    elif error := table(sample.get("error")):
        ended = ("failed", text(error.get("message"))[:200])
    began = Began(
        run=names.of(f"{source.stem}#{id_of(sample.get('id'))}.{id_of(sample.get('epoch', 1))}"),
        project=text(head.get("task")),
        model=model,
    )
    found = rows(sample.get("messages"))
    messages = (with_texts(one, lambda said: attached.get(said, said)) for one in found) if attached else found
    totals = RunTotals(usage=tuple(_usage_by_model(table(sample.get("model_usage")))))
    yield from whole_run(began, with_model(messages_of(messages, report), model), ended=ended, totals=totals)


def _usage_by_model(given: Mapping[str, Any]) -> Iterator[tuple[str, Usage]]:
    """The tokens of all models of a sample, those of a grader too."""
    for name, usage in given.items():
        if (counted := usage_of(table(usage))) is not None:
            yield name, counted
