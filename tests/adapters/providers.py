"""The providers that are under one contract, and the marks of its tests."""

from __future__ import annotations

import pytest

from tests.adapters.anthropic import provider as anthropic
from tests.adapters.google import provider as google
from tests.adapters.google.sdk import sdk_warnings
from tests.adapters.openai import provider as openai
from tests.adapters.openai.sdk import aiohttp_warnings
from tests.adapters.provider import Provider

PROVIDERS: list[Provider] = [*google.PROVIDERS, *anthropic.PROVIDERS, *openai.PROVIDERS]
STREAMS = [*PROVIDERS, *anthropic.WAYS]
"""With the further ways to stream of an SDK that has several."""

TRANSPORTS = ["aiohttp", "httpx2"]

each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
each_stream = pytest.mark.parametrize("provider", STREAMS, ids=lambda provider: provider.id)
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
sdk_test = pytest.mark.asyncio
warnings = [
    sdk_warnings,
    aiohttp_warnings,
    # httpcore2 leaves one to the collector on trio
    pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning"),
]
"""What the SDKs leave behind, and nobody here can change."""
