"""A judge of recorded runs: `scan --judge` and `judge-eval`, with answers from a local server, from
the cache, and from a recording.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.cli.inputs.cache_folder import cache_folder
from monitor.cli.inputs.offline_judge import ReplyCache
from monitor.messages import Text, UserMessage
from monitor.models import ModelRequest
from monitor.testing import LocalGemini, ReceivedRequest, ScriptedModel
from monitor.testing.gemini_steps import Script, error_reply, finish, text, usage
from monitor.transcripts import Corpus
from monitor.transcripts.analysis.calibration import is_stuck, question_on
from monitor.verdicts import Judgement
from tests.adapters.google.sdk import sdk_warnings
from tests.transcripts.scanned import scan_run

CORPUS = Path(__file__).parents[3] / "fixtures" / "transcripts" / "dev.jsonl.gz"
PAGE = "Nothing was found for what you asked. Try other words, or ask an administrator. " * 3


def run(id: str, turns: int, *, new: bool, **more: Any) -> dict[str, Any]:
    """A run that asks in other words each time; `new`: and gets another answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "text": "Find the rain."}]
    for number in range(turns):
        messages += [
            {
                "role": "assistant",
                "text": "",
                "tool_calls": [{"name": f"look_{number % 7}", "args": {"q": f"words {number}"}}],
            },
            {
                "role": "tool",
                "tool_results": [
                    {"name": f"look_{number % 7}", "text": f"{number} {PAGE}" if new else f"{PAGE}{number % 2}"}
                ],
            },
        ]
    return {"id": id, "messages": messages, **more}


def write(path: Path, *lines: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return str(path)


def reply(confidence: float) -> str:
    return json.dumps({"analysis": "The same page under other words.", "confidence": confidence})


def recorded(path: Path, *replies: str) -> str:
    """Answers as a recording of a model."""
    lines: list[dict[str, Any]] = []
    for one in replies:
        lines += [{"type": "text_delta", "text": one}, {"type": "turn_finished", "finish_reason": "done"}]
    return f"replay:{write(path, *lines)}"


def judging(request: ReceivedRequest) -> Script:
    """A judge that can count: it reads the digest as any other would."""
    said = request.body["contents"][0]["parts"][0]["text"]
    counts = re.search(r"^(\d+) calls.*?, (\d+) different answers", said, re.MULTILINE)
    calls, answers = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    assert request.body["generationConfig"]["responseMimeType"] == "application/json"
    return [text(reply(0.95 if answers < calls / 3 else 0.1)), finish(usage=usage(900, output=40))]


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def summary(done: Any) -> dict[str, Any]:
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


# ------------------------------------------------------------------ scan


@sdk_warnings
def test_a_model_sees_what_no_counter_sees_and_is_paid_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "runs.jsonl", run("stuck", 40, new=False), run("fine", 40, new=True))
    options = ["scan", "--json", "--set", "detectors=[]", "--judge", "google:test", file]
    with LocalGemini(judging) as server, monkeypatch.context() as patch:
        patch.setenv("GEMINI_API_KEY", "local")
        patch.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
        first = invoke(*options)
        # turns 8 and 11 of the stuck one; of the other turns 8, 14, 24 and 40
        assert len(server.requests) == 2 + 4
    assert first.exit_code == 1, first.output
    found, counted = json.loads(first.stdout.splitlines()[0]), summary(first)
    assert (found["id"], found["detection"]["kind"], found["detection"]["count"]) == ("stuck", "judge", 95)
    assert found["message"] == 21  # the message of turn 11, before which it is asked again
    assert found["saved"]["turns"] == 30
    assert counted["by_kind"] == {"loop_judge/judge": 1}
    assert counted["judge"] == {
        "questions": 6,
        "model_calls": 6,
        "from_cache": 0,
        "failed": 0,
        "tokens": 5640,
        "tokens_estimated": False,
        "failures": {},
    }
    again = invoke(*options)  # without a server, and without a key
    assert summary(again)["judge"] == {**counted["judge"], "model_calls": 0, "from_cache": 6, "tokens": 0}
    assert again.stdout.splitlines()[0] == first.stdout.splitlines()[0]


