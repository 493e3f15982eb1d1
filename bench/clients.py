"""What real clients see through the proxy, beside what they see without it.

    python -m bench.clients [--node FOLDER]

FOLDER: `npm install openai @anthropic-ai/sdk @google/genai` was run in it. Without it only the
SDKs of Python are compared.

Each case is one answer of a local service, in four formats, streamed and in one piece. The program
of a user gets a text, calls, an end or an error, directly and through the proxy. All of it must be
equal. Two cases differ by intention: an answer that loops is stopped with the visible sentence, and
no error; an answer that is torn off raises in both, and through the proxy the error has words.

Then 25 histories of work that is no loop are asked turn by turn. None may be ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
from google import genai
from rich.console import Console

from bench._good_histories import HISTORIES, Turn
from monitor.proxy import Proxy
from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI, anthropic_steps, gemini_steps, openai_steps
from monitor.testing.local_server import LocalServer, ReceivedRequest
from monitor.testing.openai_steps import Cut, Reply
from tests.proxy.served import serving

KEY = "sk-of-the-bench"
SENTENCE = "I will now read the file again. "
STOPPED = "[agent-monitor stopped this answer"
Calls = Sequence[tuple[str, dict[str, Any]]]
_READ = ("read_file", {"path": "a/b.py", "lines": [1, 20]})
_TALE = " ".join(f"Step {number} reads part {number * number} of the plan." for number in range(60))
CASES: Mapping[str, tuple[str, Calls]] = {
    "a sentence": ("The file is there.", ()),
    "many letters": ('Grüße, 世界! 🎉 \u202eabc \\n "quoted" </script>', ()),
    "a long text": (_TALE, ()),
    "a table": ("\n".join(f"| {number} | {number**3 % 97} | item {number} |" for number in range(40)), ()),
    "code": ("```python\nfor i in range(3):\n    print(i)\n```\n", ()),
    "a call": ("", [_READ]),
    "a call behind words": ("Let me look.", [_READ]),
    "two calls": ("", [_READ, ("search", {"q": "ü", "n": 0.5, "deep": {"a": [None, True]}})]),
    "a call without arguments": ("", [("list_files", {})]),
}
FAILURES = {"a bad request": 400, "no key": 401, "too many": 429, "a failure": 500, "overload": 529}
CHANT, TORN = "a loop", "torn off"
FORMS = ("openai-chat", "openai-responses", "anthropic", "gemini")


def events_of(form: str, text: str, calls: Calls) -> list[Any]:
    """The events of a whole answer."""
    match form:
        case "openai-chat":
            return list(openai_steps.events_of(text, calls, finish_reason="tool_calls" if calls else "stop"))
        case "openai-responses":
            return list(openai_steps.response_events_of(text, calls))
        case "anthropic":
            return list(anthropic_steps.events_of(text, calls))
        case _:
            return list(gemini_steps.events_of(text, calls))


def _script(form: str, request: ReceivedRequest) -> list[Any]:
    """The answer to a request, whose text names the case."""
    asked = json.dumps(request.body, ensure_ascii=False)
    name = next(
        name for name in sorted((*CASES, *FAILURES, CHANT, TORN), key=len, reverse=True) if f'"{name}"' in asked
    )
    if name in FAILURES:
        error = {"message": name, "type": "error", "code": FAILURES[name], "status": "FAILED"}
        return [Reply(FAILURES[name], json.dumps({"type": "error", "error": error}).encode())]
    if name == TORN:
        return [*events_of(form, "Let me see.", ())[:-2], Cut()]
    if name == CHANT:
        return events_of(form, SENTENCE * 300, ())
    return events_of(form, *CASES[name])


@contextlib.contextmanager
def services() -> Iterator[dict[str, LocalServer]]:
    """A service for each format."""
    makers: dict[str, Any] = {"openai-chat": LocalOpenAI, "openai-responses": LocalOpenAI, "anthropic": LocalAnthropic}
    with contextlib.ExitStack() as stack:
        yield {form: stack.enter_context(makers.get(form, LocalGemini)(partial(_script, form))) for form in FORMS}


async def in_python(form: str, base: str, name: str, *, stream: bool) -> dict[str, Any]:
    """What a program in Python gets."""
    said: dict[str, Any] = {"text": "", "calls": [], "end": None, "status": None, "raised": False}
    try:
        await _ASK[form](base, name, said, stream=stream)
    except (openai.APIError, anthropic.APIError, genai.errors.APIError, httpx2.HTTPError) as error:
        said["raised"], said["status"] = True, getattr(error, "status_code", getattr(error, "code", None))
    return said


async def _chat(base: str, name: str, said: dict[str, Any], *, stream: bool) -> None:
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{base}/v1", max_retries=0) as client:
        request: Any = {"model": "m", "messages": [{"role": "user", "content": name}]}
        if not stream:
            choice = (await client.chat.completions.create(**request)).choices[0]
            said["text"], said["end"] = choice.message.content or "", choice.finish_reason
            said["calls"] = [[one.function.name, one.function.arguments] for one in choice.message.tool_calls or ()]
            return
        async for chunk in await client.chat.completions.create(**request, stream=True):
            for choice in chunk.choices:
                said["text"] += choice.delta.content or ""
                said["end"] = choice.finish_reason or said["end"]
                for piece in choice.delta.tool_calls or ():
                    said["calls"] += [["", ""]] * (piece.index + 1 - len(said["calls"]))
                    before = said["calls"][piece.index]
                    more = piece.function.name or "", piece.function.arguments or ""
                    said["calls"][piece.index] = [before[0] + more[0], before[1] + more[1]]


async def _responses(base: str, name: str, said: dict[str, Any], *, stream: bool) -> None:
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{base}/v1", max_retries=0) as client:
        if stream:
            async with client.responses.stream(model="m", input=name) as events:
                async for event in events:
                    said["text"] += event.delta if event.type == "response.output_text.delta" else ""
                answer: Any = await events.get_final_response()
        else:
            answer = await client.responses.create(model="m", input=name)
            said["text"] = answer.output_text
        said["end"] = answer.status
        said["calls"] = [[one.name, one.arguments] for one in answer.output if one.type == "function_call"]


async def _anthropic(base: str, name: str, said: dict[str, Any], *, stream: bool) -> None:
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=base, max_retries=0) as client:
        request: Any = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": name}]}
        if stream:
            async with client.messages.stream(**request) as events:
                async for text in events.text_stream:
                    said["text"] += text
                message = await events.get_final_message()
        else:
            message = await client.messages.create(**request)
            said["text"] = "".join(block.text for block in message.content if block.type == "text")
        said["end"] = message.stop_reason
        said["calls"] = [[block.name, json.dumps(block.input)] for block in message.content if block.type == "tool_use"]


async def _gemini(base: str, name: str, said: dict[str, Any], *, stream: bool) -> None:
    options = genai.types.HttpOptions(base_url=base, async_client_args={"transport": httpx2.AsyncHTTPTransport()})
    client = genai.Client(api_key=KEY, http_options=options)

    def add(answer: Any) -> None:
        for candidate in answer.candidates or ():
            said["end"] = candidate.finish_reason.value if candidate.finish_reason else said["end"]
            for part in (candidate.content and candidate.content.parts) or ():
                said["text"] += part.text or ""
                if part.function_call:
                    said["calls"].append([part.function_call.name, json.dumps(part.function_call.args)])

    try:
        if stream:
            async for chunk in await client.aio.models.generate_content_stream(model="m", contents=name):
                add(chunk)
        else:
            add(await client.aio.models.generate_content(model="m", contents=name))
    finally:
        await client.aio.aclose()
        client.close()


_ASK = {"openai-chat": _chat, "openai-responses": _responses, "anthropic": _anthropic, "gemini": _gemini}


class Node:
    """The SDKs of Node, in one process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, form: str, base: str, name: str, *, stream: bool) -> dict[str, Any]:
        """What a program in Node gets."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(
            json.dumps({"form": form, "base": base, "name": name, "stream": stream}).encode() + b"\n"
        )
        await self._process.stdin.drain()
        async with asyncio.timeout(60):
            return dict(json.loads(await self._process.stdout.readline()))


@contextlib.asynccontextmanager
async def node(packages: Path) -> AsyncIterator[Node]:
    """The process of Node, while it is needed."""
    pipe = asyncio.subprocess.PIPE
    worker = Path(__file__).with_name("proxy_clients.mjs")
    process = await asyncio.create_subprocess_exec(
        "node", str(worker), str(packages), stdin=pipe, stdout=pipe, limit=2**24
    )
    try:
        yield Node(process)
    finally:
        process.kill()
        await process.wait()


def difference(name: str, direct: dict[str, Any], proxied: dict[str, Any]) -> str:
    """What is not as it should be. Empty: nothing."""
    if name == CHANT:
        cut = proxied["text"].partition(STOPPED)[0].rstrip()
        ended = proxied["text"].endswith("]") and STOPPED in proxied["text"] and not proxied["raised"]
        return "" if ended and direct["text"].startswith(cut) else f"not stopped well: {proxied}"
    if name == TORN:
        return "" if direct["raised"] and proxied["raised"] else f"{direct} and {proxied}"
    return "" if direct == proxied else f"{direct} and {proxied}"


async def compare(packages: Path | None, console: Console) -> tuple[int, list[str]]:
    """The number of comparisons, and what differed."""
    number, wrong = 0, list[str]()
    async with contextlib.AsyncExitStack() as stack:
        ways = {"Python": in_python}
        if packages is not None:
            ways["Node"] = (await stack.enter_async_context(node(packages))).ask
        direct = {form: server.base_url.removesuffix("/v1") for form, server in stack.enter_context(services()).items()}
        proxied = {form: await stack.enter_async_context(serving(Proxy(base))) for form, base in direct.items()}
        for language, ask in ways.items():
            for form in FORMS:
                for name in (*CASES, *FAILURES, CHANT, TORN):
                    for stream in (True, False):
                        if name == TORN and not stream:
                            continue  # the local service knows no answer in one piece that is torn off
                        seen = [await ask(form, base[form], name, stream=stream) for base in (direct, proxied)]
                        number += 1
                        if said := difference(name, *seen):
                            wrong.append(f"{language}, {form}, {name}, {'streamed' if stream else 'whole'}: {said}")
            console.print(f"{language}: {number} comparisons so far, {len(wrong)} differ")
    return number, wrong


def asked(task: str, turns: Sequence[Turn]) -> dict[str, Any]:
    """A request with this history."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    for number, (name, arguments, result) in enumerate(turns):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
    return {"model": "m", "stream": True, "messages": messages}


