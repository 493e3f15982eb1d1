"""`agent-monitor calibrate`: what it writes can be loaded, and keeps its promise."""

from __future__ import annotations

import gzip
import json
import tomllib
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import monitor
from monitor.chunks import ToolCall, TurnFinished
from monitor.cli.app import app
from monitor.cli.inputs.survey_workers import BytesRead, ScanCache, SurveySettings, surveyed_files
from monitor.cli.options.levels import FACTORS, SCALED, Levels, as_toml, levels_of
from monitor.detectors import LearnedEvidence, default_detectors
from monitor.errors import FinishReason
from monitor.report import StoryWatcher
from monitor.settings import Settings, load_settings
from monitor.transcripts.analysis.survey import survey
from monitor.transcripts.analysis.traces import ALL, UNREACHED, TracedRun
from monitor.transcripts.corpus import Corpus
from monitor.transcripts.source import Source
from tests.transcripts.analysis.test_copied_runs import session
from tests.transcripts.scanned import scan_run

CORPUS = Path(__file__).parents[3] / "fixtures" / "transcripts" / "dev.jsonl.gz"

FIXTURES = Path(__file__).parents[3] / "fixtures" / "transcripts"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(number: int, equal: int = 1, *, label: str | None = None, calls: int = 12) -> dict[str, Any]:
    """A number of calls, the last `equal` of them the same."""
    messages: list[dict[str, Any]] = [{"role": "user", "text": f"task {number}"}]
    for at in range(calls):
        arguments = {"at": min(at, calls - equal)}
        messages.append({"role": "assistant", "text": "", "tool_calls": [{"name": "look", "args": arguments}]})
        messages.append({"role": "tool", "tool_results": [{"name": "look", "text": f"saw {arguments['at']}"}]})
    return {"id": f"run {number}", "label": label, "messages": messages}


