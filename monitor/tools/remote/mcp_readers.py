"""Resources and prompts of MCP servers, as tools that read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, Literal

from monitor._util.hashing import canonical_json, identity
from monitor._util.quoting import printable
from monitor.context.reduce.truncate import clip
from monitor.errors import ToolError
from monitor.models import ToolSpec
from monitor.reasons import ToolErrorKind
from monitor.tools.base import ToolContext, ToolTraits
from monitor.tools.remote.mcp_answers import DESCRIPTION_CHARS, answer_of, readable, sendable
from monitor.tools.remote.mcp_connection import McpCall, McpConnection, McpOffers
from monitor.tools.results.tool_answer import ToolAnswer

JOINT: Final = "__"
"""Stands between the names of a server and its tool. It is in no name of a server, so no tool of a
server can have the name of another server's tool.
"""


class McpReader:
    """A tool that reads the resources, or the prompts, of a server: an address or a name, and the
    text that the server has for it. Made where the server has any.
    """

    def __init__(
        self,
        server: str,
        connection: Callable[[], McpConnection],
        what: Literal["resource", "prompt"],
        offered: Sequence[tuple[str, str]],
        traits: ToolTraits,
    ) -> None:
        self._connection = connection
        self._what: Literal["resource", "prompt"] = what
        self.original = f"read_{what}"
        """The name of the tool, as `filter` sees it."""
        self.kind, self.idempotent = traits.kind, traits.idempotent
        self.needs_approval = traits.needs_approval
        self.timeout_s, self.hard_timeout_s = traits.timeout_s, traits.hard_timeout_s
        lines = [f"- {printable(name)}: {readable(text)}".rstrip(": ") for name, text in offered]
        description = clip(f"Read a {what} of the server {server}. It has:\n" + "\n".join(lines), DESCRIPTION_CHARS)
        key = {"resource": "uri", "prompt": "name"}[what]
        properties: dict[str, Any] = {key: {"type": "string"}}
        if what == "prompt":
            properties["arguments"] = {"type": "object", "additionalProperties": {"type": "string"}}
        schema = {"type": "object", "properties": properties, "required": [key]}
        self.spec = ToolSpec(f"{server}{JOINT}{self.original}", description, schema)
        self.schema_hash = identity(canonical_json([self.original, description]))

    def __repr__(self) -> str:
        return f"<McpReader {self.spec.name}>"

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """The texts and media that the server has. Raises `ToolError` for its faults."""

        async def progress(done: float, total: float | None, note: str | None) -> None:
            context.progress(done, total, printable(note or ""))

        given = sendable(arguments)
        name = given.get("uri" if self._what == "resource" else "name")
        if not isinstance(name, str):
            raise ToolError(f"name the {self._what} to read", kind=ToolErrorKind.INVALID_ARGUMENTS)
        values = given.get("arguments")
        asked = {str(key): str(value) for key, value in values.items()} if isinstance(values, Mapping) else {}
        call = McpCall(name, asked, progress, self.idempotent, self._what)
        found = await self._connection().call(call)
        if self._what == "resource":
            return _read_of(found.contents)
        texts = [f"{one.role}: {answer_of(SimpleNamespace(content=[one.content])).text}" for one in found.messages]
        return ToolAnswer("\n".join(texts))


def readers_of(
    server: str, connection: Callable[[], McpConnection], offers: McpOffers, traits: ToolTraits
) -> list[McpReader]:
    """The tools for what the server has besides tools."""
    made: list[McpReader] = []
    if offers.resources:
        named = [(str(one.uri), one.description or one.title or one.name) for one in offers.resources]
        made.append(McpReader(server, connection, "resource", named, traits))
    if offers.prompts:
        named = [(one.name, _prompt_line(one)) for one in offers.prompts]
        made.append(McpReader(server, connection, "prompt", named, traits))
    return made


def _prompt_line(prompt: Any) -> str:
    arguments = ", ".join(one.name for one in prompt.arguments or ())
    return f"{prompt.description or ''}{f' ({arguments})' if arguments else ''}".strip()


def _read_of(contents: Sequence[Any]) -> ToolAnswer:
    blocks = [SimpleNamespace(type="resource", resource=one) for one in contents]
    return answer_of(SimpleNamespace(content=blocks))
