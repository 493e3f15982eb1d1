"""What a reader counts in a sample, and what a few lines count in the same file by themselves."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from monitor.transcripts.base import ReadReport, collected
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import Source

SAMPLES = Path(__file__).parents[2] / "fixtures" / "readers"


class Counts(NamedTuple):
    turns: int
    calls: int
    results: int
    errors: int
    output_tokens: int


def data(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "replace")


def lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in data(path).split("\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue


def claude_code(path: Path) -> Counts:
    usage: dict[str, int] = {}
    calls, results, errors = set(), 0, 0
    for record in lines(path):
        message = record.get("message") or {}
        if record["type"] == "assistant" and message.get("model") != "<synthetic>":
            usage[message["id"]] = message["usage"]["output_tokens"]
        for block in message.get("content") or [] if isinstance(message.get("content"), list) else []:
            calls |= {block["id"]} if block["type"] == "tool_use" else set()
            results += block["type"] == "tool_result"
            errors += block["type"] == "tool_result" and block.get("is_error") is True
    return Counts(len(usage), len(calls), results, errors, sum(usage.values()))


def codex(path: Path) -> Counts:
    calls, results, total, last = 0, 0, 0, 0
    for record in lines(path):
        payload = record.get("payload") or {}
        kind = payload.get("type", "")
        if record["type"] == "response_item":
            calls += kind.endswith("_call")
            results += kind.endswith(("_output", "tool_search_output"))
            results += kind in {"web_search_call", "image_generation_call"} and "id" in payload
        if kind == "token_count" and payload.get("info"):
            now = payload["info"]["total_token_usage"]["total_tokens"]
            total += payload["info"]["last_token_usage"]["output_tokens"] if now > last else 0
            last = max(now, last)
    return Counts(-1, calls, results, -1, total)


def gemini_cli(path: Path) -> Counts:
    if path.suffix == ".jsonl":
        turns = [*{m["id"]: m for m in lines(path) if m.get("type") == "gemini"}.values()]  # the last one counts
    else:
        turns = [m for m in json.loads(data(path))["messages"] if m["type"] == "gemini"]
    calls = [call for turn in turns for call in turn.get("toolCalls", [])]
    tokens = sum(turn["tokens"]["output"] + turn["tokens"]["thoughts"] for turn in turns if turn.get("tokens"))
    failed = sum(call["status"] != "success" for call in calls)
    return Counts(len(turns), len(calls), len(calls), failed, tokens)


def opencode(path: Path) -> Counts:
    turns = [m for m in json.loads(data(path))["messages"] if m["info"]["role"] == "assistant"]
    turns = [m for m in turns if m["info"].get("mode") != "compaction"]
    tools = [part for m in turns for part in m["parts"] if part["type"] == "tool"]
    tokens = sum(m["info"]["tokens"]["output"] + m["info"]["tokens"]["reasoning"] for m in turns)
    return Counts(len(turns), len(tools), len(tools), sum(t["state"]["status"] == "error" for t in tools), tokens)


def copilot_cli(path: Path) -> Counts:
    kinds = [*lines(path)]
    said = [r["data"] for r in kinds if r["type"] == "assistant.message"]
    done = [r["data"] for r in kinds if r["type"] == "tool.execution_complete"]
    calls = sum(len(m.get("toolRequests") or []) for m in said)
    failed = sum(not d["success"] for d in done)
    return Counts(len(said), calls, len(done), failed, sum(m.get("outputTokens") or 0 for m in said))


def pi(path: Path) -> Counts:
    said = [r["message"] for r in lines(path) if r["type"] == "message"]
    answers = [
        m for m in said if m["role"] == "assistant" and (m["content"] or m["stopReason"] not in {"aborted", "error"})
    ]
    calls = sum(block["type"] == "toolCall" for m in answers for block in m["content"])
    results = [m for m in said if m["role"] == "toolResult"]
    return Counts(
        len(answers),
        calls,
        len(results),
        sum(m["isError"] for m in results),
        sum(m["usage"]["output"] for m in answers),
    )


def kimi(path: Path) -> Counts:
    events = [r["event"] for r in lines(path) if r["type"] == "context.append_loop_event"]
    kinds = [event["type"] for event in events]
    tokens = sum(event.get("usage", {}).get("output", 0) for event in events if event["type"] == "step.end")
    steps = {e.get("stepUuid") for e in events if e["type"] in {"content.part", "tool.call"}}
    failed = sum(e["result"].get("isError") is True for e in events if e["type"] == "tool.result")
    return Counts(len(steps), kinds.count("tool.call"), kinds.count("tool.result"), failed, tokens)


def swe_agent(path: Path) -> Counts:
    steps = json.loads(data(path))["trajectory"]
    return Counts(len(steps), len(steps), len(steps), 0, 0)


def tau_bench(path: Path) -> Counts:
    said = [m for trial in json.loads(data(path)) for m in trial["traj"]]
    answers = [m for m in said if m["role"] == "assistant"]
    calls = sum(len(m.get("tool_calls") or []) for m in answers)
    return Counts(len(answers), calls, sum(m["role"] == "tool" for m in said), 0, 0)


def openai_messages(path: Path) -> Counts:
    said = json.loads(data(path))
    answers = [m for m in said if m["role"] == "assistant"]
    calls = sum(len(m.get("tool_calls") or []) for m in answers)
    return Counts(len(answers), calls, sum(m["role"] == "tool" for m in said), 0, 0)


def atif(path: Path) -> Counts:
    steps = json.loads(data(path))["steps"]
    agent = [step for step in steps if step["source"] == "agent"]
    return Counts(
        len(agent),
        sum(len(step.get("tool_calls") or []) for step in agent),
        sum(len((step.get("observation") or {}).get("results") or []) for step in steps),
        0,
        sum((step.get("metrics") or {}).get("completion_tokens") or 0 for step in agent),
    )


def inspect_json(path: Path) -> Counts:
    said = [m for sample in json.loads(data(path))["samples"] for m in sample["messages"]]
    answers = [m for m in said if m["role"] == "assistant"]
    return Counts(len(answers), sum(len(m.get("tool_calls") or []) for m in answers), 0, 0, 0)


def inspect_archive(path: Path) -> Counts:
    with zipfile.ZipFile(path) as archive:
        samples = [json.loads(archive.read(name)) for name in archive.namelist() if name.startswith("samples/")]
    said = [m for sample in samples for m in sample["messages"]]
    answers = [m for m in said if m["role"] == "assistant"]
    results = [m for m in said if m["role"] == "tool"]
    calls = sum(len(m.get("tool_calls") or []) for m in answers)
    return Counts(len(answers), calls, len(results), sum(bool(m.get("error")) for m in results), 0)


def aider(path: Path) -> Counts:
    """A response ends with the line of its tokens. One that a person has interrupted has none."""
    turns = 0
    for block in re.split(r"^(?:#### .*\n|# aider chat .*\n)+", data(path), flags=re.MULTILINE):
        said = re.split(r"^> .*(?:received|completion tokens).*\n", block, flags=re.MULTILINE)
        has_text = re.search(r"^(?!>)\S", said[-1], re.MULTILINE) is not None
        turns += len(said) - 1 + (has_text and len(said) == 1)
    return Counts(turns, 0, 0, 0, -1)


def langsmith(path: Path) -> Counts:
    sent = json.loads(data(path))
    outputs = [one["outputs"] for one in sent["patch"] if one.get("outputs")]
    calls = sum(len(choice["message"].get("tool_calls") or []) for one in outputs for choice in one["choices"])
    used = [one.get("usage_metadata") or {} for one in outputs]
    return Counts(len(outputs), calls, 0, 0, sum(one.get("output_tokens", 0) for one in used))


def jaeger(path: Path) -> Counts:
    spans = [span for trace in json.loads(data(path))["data"] for span in trace["spans"]]
    tags = [
        {tag["key"]: tag["value"] for tag in span["tags"]} for span in spans if span["operationName"] == "openai.chat"
    ]
    calls = sum(bool(re.fullmatch(r".*completion\.0\.tool_calls\.\d+\.id", key)) for one in tags for key in one)
    results = sum(span["operationName"].startswith("execute_tool") for span in spans)
    return Counts(len(tags), calls, results, 0, sum(one["gen_ai.usage.completion_tokens"] for one in tags))


def request_log(path: Path) -> Counts:
    log = json.loads(data(path))
    answers = [m for m in log["messages"] if m["role"] == "assistant"] + [log["response"]["choices"][0]["message"]]
    calls = sum(len(m.get("tool_calls") or []) for m in answers)
    results = sum(m["role"] == "tool" for m in log["messages"])
    return Counts(len(answers), calls, results, 0, log["response"]["usage"]["completion_tokens"])


def openhands(path: Path) -> Counts:
    events = json.loads(data(path))
    own = [e for e in events if e["source"] == "agent" and e.get("action")]
    called = [e for e in own if e["action"] not in {"message", "finish"}]
    answered = [e for e in events if e.get("observation") not in {None, "agent_state_changed", "null"}]
    responses = [e.get("tool_call_metadata", {}).get("model_response", {}) for e in own]
    output = {one["id"]: one["usage"]["completion_tokens"] for one in responses if one}
    return Counts(len(own), len(called), len(answered), 0, sum(output.values()))


COUNTED: dict[str, Callable[[Path], Counts]] = {
    "claude-code": claude_code,
    "codex": codex,
    "gemini-cli": gemini_cli,
    "opencode": opencode,
    "copilot-cli": copilot_cli,
    "pi": pi,
    "kimi-cli": kimi,
    "swe-agent": swe_agent,
    "tau-bench": tau_bench,
    "messages": openai_messages,
    "atif": atif,
    "inspect": inspect_json,
    "openhands": openhands,
    "aider": aider,
    "langsmith": langsmith,
}
BY_NAME: dict[str, Callable[[Path], Counts]] = {
    "inspect/*.eval": inspect_archive,
    "messages/litellm*": request_log,
    "otel/*.jaeger.json.gz": jaeger,
}
"""Files that are written otherwise than the rest of their folder."""
OTHER_SHAPE = (
    "web-export",
    "resolver",
    "rollout-2025-04-18",
    "few_shot",
    "run-json",
    "stage0",
    "stream-json",
    "exec-json",
    "legacy",
    "v3",
    "print-mode",
    "openclaw",
    "jsonl-v040",
    ".eval",
    "function_calling_simple",
    "litellm",
    "cursor-agent",
    "sdk-goal",
    "afi-core",
)
"""Files that are written otherwise than the rest of their folder: they stand in `BY_HAND`. In
`afi-core`, three outputs of commands cannot be told from answers.
"""
COUNTABLE = [
    (kind, path)
    for kind in COUNTED
    for path in sorted((SAMPLES / kind).rglob("*"))
    if path.is_file() and not any(word in path.name for word in OTHER_SHAPE)
]
COUNTABLE += [(pattern, path) for pattern in BY_NAME for path in sorted(SAMPLES.glob(pattern))]


def read(path: Path) -> Counts:
    source, report = Source.of_path(path), ReadReport()
    reader = reader_of(source)
    assert reader is not None
    runs = [run for run, _ in collected(reader.read(source, report))]
    answers = [message for run in runs for message in run.messages if message.role == "assistant"]
    results = [result for run in runs for message in run.messages for result in message.tool_results]
    return Counts(
        len(answers),
        sum(len(message.tool_calls) for message in answers),
        len(results),
        sum(result.is_error for result in results),
        sum(message.usage.output_tokens for message in answers if message.usage),
    )


@pytest.mark.parametrize(("kind", "path"), COUNTABLE, ids=lambda value: value if isinstance(value, str) else value.name)
def test_the_counts_are_those_of_a_few_lines_of_their_own(kind: str, path: Path):
    wanted, found = {**COUNTED, **BY_NAME}[kind](path), read(path)
    if kind == "codex":  # its responses have no ids, and its errors no field: they are counted nowhere
        wanted = wanted._replace(turns=found.turns, errors=found.errors)
    if kind == "aider":  # the sums of its tokens are counted in another test
        wanted = wanted._replace(output_tokens=found.output_tokens)
    assert found == wanted


BY_HAND = {
    "chatgpt/conversations.json": Counts(2, 1, 1, 0, 0),
    "codex/rollout-2025-04-18-0d6b5d0e.json": Counts(2, 1, 1, 1, 0),
    "copilot-cli/stage0-small.jsonl": Counts(6, 5, 4, 3, 15),
    "opencode/opencode-run-json.jsonl": Counts(1, 1, 1, 0, 192),
    "otel/vercel-v6-ai-generateText-doGenerate.json": Counts(3, 0, 0, 0, 29),
    "otel/vercel-v6-ai-streamText-doStream.json": Counts(1, 0, 0, 0, 112),
    "otel/visualstudio-copilot-2.otlp.jsonl": Counts(3, 3, 3, 0, 0),
    "responses/runstate-v1_16_per_call_approval_override.json": Counts(0, 0, 0, 0, 0),
    "swe-agent/function_calling_simple.traj": Counts(5, 5, 5, 0, 0),
    "antigravity/transcript.jsonl": Counts(8, 8, 8, 1, 0),
    "claude-code/claude-stream-json.jsonl": Counts(2, 2, 2, 0, 118),
    "claude-code/web-export.json": Counts(2, 1, 1, 1, 52),
    "factory-droid/factory-droid-session.jsonl": Counts(4, 1, 1, 0, 0),
    "factory-droid/factory-droid-stream.jsonl": Counts(2, 1, 1, 0, 0),
    "gemini-cli/stream-json.jsonl": Counts(3, 2, 2, 1, 0),
    "openhands/resolver-output.jsonl": Counts(3, 2, 2, 2, 0),
    "tau-bench/MockAirlineDomainEnv-few_shot.jsonl.gz": Counts(222, 98, 105, 0, 0),
    "codex/codex-exec-json.jsonl": Counts(2, 7, 7, 3, 732),
    "pi/pi-v3.jsonl": Counts(2, 0, 0, 0, 14),
    "pi/openclaw.jsonl": Counts(3, 2, 2, 0, 0),
    "pi/pi-print-mode.jsonl.gz": Counts(3, 1, 1, 0, 406),
    "gemini-cli/gemini-cli-jsonl-v040.jsonl": Counts(2, 1, 1, 0, 228),
    "qwen-code/qwen-code.jsonl": Counts(1, 1, 0, 0, 4),
    "goose/goose-session.jsonl": Counts(2, 1, 1, 0, 0),
    "iflow/session-5de701fc-7454-4858-a249-95cac4fd3b51.jsonl.gz": Counts(9, 6, 6, 0, 0),
    "messages/cursor-agent.jsonl": Counts(5, 2, 2, 0, 0),
    "openhands/sdk-goal-events.jsonl": Counts(2, 2, 3, 3, 0),
    "otel/visualstudio-copilot-1.otlp.jsonl": Counts(3, 3, 3, 0, 0),
    "otel/vercel-v6-ai-generateText.json": Counts(3, 0, 0, 0, 29),
    "vscode-chat/spec.chatreplay.json.gz": Counts(6, 2, 2, 0, 238),
    "mini-swe-agent/local.traj.json": Counts(2, 2, 2, 0, 0),
    "responses/runstate-v1_13_pending_tool_approval.json": Counts(1, 1, 0, 0, 0),
}
"""Counted by reading the file."""


@pytest.mark.parametrize("name", BY_HAND)
def test_the_counts_are_those_that_were_counted_by_hand(name: str):
    assert read(SAMPLES / name) == BY_HAND[name]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("claude-code/bd937e2a-89e9-4d7b-8125-293a35863fa4.jsonl", "tool_use"),
        ("pi/openclaw.jsonl", "toolCall"),
        ("opencode/bridge-13dddd416599-3.export.json.gz", "tool"),
    ],
)
def test_a_call_of_a_type_that_is_not_known_is_a_call_by_its_fields(name: str, kind: str, tmp_path: Path):
    sample = SAMPLES / name
    changed = re.sub(f'"type": ?"{kind}"', '"type": "call_of_tomorrow"', data(sample))
    (tmp_path / "a.jsonl").write_text(changed)
    assert changed != data(sample)
    assert read(tmp_path / "a.jsonl").calls == read(sample).calls > 0