def calibrate(*runs: dict[str, Any], options: tuple[str, ...] = ()) -> Any:
    Path("runs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in runs))
    return CliRunner().invoke(app, ["calibrate", "runs.jsonl", *options])


def test_runs_that_repeat_themselves_move_the_line_up():
    done = calibrate(*(run(at, 9 if at % 2 else 1) for at in range(40)), options=("-o", "mine.toml", "--loops", "keep"))
    assert done.exit_code == 0, done.output
    settings = load_settings("mine.toml")
    assert settings.settings["ToolCallRepetition"]["loop_at"] == 10  # twice the default: the first above nine
    assert "at most 5% of runs like them are stopped" in done.stdout
    assert "the same kind of tasks, models and tools" in done.stdout


def test_what_is_written_stops_no_more_of_the_runs_than_was_promised():
    runs = [run(at, at % 12 + 1) for at in range(60)]
    calibrate(*runs, options=("-o", "mine.toml", "--at-most", "30%", "--loops", "keep"))
    chosen = load_settings("mine.toml")
    stopped = sum(
        scan_run(one, detectors=chosen.detectors(), policy=chosen.policy()).ended_by is not None
        for one in Corpus("runs.jsonl")
    )
    assert 0 < stopped <= 0.3 * 61


def test_guard_and_supervisor_stop_where_the_written_limits_say():
    calibrate(*(run(at) for at in range(20)), options=("-o", "mine.toml"))
    chosen = load_settings("mine.toml")
    assert [one.name for one in chosen.detectors()] == [one.name for one in default_detectors()]
    at = chosen.settings["ToolCallRepetition"]["loop_at"]
    assert at != 5  # not the default
    turns = [[ToolCall(f"c{number}", "look", {"at": 1}), TurnFinished(FinishReason.DONE)] for number in range(40)]
    with monitor.Guard(detectors=chosen.detectors(), policy=chosen.policy()) as guard:
        for turn in turns:
            with guard.watch(iter(turn)) as watched:
                list(watched)
            for call in watched.turn.tool_calls:
                guard.tool_result(call, "closed")
            if isinstance(guard.check(), monitor.Stop):
                break
    assert (guard.outcome.reason, guard.outcome.turns) == (monitor.TerminateReason.LOOP_DETECTED, at)

    def look(at: int) -> str:
        """Look at a door."""
        return "closed"

    model = monitor.testing.ScriptedModel(*turns)
    policy = chosen.policy() or monitor.StopAtFirstLoop()
    outcome = monitor.Supervisor(model, tools=[look], detectors=chosen.detectors(), policy=policy).run_sync("Go in.")
    assert (outcome.reason, outcome.turns) == (monitor.TerminateReason.LOOP_DETECTED, at)


def test_too_few_runs_are_refused_with_the_number_that_is_needed():
    done = calibrate(*(run(at) for at in range(18)), options=("-o", "mine.toml"))
    assert done.exit_code == 2
    assert "18 good runs cannot promise" in done.stderr
    assert "19 are needed" in done.stderr
    assert not Path("mine.toml").exists()


@pytest.mark.parametrize("share", ["0", "100%", "5 percent", "-1%", "nan", ""])
def test_a_share_that_is_none_is_refused(share: str):
    assert calibrate(run(1), options=("--at-most", share)).exit_code == 2


def test_labelled_loops_are_no_good_runs_and_show_what_the_line_saves():
    runs = [run(at, label="clean") for at in range(60)] + [run(100 + at, 9, label="loop") for at in range(5)]
    found = json.loads(calibrate(*runs, options=("--json",)).stdout)
    assert (found["good"], found["loops"]) == (60, 5)
    evidence, both, length = found["held_out"]
    assert [one["score"] for one in found["held_out"]] == ["evidence", "evidence + length", "length alone"]
    assert (evidence["good"], evidence["good_stopped"], evidence["loops_stopped"]) == (30, 0, 5)
    assert evidence["saved_tokens"] > 0
    assert length["loops_stopped"] == 0  # all runs are equally long, so length says nothing
    assert both["good_stopped"] == 0


def test_the_halves_are_the_same_in_any_order_of_the_runs():
    runs = [run(at, label="clean", calls=2 + at) for at in range(38)]
    loop = run(100, 9, label="loop")
    told, backwards = calibrate(*runs, loop).stdout, calibrate(*runs[::-1], loop).stdout
    assert "Of 39 runs the tokens are estimated" in told
    assert told == backwards


def test_a_line_that_could_not_be_read_is_in_the_exit_code():
    Path("torn.jsonl").write_text("".join(json.dumps(run(at)) + "\n" for at in range(19)) + '{"id": 1,\n{}\n')
    done = CliRunner().invoke(app, ["calibrate", "torn.jsonl"])
    assert done.exit_code == 2
    assert "19 good runs: at most 5%" in done.stdout


def test_a_line_that_lets_runs_pass_that_look_like_loops_is_refused_and_they_are_shown():
    done = calibrate(*(run(at, 9) for at in range(25)), options=("-o", "mine.toml"))
    assert done.exit_code == 2
    assert "25 of 25 good runs look like loops" in done.stderr
    assert "look 9 times with the same arguments, step 4 to 12" in done.stderr
    assert "would let 25 of 25 runs pass" in done.stderr
    assert not Path("mine.toml").exists()


def test_runs_that_look_like_loops_are_looked_at_or_dropped():
    runs = [run(at, 9 if at < 4 else 1) for at in range(24)]
    looked = calibrate(*runs, options=("--loops", "look"))
    assert (looked.exit_code, looked.stdout) == (0, "")
    assert all(f"run {at}: " in looked.stderr for at in range(4))
    dropped = json.loads(calibrate(*runs, options=("--loops", "drop", "--json")).stdout)
    assert (dropped["good"], dropped["left_out_why"], dropped["estimated"]) == (20, {"dropped": 4}, 20)
    assert dropped["stopped"] == {"good": 0, "look_like_loops": 4, "loops": 0}
    assert dropped["settings"]["ToolCallRepetition"]["loop_at"] == 3
    below = json.loads(calibrate(*runs, options=("--at-most", "25%", "--json")).stdout)
    assert len(below["look_like_loops"]) == 4  # the line lies below them: nothing is to be decided
    assert (below["good"], below["stopped"]["good"]) == (24, 4)


def test_no_run_that_looks_like_a_loop_is_said_to_who_looks():
    looked = calibrate(*(run(at) for at in range(3)), options=("--loops", "look"))
    assert (looked.exit_code, looked.stdout) == (0, "")
    assert looked.stderr.strip() == "0 of 3 good runs look like loops"


def test_what_the_line_stops_is_said_of_each_kind_of_run():
    runs = [run(at, 9 if at < 6 else 1) for at in range(25)] + [run(100 + at, 12, label="loop") for at in range(3)]
    kept = calibrate(*runs, options=("--loops", "keep")).stdout
    assert "The line stops 0 of 25 good runs, 0 of 6 runs that look like loops, 3 of 3 labelled loops." in kept
    dropped = calibrate(*runs, options=("--loops", "drop", "-o", "mine.toml"))
    assert "The line stops 0 of 19 good runs, 6 of 6 runs that look like loops, 3 of 3" in dropped.stdout
    assert "--loops drop leaves them out" not in dropped.stderr  # it did
    assert "Left out: 6 dropped." in dropped.stdout
    assert "If some of the dropped runs are good, more good runs may be stopped than promised." in dropped.stdout
    assert "Of 37 runs the tokens are estimated" not in dropped.stdout
    assert "# 6 runs that looked like loops were dropped.\n" in Path("mine.toml").read_text()
    assert "Left out" not in kept


def test_a_line_that_lets_dropped_runs_pass_is_refused():
    good = [run(at, 9, label="clean") for at in range(25)]
    done = calibrate(*good, *(run(100 + at, 6) for at in range(3)), options=("--loops", "drop"))
    assert done.exit_code == 2
    assert "would let 3 of 3 loops pass" in done.stderr


def test_good_runs_above_the_most_lenient_settings_are_refused():
    runs = [run(at, 31, label="clean", calls=31) for at in range(19)]
    done = calibrate(*runs, options=("-o", "mine.toml"))
    assert done.exit_code == 2
    assert "more than 5% of the good runs repeat themselves more than the most lenient settings allow" in done.stderr
    assert not Path("mine.toml").exists()
    below = calibrate(*(run(at, 29, label="clean", calls=31) for at in range(19)), options=("--json",))
    assert json.loads(below.stdout)["settings"]["ToolCallRepetition"]["loop_at"] == 30


def test_runs_that_do_not_count_are_told_by_their_reason():
    talk = [{"role": "user", "text": "Hello."}, {"role": "assistant", "text": "Good day."}]
    others = [
        {"id": "silent", "messages": talk[:1]},
        run(99, 9, label="borderline"),
        {"id": "talk", "label": "clean", "messages": talk},
    ]
    done = calibrate(*(run(at) for at in range(20)), *others)
    assert "21 good runs, 1 of them without a call: at most 5%" in done.stdout
    assert "Left out: 1 silent, 1 borderline." in done.stdout


def test_only_runs_that_ended_by_themselves_or_have_a_label_count_with_finished():
    ended = [run(at) for at in range(19)]
    for one in ended:
        one["messages"].append({"role": "assistant", "text": "Done."})
    options = ("--finished", "--json")
    found = json.loads(calibrate(*ended, *map(run, (50, 51)), run(60, label="clean"), options=options).stdout)
    assert (found["good"], found["left_out_why"]) == (20, {"not finished": 2})


@pytest.mark.parametrize("labels", [("clean", "hard_negative"), ("borderline", "loop"), ("loop", "loop")])
def test_labels_of_equal_runs_that_are_not_opposite_are_no_mistake(labels: tuple[str, str]):
    pair = [{**run(100, 9, label=label), "id": label + str(at)} for at, label in enumerate(labels)]
    found = json.loads(calibrate(*map(run, range(20)), *pair, options=("--at-most", "10%", "--json")).stdout)
    assert found["equal"] == 1


@pytest.mark.parametrize("order", [1, -1])
def test_a_label_counts_also_for_the_equal_run_without_one(order: int):
    pair = [run(100, 9), {**run(100, 9, label="loop"), "id": "the labelled one"}]
    found = json.loads(calibrate(*(run(at) for at in range(20)), *pair[::order], options=("--json",)).stdout)
    assert (found["good"], found["loops"], found["equal"], found["look_like_loops"]) == (20, 1, 1, [])


def recorded(**wanted: int) -> list[dict[str, Any]]:
    """So many recorded runs of each label, without their labels."""
    found: list[dict[str, Any]] = []
    for one in Corpus(CORPUS):
        label = str(one.label)
        is_text = one.loop is not None and one.loop.kind.startswith("text_")
        if not is_text and wanted.get(label, 0) > 0 and sum(len(message.text) for message in one.messages) < 20_000:
            wanted[label] -= 1
            found.append(_as_line(one))
    return found


@pytest.mark.parametrize(("clean", "loop"), [(38, 2), (32, 8), (20, 20)])
def test_recorded_loops_among_the_runs_are_found_and_the_line_without_them_stops_them(clean: int, loop: int):
    done = calibrate(*recorded(clean=clean, loop=loop), options=("--loops", "drop", "--json"))
    assert f"{loop} of {clean + loop} good runs look like loops" in done.stderr
    found = json.loads(done.stdout)
    assert found["stopped"]["look_like_loops"] == loop
    assert found["stopped"]["good"] <= 0.05 * (clean + 1)


def test_a_line_among_recorded_loops_is_refused():
    done = calibrate(*recorded(clean=20, loop=5))
    assert done.exit_code == 2
    assert "of 5 runs pass that look like loops" in done.stderr


def test_a_run_that_is_labelled_as_good_is_not_questioned():
    done = calibrate(*(run(at, 9, label="clean") for at in range(25)), options=("--json",))
    assert (done.exit_code, json.loads(done.stdout)["look_like_loops"]) == (0, [])


def test_a_line_that_lets_most_labelled_loops_pass_is_refused():
    runs = [run(at, 9, label="clean") for at in range(40)] + [run(100 + at, 9, label="loop") for at in range(3)]
    done = calibrate(*runs)
    assert done.exit_code == 2
    assert "would let 3 of 3 loops pass" in done.stderr


def test_equal_runs_count_once():
    runs = [run(at) for at in range(20)]
    found = json.loads(
        calibrate(*runs, *({**one, "id": f"copy of {one['id']}"} for one in runs), options=("--json",)).stdout
    )
    assert (found["good"], found["equal"]) == (20, 20)


def steps(number: int, idle: int) -> dict[str, Any]:
    """A run in which `idle` calls are guesses that are refused."""
    messages: list[dict[str, Any]] = [{"role": "user", "text": f"open the file of {number}"}]
    for at in range(8 + idle):
        name = f"{chr(97 + at)}{number}q"
        text = f"no such file: {name}" if at >= 8 else f"the {name}x file says {name}y"
        messages.append({"role": "assistant", "text": "", "tool_calls": [{"name": "open", "args": {"path": name}}]})
        messages.append({"role": "tool", "tool_results": [{"name": "open", "text": text, "is_error": at >= 8}]})
    return {"id": f"run {number}", "messages": messages}


def test_equal_runs_with_opposite_labels_are_refused():
    good = [run(at, label="clean") for at in range(20)]
    done = calibrate(*good, {**run(7, label="loop"), "id": "the other 7"})
    assert done.exit_code == 2
    assert "1 run equal to one with the opposite label, such as the other 7" in done.stderr


def test_runs_without_calls_promise_nothing():
    spoken = [{"role": "user", "text": "Hello."}]
    silent = [{"id": f"run {at}", "messages": [*spoken, {"role": "user", "text": str(at)}]} for at in range(25)]
    done = calibrate(*silent)
    assert done.exit_code == 2
    assert "0 good runs cannot promise" in done.stderr


def test_the_line_of_weighed_evidence_lies_above_what_the_runs_have():
    with gzip.open(FIXTURES / "composed_a.jsonl.gz", "rt", encoding="utf-8") as lines:
        runs = [{**json.loads(line), "label": "clean", "loop": None} for line in lines]
    done = calibrate(*runs, options=("-o", "mine.toml", "--loops", "keep"))
    assert done.exit_code == 0, done.output
    own = load_settings("mine.toml").settings["LearnedEvidence"]
    highest = []
    for one in Corpus("runs.jsonl"):
        gauge = LearnedEvidence(stop=UNREACHED)
        gauge.request(one.task or "")
        for _, chunk in one.chunks():
            gauge.observe(chunk)
        highest.append(gauge.highest)
    assert max(highest) > LearnedEvidence.model.stop, "more than the strictest levels"
    assert own["stop"] > max(highest), "none of them would be stopped"


def test_borderline_runs_count_neither_way():
    found = json.loads(
        calibrate(*(run(at) for at in range(20)), run(99, 9, label="borderline"), options=("--json",)).stdout
    )
    assert (found["good"], found["left_out"]) == (20, 1)


def test_settings_of_the_user_are_the_base_and_stay():
    Path("base.toml").write_text(
        'detectors = ["ToolCallRepetition"]\n[ToolCallRepetition]\nloop_at = 10\n[tools.wait]\npolling = true\n'
    )
    calibrate(*(run(at) for at in range(20)), options=("--config", "base.toml", "-o", "mine.toml"))
    settings = load_settings("mine.toml").settings
    assert settings["detectors"] == ["ToolCallRepetition"]
    assert settings["ToolCallRepetition"]["loop_at"] == 6
    assert settings["tools"] == {"wait": {"polling": True}}


def test_a_link_is_not_written_through(tmp_path: Path):
    (tmp_path / "mine.toml").symlink_to(tmp_path / "victim")
    assert calibrate(*(run(at) for at in range(20)), options=("-o", "mine.toml")).exit_code == 2


def test_every_level_is_settings_and_each_is_more_lenient_than_the_one_before():
    levels = levels_of(Settings())
    assert len(levels) == len(FACTORS)
    assert levels[FACTORS.index(1.0)]["ToolCallRepetition"]["loop_at"] == 5
    for before, after in pairwise(levels):
        Settings(after)
        for name, options in SCALED.items():
            assert all(before[name][option] <= after[name][option] for option in options)


@pytest.mark.parametrize("watcher", [StoryWatcher, Levels((json.dumps({}),)).watcher])
def test_runs_come_whole_out_of_other_processes(watcher: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("monitor.cli.inputs.survey_workers.PAYS_BYTES", 0)
    for name in "ab":
        Path(f"{name}.jsonl").write_text(json.dumps(run(1, 9)) + "\n")
    chosen = SurveySettings("{}", watcher)
    here = [chosen.examine(Path(name), print) for name in ("a.jsonl", "b.jsonl")]
    read = BytesRead()
    found = list(surveyed_files([Path("a.jsonl"), Path("b.jsonl")], chosen, read, ScanCache(None, "")))
    assert found == here
    assert read.total == sum(Path(name).stat().st_size for name in ("a.jsonl", "b.jsonl"))


@pytest.mark.parametrize("policy", [None, "ladder"])
def test_a_level_stops_a_run_in_the_trace_if_and_only_if_its_settings_do(policy: str | None):
    """The traces come from one reading with all levels; here each level reads the run alone."""
    levels = levels_of(Settings({} if policy is None else {"policy": policy}))
    told = Levels(tuple(json.dumps(level) for level in levels))
    kinds: dict[str, int] = {}
    for one in Corpus(CORPUS):
        label = one.loop.kind if one.loop else str(one.label)
        kinds[label] = kinds.get(label, 0) + 1
        if kinds[label] > (1 if policy else 2) or sum(len(message.text) for message in one.messages) > 20_000:
            continue
        line = json.dumps(_as_line(one))
        (run_of,) = survey(Source.of_bytes("r.jsonl", line.encode()), watcher=told.watcher)
        assert isinstance(run_of, TracedRun)
        for level, settings in enumerate(levels):
            made = Settings(settings)
            alone = scan_run(one, detectors=made.detectors(), policy=made.policy())
            stop = run_of.traces[ALL].stops[level]
            assert (stop is not None) == (alone.ended_by is not None), (one.id, level)
            if stop is not None:
                assert stop.turn == alone.total.turns - alone.saved.turns
    assert len(kinds) > 5


def _as_line(one: Any) -> dict[str, Any]:
    return {
        "id": one.id,
        "messages": [
            {
                "role": message.role,
                "text": message.text,
                "tool_calls": [{"name": call.name, "args": call.arguments} for call in message.tool_calls],
                "tool_results": [
                    {"name": result.name, "text": result.text, "is_error": result.is_error}
                    | ({"len": result.length} if result.length is not None else {})
                    | ({"sha1": result.sha1} if result.sha1 is not None else {})
                    for result in message.tool_results
                ],
            }
            for message in one.messages
        ],
    }


NAMES = st.text(min_size=1, max_size=8).filter(lambda text: text.encode("utf-8", "ignore").decode() == text)
TEXTS = st.text('ab"\\é \n\t\x7f\x01', max_size=6)
VALUES = st.one_of(st.integers(-(2**60), 2**60), st.booleans(), TEXTS, st.lists(TEXTS, max_size=3))
TABLES = st.recursive(st.dictionaries(NAMES, VALUES, max_size=3), partial(st.dictionaries, NAMES, max_size=3))


@given(TABLES)
def test_toml_comes_back_as_it_was(table: dict[str, Any]):
    assert tomllib.loads(as_toml(table)) == table


def test_too_few_runs_are_said_with_the_number_of_those_that_are_equal():
    done = calibrate(*({**run(1), "id": f"run {at}"} for at in range(30)))
    assert done.exit_code == 2
    assert (
        "1 good run cannot promise that at most 5% are stopped: 19 are needed (29 runs equal to another" in done.stderr
    )


def test_a_session_and_its_longer_copy_are_one_good_run():
    for at in range(19):
        Path(f"{at:02}.jsonl").write_bytes(session(f"s{at}", [f"{at}-{turn}" for turn in range(4)]))
    Path("copy of 00.jsonl").write_bytes(session("s0", [f"0-{turn}" for turn in range(6)]))
    done = CliRunner().invoke(app, ["calibrate", "--json", *map(str, sorted(Path().glob("*.jsonl")))])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["good"], found["equal"]) == (19, 1)


@pytest.mark.parametrize("share", ["1e-300", "99.99999999999%", "nan", "0"])
def test_a_share_that_is_none_is_refused_in_the_words_of_its_option(share: str):
    done = calibrate(*map(run, range(20)), options=("--at-most", share))
    assert done.exit_code == 2
    assert f"--at-most takes 5% or 0.05, not {share!r}" in done.stderr
