"""`replay:FILE`: transcripts of any format in the place of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.chunks import ToolCall, UsageReport
from monitor.cli.app import app
from monitor.cli.options.supervisor_arguments import replay_of
from monitor.errors import ConfigError
from monitor.transcripts import Source, runs

SAMPLES = Path(__file__).parents[3] / "fixtures" / "readers"
HOOKED = SAMPLES / "codex" / "rollout-hooked-0.169.jsonl"
SEVERAL = SAMPLES / "tau-bench" / "gpt-4o-airline.json.gz"


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments])


@pytest.mark.parametrize(
    "sample",
    [HOOKED, SAMPLES / "swe-agent" / "eps.traj.gz", SAMPLES / "opencode" / "bridge-13dddd416599-3.export.json.gz"],
    ids=lambda path: path.name,
)
def test_each_response_of_a_transcript_is_a_turn_with_its_calls_and_tokens(sample: Path):
    (run,) = runs(Source.of_path(sample))
    own = [message for message in run.messages if message.role == "assistant"]
    model = replay_of(f"replay:{sample}")
    assert len(model.turns) == len(own)
    for turn, message in zip(model.turns, own, strict=True):
        chunks = [record.chunk for record in turn]
        assert [one.name for one in chunks if isinstance(one, ToolCall)] == [one.name for one in message.tool_calls]
        assert any(isinstance(one, UsageReport) for one in chunks) == (message.usage is not None)


def test_a_supervised_run_plays_it_and_stops_at_the_recorded_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    done = invoke("run", "List the folder", "--model", f"replay:{HOOKED}")
    assert done.exit_code != 0
    assert "exec_command" in done.output


def test_of_several_runs_one_is_named():
    with pytest.raises(ConfigError, match="it holds 20 runs; name one of them, replay:FILE#RUN"):
        replay_of(f"replay:{SEVERAL}")
    first = next(iter(runs(Source.of_path(SEVERAL)))).id
    assert replay_of(f"replay:{SEVERAL}#{first}").turns
    with pytest.raises(ConfigError, match="name one of them"):
        replay_of(f"replay:{SEVERAL}#nobody")


def test_judge_eval_reads_labelled_runs_in_folders_and_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("calibrate", "judge-eval", "--judge", f"replay:{HOOKED}", str(HOOKED.parent), "missing")
    assert done.exit_code == 2
    assert "cannot read missing: No such file or directory" in done.stderr
    assert "No run has a label" in done.stdout
