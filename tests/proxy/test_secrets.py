"""No key in a log, an error, a state, or a page."""

from __future__ import annotations

import json
import logging

import pytest

from monitor.proxy import ProxiedRun, Proxy
from monitor.testing import LocalGemini, LocalOpenAI, gemini_steps
from monitor.testing.openai_steps import Repeat, Script, error_reply, finish, text
from tests.proxy.asked import BEARER, TOKEN, ask, chat, looping

pytestmark = pytest.mark.anyio
KEY = "a7Qk29-not-in-any-known-form-Zp41"
CHAT, PAGES = "/v1/chat/completions", "/agent-monitor/"


async def everything(proxy: Proxy) -> str:
    """All that the proxy shows of its state."""
    shown = [(await ask(proxy, "GET", f"{PAGES}{page}", headers=BEARER)).body.decode() for page in ("runs", "metrics")]
    return "".join([*shown, repr(vars(proxy.runs)), repr(list(proxy.runs))])


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "x-goog-api-key", "api-key"])
async def test_a_key_in_a_header_is_nowhere_also_if_the_model_repeats_it(
    name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[ProxiedRun] = []
    value = f"Bearer {KEY}" if name == "authorization" else KEY
    chant: Script = [Repeat(text(f"The key is {KEY}, I say. "), times=60), finish()]
    scripts: list[Script] = [chant, [error_reply(401, f"bad key {KEY}")]]
    with LocalOpenAI(scripts) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"), token=TOKEN, told=told.append)
        looped = await ask(proxy, "POST", CHAT, chat(), headers={name: value})
        assert looped.header("x-agent-monitor").startswith("watched")
        await ask(proxy, "POST", CHAT, chat(), headers={name: value})
        await ask(proxy, "POST", CHAT, looping(5), headers={name: value})
        assert value in server.requests[0].headers.values()
        shown = await everything(proxy)
        assert '"stops":1' in shown.replace(" ", "")
        await proxy.aclose()
    assert KEY not in shown
    assert KEY not in json.dumps([run.to_dict() for run in told])
    assert KEY not in caplog.text
    assert KEY not in "".join(capfd.readouterr())


async def test_a_key_in_the_address_is_nowhere(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    request = {"contents": [{"role": "user", "parts": [{"text": "Go on"}]}]}
    with LocalGemini([[gemini_steps.text("hello"), gemini_steps.finish()]]) as server:
        proxy = Proxy(server.base_url, token=TOKEN)
        path = f"/v1beta/models/m:streamGenerateContent?alt=sse&key={KEY}"
        assert (await ask(proxy, "POST", path, request)).header("x-agent-monitor").startswith("watched")
        await ask(proxy, "GET", f"/v1beta/models?key={KEY}")
        shown = await everything(proxy)
        assert KEY in server.requests[0].path
        await proxy.aclose()
    gone = Proxy("http://127.0.0.1:9", token=TOKEN)
    failed = await ask(gone, "POST", path, request)
    assert failed.status == 502
    for place in (shown, await everything(gone), failed.body.decode(), caplog.text, *capfd.readouterr()):
        assert KEY not in place
