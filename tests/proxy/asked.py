"""A request to an ASGI application, without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio

TOKEN = "a-token-of-the-tests"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@dataclass
class Reply:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    whole: bool
    """The application has ended the body."""

    def header(self, name: str) -> str:
        return next((value.decode() for known, value in self.headers if known == name.encode()), "")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any,
    method: str,
    path: str,
    body: Any = b"",
    *,
    headers: Mapping[str, str] | None = None,
    root_path: str = "",
) -> Reply:
    """The whole answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    where, _, query = path.partition("?")
    given = {"host": "proxy", **({"content-length": str(len(content))} if content else {}), **(headers or {})}
    reply = Reply(0, [], b"", whole=False)
    asked = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Any:
        if asked:
            return asked.pop()
        await anyio.sleep_forever()
        return None

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], list(message["headers"])
        else:
            reply.body += message["body"]
            reply.whole = not message["more_body"]

    scope = {
        "type": "http",
        "method": method,
        "path": where,
        "raw_path": where.encode(),
        "root_path": root_path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    with anyio.fail_after(60):
        await app(scope, receive, send)
    return reply


def chat(text: str = "Go on", *, stream: bool = True, **more: Any) -> dict[str, Any]:
    """A request in the format of chat completions."""
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}], **more}


def looping(times: int, *after: dict[str, Any]) -> dict[str, Any]:
    """A request whose history has the same call so many times."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Tidy up"}]
    for number in range(times):
        function = {"name": "read", "arguments": '{"path": "a"}'}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": "nothing"})
    return {"model": "m", "stream": True, "messages": [*messages, *after]}
