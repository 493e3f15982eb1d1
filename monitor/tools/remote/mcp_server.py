"""Tools of MCP servers (Model Context Protocol), as a toolset.

    files = McpServer("npx -y @modelcontextprotocol/server-filesystem .", name="files")
    search = McpServer("https://example.org/mcp", headers={"Authorization": "Bearer ..."})
    supervisor = monitor.Supervisor(model, tools=[files, search])

The text of a server is data, and never believed. Names are made legal for every provider, and the
name of the server keeps them apart. Descriptions are bounded and printable. Hints such as "this
only reads" count only for a trusted server. If a server is dead, blocked or broken, the model reads
an error.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

import anyio

from monitor._util.explained_options import explained
from monitor._util.hashing import canonical_json, identity
from monitor._util.text import printable
from monitor.context.reduce import clip
from monitor.errors import ConfigError, ToolError, ToolErrorKind, describe
from monitor.models import ToolSpec, portable
from monitor.tools.artifacts.artifact_store import Reference
from monitor.tools.base import NeedsApproval, Tool, ToolContext, ToolTraits
from monitor.tools.functions import ArgumentSchema
from monitor.tools.remote.mcp_connection import (
    CLOSE_S,
    GIVE_UP_S,
    MAX_PAGES,
    NOTHING,
    Elicit,
    McpCall,
    McpConnection,
    McpOffers,
    OwnLoop,
    Soon,
    done_there,
    soon_here,
)
from monitor.tools.remote.mcp_transport import DESCRIPTION_CHARS, Endpoint, answer_of, readable, sendable
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.sandbox.confinement import SandboxFound, confine
from monitor.tools.sandbox.sandbox_places import SandboxOption, sandbox_of, within_itself

# --------------------------------------------------------------------------------------------------
# Resources and prompts of MCP servers, as tools that read them.

JOINT: Final = "__"
"""Stands between the names of a server and its tool. It is in no name of a server, so no tool of a
server can have the name of another server's tool.
"""


McpAsk: TypeAlias = Callable[..., Awaitable[ToolAnswer]]
"""`McpServer.ask`."""


class McpReader:
    """A tool that reads the resources, or the prompts, of a server: an address or a name, and the
    text that the server has for it. Made where the server has any.
    """

    def __init__(
        self,
        server: str,
        ask: McpAsk,
        what: Literal["resource", "prompt"],
        offered: Sequence[tuple[str, str]],
        traits: ToolTraits,
    ) -> None:
        self._ask = ask
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
        given = sendable(arguments)
        name = given.get("uri" if self._what == "resource" else "name")
        if not isinstance(name, str):
            raise ToolError(f"name the {self._what} to read", kind=ToolErrorKind.INVALID_ARGUMENTS)
        values = given.get("arguments")
        asked = {str(key): str(value) for key, value in values.items()} if isinstance(values, Mapping) else {}
        read = _read_of if self._what == "resource" else _spoken
        return await self._ask(context, read, name, asked, self.idempotent, self._what)


def readers_of(server: str, ask: McpAsk, offers: McpOffers, traits: ToolTraits) -> list[McpReader]:
    """The tools for what the server has besides tools."""
    made: list[McpReader] = []
    if offers.resources:
        named = [(str(one.uri), one.description or one.title or one.name) for one in offers.resources]
        made.append(McpReader(server, ask, "resource", named, traits))
    if offers.prompts:
        named = [(one.name, _prompt_line(one)) for one in offers.prompts]
        made.append(McpReader(server, ask, "prompt", named, traits))
    return made


def _prompt_line(prompt: Any) -> str:
    arguments = ", ".join(one.name for one in prompt.arguments or ())
    return f"{prompt.description or ''}{f' ({arguments})' if arguments else ''}".strip()


def _read_of(found: Any) -> ToolAnswer:
    blocks = [SimpleNamespace(type="resource", resource=one) for one in found.contents]
    return answer_of(SimpleNamespace(content=blocks))


def _spoken(found: Any) -> ToolAnswer:
    texts = [f"{one.role}: {answer_of(SimpleNamespace(content=[one.content])).text}" for one in found.messages]
    return ToolAnswer("\n".join(texts))


NAME_CHARS: Final = 64
"""The longest name of a tool that every provider accepts."""
TIMEOUT_S: Final = 60.0
HARD_TIMEOUT_S: Final = 600.0
"""The most seconds of a call: without progress, and in all. The MCP SDKs have 60 s."""

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_UNDERSCORES: Final = re.compile("__+")
_SERVER_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
SCHEMA_CHARS: Final = 50_000
"""A tool whose schema is longer, as JSON, is left out."""
MOST_TOOLS: Final = 1_000
"""More tools of one server are left out."""


@explained(example="monitor.tools.McpServer('npx -y server .')")
class McpServer:
    """The tools of one MCP server: a toolset, opened when a run begins and closed when it ends.

    `target`: a command line, a list of its words, or a URL. `http(s)://` is streamable HTTP,
    `sse+http(s)://` the older server-sent events. Other schemes are refused, also WebSockets: the
    SDK has no client for them.

    `name` keeps the tools of several servers apart: it stands before the name of each tool, joined
    by `__`. By default it is made of the command or the host. `filter`: the server's own names of
    the tools that are offered, or a function that is asked for each.
    `environment`: variables that the server gets besides `PATH`, `HOME`, `SHELL`, `TERM`, `USER`.
    `sandbox`: what the operating system keeps a command from; see `monitor.tools.Sandbox`. It
    reads and writes its directory and what its arguments name. It reaches the network, if you do
    not give a `Sandbox` that says otherwise.
    `trusted`: the server's hints that a tool only reads, or may be repeated, are believed.
    `needs_approval`: as for any tool. `required=False`: if the server cannot be reached, a run
    begins without its tools.

    A server that has ended is started again for the next call. After a failed start the next one
    waits 0.5 s, and later ones longer, 30 s at most. Raises `ConfigError` if the server cannot be
    used, or if the SDK is missing or older than 2.3.
    """

    def __init__(
        self,
        target: str | Sequence[str],
        *,
        name: str | None = None,
        filter: Collection[str] | Callable[[Tool], bool] | None = None,  # noqa: A002 - as `ToolGroup` has it
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        sandbox: SandboxOption = "auto",
        headers: Mapping[str, str] | None = None,
        trusted: bool = False,
        needs_approval: NeedsApproval = False,
        required: bool = True,
        timeout_s: float | None = TIMEOUT_S,
        hard_timeout_s: float | None = HARD_TIMEOUT_S,
        start_timeout_s: float = 30.0,
    ) -> None:
        for what, seconds in (("timeout_s", timeout_s), ("hard_timeout_s", hard_timeout_s)):
            if seconds is not None and not 0 < seconds < math.inf:
                raise ConfigError(f"{what}={seconds!r}: give seconds above 0, or None for no limit")
        if not 0 < start_timeout_s < math.inf:
            raise ConfigError(f"start_timeout_s={start_timeout_s!r}: give seconds above 0")
        if isinstance(filter, str):
            raise ConfigError(f"filter={filter!r}: give a list of names, or a function")
        self._endpoint = endpoint_of(
            target,
            environment=environment or {},
            directory=directory,
            headers=headers or {},
            start_timeout_s=start_timeout_s,
        )
        self._endpoint, self.sandbox = _confined(self._endpoint, sandbox)
        """The sandbox of a server that is a command. `None`: none was asked for."""
        self.name = _name_of(self._endpoint) if name is None else name
        if not _SERVER_NAME.fullmatch(self.name) or JOINT in self.name or self.name.endswith("_"):
            raise ConfigError(
                f"{self.name!r} cannot be the name of a server: letters, digits, _ and -, beginning with a letter or _,"
                " without __ and without _ at the end, at most 32; give name="
            )
        self._filter = filter
        self._required = required
        self._trusted = trusted
        self._traits = ToolTraits(
            needs_approval=needs_approval,
            timeout_s=timeout_s,
            hard_timeout_s=max(hard_timeout_s, timeout_s or 0) if hard_timeout_s is not None else None,
        )
        self._tools: tuple[McpTool | McpReader, ...] = ()
        self._opened = 0
        self._connection: McpConnection | None = None
        self._loop: OwnLoop | None = None
        self._elicit: Elicit | None = None
        self.changed = 0
        """Counts the changes of `tools()`."""
        self.problems: tuple[str, ...] = ()
        """The tools of the server that cannot be offered, each with the reason; for people."""

    def __repr__(self) -> str:
        return f"<McpServer {self.name}>"

    @property
    def remote(self) -> bool:
        """Whether the server is an address, and no command."""
        return self._endpoint.transport != "stdio"

    def tools(self) -> tuple[McpTool | McpReader, ...]:
        """The tools as the server listed them last. Empty before it is opened."""
        return self._tools

    @property
    def connection(self) -> McpConnection:
        """The connection, while it is open."""
        if self._connection is None:
            raise ConfigError(f"the MCP server {self.name!r} is not open: `async with` it, or give it to a supervisor")
        return self._connection

    async def __aenter__(self) -> Self:
        self._opened += 1
        if self._opened > 1:
            return self
        try:
            self._loop = OwnLoop(f"mcp {self.name}")
            await self._loop.run(partial(self._connect, soon_here()))
        except ConfigError as error:
            if self._required or self._connection is None:
                await self._close()
                raise
            self.problems = (str(error),)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._opened == 1:
            await self._close()
        elif self._opened:
            self._opened -= 1

    async def _close(self) -> None:
        self._opened = 0
        connection, self._connection = self._connection, None
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            if connection is not None:
                with anyio.move_on_after(CLOSE_S + 2 * GIVE_UP_S, shield=True):
                    await loop.run(connection.close)
        finally:
            loop.close()

    async def _connect(self, soon: Soon) -> None:
        """Connect, in the thread of the server. `soon`: of the event loop that has opened it."""
        elicit = self._elicit

        async def asked(message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
            assert elicit is not None  # noqa: S101 - seen below
            return await done_there(soon, partial(elicit, message, schema))

        self._connection = McpConnection(self.name, self._endpoint, self._listed, asked if elicit else None)
        try:
            await self._connection.started()
        except ConfigError as error:
            if self.sandbox is None or (modules := _hidden_modules(self._endpoint)) is None:
                raise
            said = f"{error}; the sandbox hides {modules}/node_modules"
            raise ConfigError(f"{said}: write sandbox=Sandbox(network=True, read=[{str(modules)!r}])") from None

    async def ask(
        self, context: ToolContext, read: Callable[[Any], ToolAnswer], name: str, given: dict[str, Any], *options: Any
    ) -> ToolAnswer:
        """What the server answers to one call, read in its own thread. `options`: of `McpCall`."""
        connection, soon = self.connection, soon_here()

        async def progress(done: float, total: float | None, note: str | None) -> None:
            soon(partial(context.progress, done, total, printable(note or "")))

        async def asked() -> ToolAnswer:
            return read(await connection.call(McpCall(name, given, progress, *options)))

        assert self._loop is not None  # noqa: S101 - there is a connection
        return await self._loop.run(asked)

    def ask_through(self, elicit: Elicit) -> None:
        """The server may ask a person, from its next opening on. Runs call this."""
        self._elicit = elicit

    def _listed(self, found: Sequence[Any], complete: bool, offers: McpOffers = NOTHING) -> None:  # noqa: FBT001 - a callback
        """The server has listed its tools."""
        tools: list[McpTool | McpReader] = []
        problems = [] if complete else [f"{self.name}: the list of tools goes on after {MAX_PAGES} pages"]
        taken: set[str] = set()
        if len(found) > MOST_TOOLS:
            problems.append(f"{self.name}: it lists {len(found):,} tools; the first {MOST_TOOLS:,} are offered")
        if self._connection is not None:
            problems += [
                f"{self.name}: the tool {printable(name)} is left out: {why}"
                for name, why in self._connection.malformed.items()
            ]
        for one in found[:MOST_TOOLS]:
            try:
                made = McpTool(self, one, taken, self._traits_of(one))
            except Exception as error:  # noqa: BLE001 - a schema of somebody else's may be anything
                problems.append(
                    f"{self.name}: the tool {printable(str(one.name)[:100])} is left out: {describe(error)}"
                )
                continue
            if self._wanted(made):
                taken.add(made.spec.name)
                tools.append(made)
        tools += [
            one
            for one in readers_of(self.name, self.ask, offers, self._traits)
            if one.spec.name not in taken and self._wanted(one)
        ]
        self.problems = tuple(problems)
        if [one.schema_hash for one in tools] != [one.schema_hash for one in self._tools]:
            self._tools = tuple(tools)
            self.changed += 1

    def _wanted(self, tool: McpTool | McpReader) -> bool:
        if self._filter is None:
            return True
        return bool(self._filter(tool)) if callable(self._filter) else tool.original in self._filter

    def _traits_of(self, listed: Any) -> ToolTraits:
        hints = listed.annotations if self._trusted else None
        if hints is None:
            return self._traits
        return ToolTraits(
            kind="read" if hints.read_only_hint else "other",
            idempotent=bool(hints.idempotent_hint or hints.read_only_hint),
            needs_approval=self._traits.needs_approval,
            timeout_s=self._traits.timeout_s,
            hard_timeout_s=self._traits.hard_timeout_s,
        )


class McpTool:
    """One tool of a server, as it was listed. It may be called from any task while its server is
    open. Its arguments are checked against the schema as the server has written it.
    """

    checks_schema = True

    def __init__(self, server: McpServer, listed: Any, taken: Collection[str], traits: ToolTraits) -> None:
        self._server = server
        self.original: str = listed.name
        """The server's own name of the tool."""
        self.kind = traits.kind
        self.idempotent = traits.idempotent
        self.needs_approval = traits.needs_approval
        self.timeout_s = traits.timeout_s
        self.hard_timeout_s = traits.hard_timeout_s
        if getattr(getattr(listed, "execution", None), "task_support", None) == "required":
            raise ConfigError("it can only be called as a task of the protocol of 2025, which is not supported here")
        schema = portable(listed.input_schema)
        if schema.get("type", "object") != "object":
            raise ConfigError(f"its arguments are {schema.get('type')!r}, not an object")
        if (size := len(json.dumps(schema))) > SCHEMA_CHARS:
            raise ConfigError(f"its schema has {size:,} characters; at most {SCHEMA_CHARS:,} are taken")
        description = readable(listed.description or listed.title or "")
        self.spec = ToolSpec(legal_name(f"{server.name}{JOINT}{listed.name}", taken), description, _plain(schema))
        self.check = ArgumentSchema(self.spec.name, listed.input_schema).check
        self.schema_hash = identity(
            canonical_json([listed.name, listed.description, listed.title, listed.input_schema])
        )
        """Changes with the name, the description and the schema. An approval holds for one hash."""

    def __repr__(self) -> str:
        return f"<McpTool {self.spec.name}>"

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """The answer of the server. Raises `ToolError` for every fault of the server."""
        given = sendable(arguments)
        answer = await self._server.ask(context, answer_of, self.original, given, self.idempotent)
        request = {"tool": self.spec.name, "arguments": given}
        return replace(answer, reference=Reference(kind="reply", request=request))


