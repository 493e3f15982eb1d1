"""`compact`: a recorded conversation before and after, by no model, by a local one, and not at
all.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from monitor import UserMessage
from monitor.cli.app import app
from monitor.context import Form, read_history, repair, validate
from monitor.context.compaction.hooks import compaction_codec
from monitor.context.compaction.preset import PRESETS
from monitor.context.compaction.templates import CHECKPOINT
from monitor.messages import Message, message_codec
from monitor.sessions import NodeKind, SessionReader, SQLiteSession, message
from monitor.testing import LocalGemini, ReceivedRequest
from monitor.testing.gemini_steps import Script, Stall, error_reply, finish, text, usage
from tests.adapters.google.sdk import sdk_warnings
from tests.context.talk import ran, said, user
from tests.context.wire import FORMS, builder

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")
COMMAND = [sys.executable, "-m", "monitor.cli", "compact"]
FIRST = "Read every file. The report goes to /srv/reports/final-7731.md."


def steps(number: int) -> tuple[Message, ...]:
    """Files that are read, each of about 1,000 tokens."""
    return tuple(
        ran(f"# {n}\n" + "value = f(x)\n" * 300, name="read_file", arguments={"path": f"src/m{n}.py"})
        for n in range(number)
    )


TALK: tuple[Message, ...] = (
    user(FIRST),
    *steps(12),
    said("Half of it is done, for ABC-4711."),
    user("Go on."),
    *steps(12),
    said("All is read."),
)


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def compact(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, ["sessions", "compact", *arguments], input=stdin)


def lines(talk: tuple[Message, ...] = TALK) -> str:
    return "\n".join(map(message_codec.dumps, talk))


def chat(talk: tuple[Message, ...] = TALK) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Be terse."}, *builder("openai-chat")(talk)]


def told(file: object, *options: str) -> dict[str, Any]:
    """What it says of a conversation, as JSON."""
    done = compact("-", "--json", *options, stdin=file if isinstance(file, str) else json.dumps(file))
    data: dict[str, Any] = json.loads(done.stdout)
    assert data["ok"] is (done.exit_code == 0), done.stderr
    return data


# ------------------------------------------------------------------ what is shown


def test_without_a_model_it_is_compacted_all_the_same_and_says_so():
    done = compact("-", "--window", "32000", stdin=lines())
    assert done.exit_code == 0, done.stderr
    assert "no model was asked, --model names one" in done.stdout
    assert "cost       nothing" in done.stdout
    assert "2 user messages word for word" in done.stdout
    assert "no model was asked" not in compact("-", "--model", "extractive", stdin=lines()).stdout


def test_the_page_shows_what_is_printed():
    done = compact(
        "-", "--preset", "pi", "--window", "40000", stdin=json.dumps({"model": "gpt-4o", "messages": chat()})
    )
    card = done.stdout.strip().partition("\n\n")[0]
    shown = "".join(f"    {line.rstrip()}\n" for line in card.splitlines())
    assert shown in PAGE, shown


def test_the_numbers_are_those_of_the_whole_request_before_and_after():
    data = told(chat(), "--window", "32000")
    tokens, messages = data["tokens"], data["messages"]
    assert tokens["before"] > 2 * tokens["after"]
    assert abs(sum(tokens["before_by_source"].values()) - tokens["before"]) < 20
    assert abs(sum(tokens["after_by_source"].values()) - tokens["after"]) < 20
    assert tokens["before_by_source"]["system"] == tokens["after_by_source"]["system"] == 3
    assert "summary" not in tokens["before_by_source"]
    assert tokens["after_by_source"]["summary"] > 100
    assert messages["summarised"] + messages["kept"] == messages["before"] == len(TALK)
    assert data["cache"]["breaks_at"] == 0
    record = compaction_codec.from_dict(data["record"])
    assert (record.first_kept, record.tokens_after) == (messages["summarised"], tokens["after"])


def test_what_a_person_said_and_the_names_are_counted_and_shown_on_demand():
    data = told(chat(), "--window", "32000")
    assert data["pinned"] | {"identifiers": 0, "files": 0} == {
        "user_messages": 2,
        "user_messages_shortened": 0,
        "user_messages_left_out": 0,
        "identifiers": 0,
        "files": 0,
    }
    assert data["pinned"]["identifiers"] == 1, "the others are files, or in what the user said"
    assert data["pinned"]["files"] == 12
    assert FIRST in data["text"]
    assert FIRST not in compact("-", stdin=lines()).stdout
    assert FIRST in compact("-", "--show", stdin=lines()).stdout


def test_a_user_message_that_had_no_room_is_said_to_be_shortened():
    long = (user("Please. " * 8_000), *TALK[1:])
    pinned = told(lines(long), "--window", "24000", "--reason", "overflow")["pinned"]
    assert (pinned["user_messages"], pinned["user_messages_shortened"]) == (1, 1)


def test_where_a_run_compacts_is_said_and_what_is_left_is_below_it():
    talk = (user(FIRST), *steps(31), user("Go on."), *steps(29))
    asked = ("-", "--window", "32000", "--preset", "gemini-cli")
    done = compact(*asked, stdin=lines(talk))
    assert "a run compacts at 22,400" in done.stdout
    assert "that is still where" not in done.stdout
    assert told(lines(talk), *asked[1:])["tokens"]["after"] < 22_400


def test_the_summary_is_a_source_of_its_own_for_context_too():
    assert compact("-", "--window", "32000", "--out", "short.json", stdin=json.dumps(chat())).exit_code == 0
    data = json.loads(CliRunner().invoke(app, ["sessions", "context", "short.json", "--json"]).stdout)
    assert next(iter(data["tokens"]["by_source"])) == "summary"
    assert "user" not in data["tokens"]["by_source"]


def test_where_old_results_are_enough_nothing_is_summarised():
    talk = (user("Look."), *steps(120), said("Done."))
    options = ("-", "--preset", "gemini-cli", "--window", "160000")
    done = compact(*options, stdin=lines(talk))
    assert "nothing had to be summarised" in done.stdout
    assert "no summary: " in done.stdout
    assert told(lines(talk), *options[1:])["record"] is None
    assert "(nothing: no message is gone)" in compact(*options, "--show", stdin=lines(talk)).stdout


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_named_with_dashes_too(preset: str):
    assert told(chat(), "--preset", preset.replace("_", "-"))["preset"] == preset


def test_the_window_is_the_given_one_or_that_of_a_model_or_an_assumption_that_is_said():
    request = {"model": "gpt-4o", "messages": chat()}
    assert told(request, "--window", "50000")["window"]["tokens"] == 50_000
    assert told(request)["window"] == {"tokens": 128_000, "source": "model", "note": "the table of 2026-11-20"}
    assert told(chat())["window"] == {"tokens": 128_000, "source": "default", "note": "assumed; --window says it"}
    assert "assumed; --window says it" in compact("-", stdin=lines()).stdout


def test_a_damaged_conversation_is_repaired_first():
    broken = [*chat(), {"role": "tool", "tool_call_id": "lost", "content": "x"}]
    assert told(broken)["repairs"] == 1
    assert "1 repair first" in compact("-", stdin=json.dumps(broken)).stdout


def test_what_was_compacted_before_is_compacted_again_and_forgets_no_user_message(tmp_path: Path):
    assert compact("-", "--window", "32000", "--out", "once.jsonl", stdin=lines()).exit_code == 0
    more = Path("once.jsonl").read_text("utf-8") + lines((user("Once more."), *steps(20), said("Done.")))
    data = told(more, "--window", "32000")
    assert data["pinned"]["user_messages"] >= 3
    assert FIRST in data["text"]


def test_control_sequences_reach_no_terminal():
    talk = (user("\x1b[31mred"), *TALK)
    done = compact("-", "--show", stdin=lines(talk))
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout


# ------------------------------------------------------------------ what is written


@pytest.mark.parametrize("form", FORMS)
def test_it_is_written_in_the_words_it_came_in_and_its_provider_takes_it(form: Form):
    talk = (*TALK, user("Thanks."))
    done = compact("-", "--form", form, "--window", "32000", "--out", "out.json", stdin=json.dumps(builder(form)(talk)))
    assert done.exit_code == 0, done.stderr
    assert "written    out.json" in done.stdout
    written = json.loads(Path("out.json").read_text("utf-8"))
    assert validate(form, written) == []
    messages, report = repair(read_history(form, written), form=form)
    assert not report
    assert len(messages) < len(talk)
    assert messages[-2:] == talk[-2:]


def test_a_request_stays_the_request_it_was_but_for_its_messages():
    request = {"model": "gpt-4o", "temperature": 0.2, "messages": chat()}
    Path("in.json.gz").write_bytes(gzip.compress(json.dumps(request).encode()))
    assert compact("in.json.gz", "--window", "32000", "--out", "out.json.gz").exit_code == 0
    written = json.loads(gzip.decompress(Path("out.json.gz").read_bytes()))
    assert written | {"messages": 0} == request | {"messages": 0}
    assert written["messages"][0] == {"role": "system", "content": "Be terse."}
    assert validate("openai-chat", written["messages"]) == []


def test_lines_stay_lines():
    Path("in.jsonl").write_text(lines(), "utf-8")
    assert compact("in.jsonl", "--window", "32000", "--out", "out.jsonl").exit_code == 0
    written = [message_codec.loads(line) for line in Path("out.jsonl").read_text("utf-8").splitlines()]
    assert written[-1] == TALK[-1]
    assert isinstance(written[0], UserMessage)
    assert written[0].synthetic
    Path("chat.jsonl").write_text("\n".join(map(json.dumps, chat())), "utf-8")
    assert compact("chat.jsonl", "--window", "32000", "--out", "out.jsonl").exit_code == 0
    assert [json.loads(line)["role"] for line in Path("out.jsonl").read_text("utf-8").splitlines()][:2] == [
        "system",
        "user",
    ]


def test_the_conversation_itself_is_never_overwritten_and_a_place_that_is_none_is_said_at_once():
    Path("in.jsonl").write_text(lines(), "utf-8")
    done = compact("in.jsonl", "--out", "in.jsonl")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "that is the conversation itself" in done.stderr
    assert "there is no such directory" in compact("in.jsonl", "--out", "no/where.json").stderr
    assert "it is a directory" in compact("in.jsonl", "--out", ".").stderr
    assert Path("in.jsonl").read_text("utf-8") == lines()


# ------------------------------------------------------------------ a model


def checkpoint(_: ReceivedRequest) -> Script:
    body = CHECKPOINT.skeleton(dict.fromkeys(CHECKPOINT.sections, "- said by the model"))
    return [text(body), finish(usage=usage(9_000, output=300))]


@sdk_warnings
def test_a_model_summarises_and_its_price_and_progress_are_told(monkeypatch: pytest.MonkeyPatch):
    with LocalGemini(checkpoint) as server:
        monkeypatch.setenv("GEMINI_API_KEY", "x")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
        done = compact("-", "--model", "google:local", "--window", "40000", "--json", stdin=lines())
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["summarised_by"] == "google:local"
    assert "said by the model" in data["text"]
    assert data["cost"]["model_calls"] == len(server.requests) >= 1
    assert data["cost"]["input_tokens"] == 9_000 * len(server.requests)
    assert "compaction begins (manual)" in done.stderr


@sdk_warnings
def test_a_model_that_fails_is_one_sentence_and_nothing_is_written():
    with LocalGemini(lambda _: [error_reply(400, "no such model")]) as server:
        options = ("--model", "google:local", "--base-url", server.base_url, "--out", "out.json")
        done = compact("-", *options, stdin=lines())
        as_json = compact("-", *options, "--json", stdin=lines())
    assert (done.exit_code, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("agent-monitor: not compacted (provider): ")
    assert "no such model" in last
    assert json.loads(as_json.stdout) | {"detail": ""} == {
        "ok": False,
        "failure": "provider",
        "retryable": False,
        "detail": "",
    }
    assert list(Path().iterdir()) == []


@sdk_warnings
def test_what_must_fit_is_made_to_fit_without_the_model_that_fails_and_that_is_said():
    with LocalGemini(lambda _: [error_reply(400, "no such model")]) as server:
        done = compact(
            "-",
            "--model",
            "google:local",
            "--base-url",
            server.base_url,
            "--reason",
            "overflow",
            "--window",
            "32000",
            stdin=lines(),
        )
    assert done.exit_code == 0, done.stderr
    assert "by         extractive" in done.stdout
    assert "no such model" in done.stdout.split("instead")[1]
    assert "1 model call" in done.stdout


def test_ctrl_c_ends_it_and_nothing_is_written(monkeypatch: pytest.MonkeyPatch):
    """A real process, in the middle of a summary that never ends, and the server sees it leave."""
    Path("in.jsonl").write_text(lines(), "utf-8")
    with LocalGemini(lambda _: [text("## Goal"), Stall()]) as server:
        monkeypatch.setenv("GEMINI_API_KEY", "x")
        arguments = ["in.jsonl", "--model", "google:local", "--base-url", server.base_url, "--out", "out.jsonl"]
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        server.wait_request(timeout_s=250)
        process.send_signal(signal.SIGINT)
        said_, complaints = process.communicate(timeout=250)
        server.wait_closed()
    assert (process.returncode, said_) == (130, "")
    assert "Traceback" not in complaints
    assert [path.name for path in Path().iterdir()] == ["in.jsonl"]


# ------------------------------------------------------------------ what is not compacted


def test_where_there_is_nothing_to_compact_it_says_so():
    done = compact("-", stdin=lines((user("Hello."),)))
    assert (done.exit_code, done.stdout) == (1, "")
    assert (
        done.stderr
        == "agent-monitor: not compacted (nothing_to_compact): there is nothing before the newest request itself\n"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("--preset", "emacs"),
            (
                "--preset: there is no preset 'emacs' (there are: default, gemini_cli, claude_code, opencode,"
                " openclaw, pi)"
            ),
        ),
        (("--reason", "ceiling"), "--reason ceiling: it is one of manual, overflow"),
        (("--model", "nobody:x"), "no provider is called 'nobody'"),
        (("--model", "google:gemini-2.5-flash"), "needs a key: set GEMINI_API_KEY (without a key: leave --model out)"),
        (("--base-url", "http://localhost:1"), "--base-url needs a model"),
        (("--form", "x"), "--form x: it is one of gemini, "),
    ],
)
def test_wrong_options_are_one_sentence(arguments: tuple[str, ...], complaint: str):
    done = compact("-", *arguments, stdin=lines())
    assert (done.exit_code, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_what_cannot_be_read_is_named():
    done = compact("none.json")
    assert done.exit_code == 2
    assert done.stderr == "agent-monitor: none.json: cannot be read: No such file or directory\n"


# ------------------------------------------------------------------ whose the file is


def test_a_new_file_is_for_its_owner_alone_and_an_old_one_keeps_its_mode(tmp_path: Path):
    out = tmp_path / "shorter.json"
    assert compact("-", "--out", str(out), stdin=lines()).exit_code == 0
    assert out.stat().st_mode & 0o777 == 0o600
    out.chmod(0o640)
    assert compact("-", "--out", str(out), stdin=lines()).exit_code == 0
    assert out.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["shorter.json"]


def test_nothing_is_written_through_a_link_that_somebody_put_there(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("shorter.json", ".shorter.json.half"):
        (tmp_path / name).symlink_to(victim)
    done = compact("-", "--out", str(tmp_path / "shorter.json"), stdin=lines())
    assert done.exit_code == 2
    assert "it is a symbolic link" in done.stderr
    (tmp_path / "shorter.json").unlink()
    assert compact("-", "--out", str(tmp_path / "shorter.json"), stdin=lines()).exit_code == 0
    assert victim.read_text() == "precious"
    assert (tmp_path / "shorter.json").read_text().startswith("{")


def test_a_link_that_was_put_there_meanwhile_is_replaced_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(
        "monitor.cli.commands.compact._check_out", lambda *_: (tmp_path / "out.json").symlink_to(victim)
    )
    assert compact("-", "--out", str(tmp_path / "out.json"), stdin=lines()).exit_code == 0
    assert victim.read_text() == "precious"
    assert not (tmp_path / "out.json").is_symlink()


def test_a_place_that_is_no_file_is_not_replaced():
    """As /dev/null is one."""
    os.mkfifo("pipe")
    done = compact("-", "--out", "pipe", stdin=lines())
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no regular file" in done.stderr
    assert Path("pipe").is_fifo()


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The session `work` with the conversation, in the folder for sessions."""
    monkeypatch.setenv("AGENT_MONITOR_SESSIONS", str(tmp_path / "sessions"))
    (tmp_path / "sessions").mkdir()
    path = tmp_path / "sessions" / "work.session"

    async def store() -> None:
        async with SQLiteSession(path) as session:
            await session.append(*map(message, TALK))

    anyio.run(store)
    return path


