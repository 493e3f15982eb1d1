"""A wrong argument is refused with the line to type, whatever kind its annotation names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor._util.explained_options import explains_options
from monitor.errors import ConfigError


@explains_options(example="made(number=3)")
def made(
    *,
    number: int = 1,
    seconds: float | None = None,
    on: bool = False,
    text: str = "",
    path: str | PathLike[str] = ".",
    names: Sequence[str] = (),
    table: Mapping[str, object] | None = None,
    function: Callable[[int], int] | None = None,
    anything: Sequence[str] | made_up | None = None,  # type: ignore[name-defined]  # noqa: F821 - any other type
) -> str:
    return "made"


VALUES: Mapping[str, tuple[Sequence[Any], Sequence[Any]]] = {
    "number": ([0, -3, 2**70], ["3", 2.5, True, None, float("nan"), [3], int]),
    "seconds": ([0, 2.5, None, float("inf")], ["5m", "2.5", False, float("nan"), b"1", (1,)]),
    "on": ([True, False], ["yes", 1, 0, None, []]),
    "text": (["", "a"], [5, None, b"a", ["a"], str]),
    "path": ([".", Path()], [5, None, b".", ["."]]),
    "names": ([[], ["a"], ("a",), {"a"}], ["a", b"a", 5, None]),
    "table": ([{}, {"a": 1}, None], [["a"], "a", 5, [("a", 1)]]),
    "function": ([abs, int, None], ["abs", 5, [abs]]),
    "anything": (["a", 5, None, []], []),
}
"""For each option of `made`: values that fit, and values that do not."""


@pytest.mark.parametrize("option", VALUES)
def test_a_value_fits_or_is_refused_by_the_name_of_its_option(option: str):
    right, wrong = VALUES[option]
    assert [made(**{option: value}) for value in right] == ["made"] * len(right)
    for value in wrong:
        with pytest.raises(ConfigError, match=rf"^made\.{option} takes .+, not .+: (write {option}=|as in made\()"):
            made(**{option: value})


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"number": "3 s"}, "write number=3"),
        ({"number": 2.5}, "write number=2"),
        ({"seconds": "2.5"}, "write seconds=2.5"),
        ({"on": "yes"}, "write on=True"),
        ({"on": 0}, "write on=False"),
        ({"names": "a"}, "write names=['a']"),
        ({"table": 5}, "as in made(number=3)"),
        ({"numbr": 5}, "write number=5"),
    ],
)
def test_the_line_to_type_has_the_value_that_was_meant(given: dict[str, Any], line: str):
    with pytest.raises(ConfigError) as caught:
        made(**given)
    assert str(caught.value).endswith(line)


def test_an_error_from_inside_stays_as_it_is():
    @explains_options(example="halved(2)")
    def halved(number: int) -> int:
        raise TypeError(f"inside {number}")

    with pytest.raises(TypeError, match="inside 2"):
        halved(2)


def test_the_words_of_the_function_come_first():
    @explains_options(example="halved(2)")
    def halved(number: int) -> int:
        raise ConfigError(f"own words on {number}")

    with pytest.raises(ConfigError, match="own words on x"):
        halved("x")  # type: ignore[arg-type]


def test_a_function_with_effects_is_not_called_with_a_wrong_value():
    kept = []

    @explains_options(example="keep(2)", has_effects=True)
    def keep(number: int) -> None:
        kept.append(number)

    for wrong in ((), ("2",), (True,), (2, 3)):
        with pytest.raises(ConfigError, match="keep"):
            keep(*wrong)
    keep(2)
    assert kept == [2]


def test_a_coroutine_function_stays_one_and_is_not_begun():
    begun = []

    @explains_options(example="await later(2)")
    async def later(number: int) -> int:
        begun.append(number)
        return number

    assert anyio.run(later, 2) == 2
    with pytest.raises(ConfigError, match="number takes a whole number, not '2'"):
        anyio.run(later, "2")  # type: ignore[arg-type]
    assert begun == [2]