def test_for_people_it_says_what_was_asked_and_from_where(tmp_path: Path) -> None:
    file = write(tmp_path / "runs.jsonl", run("stuck", 40, new=False))
    judge = recorded(tmp_path / "replies.jsonl", reply(0.75), reply(0.95))
    done = invoke("scan", "--set", "detectors=[]", "--judge", judge, "--judge-cache", "kept", "--explain", file)
    assert done.exit_code == 1
    assert "loop_judge: judge" in done.stdout
    assert "95 %: a loop from 70 %       stop" in done.stdout
    assert "answer 11" in done.stdout
    assert "Judge: 2 questions; 2 calls of a model for " in done.stdout
    assert "0 answers from kept." in done.stdout
    assert not Path("kept").exists()  # a recording is not kept again


def test_a_run_that_is_doubted_is_asked_about_earlier(tmp_path: Path) -> None:
    same = run("stuck", 7, new=False)
    for message in same["messages"]:
        for made in message.get("tool_calls", ()):
            made.update(name="look", args={"q": "rain"})
        for given in message.get("tool_results", ()):
            given.update(name="look", text=PAGE)
    judge = recorded(tmp_path / "replies.jsonl", reply(0.1))
    options = ["scan", "--json", "--judge", judge, write(tmp_path / "runs.jsonl", same)]
    unseen = ["--set", "detectors=[]"]
    assert summary(invoke(*options, *unseen))["judge"]["questions"] == 0
    assert summary(invoke(*options, *unseen, "--judge-from", "3"))["judge"]["questions"] == 1
    doubted = ["--set", "tool_call_repetition.loop_at=20", "--set", "tool_call_repetition.suspect_at=3"]
    assert summary(invoke(*options, *doubted))["judge"]["questions"] == 1


@sdk_warnings
def test_a_judge_that_gives_no_answer_is_said_and_the_scan_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "runs.jsonl", *(run(f"run {number}", 12, new=True) for number in range(3)))
    scripts: list[Script] = [
        [error_reply(503, "overloaded")],
        [text("I cannot say."), finish()],
        [text(reply(0.1)), finish()],
    ]
    with LocalGemini(scripts) as server, monkeypatch.context() as patch:
        patch.setenv("GEMINI_API_KEY", "local")
        patch.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
        done = invoke("scan", "--set", "detectors=[]", "--judge", "google:test", file)
    assert done.exit_code == 0
    assert "3 runs in" in done.stdout
    assert "Judge: 3 questions, 2 without an answer; 3 calls of a model" in done.stdout
    assert "overloaded" in done.stderr
    assert "did not answer with a confidence" in done.stderr
    assert len(list(cache_folder("judge").iterdir())) == 1  # what was no answer is asked again


def test_without_a_key_that_is_said_once_and_nothing_is_lost(tmp_path: Path) -> None:
    file = write(tmp_path / "runs.jsonl", *(run(f"run {number}", 12, new=True) for number in range(3)))
    done = invoke("scan", "--judge", "google:test", "--set", "detectors=[]", file)
    assert done.exit_code == 0
    assert done.stderr.count("GEMINI_API_KEY") == 1
    assert "(3 times)" in done.stderr


@pytest.mark.parametrize("judge", ["gemini", "nobody:x", "replay:missing.jsonl"])
def test_a_judge_that_there_is_not(tmp_path: Path, judge: str) -> None:
    done = invoke("scan", "--judge", judge, write(tmp_path / "runs.jsonl", run("fine", 3, new=True)))
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_the_judge_is_told_of_recorded_runs_as_of_live_ones() -> None:
    told: list[str] = []

    def ask(judge: Any, question: Any) -> Judgement:
        told.append(question.digest)
        assert question.task
        return Judgement("", 0.0, found=False, judged_by="me")

    from monitor.judges import LoopJudge

    judge = LoopJudge(ScriptedModel(), first_turn=4, share=None)
    runs = [one for one in Corpus(CORPUS) if one.label == "clean" and one.task and len(one.messages) > 12][:5]
    for one in runs:
        scan_run(one, judge=judge, ask_judge=ask)
    assert len(told) >= 5
    assert all(" different requests" in digest for digest in told)