@pytest.mark.feature("CL-12")
def test_a_session_is_compacted_by_its_name_its_id_or_its_file(stored: Path):
    with SessionReader(stored) as session:
        names = ("work", "wor", session.id, str(stored))
    codes = []
    for name in (*names, *["work"] * 6):
        done = CliRunner().invoke(app, ["sessions", "compact", name, "--window", "40000", "--preset", "pi", "--json"])
        with SessionReader(stored) as session:
            nodes = [node for node in session.nodes() if node.kind is NodeKind.COMPACTION]
            context = session.context()
        codes.append(done.exit_code)
        if done.exit_code == 0:
            assert json.loads(done.stdout)["record"]["preset"] == "pi"
        assert len(nodes) == codes.count(0), (name, done.output)
        assert context.compaction == nodes[-1]
    assert codes[: len(names) - 1] == [0] * (len(names) - 1)
    assert codes[-1] == 1, "there is nothing left to compact"


@pytest.mark.feature("CL-12")
def test_what_a_compaction_keeps_is_in_the_context_of_the_session(stored: Path):
    done = CliRunner().invoke(app, ["sessions", "compact", "work", "--window", "40000", "--preset", "pi", "--json"])
    kept = json.loads(done.stdout)["record"]["first_kept"]
    with SessionReader(stored) as session:
        messages = session.context().messages
    assert messages[-len(TALK[kept:]) :] == tuple(TALK[kept:])