async def good_histories() -> tuple[int, list[str]]:
    """The number of requests, and those that were ended."""
    number, ended = 0, list[str]()
    with LocalOpenAI([openai_steps.events_of("Well.", (), finish_reason="stop")]) as server:
        async with (
            serving(Proxy(server.base_url.removesuffix("/v1"))) as address,
            httpx2.AsyncClient(base_url=address, timeout=60) as client,
        ):
            for name, (task, turns) in HISTORIES.items():
                for length in range(1, len(turns) + 1):
                    request = asked(task, turns[:length])
                    headers = {"authorization": f"Bearer {KEY}", "x-agent-monitor-run": name.replace(" ", "-")}
                    reply = await client.post("/v1/chat/completions", json=request, headers=headers)
                    number += 1
                    if not reply.headers["x-agent-monitor"].startswith("watched"):
                        ended.append(f"{name}, turn {length}: {reply.text[:300]}")
                        break
    return number, ended


async def run(packages: Path | None) -> int:
    """The exit status."""
    console = Console(width=200)
    number, wrong = await compare(packages, console)
    for one in wrong:
        console.print(one[:600], markup=False)
    console.print(
        f"{number - len(wrong)} of {number} comparisons with direct access are equal, but for the visible stop"
    )
    requests, ended = await good_histories()
    for one in ended:
        console.print(one, markup=False)
    console.print(f"{len(ended)} of {len(HISTORIES)} good histories ended, in {requests} requests")
    return bool(wrong or ended)


def main() -> int:
    """Compare, and print what differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--node", type=Path, metavar="FOLDER", help="where the packages of Node are installed")
    return asyncio.run(run(parser.parse_args().node))


if __name__ == "__main__":
    sys.exit(main())
