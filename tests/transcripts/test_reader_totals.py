"""The tokens and the cost of a run where its recording sums them up, beside a few lines that find
the same numbers by themselves.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from monitor.transcripts.analysis.survey import SurveyedRun, survey
from monitor.transcripts.base import ReadReport
from monitor.transcripts.source import Source

SAMPLES = Path(__file__).parents[2] / "fixtures" / "readers"
Spent: TypeAlias = tuple[int | None, int | None, float | None]
"""Input and output tokens, and US dollars where the recording names them."""


def data(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def document(path: Path) -> Any:
    return json.loads(data(path))


def inspect(path: Path) -> Iterator[Spent]:
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as archive:
            samples = [json.loads(archive.read(name)) for name in archive.namelist() if name.startswith("samples/")]
    else:
        samples = document(path).get("samples") or []
    for sample in samples:
        usage = (sample.get("model_usage") or {}).values()
        given = sum(one["input_tokens"] for one in usage)
        yield (given or None, sum(one["output_tokens"] for one in usage) or None, None)


def swe_agent(path: Path) -> Iterator[Spent]:
    stats = document(path).get("info", {}).get("model_stats") or {}
    if not stats.get("api_calls"):
        yield None, None, None
    else:
        cost = stats["instance_cost"]
        yield stats.get("tokens_sent") or None, stats.get("tokens_received") or None, cost


def atif(path: Path) -> Iterator[Spent]:
    metrics = document(path).get("final_metrics") or {}
    yield (
        metrics.get("total_prompt_tokens"),
        metrics.get("total_completion_tokens"),
        metrics.get("total_cost_usd"),
    )


def aider(path: Path) -> Iterator[Spent]:
    def number(text: str) -> int:
        return int(float(text.rstrip("k").replace(",", "")) * (1_000 if text.endswith("k") else 1))

    for chat in data(path).decode().split("# aider chat started at")[1:]:
        new = re.findall(r"Tokens: (\S+) sent, (?:.*? )?(\S+) received", chat)
        old = re.findall(r"(\d+) prompt tokens, (\d+) completion tokens", chat)
        paid = re.findall(r"Cost: \$([\d.]+) message", chat) + re.findall(r"\$([\d.]+) cost", chat)
        pairs = [*new, *old]
        given, answered = (sum(number(pair[at]) for pair in pairs) if pairs else None for at in (0, 1))
        yield given, answered, sum(map(float, paid)) if paid else None


def codex(path: Path) -> Iterator[Spent]:
    last: dict[str, int] = {}
    for line in data(path).splitlines():
        try:
            payload = json.loads(line).get("payload") or {}
        except ValueError:
            continue
        if payload.get("type") == "token_count" and payload.get("info"):
            total = payload["info"]["total_token_usage"]
            last = max(last, total, key=lambda one: one.get("total_tokens", -1))
    yield last.get("input_tokens"), last.get("output_tokens"), None


COUNTED: dict[str, Callable[[Path], Iterator[Spent]]] = {
    "inspect": inspect,
    "swe-agent": swe_agent,
    "atif": atif,
    "aider": aider,
}
FILES = [(kind, path) for kind in COUNTED for path in sorted((SAMPLES / kind).glob("*.*"))]
FILES += [("codex", path) for path in sorted((SAMPLES / "codex").glob("rollout-*.jsonl*"))]


def spent(run: SurveyedRun) -> Spent:
    cost = None if run.cost_listed else run.cost_usd
    return (None, None, cost) if run.usage is None else (run.usage.input_tokens, run.usage.output_tokens, cost)


@pytest.mark.parametrize(("kind", "path"), FILES, ids=lambda value: value if isinstance(value, str) else value.name)
def test_the_sums_of_a_recording_are_those_of_a_few_lines_of_their_own(kind: str, path: Path):
    wanted = list({**COUNTED, "codex": codex}[kind](path))
    found = [spent(run) for run in survey(Source.of_path(path))]
    assert [one[:2] for one in found] == [one[:2] for one in wanted]
    assert [one[2] for one in found] == pytest.approx([one[2] for one in wanted])


def runs_of(path: Path, text: str) -> list[SurveyedRun]:
    path.write_text(text)
    return list(survey(Source.of_path(path)))


METRICS = {
    "accumulated_cost": 0.42,
    "accumulated_token_usage": {
        "model": "anthropic/claude-sonnet-4-20250514",
        "prompt_tokens": 90_000,
        "completion_tokens": 1_200,
        "cache_read_tokens": 80_000,
        "cache_write_tokens": 5_000,
    },
}
EVENTS = [
    {"id": 0, "source": "user", "action": "message", "args": {"content": "Go."}},
    {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls"}},
    {"id": 2, "source": "agent", "observation": "run", "content": "a", "cause": 1, "extras": {}},
]


def test_openhands_names_its_sums_beside_the_events_of_an_evaluation(tmp_path: Path):
    line = json.dumps({"instance_id": "a", "history": EVENTS, "metrics": METRICS})
    (run,) = runs_of(tmp_path / "output.jsonl", f"{line}\n")
    assert run.usage is not None
    assert (run.usage.input_tokens, run.usage.cached_tokens, run.usage.cache_write_tokens) == (90_000, 80_000, 5_000)
    assert (run.cost_usd, run.cost_listed) == (0.42, False)


def test_openhands_names_its_sums_in_its_latest_event(tmp_path: Path):
    early = {**METRICS, "accumulated_cost": 0.1}
    events = [EVENTS[0], {**EVENTS[1], "llm_metrics": early}, {**EVENTS[2], "llm_metrics": METRICS}]
    (run,) = runs_of(tmp_path / "events.json", json.dumps(events))
    assert run.cost_usd == 0.42


def test_openhands_sdk_sums_up_each_use_of_a_model(tmp_path: Path):
    state = {"key": "stats", "value": {"usage_to_metrics": {"agent": METRICS, "condenser": METRICS}}}
    events = [
        {"kind": "MessageEvent", "source": "user", "llm_message": {"content": [{"type": "text", "text": "Go."}]}},
        {"kind": "ConversationStateUpdateEvent", "source": "environment", **state},
    ]
    (run,) = runs_of(tmp_path / "events.jsonl", "".join(f"{json.dumps(event)}\n" for event in events))
    assert run.cost_usd == pytest.approx(0.84)
    assert run.usage is not None
    assert run.usage.output_tokens == 2_400


@pytest.mark.parametrize("where", ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"])
@pytest.mark.parametrize("count", ["1e27", "-5", '"many"', "9" * 27, "1.5", "true"])
def test_an_impossible_number_of_tokens_is_unknown(where: str, count: str, tmp_path: Path):
    usage = f'{{"{where}": {count}, "output_tokens": 3}}'
    line = f'{{"role": "assistant", "content": "Done.", "usage": {usage}}}'
    (run,) = runs_of(tmp_path / "a.jsonl", f'{{"role": "user", "content": "Go."}}\n{line}\n')
    assert (run.usage, run.cost_usd, run.saved_tokens) == (None, None, None)


def test_a_call_of_no_tokens_was_not_counted(tmp_path: Path):
    (run,) = survey(Source.of_path(next((SAMPLES / "iflow").glob("*.jsonl*"))))
    assert run.total.tool_calls > 0
    assert (run.usage, run.cost_usd) == (None, None)


@pytest.mark.parametrize("cost", ["1e27", "-0.1", '"much"', "true", "9" * 400, "NaN", "[]"])
def test_an_impossible_cost_is_unknown(cost: str, tmp_path: Path):
    stats = f'{{"api_calls": 3, "instance_cost": {cost}, "tokens_sent": 900, "tokens_received": 40}}'
    step = '{"action": "ls", "observation": "a", "thought": "t"}'
    text = f'{{"history": [], "trajectory": [{step}], "info": {{"model_stats": {stats}}}}}'
    (run,) = runs_of(tmp_path / "a.traj", text)
    assert spent(run) == (900, 40, None)


BATCHES = ("openhands/resolver-output.jsonl", "tau-bench", "otel", "langsmith")


@pytest.mark.parametrize("cut", [7, 200])
@pytest.mark.parametrize("where", BATCHES)
def test_a_run_in_a_torn_last_line_is_counted_as_not_read(where: str, cut: int, tmp_path: Path):
    files = [SAMPLES / where] if (SAMPLES / where).is_file() else sorted((SAMPLES / where).rglob("*.jsonl*"))
    for file in files:
        report = ReadReport()
        (tmp_path / "torn.jsonl").write_bytes(data(file).rstrip(b"\n")[:-cut])
        list(survey(Source.of_path(tmp_path / "torn.jsonl"), report))
        assert (report.bad, report.cut) == (1, False), file


def test_a_span_that_was_exported_twice_counts_once(tmp_path: Path):
    for file in sorted((SAMPLES / "otel").rglob("*.jsonl*")):
        once = list(survey(Source.of_path(file)))
        report = ReadReport()
        (tmp_path / "twice.jsonl").write_bytes(data(file) * 2)
        twice = list(survey(Source.of_path(tmp_path / "twice.jsonl"), report))
        assert [run.total for run in twice] == [run.total for run in once]
        assert report.repeated > 0


def codex_line(total: int, last: int) -> str:
    usage = {"total_token_usage": tokens(total), "last_token_usage": tokens(last)}
    return json.dumps({"type": "event_msg", "payload": {"type": "token_count", "info": usage}})


def tokens(number: int) -> dict[str, int]:
    return {"input_tokens": number - 1, "output_tokens": 1, "total_tokens": number}


def test_a_request_of_codex_without_an_event_is_in_the_next_event(tmp_path: Path):
    meta = json.dumps({"type": "session_meta", "payload": {"id": "s"}})
    said = json.dumps({"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": "x"}})
    lines = [meta, said, codex_line(100, 100), said, codex_line(450, 150), codex_line(450, 150)]
    (run,) = runs_of(tmp_path / "a.jsonl", "\n".join(lines) + "\n")
    assert run.usage is not None
    assert run.usage.total_tokens == 450


def test_a_fork_of_codex_does_not_pay_for_its_parent(tmp_path: Path):
    meta = json.dumps({"type": "session_meta", "payload": {"id": "s", "forked_from_id": "p"}})
    said = json.dumps({"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": "x"}})
    (run,) = runs_of(
        tmp_path / "a.jsonl", "\n".join([meta, said, codex_line(9_000, 100), said, codex_line(9_150, 150)])
    )
    assert run.usage is not None
    assert run.usage.total_tokens == 250


def test_submitted_because_of_the_cost_is_no_good_end(tmp_path: Path):
    step = {"action": "ls", "observation": "a", "thought": "t"}
    stats = {"api_calls": 3, "instance_cost": 3.1, "tokens_sent": 900, "tokens_received": 40}
    info = {"exit_status": "submitted (exit_cost)", "model_stats": stats}
    (run,) = runs_of(tmp_path / "a.traj", json.dumps({"history": [], "trajectory": [step], "info": info}))
    assert run.ended.state == "limit"
    assert spent(run) == (900, 40, 3.1)


MADE = {
    "factory-droid/factory-droid-session.jsonl": ("droid_large", 4, 1, 0, None, None),
    "factory-droid/factory-droid-stream.jsonl": ("sid_stage0_large", 2, 1, 0, None, None),
    "antigravity/transcript.jsonl": ("transcript", 8, 8, 1, None, None),
    "opencode/opencode-run-json.jsonl": ("ses_1f2e3d4c5b6aAbCdEfGhIjKlMn", 1, 1, 0, 192, 0.0123),
    "chatgpt/conversations.json": ("68e7-0001", 2, 1, 0, None, None),
    "gemini-cli/stream-json.jsonl": ("6f2c0d52-0000-4000-8000-000000000001", 3, 2, 1, 120, None),
    "codex/rollout-2025-04-18-0d6b5d0e.json": ("0d6b5d0e-0000-4000-8000-000000000002", 2, 1, 1, None, None),
    "claude-code/web-export.json": ("5a5f2b1c-0000-4000-8000-000000000003", 2, 1, 1, 52, None),
    "openhands/resolver-output.jsonl": ("resolver-output#7", 2, 1, 1, 310, 0.031),
}
"""The id of the first run, its turns, calls, errors, output tokens, and the cost that it names."""


@pytest.mark.parametrize("name", MADE)
def test_a_form_that_was_not_read_before_is_read_whole(name: str):
    run = next(survey(Source.of_path(SAMPLES / name)))
    _, answered, cost = spent(run)
    assert (run.id, run.total.turns, run.total.tool_calls, run.errors, answered, cost) == MADE[name]


def test_a_dialogue_of_tau_bench_as_text_has_its_turns_and_results():
    found = list(survey(Source.of_path(SAMPLES / "tau-bench" / "MockAirlineDomainEnv-few_shot.jsonl.gz")))
    lines = data(SAMPLES / "tau-bench" / "MockAirlineDomainEnv-few_shot.jsonl.gz").decode().splitlines()
    shown = [json.loads(line)["messages_display"] for line in lines]
    assert [run.total.turns for run in found] == [len(re.findall(r"^assistant: ", one, re.MULTILINE)) for one in shown]
    assert not any(run.loops for run in found)


def test_an_object_of_the_ai_sdk_is_the_answer(tmp_path: Path):
    facts = {"ai.operationId": "ai.generateObject.doGenerate", "ai.response.object": '{"city": "Oslo"}'}
    span = {
        "name": "ai.generateObject.doGenerate",
        "spanContext": {"traceId": "t", "spanId": "s"},
        "attributes": {**facts, "ai.prompt.messages": '[{"role": "user", "content": "Which city?"}]'},
    }
    (run,) = runs_of(tmp_path / "spans.json", json.dumps([span]))
    assert (run.total.turns, run.total.chars) == (1, len('{"city": "Oslo"}'))
