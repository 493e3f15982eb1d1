"""A refusal may state any number. None of them raises out of a run, and none that is absurd is
taken for the window.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor
from monitor.context.compaction.preset import PRESETS
from monitor.context.overflow import (
    LEAST_WINDOW_TOKENS,
    MOST_WINDOW_TOKENS,
    OVERFLOW_ROWS,
    Overflow,
    OverflowKind,
    read_failure,
)
from monitor.models import ErrorKind, ModelError
from tests.examples import every_second
from tests.runs.context.test_run_context_compaction import Refusing, driven, reads

NUMBERS = [
    "0",
    "-1",
    "1",
    "7",
    "511",
    "512",
    "00",
    "0K",
    "1k",
    "12 M",
    "9" * 15,
    "9" * 15 + "M",
    "9" * 40,
    "1,048,576",
    "1.5",
    "",
    "inf",
    "٠",
]
SENTENCES = [
    "prompt is too long: {used} tokens > {limit} maximum",
    "input length and max_tokens exceed context limit: {used} + {used} > {limit}, decrease input length",
    "This model's maximum context length is {limit} tokens. However, your messages resulted in {used} tokens.",
    "The input token count ({used}) exceeds the maximum number of tokens allowed ({limit}).",
    "This model's maximum prompt length is {limit} but the request contains {used} tokens.",
    "Range of input length should be [1, {limit}]",
    (
        "the request exceeds the available context size: ({used} tokens) exceeds the available context size ({limit}"
        " tokens)"
    ),
    "Input is too long for requested model.",
]


class Refused(RuntimeError):
    """The provider refuses the request."""


class Adapter(Refusing):
    def classify(self, error: BaseException) -> ModelError:
        return (
            ModelError(ErrorKind.OVERFLOW, str(error), status=400)
            if isinstance(error, Refused)
            else super().classify(error)
        )


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("window", [None, 100_000])
def test_whatever_a_refusal_states_the_run_goes_on_or_ends_with_a_reason(number: str, window: int | None):
    async def main() -> None:
        for sentence in every_second(SENTENCES, odd=window is None):
            said = sentence.format(used=number if window is None else "9000", limit=number)
            d = driven(
                *reads(900, 900, 100), Refused(said), "done", window=window, compaction=monitor.Compaction(steps=())
            )
            d.model.adapter = Adapter
            await d.go()
            assert d.outcome.ok, (said, d.outcome)

    anyio.run(main)


@pytest.mark.parametrize("window", [None, 100_000])
def test_a_provider_that_refuses_everything_ends_the_run_with_a_reason_whatever_it_states(window: int | None):
    async def main() -> None:
        for number in NUMBERS:
            said = SENTENCES[2].format(used="0", limit=number)
            d = driven(*reads(900, 900), *[Refused(said)] * 9, window=window, compaction=monitor.Compaction(steps=()))
            d.model.adapter = Adapter
            await d.go()
            assert d.outcome.reason is monitor.TerminateReason.PROMPT_TOO_LONG, (number, d.outcome)

    anyio.run(main)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "default"])
def test_so_with_every_preset(name: str):
    async def main() -> None:
        for number in ("0", "1", "512"):
            compaction = getattr(monitor.Compaction, name)(steps=(), summarizer=monitor.context.Extractive())
            d = driven(
                *reads(900, 900, 100),
                Refused(SENTENCES[0].format(used="9000", limit=number)),
                "done",
                compaction=compaction,
            )
            d.model.adapter = Adapter
            await d.go()
            assert d.outcome.ok, (number, d.outcome)

    anyio.run(main)


numbers: Any = st.one_of(st.none(), st.integers(-10, 2_000), st.integers(-(10**25), 10**25))


@given(st.sampled_from(list(OverflowKind)), numbers, numbers)
def test_what_is_taken_for_a_window_is_one(kind: OverflowKind, used: int | None, limit: int | None):
    window = Overflow(kind, "any", used, limit).window_tokens
    assert window is None or (window == limit and LEAST_WINDOW_TOKENS <= window <= MOST_WINDOW_TOKENS)
    if window is not None:
        assert monitor.Window(None).learned(window).tokens == window


@given(
    st.sampled_from([row.phrase for row in OVERFLOW_ROWS if row.phrase]),
    st.text("0123456789,KkM .-", max_size=30),
    st.text(max_size=5),
)
def test_no_number_in_a_refusal_raises(phrase: str, number: str, more: str):
    said = (
        phrase.replace("<limit>", number)
        .replace("<used>", number)
        .replace("<prompt>", number)
        .replace("<answer>", number)
    )
    found = read_failure(f"{said} {more}")
    assert found is None or found.window_tokens is None or found.window_tokens >= LEAST_WINDOW_TOKENS