# ------------------------------------------------------------------ judge-eval


def labelled(tmp_path: Path) -> str:
    loop = {"kind": "tool_identical", "turn": 1, "turn_3": 13, "turn_5": 21}
    return write(
        tmp_path / "runs.jsonl",
        run("stuck 1", 12, new=False, label="loop", loop=loop),
        run("stuck 2", 12, new=False, label="loop", loop=loop),
        run("fine", 12, new=True, label="clean"),
        run("hard", 12, new=True, label="hard_negative"),
        run("short", 3, new=True, label="clean"),
        run("both", 12, new=True, label="borderline"),
        run("chant", 12, new=True, label="loop", loop={"kind": "text_word", "turn": 1}),
        run("unknown", 12, new=True),
    )


def test_agreement_with_the_labels_and_how_far_the_confidence_can_be_trusted(tmp_path: Path) -> None:
    judge = recorded(tmp_path / "replies.jsonl", reply(0.95), reply(0.5), reply(0.05), reply(1.0))
    done = invoke("calibrate", "judge-eval", "--judge", judge, "--json", labelled(tmp_path))
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["agreement"] == 0.5
    assert data["brier"] == pytest.approx((0.05**2 + 0.5**2 + 0.05**2 + 1) / 4)
    assert [(kind["kind"], kind["stuck"], kind["asked"], kind["called_stuck"]) for kind in data["kinds"]] == [
        ("tool_identical", True, 2, 1),
        ("clean", False, 1, 0),
        ("hard_negative", False, 1, 1),
    ]
    assert [(row["from"], row["runs"], row["stuck"]) for row in data["reliability"]] == [
        (0.0, 1, 0.0),
        (0.5, 1, 1.0),
        (0.9, 2, 0.5),
    ]
    assert (data["too_short"], data["without_label"]) == (1, 3)
    assert [verdict["id"] for verdict in data["verdicts"]] == ["stuck 1", "stuck 2", "fine", "hard"]
    assert data["judge"]["questions"] == 4


def test_the_same_for_people(tmp_path: Path) -> None:
    judge = recorded(tmp_path / "replies.jsonl", reply(0.95), reply(0.5), reply(0.05), reply(1.0))
    done = invoke("calibrate", "judge-eval", "--judge", judge, labelled(tmp_path))
    assert "2 of 4 verdicts agree with the label (50%); Brier score 0.314." in done.stdout
    assert "Not: stuck 2, hard." in done.stdout
    assert "Left out: 3 without a label that counts, 1 too short to be asked about." in done.stdout
    assert any(line.split() == ["0.9", "to", "1.0", "2", "0.97", "50%"] for line in done.stdout.splitlines())
    assert any(line.split() == ["tool_identical", "stuck", "2", "1", "0.72"] for line in done.stdout.splitlines())


@sdk_warnings
def test_on_the_corpus_with_a_server_and_then_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["calibrate", "judge-eval", "--judge", "google:test", "--limit", "60", "--json", str(CORPUS)]
    with LocalGemini(judging) as server, monkeypatch.context() as patch:
        patch.setenv("GEMINI_API_KEY", "local")
        patch.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
        first = invoke(*options)
        assert len(server.requests) == 60
    assert first.exit_code == 0, first.output
    data = json.loads(first.stdout)
    assert sum(kind["asked"] for kind in data["kinds"]) == 60
    assert data["agreement"] > 0.5  # it does no more than count
    again = json.loads(invoke(*options).stdout)
    assert again["judge"]["from_cache"] == 60
    assert again["judge"]["model_calls"] == 0
    assert {**again, "judge": None} == {**data, "judge": None}


