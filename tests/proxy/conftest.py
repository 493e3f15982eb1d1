"""The servers of the proxy's users run on asyncio, so most tests do. On trio httpcore2 leaves the
generator of an answer that was closed early to the garbage collector, which trio complains of.
"""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)
