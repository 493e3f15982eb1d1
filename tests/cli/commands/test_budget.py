from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner, Result

from monitor.cli.app import app
from monitor.shared import Amount, SQLiteBudgets


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["proxy", "budget", *arguments])


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store in which a run holds a part of `team/night`."""
    path = tmp_path / "budgets.db"

    async def fill() -> None:
        budgets = SQLiteBudgets(path)
        await budgets.set_limit("team", tokens=1_000_000, usd=2.5)
        hold = await budgets.reserve("team/night", Amount(5_000, 0.5), key="run", lease_s=60)
        await budgets.extend(hold, Amount(), used=Amount(1_250, 0.125), lease_s=60)  # type: ignore[arg-type]
        await budgets.aclose()

    anyio.run(fill)
    return str(path)


def test_limits_what_is_spent_what_is_held_and_what_is_left(store: str):
    shown = invoke("show", "--store", store)
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["budget", "of", "limit", "spent", "held", "left", "runs"],
        ["team", "tokens", "1,000,000", "1,250", "3,750", "995,000", "1"],
        ["team", "USD", "2.5000", "0.1250", "0.3750", "2.0000", "1"],
        ["team/night", "tokens", "-", "1,250", "3,750", "-", "1"],
        ["team/night", "USD", "-", "0.1250", "0.3750", "-", "1"],
    ]


def test_as_json_a_budget_is_one_line(store: str):
    shown = invoke("show", "team/night", "--store", store, "--json")
    assert json.loads(shown.stdout) == {
        "name": "team/night",
        "limit": {"tokens": None, "usd": None},
        "spent": {"tokens": 1250, "usd": 0.125},
        "held": {"tokens": 3750, "usd": 0.375},
        "holds": 1,
    }


def test_a_limit_is_set_and_taken_away(store: str):
    assert invoke("limit", "team", "--tokens", "5000", "--store", store).stdout == "team: at most 5,000 tokens\n"
    assert json.loads(invoke("show", "--json", "--store", store).stdout.splitlines()[0])["limit"] == {
        "tokens": 5000,
        "usd": None,
    }
    assert invoke("limit", "team", "--none", "--store", store).stdout == "team: no limit\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "--store", "none.db"), "there is no store none.db"),
        (("show", "other", "--store", "{store}"), "there is no budget 'other'"),
        (("show", "--store", "mysql://host"), "'mysql://host' is no store of budgets"),
        (("limit", "team", "--store", "{store}"), "say --tokens, --usd or both"),
        (("limit", "team", "--tokens", "5", "--none", "--store", "{store}"), "say --tokens, --usd or both"),
        (("limit", "a//b", "--tokens", "5", "--store", "{store}"), "the name of a budget"),
        (("limit", "team", "--tokens", "-5", "--store", "{store}"), "a limit of tokens is a whole number"),
        (("show", "--store", "redis://127.0.0.1:1"), "the budgets in Redis cannot be used"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(store: str, arguments: tuple[str, ...], said: str):
    done = invoke(*(one.format(store=store) for one in arguments))
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
