"""Long and unclean cycles: what the default detectors catch, by size and by how rounds differ."""

from __future__ import annotations

import random
from collections.abc import Callable
from string import ascii_lowercase

import pytest

from monitor.detectors import default_detectors
from monitor.detectors.detector import is_request_reader
from tests.detectors.calls.novelty.steps import Step, chunks_of

SIZES = (2, 5, 9, 17, 33, 64)
ROUNDS = 3
"""A cycle of at least five calls is caught within so many rounds, a shorter one within 20 calls."""


def places(size: int) -> list[Step]:
    """So many different looks, each with an answer of its own."""
    return [("look", {"at": f"shelf {one}"}, f"on shelf {one}: {told(random.Random(one))}") for one in range(size)]


def told(rng: random.Random) -> str:
    return " ".join("".join(rng.choices(ascii_lowercase, k=8)) for _ in range(5))


def swapped(steps: list[Step], rng: random.Random) -> list[Step]:
    at = rng.randrange(len(steps) - 1)
    return [*steps[:at], steps[at + 1], steps[at], *steps[at + 2 :]]


def doubled(steps: list[Step], rng: random.Random) -> list[Step]:
    at = rng.randrange(len(steps))
    return [*steps[: at + 1], *steps[at:]]


def shuffled(steps: list[Step], rng: random.Random) -> list[Step]:
    return rng.sample(steps, len(steps))


def of_agents(steps: list[Step], rng: random.Random) -> list[Step]:
    """Each call is a brief of a sub-agent, worded by the same brief."""
    return [
        ("task", {"prompt": f"Look at {arguments['at']} and tell what it has."}, text)
        for _, arguments, text, *_ in steps
    ]


def with_one_left_out(steps: list[Step], rng: random.Random) -> list[Step]:
    at = rng.randrange(len(steps))
    return [*steps[:at], *steps[at + 1 :]] if len(steps) > 2 else steps


HOW: dict[str, Callable[[list[Step], random.Random], list[Step]]] = {
    "as it was": lambda steps, rng: steps,
    "neighbours swapped": swapped,
    "one doubled": doubled,
    "shuffled": shuffled,
    "one left out": with_one_left_out,
    "by sub-agents": of_agents,
}


def caught_after(steps: list[Step], *, compacted_at: int = -1) -> int | None:
    """The number of calls until a loop is found. `compacted_at`: the call at which detectors are
    saved, and others go on.
    """
    detectors = default_detectors()
    for reader in filter(is_request_reader, detectors):
        reader.request("Find the key.")
    calls = 0
    for chunk in chunks_of(steps):
        calls += type(chunk).__name__ == "ToolCall"
        if calls == compacted_at:
            states = [one.snapshot() for one in detectors]
            detectors, compacted_at = default_detectors(), -1
            for other, state in zip(detectors, states, strict=True):
                other.restore(state)
        if any(found.level == "loop" for one in detectors for found in one.observe(chunk)):
            return calls
    return None


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("size", SIZES)
def test_a_cycle_is_caught_in_its_second_or_third_round(size: int, how: str):
    rng, unit = random.Random(f"{size} {how}"), places(size)
    rounds = max(ROUNDS, 20 // size)
    steps = [step for _ in range(rounds) for step in HOW[how](unit, rng)]
    after = caught_after(steps)
    assert after is not None
    assert after > size  # a walk over all of them is none


@pytest.mark.parametrize("size", SIZES)
def test_a_cycle_goes_on_over_a_compaction(size: int):
    steps = places(size) * max(ROUNDS, 20 // size)
    assert caught_after(steps, compacted_at=size + 1) == caught_after(steps)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("size", SIZES)
def test_rounds_that_find_something_new_are_work(size: int, how: str):
    rng = random.Random(f"{size} {how} good")
    steps: list[Step] = []
    for turn in range(ROUNDS):
        for name, arguments, *_ in HOW[how](places(size), rng):
            steps.append((name, arguments, f"in round {turn} there is {told(rng)}"))
    assert caught_after(steps) is None
