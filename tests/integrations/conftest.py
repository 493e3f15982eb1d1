from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from tests.integrations.drivers import DRIVERS, OPEN, SYNC, WAYS, Driver


def _params(drivers: Mapping[str, Driver], warnings: Sequence[str] = ()) -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.filterwarnings(f"ignore{one}") for one in (*driver.warnings, *warnings)])
        for name, driver in drivers.items()
    ]


@pytest.fixture(autouse=True)
def forget_clients(request: pytest.FixtureRequest) -> Iterator[None]:
    """A client of google-genai cannot be closed after its event loop: it warns in its own test."""
    yield
    if "drive_sync" in request.fixturenames:
        gc.collect()


@pytest.fixture(params=_params(DRIVERS))
def drive(request: pytest.FixtureRequest) -> Driver:
    """Each framework that is installed."""
    return _installed(DRIVERS[request.param])


@pytest.fixture(params=_params(DRIVERS | WAYS))
def drive_any(request: pytest.FixtureRequest) -> Driver:
    """The same, and the other ways to run it."""
    return _installed((DRIVERS | WAYS)[request.param])


STAYS_OPEN = OPEN if find_spec("google") and find_spec("google.adk") else ()
"""Google ADK leaves a client behind that the garbage collector may find in the next test."""


@pytest.fixture(params=_params(SYNC, STAYS_OPEN))
def drive_sync(request: pytest.FixtureRequest) -> Driver:
    """Each framework with a synchronous entry point."""
    return _installed(SYNC[request.param])


def _installed(driver: Driver) -> Driver:
    driver.load()
    return driver