@pytest.mark.feature("CL-12")
def test_a_compacted_session_says_where_it_is_and_keeps_its_messages(stored: Path):
    with SessionReader(stored) as session:
        before = session.nodes()
    done = CliRunner().invoke(app, ["sessions", "compact", "work", "--window", "40000", "--preset", "pi"])
    assert done.exit_code == 0, done.output
    assert "work.session" in "".join(done.stdout.split())
    with SessionReader(stored) as session:
        assert session.nodes()[: len(before)] == before
        assert session.verify() == ()
        assert len(session.context().messages) < len(TALK)


@pytest.mark.feature("CL-12")
def test_options_for_files_do_not_go_with_a_session_and_a_file_goes_before_a_name(stored: Path, tmp_path: Path):
    done = CliRunner().invoke(app, ["sessions", "compact", "work", "--out", "short.json"])
    assert (done.exit_code, "--out is for files" in done.stderr) == (2, True)
    (tmp_path / "work").write_text(json.dumps([message_codec.to_dict(one) for one in TALK]), "utf-8")
    before = stored.read_bytes()
    assert CliRunner().invoke(app, ["sessions", "compact", "work", "--window", "40000"]).exit_code == 0
    assert stored.read_bytes() == before
    done = CliRunner().invoke(app, ["sessions", "compact", "nothing"])
    assert (done.exit_code, "there is no session 'nothing'" in done.stderr) == (2, True)