def endpoint_of(target: str | Sequence[str], **options: Any) -> Endpoint:
    """The endpoint of `target`. Raises `ConfigError` if `target` is no command, and no URL for
    which the SDK has a client.
    """
    if not isinstance(target, str):
        words = tuple(map(str, target))
        if not words:
            raise ConfigError("an MCP server is a command or a URL; this list is empty")
        return Endpoint(transport="stdio", command=words, **options)
    scheme, found, _ = target.partition("://")
    if found and " " not in scheme:
        if scheme in ("http", "https"):
            return Endpoint(transport="http", url=target, **options)
        if scheme in ("sse+http", "sse+https"):
            return Endpoint(transport="sse", url=target.removeprefix("sse+"), **options)
        if scheme in ("ws", "wss"):
            raise ConfigError(
                f"{target}: the mcp SDK has no client for WebSockets; use the server's http(s):// address, or a command"
            )
        raise ConfigError(f"{target}: an MCP server is a command, or http(s)://, or sse+http(s)://, not {scheme}://")
    try:
        command = tuple(shlex.split(target))
    except ValueError as error:
        raise ConfigError(f"the command {target!r} cannot be read: {error}") from None
    if not command:
        raise ConfigError("an MCP server is a command or a URL; this text is empty")
    return Endpoint(transport="stdio", command=command, **options)


