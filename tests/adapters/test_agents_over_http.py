"""Agents with streams of three SDKs under one guard: one end closes the connections of all."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import anyio
import pytest

pytest.importorskip("anthropic", reason="the SDK is not installed: anthropic")
pytest.importorskip("google.genai", reason="the SDK is not installed: google-genai")
pytest.importorskip("openai", reason="the SDK is not installed: openai")

import monitor
from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI, ScriptedStream
from monitor.testing import anthropic_steps as anthropic
from monitor.testing import gemini_steps as gemini
from monitor.testing import openai_steps as openai
from monitor.testing.openai_steps import Repeat
from tests.adapters.anthropic.sdk import ASKED
from tests.adapters.anthropic.sdk import sdk as anthropic_sdk
from tests.adapters.google.sdk import sdk as google_sdk
from tests.adapters.google.sdk import sdk_warnings
from tests.adapters.google.sdk import stream as gemini_stream
from tests.adapters.openai.sdk import sdk as openai_sdk

pytestmark = [pytest.mark.asyncio, sdk_warnings]

ENDS = {
    "abort": monitor.TerminateReason.ABORTED,
    "loop": monitor.TerminateReason.LOOP_DETECTED,
    "bug": monitor.TerminateReason.ERROR,
}


def slowly(event: Any) -> list[Any]:
    return [Repeat(event, delay_s=0.001)]


@pytest.mark.parametrize("how", ENDS)
async def test_the_end_of_the_run_closes_the_streams_of_all_agents(how: str) -> None:
    begins = [anthropic.start(), anthropic.block_start({"type": "text", "text": ""})]
    guard: monitor.Guard[Any] = monitor.Guard(detectors=[monitor.ContentRepetition()])
    with (
        LocalAnthropic([[*begins, *slowly(anthropic.text("a "))]]) as claude,
        LocalGemini([slowly(gemini.text("b "))]) as google,
        LocalOpenAI([slowly(openai.text("c "))]) as chat,
    ):
        with pytest.RaisesGroup(ZeroDivisionError) if how == "bug" else nullcontext():
            async with anthropic_sdk(claude) as one, google_sdk(google) as two, openai_sdk(chat) as three:
                streams = [
                    lambda: one.messages.create(**ASKED, stream=True),
                    lambda: gemini_stream(two),
                    lambda: three.chat.completions.create(model="m", messages=[], stream=True),
                ]
                await guarded(guard, how, streams)
        for server in (claude, google, chat):
            await server.wait_closed_async(0)
            assert len(server.requests) == 1
    assert guard.outcome.reason is ENDS[how]


async def guarded(guard: monitor.Guard[Any], how: str, streams: list[Any]) -> None:
    async def read(stream: Any, began: anyio.Event) -> None:
        async with guard.child() as child, child.watch(stream) as watched:
            async for _ in watched:
                began.set()

    async with guard, anyio.create_task_group() as group:
        all_began = [anyio.Event() for _ in streams]
        for stream, began in zip(streams, all_began, strict=True):
            group.start_soon(read, stream, began)
        for began in all_began:
            await began.wait()
        if how == "abort":
            guard.abort("enough")
        elif how == "loop":
            await read(ScriptedStream(*["Let me check the file again. "] * 400), anyio.Event())
        else:
            raise ZeroDivisionError
