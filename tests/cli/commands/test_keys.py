"""The file of virtual keys, from the command line."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from monitor.cli.app import app
from monitor.proxy import VirtualKey, digest_of, read_keys
from monitor.proxy.keys import locked, write_keys


def invoke(*arguments: str, file: Path) -> Result:
    return CliRunner().invoke(app, ["proxy", "keys", *arguments, "--file", str(file)])


def test_a_key_is_made_shown_once_listed_and_revoked(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    options = ("--owner", "ada", "--expires", "90d", "--models", "gpt-4o*", "--tokens", "5000")
    secret = invoke("make", "alice", *options, "--requests-per-minute", "60", file=file).stdout.strip()
    other = invoke("make", "bob", file=file).stdout.strip()
    assert secret not in file.read_text("utf-8")
    keys = read_keys(file)
    found = keys.find(secret.encode())
    assert found is not None
    assert (found.name, found.owner, found.models, found.tokens) == ("alice", "ada", ("gpt-4o*",), 5_000)
    listed = invoke("list", "--json", file=file).stdout.splitlines()
    assert [json.loads(line)["name"] for line in listed] == ["alice", "bob"]
    shown = invoke("list", file=file).stdout
    assert "ada" in shown
    assert secret not in shown
    assert invoke("revoke", "alice", file=file).stdout == "alice: revoked\n"
    keys = read_keys(file)
    assert keys.find(secret.encode()) is None
    assert keys.find(other.encode()) is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("make", "alice"), "revoke it first"),
        (("make", "a b"), "the name of a key"),
        (("make", "new", "--expires", "soon"), "such as 2027-01-31"),
        (("make", "new", "--expires", "99999999999d"), "is no date"),
        (("make", "new", "--expires", ""), "such as 2027-01-31"),
        (("revoke", "carol"), "has no key 'carol'"),
    ],
)
def test_what_cannot_be_done_is_said_and_the_file_stays(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    file = tmp_path / "keys.json"
    invoke("make", "alice", file=file)
    before = file.read_bytes()
    result = invoke(*arguments, file=file)
    assert result.exit_code != 0
    assert said in result.stderr
    assert file.read_bytes() == before


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for command in (["list"], ["revoke", "a"]):
        result = invoke(*command, file=tmp_path / "none.json")
        assert result.exit_code != 0
        assert "none.json" in result.stderr


def test_keys_that_are_made_at_once_are_all_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"

    def add(number: int) -> None:
        with locked(file):
            known = read_keys(file).all if file.exists() else []
            write_keys(file, [*known, VirtualKey(name=f"k{number}", digest=digest_of(str(number)))])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    assert len(read_keys(file)) == 24
    assert [*tmp_path.iterdir()] == [file]
