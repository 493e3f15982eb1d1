"""Results are instances of what was declared, and typed so. `make check-types` checks the types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests import typed_results

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "program",
    [
        typed_results.of_a_model,
        typed_results.of_a_dataclass,
        typed_results.of_a_typed_dict,
        typed_results.of_a_union,
        typed_results.of_a_guard_with_a_union,
        typed_results.of_types,
        typed_results.of_a_guard,
    ],
)
async def test_a_result_has_the_type_that_was_declared(program: Callable[[], Awaitable[str]]):
    assert await program() == "Fine."


def test_a_synchronous_run_has_it_too():
    assert typed_results.of_a_synchronous_run().summary == "Fine."
