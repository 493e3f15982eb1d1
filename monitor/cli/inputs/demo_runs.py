"""The recorded runs of the demo. They ship with the command; `fixtures/regenerate.py` makes the
file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from monitor.transcripts import RecordedResult
from monitor.transcripts.analysis.scan import ModelOutput
from monitor.transcripts.corpus import parse_run


@dataclass(slots=True, frozen=True)
class DemoTurn:
    """A model response and the answers of the tools."""

    message: dict[str, Any]
    """The assistant message as it stands in the file."""
    results: tuple[RecordedResult, ...]


@dataclass(slots=True, frozen=True)
class DemoRun:
    """One recorded run."""

    title: str
    model: str
    source: str
    license: str
    prompt: str
    turns: tuple[DemoTurn, ...]
    recorded: ModelOutput


def demo_runs() -> list[DemoRun]:
    """The runs, in the order in which they are shown."""
    text = files("monitor.cli").joinpath("data", "demo_runs.jsonl").read_text("utf-8")
    return [_run(line) for line in text.splitlines()]


def _run(line: str) -> DemoRun:
    data, run = json.loads(line), parse_run(line)
    at = [index for index, message in enumerate(run.messages) if message.role == "assistant"]
    turns = tuple(
        DemoTurn(
            data["messages"][start],
            tuple(result for message in run.messages[start:end] for result in message.tool_results),
        )
        for start, end in zip(at, [*at[1:], len(run.messages)], strict=True)
    )
    own = [run.messages[index] for index in at]
    recorded = ModelOutput(
        sum(len(message.text) for message in own), sum(len(message.tool_calls) for message in own), len(own)
    )
    return DemoRun(data["title"], data["model"], data["source"], data["license"], run.messages[0].text, turns, recorded)
