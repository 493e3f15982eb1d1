"""Runs of a fleet on actors of Ray. `make engines` runs this, in an environment that has Ray."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

import monitor
from monitor.chunks import ToolCall
from monitor.errors import ConfigError
from monitor.fleet import FolderControl, FolderSessions, Supervisors
from monitor.messages import ApprovalAnswer, AssistantMessage
from monitor.models import ModelRequest
from monitor.sessions import SQLiteSession
from monitor.shared import SharedBudget
from monitor.testing import ScriptedModel, Stall

pytest.importorskip("ray", reason="`make engines` runs this: ray is not installed here")

import ray

from monitor.integrations.ray import Fleet
from tests.fleet.fleets import Away

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::ResourceWarning:ray"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    yield
    ray.shutdown()


def setup_of(folder: Path, answer: Callable[[int], Any], **options: Any) -> Callable[[], Supervisors]:
    """A local function: Ray carries it to the actors as it is, with all that it names."""

    def setup() -> Supervisors:
        def script(request: ModelRequest) -> Any:
            return answer(sum(isinstance(one, AssistantMessage) for one in request.messages))

        async def send(to: str) -> str:
            """Send a letter."""
            with (folder / "effects").open("a") as file:
                print(to, file=file)
            await asyncio.sleep(0.2)
            return f"sent to {to}"

        known = Supervisors()
        known.add("writer", monitor.Supervisor(ScriptedModel(script), tools=[send], **options))
        return known

    return setup


def letters(said: int) -> Any:
    return ["I write. ", ToolCall(f"c{said}", "send", {"to": str(said)})] if said < 3 else "Done."


def hangs(said: int) -> Any:
    return letters(said) if said < 2 else ["I think ", Stall()]


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    while not true():  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.05)


def effects(folder: Path) -> list[str]:
    return (folder / "effects").read_text().splitlines()


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(cluster: None, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    answer, options = getattr(request, "param", (letters, {}))
    place = FolderSessions(tmp_path), FolderControl(tmp_path)
    fleet = Fleet(setup_of(tmp_path, answer, **options), *place, workers=2, options={"num_cpus": 0})
    async with fleet:
        yield fleet


async def test_a_run_whose_worker_is_killed_goes_on_with_another(fleet: Fleet, tmp_path: Path):
    ids = [await fleet.submit("writer", "Write.", key=f"{n}") for n in range(8)]
    victim = (await fleet.processes())[0]
    driven = [asyncio.create_task(fleet.drive(id)) for id in ids]
    await until((tmp_path / "effects").exists)
    os.kill(victim, signal.SIGKILL)
    receipts = await asyncio.gather(*driven)
    assert {(one.reason, one.turns) for one in receipts} == {("goal", 4)}
    assert sorted(effects(tmp_path)) == sorted(str(n) for n in range(3) for _ in ids)


async def test_a_turn_whose_store_of_budgets_is_away_is_tried_again_and_ends_no_run(cluster: None, tmp_path: Path):
    def setup() -> Supervisors:
        return setup_of(tmp_path, letters, budget=SharedBudget(Away(2, at=3), "team", wait_s=0))()

    fleet = Fleet(setup, FolderSessions(tmp_path), FolderControl(tmp_path), workers=1, options={"num_cpus": 0})
    async with fleet:
        receipt = await fleet.drive(await fleet.submit("writer", "Write."))
    assert (receipt.reason, receipt.ok, receipt.turns) == ("goal", True, 4)
    assert effects(tmp_path) == ["0", "1", "2"]


async def test_a_deploy_in_the_middle_of_a_run_makes_no_effect_twice(cluster: None, tmp_path: Path):
    place = FolderSessions(tmp_path), FolderControl(tmp_path)
    async with Fleet(setup_of(tmp_path, letters), *place, workers=1, options={"num_cpus": 0}) as before:
        id = await before.submit("writer", "Write.")
        driven = asyncio.create_task(before.drive(id))
        await until((tmp_path / "effects").exists)
        driven.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await driven
    async with Fleet(setup_of(tmp_path, letters), *place, workers=1, options={"num_cpus": 0}) as after:
        receipt = await after.drive(id)
    assert (receipt.reason, receipt.turns, effects(tmp_path)) == ("goal", 4, ["0", "1", "2"])


async def test_the_same_key_is_the_same_run_and_stored_turns_are_not_made_again(fleet: Fleet, tmp_path: Path):
    id = await fleet.submit("writer", "Write.", key="a")
    receipt = await fleet.drive(id)
    assert await fleet.submit("writer", "Write.", key="a") == id
    assert await fleet.drive(id) == receipt
    assert effects(tmp_path) == ["0", "1", "2"]


@pytest.mark.parametrize("fleet", [(hangs, {})], indirect=True)
async def test_detectors_are_seen_from_afar_and_an_abort_ends_the_stream(fleet: Fleet):
    id = await fleet.submit("writer", "Write.")
    assert await fleet.snapshots(id) is None
    driven = asyncio.create_task(fleet.drive(id))
    repetition, seen = monitor.ToolCallRepetition(), None
    while seen is None or seen[repetition.name]["calls"] < 2:
        await asyncio.sleep(0.05)
        seen = await fleet.snapshots(id)
    repetition.restore(seen[repetition.name])
    assert repetition.snapshot() == seen[repetition.name]
    await fleet.abort(id, "it is not needed")
    receipt = await driven
    assert (receipt.reason, receipt.detail) == ("aborted", "it is not needed")


@pytest.mark.parametrize("fleet", [(letters, {"approval": "default"})], indirect=True)
async def test_a_run_that_waits_goes_on_with_its_answer(fleet: Fleet, tmp_path: Path):
    id = await fleet.submit("writer", "Write.")
    receipt = await fleet.drive(id)
    assert receipt.next == "wait"
    async with SQLiteSession(FolderSessions(tmp_path).path(id)) as session:
        (asked,) = await session.approvals(only_open=True)
    await fleet.answer(id, ApprovalAnswer(id=asked.request.id, decision="denied"))
    receipt = await fleet.drive(id, turn=receipt.turn + 1)
    assert receipt.next == "wait"  # the next letter
    assert not (tmp_path / "effects").exists()


async def test_the_example_runs():
    here = Path(__file__).parent.parent.parent
    done = await anyio.run_process([sys.executable, str(here / "examples" / "fleet_ray.py")], check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"6 of 6 runs have reached their goal" in done.stdout


async def test_without_ray_and_with_wrong_numbers_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = FolderSessions(tmp_path), FolderControl(tmp_path)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=r"call ray.init\(\) first"):
        async with Fleet(Supervisors, *place):
            pass
    with pytest.raises(ConfigError, match="whole numbers"):
        Fleet(Supervisors, *place, workers=0)
    with pytest.raises(ConfigError, match="not entered"):
        await Fleet(Supervisors, *place).drive("a")