def _confined(endpoint: Endpoint, option: SandboxOption) -> tuple[Endpoint, SandboxFound | None]:
    """The endpoint of a command with its sandbox, in which it finds what its arguments name."""
    sandbox = sandbox_of(option, network=True)
    if endpoint.transport != "stdio":
        if option not in ("auto", None):
            raise ConfigError("a sandbox is for a server that is a command, not for a URL; leave sandbox= out")
        return endpoint, None
    if sandbox is None:
        return endpoint, None
    directory = Path(endpoint.directory or ".").resolve()
    named = [place for word in endpoint.command[1:] if (place := _named(word, directory)) is not None]
    program = shutil.which(endpoint.command[0])
    programs = [Path(program), Path(program).resolve()] if program and directory not in Path(program).parents else []
    files = [*programs, *(place for place in named if not place.is_dir())]
    given = replace(
        sandbox,
        write=[*sandbox.write, *(place for place in named if place.is_dir())],
        read=[*sandbox.read, *map(_folder_of, files)],
    )
    environment = {**os.environ, **endpoint.environment}
    confinement, found = confine(given, directory, environment)
    passed = {name: os.environ[name] for name in sandbox.env if name in os.environ}
    return replace(endpoint, confinement=confinement, environment={**passed, **endpoint.environment}), found