@sdk_warnings
def test_the_page_shows_what_the_corpus_gives_with_the_judge_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (CORPUS.parents[2] / "docs" / "cli.md").read_text("utf-8")
    shown = re.findall(r"(?:^    .*\n)+", page, re.MULTILINE)
    (wanted,) = [block for block in shown if "runs that are" in block]
    with LocalGemini(judging) as server, monkeypatch.context() as patch:
        patch.setenv("GEMINI_API_KEY", "local")
        patch.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
        done = invoke("calibrate", "judge-eval", "--judge", "google:test", str(CORPUS))
        tokens = 940 * len(server.requests)
    printed = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in wanted.splitlines():
        assert " ".join(line.split()) in printed
    assert f"calls of a model for {tokens:,} tokens" in done.stdout  # the line `Judge: ...`, as for a scan


def test_without_answers_there_is_no_verdict_and_the_exit_code_says_so(tmp_path: Path) -> None:
    done = invoke(
        "calibrate",
        "judge-eval",
        "--judge",
        recorded(tmp_path / "replies.jsonl", "hm"),
        "--limit",
        "3",
        labelled(tmp_path),
    )
    assert done.exit_code == 1
    assert "No verdict was given." in done.stdout
    assert "holds" in done.stderr or "recorded turns" in done.stderr


def test_without_labels_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    judge = recorded(tmp_path / "replies.jsonl", reply(1))
    done = invoke(
        "calibrate",
        "judge-eval",
        "--judge",
        judge,
        write(tmp_path / "runs.jsonl", run("unknown", 12, new=True)),
        "missing.jsonl",
    )
    assert done.exit_code == 2
    assert "No run has a label" in done.stdout
    assert "cannot read missing.jsonl" in done.stderr


def test_every_labelled_loop_of_calls_can_be_asked_about_where_it_is_plain() -> None:
    asked = [(one, told) for one in Corpus(CORPUS) if is_stuck(one) and (told := question_on(one)) is not None]
    assert len(asked) >= 75
    for one, told in asked:
        assert one.loop is not None
        assert told.turn <= sum(message.role == "assistant" for message in one.messages) + 1
        assert len(told.digest) <= 12_000
        if one.loop.kind == "tool_identical":
            assert " again" in told.digest, one.id


# ------------------------------------------------------------------ the cache


def request(words: str = "hello", **options: Any) -> ModelRequest:
    return ModelRequest((UserMessage((Text(words),)),), **options)


def test_another_question_or_another_model_is_another_file(tmp_path: Path) -> None:
    cache, small, large = ReplyCache(tmp_path), ScriptedModel(name="small"), ScriptedModel(name="large")
    asked = [
        (small, request()),
        (large, request()),
        (small, request("bye")),
        (small, request(settings={"temperature": 0})),
    ]
    assert len({cache.key(model, one) for model, one in asked}) == len(asked)
    assert cache.key(small, request()) == cache.key(ScriptedModel(name="small"), request())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"reply": 3}', '{"model": "small"}'])
def test_a_damaged_file_counts_as_not_there(tmp_path: Path, content: str) -> None:
    cache, model = ReplyCache(tmp_path / "new"), ScriptedModel(name="small")
    key = cache.key(model, request())
    assert cache.get(key) is None
    cache.put(key, model, "hello\ud800")
    assert cache.get(key) == "hello\ud800"
    (tmp_path / "new" / f"{key}.json").write_text(content)
    assert cache.get(key) is None
    cache.forget(key)
    cache.forget(key)
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("idle", [("--judge-from", "3"), ("--judge-confirm", "google:x")])
def test_options_of_a_judge_without_a_judge_are_refused(idle: tuple[str, str], tmp_path: Path):
    (tmp_path / "runs.jsonl").write_text("")
    done = CliRunner().invoke(app, ["scan", *idle, str(tmp_path / "runs.jsonl")])
    assert done.exit_code == 2
    assert f"{idle[0]} without a judge to ask: add --judge google:NAME" in done.stderr
