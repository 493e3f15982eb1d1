"""The lines of a session, read on from call to call of a hook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli.hooks import session_lines
from monitor.cli.hooks.session_lines import REQUESTS, SUM_BYTES, SessionLines


def line(at: int, command: str = "ls") -> bytes:
    news = " ".join(chr(ord("a") + at % 26) * length for length in range(2, 40))
    call = {"type": "tool_use", "id": f"c{at}", "name": "Bash", "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": f"c{at}", "content": news}
    told = (("assistant", call), ("user", result))
    records = [{"type": kind, "message": {"content": [block]}} for kind, block in told]
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(map(line, range(4))))
    return path


def look(file: Path, *, keeps: bool = True) -> SessionLines:
    session = SessionLines(str(file), str(file.parent / "states"))
    session.read()
    if keeps:
        session.keep()
    return session


def is_awake(session: SessionLines) -> bool:
    return session.steps.may_loop("Bash", {"command": "ls"})


def test_only_new_lines_are_read(file: Path, monkeypatch: pytest.MonkeyPatch):
    assert is_awake(look(file))
    taken: list[bytes] = []
    monkeypatch.setattr(SessionLines, "_take", lambda self, one: taken.append(one))
    with file.open("ab") as out:
        out.write(line(9) + b'{"type": "assist')
    look(file)
    look(file)
    assert b"".join(taken) == line(9)


def said(file: Path, session: SessionLines) -> list[bytes]:
    data = file.read_bytes()
    return [data[begin:end] for begin, end in session.requests]


def test_it_is_known_where_a_person_says_something(file: Path):
    words = [json.dumps({"type": "user", "message": {"content": f"word {at}"}}).encode() + b"\n" for at in range(9)]
    for at, one in enumerate(words):
        with file.open("ab") as out:
            out.write(one + line(at))
        look(file)
    assert said(file, look(file)) == words[-REQUESTS:]
    file.write_bytes(words[0])
    assert said(file, look(file)) == words[:1]


def test_a_part_of_the_beginning_that_was_not_read_may_have_a_request(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session_lines, "FIRST_BYTES", 500)
    assert look(file).requests == [[0, file.stat().st_size - 500]]


def test_a_reading_that_was_killed_costs_only_itself(file: Path):
    look(file, keeps=False)
    assert is_awake(look(file))


def test_two_hooks_at_once_leave_a_whole_state(file: Path):
    first, second = SessionLines(str(file), str(file.parent / "s")), SessionLines(str(file), str(file.parent / "s"))
    for session in (first, second):
        session.read()
    for session in (second, first):
        session.keep()
    (kept,) = (file.parent / "s").iterdir()
    assert json.loads(kept.read_bytes()[SUM_BYTES:])["at"] == file.stat().st_size


def replaced(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(line(50, "make") + b" " * 4_000 + b"\n")
    other.replace(file)


def cut(file: Path) -> None:
    file.write_bytes(line(50, "make"))


def rewritten(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"ls", b"rm"))


@pytest.mark.parametrize("change", [replaced, cut, rewritten])
def test_a_session_that_was_changed_is_read_anew(change: Callable[[Path], None], file: Path):
    look(file)
    change(file)
    assert not is_awake(look(file))


def test_a_session_that_was_rewritten_is_read_from_its_first_line(file: Path):
    look(file)
    file.write_bytes(file.read_bytes().replace(b"ls", b"rm"))
    assert look(file).steps.may_loop("Bash", {"command": "rm"})


@pytest.mark.parametrize("harm", [b"", b"[]", b"{", b'{"version": 1}', b"[" * 100_000])
def test_a_state_that_is_damaged_is_none(harm: bytes, file: Path):
    look(file)
    (kept,) = (file.parent / "states").iterdir()
    kept.write_bytes(harm)
    assert is_awake(look(file))


@pytest.mark.parametrize("at", range(0, 400, 37))
def test_a_state_with_one_other_byte_is_none(at: int, file: Path, monkeypatch: pytest.MonkeyPatch):
    look(file)
    (kept,) = (file.parent / "states").iterdir()
    data = bytearray(kept.read_bytes())
    data[at] ^= 1
    kept.write_bytes(data)
    taken: list[bytes] = []
    monkeypatch.setattr(SessionLines, "_take", lambda self, one: taken.append(one))
    look(file)
    assert taken == file.read_bytes().splitlines(keepends=True)


def test_a_state_that_others_may_write_is_not_used(file: Path, monkeypatch: pytest.MonkeyPatch):
    look(file)
    folder = file.parent / "states"
    (kept,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)
    kept.chmod(0o666)
    taken: list[bytes] = []
    monkeypatch.setattr(SessionLines, "_take", lambda self, one: taken.append(one))
    look(file)
    assert taken == file.read_bytes().splitlines(keepends=True)


def test_a_folder_that_cannot_be_written_holds_up_nobody(file: Path):
    file.with_name("states").write_bytes(b"")
    assert is_awake(look(file))


def test_of_a_long_session_the_end_is_read_at_first(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session_lines, "FIRST_BYTES", 2_000)
    taken: list[bytes] = []
    monkeypatch.setattr(SessionLines, "_take", lambda self, one: taken.append(one))
    look(file)
    lines = file.read_bytes().splitlines(keepends=True)
    assert 0 < len(taken) < len(lines)
    assert taken == lines[-len(taken) :]


def test_states_of_old_sessions_are_removed(file: Path, monkeypatch: pytest.MonkeyPatch):
    look(file)
    (kept,) = (file.parent / "states").iterdir()
    monkeypatch.setattr(session_lines, "KEPT_S", -1.0)
    other = file.with_name("t.jsonl")
    other.write_bytes(line(1))
    look(other)
    assert not kept.exists()


def test_lines_of_another_format_are_left_to_the_detectors(file: Path):
    file.write_bytes(b'{"role": "user", "content": "go"}\n')
    assert not look(file).understood