def _folder_of(file: Path) -> Path:
    """What a program needs: its folder, or the one above `bin`. Never a whole home: then itself."""
    folder = file.parent.parent if file.parent.name == "bin" else file.parent
    home = Path("~").expanduser().resolve()
    return file if folder == home or folder in home.parents else folder


def _hidden_modules(endpoint: Endpoint) -> Path | None:
    """The folder above a script of the command that has its modules, in a home that is hidden."""
    directory, home = Path(endpoint.directory or ".").resolve(), Path("~").expanduser().resolve()
    for word in endpoint.command:
        script = Path(shutil.which(word) or directory / word).resolve()
        if home in script.parents and directory not in script.parents:
            for above in script.parents:
                if above != _folder_of(script) and home in above.parents and (above / "node_modules").is_dir():
                    return above
    return None


def _named(word: str, directory: Path) -> Path | None:
    """The path that an argument names, if it is there: the person who wrote it means it. Raises
    `ConfigError` for a link in the directory that leads out of it, which a command may have made.
    """
    with suppress(OSError, ValueError):
        if not (place := Path(os.path.normpath(directory / word))).exists() or place.resolve() == Path("/"):
            return None
        if (real := within_itself(place, directory)) is None:
            raise ConfigError(f"{word}: a link leads out of {directory}; if you mean it, write {place.resolve()}")
        return real
    return None


