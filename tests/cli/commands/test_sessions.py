"""`sessions`: what is stored is listed, read, checked, copied and removed."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.cli.commands.sessions import sessions as commands
from monitor.cli.options.session_file import complete
from monitor.sessions import SessionReader, SQLiteSession
from monitor.sessions.tables.schema import has_reset_bug
from tests.sessions.test_files import everything

pytestmark = pytest.mark.feature("AC-01")

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def run(*arguments: str, **more: Any) -> Any:
    return CliRunner().invoke(app, ["sessions", *arguments], **more)


def as_json(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one session, `first`."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    monkeypatch.setenv("AGENT_MONITOR_SESSIONS", str(folder))
    anyio.run(everything, folder / "first.session")
    return folder


def harm(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP TRIGGER monitor_nodes_kept_from_update")
    connection.execute(
        """UPDATE monitor_nodes SET body = '{"content":[{"text":"B"}],"type":"user_message"}' WHERE seq = 2"""
    )
    connection.close()


def test_the_list_says_what_is_there_and_how_it_begins(folder: Path):
    done = run("list")
    assert done.exit_code == 0
    assert re.search(r"^first +just now +\d+ KB +9 +user: a\\x00", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1].startswith(f"1 session in {folder}, ")
    (row,) = as_json("list")
    assert (row["name"], row["nodes"], row["owner"], row["problem"]) == ("first", 9, None, None)
    assert row["runs"] == {"r": "running", "s": "running"}


def test_an_empty_folder_and_one_that_is_not_there_are_no_error(tmp_path: Path):
    for where in (tmp_path, tmp_path / "nothing"):
        done = run("list", "--folder", str(where))
        assert (done.exit_code, done.stdout.startswith("0 sessions in")) == (0, True)


def test_a_session_in_use_names_its_owner_and_can_be_read(folder: Path):
    async def check() -> None:
        async with SQLiteSession(folder / "first.session"):
            assert "in use by process" in run("list").stdout
            assert run("show", "first").exit_code == 0
            done = run("rm", "first")
            assert done.exit_code == 2
            assert "in use by process" in done.stderr

    anyio.run(check)
    assert "in use" not in run("list").stdout


def test_show_prints_what_the_model_is_shown(folder: Path):
    done = run("show", "first")
    assert done.exit_code == 0
    assert "what the model is shown: 5 messages" in done.stdout
    assert re.search(r"^ *1 +monitor +a summary", done.stdout, re.MULTILINE)
    assert re.search(r"^ *2 +user +short", done.stdout, re.MULTILINE)
    assert "asked" in done.stdout
    (data,) = as_json("show", "first")
    assert [entry["message"]["type"] for entry in data["context"]][:2] == ["user_message"] * 2
    assert data["heads"].keys() == {"active", "früher"}
    assert data["open_questions"] == ["a rule"]


def test_show_of_another_branch(folder: Path):
    (data,) = as_json("show", "first", "--branch", "früher")
    assert len(data["context"]) == 1
    done = run("show", "first", "--branch", "none")
    assert (done.exit_code, "it has active, früher" in done.stderr) == (2, True)


def test_the_tree_has_every_node_and_names_the_branches(folder: Path):
    async def branch() -> None:
        from tests.sessions.making import says

        async with SQLiteSession(folder / "first.session") as session:
            await session.append(says("other"), branch="früher")

    anyio.run(branch)
    lines = run("tree", "first").stdout.splitlines()
    assert len(lines) == 10
    assert [line for line in lines if "<- active" in line] == [lines[-1]]
    (other,) = [line for line in lines if "user: other" in line]
    assert other.startswith("  ")
    assert "<- früher" in other
    assert any("shortens" in line for line in lines)
    assert any("branch note: why" in line for line in lines)
    assert any("compaction (100 to 10 tokens): a summary" in line for line in lines)
    nodes = as_json("tree", "first")
    assert [node["seq"] for node in nodes] == list(range(1, 11))


def test_events_are_listed_in_words_and_as_json(folder: Path):
    done = run("events", "first")
    assert re.match(r"run r, \d{4}-\d\d-\d\d$", done.stdout.splitlines()[0])  # one run, one day: not on each line
    assert len(done.stdout.splitlines()) == 6
    assert [event["event"]["type"] for event in as_json("events", "first", "--run", "r")] == [
        *("nudged", "tool_started", "tool_finished", "turn_ended")
    ]
    assert "no events" in run("events", "first", "--run", "s").stdout


def test_export_and_import_give_the_same_session(folder: Path, tmp_path: Path):
    done = run("export", "first")
    out = tmp_path / "first.jsonl"
    assert run("export", "first", "--out", str(out)).exit_code == 0
    assert run("export", "first", "--out", str(out)).exit_code == 2  # it is there already
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        json.loads(line) for line in out.read_text().splitlines()
    ]
    assert run("import", str(out)).stdout.startswith("imported as 0")
    assert run("import", "-", "--name", "again", input=done.stdout).exit_code == 0
    with SessionReader(folder / "first.session") as one, SessionReader(folder / "again.session") as other:
        assert (one.id, one.nodes()) == (other.id, other.nodes())
    assert run("import", str(out), "--name", "again").exit_code == 2
    assert run("import", str(out), "--name", "../out").exit_code == 2
    assert run("import", str(tmp_path / "nothing")).exit_code == 2
    out.write_text("{}\n")
    assert "not that of an exported session" in run("import", str(out)).stderr


def test_forks_get_free_names_and_may_end_at_a_node(folder: Path):
    nodes = as_json("tree", "first")
    assert run("fork", "first").stdout == "forked as first-2\n"
    (data,) = as_json("fork", "first-2", "--at", nodes[1]["id"][-12:], "--name", "short")
    assert data["name"] == "short"
    with SessionReader(folder / "short.session") as session:
        assert len(session.active_path()) == 2
        assert session.id == data["id"]
    assert run("fork", "first", "--at", "zz").exit_code == 2


def test_verify_checks_one_or_all_and_says_so_by_its_exit_code(folder: Path):
    done = run("verify")
    assert (done.exit_code, done.stdout) == (0, "first: 9 nodes, as written\n")
    run("fork", "first", "--name", "second")
    harm(folder / "second.session")
    (folder / "third.session").write_text("no session")
    done = run("verify", "--json")
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert done.exit_code == 1
    assert {name: row["ok"] for name, row in rows.items()} == {"first": True, "second": False, "third": False}
    assert rows["second"]["problems"][0]["seq"] == 2
    assert run("verify", "first").exit_code == 0
    assert "digest differs" in run("verify", "second").stdout
    assert run("list").exit_code == 0


def test_doctor_says_what_sessions_stand_on(folder: Path):
    (data,) = as_json("doctor")
    assert data["sqlite"] == sqlite3.sqlite_version
    assert (data["usable"], data["sessions"], data["folder"]) == (True, 1, str(folder))
    assert "synchronous=FULL" in run("doctor").stdout
    done = run("doctor", "--folder", str(folder / "first.session" / "below a file"))
    assert (done.exit_code, "cannot be written" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("version", "bug"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 54, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_versions_with_the_bug_of_the_log_are_known(version: Any, bug: Any):
    assert has_reset_bug(version) is bug


def test_rm_removes_by_name_by_age_and_by_size(folder: Path):
    run("fork", "first", "--name", "second")
    run("fork", "first", "--name", "third")
    assert run("rm").exit_code == 2
    assert run("rm", "first", "--over", "1").exit_code == 2
    assert run("rm", "first", "no such session").exit_code == 2  # nothing is removed then
    assert len(as_json("list")) == 3
    assert run("rm", "first", "--dry-run").stdout == "1 session would be removed: first\n"
    assert run("rm", "first").stdout == "1 session removed: first\n"
    assert run("rm", "--older-than", "1").stdout == "0 sessions removed\n"
    assert as_json("rm", "--over", "0.15") == [{"removed": ["second"], "busy": [], "dry_run": False}]
    assert [one.name for one in folder.iterdir() if one.suffix in {".session", ".blobs", ".lock"}] in (
        ["third.session", "third.session.blobs"],
        ["third.session.blobs", "third.session"],
    )


@pytest.mark.parametrize("part", ["first", "irs", "ID", "PATH"])
def test_a_session_is_found_by_name_id_and_file(folder: Path, part: str):
    with SessionReader(folder / "first.session") as session:
        id = session.id
    given = {"ID": id[-10:], "PATH": str(folder / "first.session")}.get(part, part)
    (data,) = as_json("show", given)
    assert data["id"] == id


def test_a_name_that_means_none_or_several_is_refused(folder: Path):
    run("fork", "first")
    assert run("show", "irst").exit_code == 2
    assert "means 2 sessions: first" in run("show", "irst").stderr
    assert run("show", "first").exit_code == 0  # a whole name is that one
    assert "there is no session 'x'" in run("show", "x").stderr
    assert run("show", "x.session").exit_code == 2


def test_names_are_completed(folder: Path):
    assert complete("fi") == ["first"]
    assert complete("x") == []


def test_the_page_of_the_command_has_every_subcommand():
    section = PAGE.read_text().split("\n## sessions\n")[1].split("\n## ")[0]
    program: Any = get_command(commands)
    assert [name for name in program.commands if f"`sessions {name}`" not in section] == []


@pytest.mark.parametrize("command", ["list", "doctor", "verify"])
def test_characters_that_a_terminal_obeys_are_shown_as_escapes(folder: Path, command: str, tmp_path: Path):
    where = tmp_path / "f\x1b[31m"
    where.mkdir()
    anyio.run(everything, where / "a\x1b[2J.session")
    done = run(command, "--folder", str(where))
    assert "\x1b" not in done.stdout
    assert done.exit_code == 0


@pytest.mark.feature("CL-12")
def test_a_damaged_session_is_saved_under_another_name_and_what_is_lost_is_listed(folder: Path):
    harm(folder / "first.session")
    before = (folder / "first.session").read_bytes()
    done = run("salvage", "first")
    assert done.exit_code == 1
    assert "saved as first-2" in done.stdout
    assert "node number 2: it is not as it was written" in done.stdout
    assert (folder / "first.session").read_bytes() == before
    assert run("verify", "first-2").exit_code == 0
    again = run("salvage", "first-2", "--name", "whole", "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["lost"] == []


def test_a_copy_is_a_backup_with_the_same_id(folder: Path, tmp_path: Path):
    (row,) = as_json("list")
    assert "copied to" in run("copy", "first", "second").stdout
    (copied,) = as_json("copy", "first", str(tmp_path / "backup.session"))
    for path in (folder / "second.session", Path(copied["path"])):
        with SessionReader(path) as session:
            assert (session.id, session.verify()) == (row["id"], ())
    assert run("copy", "first", "second").exit_code == 2


def test_a_name_that_is_not_utf_8_does_not_end_the_list(folder: Path):
    odd = folder / os.fsdecode(b"a\xff.session")
    run("copy", "first", str(odd))
    run("rm", "first")
    (row,) = as_json("list")
    assert (row["name"], row["problem"], row["nodes"]) == (os.fsdecode(b"a\xff"), None, 9)
    assert run("list").exit_code == 0
    assert "as written" in run("verify").stdout
    assert run("rm", os.fsdecode(b"a\xff")).exit_code == 0
    assert not odd.exists()


def test_an_export_is_for_its_user_alone(folder: Path, tmp_path: Path):
    out = tmp_path / "kept.jsonl"
    assert run("export", "first", "--out", str(out)).exit_code == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert run("export", "first", "--out", str(out)).exit_code == 2
