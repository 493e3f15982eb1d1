"""Parts of a Gemini turn that the service needs back: its own work, and what it has signed."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

pytest.importorskip("google.genai", reason="the SDK is not installed: google-genai")

import monitor
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import chunk, finish, text
from tests.adapters.google.sdk import sdk, sdk_warnings

pytestmark = [pytest.mark.asyncio, sdk_warnings]

SIGNED = b64encode(b"signed by the service").decode()
IMAGE = {"mimeType": "image/png", "data": b64encode(b"\x89PNG").decode()}
PARTS: dict[str, dict[str, Any]] = {
    "code": {"executableCode": {"code": "print(1)", "language": "PYTHON"}, "thoughtSignature": SIGNED},
    "result": {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}, "thoughtSignature": SIGNED},
    "image": {
        "inlineData": {"mimeType": "image/png", "data": b64encode(b"\x89PNG").decode()},
        "thoughtSignature": SIGNED,
    },
    "unsigned code": {"executableCode": {"code": "print(1)", "language": "PYTHON"}},
}


@pytest.mark.parametrize("name", PARTS)
async def test_a_part_goes_back_as_it_came(name: str):
    part = PARTS[name]
    first = [text("I look."), chunk([part]), text("It is 1."), finish()]
    with LocalGemini([first, [text("done"), finish()]]) as server:
        async with sdk(server) as client:
            model = monitor.model("google:gemini-test", client=client)
            supervisor = monitor.Supervisor(model, stop_when=monitor.MaxTurns(2))
            outcome = await supervisor.run("go")
            await supervisor.run("more", history=outcome.history)
        sent = next(one["parts"] for one in server.requests[-1].body["contents"] if one["role"] == "model")
    for one in sent:  # the API takes both spellings
        if "mime_type" in one.get("inlineData", {}):
            one["inlineData"]["mimeType"] = one["inlineData"].pop("mime_type")
    assert sent == [{"text": "I look."}, part, {"text": "It is 1."}]


async def test_an_image_that_nobody_has_signed_stays_out_of_the_history():
    with LocalGemini([[text("Look:"), chunk([{"inlineData": IMAGE}]), finish()]]) as server:
        async with sdk(server) as client:
            outcome = await monitor.Supervisor(
                monitor.model("google:gemini-test", client=client), stop_when=monitor.MaxTurns(1)
            ).run("go")
    assert [type(one).__name__ for one in outcome.history[-1].content] == ["Text"]