def _name_of(endpoint: Endpoint) -> str:
    """A name made of the host. Of a command: the first argument that looks like a path or a script,
    else the program.
    """
    if endpoint.url:
        said = urlsplit(endpoint.url).hostname or ""
    else:
        words = [word for word in endpoint.command if not word.startswith("-")]
        packages = [word for word in words[1:] if "/" in word or word.endswith((".py", ".js"))]
        said = PurePath((packages or words or ["mcp"])[0]).stem
    name = _UNDERSCORES.sub("_", _ILLEGAL.sub("_", said))[:32].rstrip("_")
    return name if _SERVER_NAME.fullmatch(name) else f"mcp_{name.lstrip('_')}"[:32].rstrip("_")


def legal_name(name: str, taken: Collection[str]) -> str:
    """`name` in a form that every provider accepts. If it is too long, or in `taken`, it ends with
    a hash of the whole name, so that it is the same each time.
    """
    legal = _ILLEGAL.sub("_", name)
    if len(legal) > NAME_CHARS or legal in taken:
        legal = f"{legal[: NAME_CHARS - 9]}_{identity(name)[:8]}"
    if legal in taken:
        raise ConfigError("another tool of the server has this name")
    return legal


def _plain(schema: Any) -> Any:
    """`schema` with printable descriptions."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: readable(value) if key == "description" and isinstance(value, str) else _plain(value)
        for key, value in schema.items()
    }
