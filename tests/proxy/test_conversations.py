"""Whose run a request is behind the proxy, and where a task begins: its history says it, as in the
frameworks.
"""

from __future__ import annotations

from typing import Any

import pytest

from monitor.proxy import Proxy
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import finish, text
from tests.proxy.asked import ask, chat, looping

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
ANSWER = "Yes, the file is in the archive, and it was put there by the librarian."
QUESTIONS = [f"Is file number {number} in the archive?" for number in range(32)]


async def stops(*bodies: dict[str, Any], run: str = "") -> int:
    """How many of the requests, which are made one after the other, are stopped."""
    with LocalOpenAI([[text(ANSWER), finish()]]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"))
        headers = {"x-agent-monitor-run": run} if run else {}
        said = [(await ask(proxy, "POST", CHAT, body, headers=headers)).header("x-agent-monitor") for body in bodies]
        await proxy.aclose()
    return sum(one.startswith("stopped") for one in said)


@pytest.mark.parametrize("run", ["", "one-run"])
async def test_equal_answers_to_a_batch_of_questions_are_no_loop(run: str) -> None:
    assert await stops(*[chat(question) for question in QUESTIONS], run=run) == 0


async def test_equal_answers_in_a_chat_are_no_loop() -> None:
    messages: list[dict[str, Any]] = []
    bodies: list[dict[str, Any]] = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        bodies.append({"model": "m", "stream": True, "messages": [*messages]})
        messages.append({"role": "assistant", "content": ANSWER})
    assert await stops(*bodies) == 0


async def test_a_loop_is_found_however_often_the_run_is_taken_up_again() -> None:
    assert await stops(*[looping(times) for times in range(1, 7)], run="first") == 2
    assert await stops(looping(6), run="after-an-approval") == 1
