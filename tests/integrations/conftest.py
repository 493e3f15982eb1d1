from __future__ import annotations

import pytest

from tests.integrations.drivers import DRIVERS, Driver


@pytest.fixture(params=DRIVERS)
def drive(request: pytest.FixtureRequest) -> Driver:
    """The program of each framework that is installed."""
    packages, driver = DRIVERS[request.param]
    for package in packages:
        pytest.importorskip(package, reason=f"the framework is not installed: {package}")
    return driver
