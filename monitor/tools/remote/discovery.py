"""Tools that a command declares, and a second command carries out.

    tools = DiscoveredTools("bin/list-tools", "bin/call-tool")

The first command prints JSON: a list of declarations (name, description, JSON schema of the
parameters), or an object with that list as `functionDeclarations`, as for Gemini CLI. The second
one gets the name of the tool as its last argument, and the call's arguments as JSON on its stdin;
what it prints is the result. A command that fails, hangs or floods is an error, and nothing of it
is left.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import anyio
from anyio.abc import ByteReceiveStream, Process

from monitor._util.explained_options import explained
from monitor._util.text import printable
from monitor.errors import ConfigError, ToolError, ToolErrorKind, describe
from monitor.models import ToolSpec, portable
from monitor.tools.artifacts.artifact_store import Reference
from monitor.tools.base import NeedsApproval, ToolContext, ToolTraits, check_name
from monitor.tools.functions import ArgumentSchema, UnusableSchema
from monitor.tools.processes.command import environment
from monitor.tools.processes.process_table import MARKER, marked, members, owner_token, sweep
from monitor.tools.results.call_results import ToolAnswer

MAX_BYTES: Final = 16 * 1024 * 1024
"""A command that writes more is ended. Source: Gemini CLI."""
MOST_TOOLS: Final = 1_000
TIMEOUT_S: Final = 60.0
DISCOVERY_S: Final = 30.0
GRACE_S: Final = 2.0
"""Between asking processes to end and killing them."""
READERS_S: Final = 0.1
"""How long output is read after the command has ended: a child of it may hold its pipes."""
POLL_S: Final = 0.02
_SHOWN_CHARS: Final = 300


@explained(example="monitor.tools.DiscoveredTools('bin/list-tools', 'bin/call-tool')")
class DiscoveredTools:
    """The tools that the command `discover` declares, carried out by the command `call`: a toolset,
    which looks for its tools when it is opened.

    A command is a text, split as a shell splits it, or a list of words; no shell runs it.
    `environment`: variables that it gets besides those that `ShellTools` pass on. `prefix` stands
    before each name. Raises `ConfigError` if the command fails, takes more than 30 s, or prints
    anything but declarations. A tool whose schema is no JSON schema is left out.
    """

    def __init__(
        self,
        discover: str | Sequence[str],
        call: str | Sequence[str],
        *,
        prefix: str = "",
        directory: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        needs_approval: NeedsApproval = False,
        timeout_s: float | None = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if timeout_s is not None and not 0 < timeout_s < math.inf:
            raise ConfigError(f"timeout_s={timeout_s!r}: give seconds above 0, or None for no limit")
        if max_bytes < 1:
            raise ConfigError(f"max_bytes is {max_bytes!r}; it is a whole number, at least 1")
        self._discover, self._call = _words(discover), _words(call)
        self._prefix = prefix
        self._surroundings = _CommandOptions(Path(directory or "."), dict(environment or {}), max_bytes)
        self._traits = ToolTraits(timeout_s=timeout_s, needs_approval=needs_approval)
        self._tools: tuple[DiscoveredTool, ...] = ()
        self.changed = 0
        """Counts the changes of `tools()`."""
        self.problems: tuple[str, ...] = ()
        """The tools that cannot be offered, each with the reason; for people."""

    def tools(self) -> tuple[DiscoveredTool, ...]:
        """The tools as they were declared last. Empty before it is opened."""
        return self._tools

    async def discover(self) -> None:
        """Ask the command for its tools, again."""
        said = f"the command {shlex.join(self._discover)}"
        try:
            with anyio.fail_after(DISCOVERY_S):
                ended = await exchange(self._discover, b"", self._surroundings)
        except TimeoutError:
            raise ConfigError(f"{said} did not end within {DISCOVERY_S:g} s") from None
        except ToolError as error:
            raise ConfigError(f"{said}: {error}") from None
        if ended.code != 0:
            raise ConfigError(f"{said} failed: {ended.status}. It wrote: {_short(ended.errors or ended.output)}")
        tools: list[DiscoveredTool] = []
        problems: list[str] = []
        for one in declared(ended.output, self._prefix, said):
            try:
                tools.append(DiscoveredTool(one, self._call, self._surroundings, self._traits))
            except UnusableSchema as error:
                problems.append(f"{said}: a tool is left out: {error}")
        self.problems = tuple(problems)
        if [tool.declaration for tool in tools] != [tool.declaration for tool in self._tools]:
            self._tools = tuple(tools)
            self.changed += 1

    async def __aenter__(self) -> Self:
        await self.discover()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close: no command outlives its call."""


@dataclass(slots=True, frozen=True)
class ToolDeclaration:
    """One tool as the command has declared it."""

    name: str
    """The name that the command uses."""
    spec: ToolSpec
    """The tool as the model is shown it."""
    schema: Mapping[str, Any]
    """The schema of its arguments as the command has written it."""


class DiscoveredTool:
    """One of the tools that the command has declared. Raises `UnusableSchema` if its schema is no
    JSON schema.
    """

    checks_schema = True

    def __init__(
        self, declaration: ToolDeclaration, command: Sequence[str], surroundings: _CommandOptions, traits: ToolTraits
    ) -> None:
        self.declaration = declaration
        self.spec = declaration.spec
        self.check = ArgumentSchema(self.spec.name, declaration.schema).check
        self.timeout_s = traits.timeout_s
        self.needs_approval = traits.needs_approval
        self._name = declaration.name
        self._command = command
        self._surroundings = surroundings

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """The output of the command. If it fails, the result is an error with its exit code."""
        given = json.dumps(dict(arguments), ensure_ascii=False, default=str).encode("utf-8", "replace")
        ended = await exchange([*self._command, self._name], given, self._surroundings, context.process_started)
        if ended.code == 0:
            request = {"tool": self.spec.name, "arguments": json.loads(given)}
            return ToolAnswer(ended.output, reference=Reference(kind="reply", request=request))
        text = "\n".join(part.rstrip("\n") for part in (ended.output, ended.errors) if part)
        return ToolAnswer(text, is_error=True, error_kind=ToolErrorKind.EXECUTION_FAILED, status=ended.status)


def declared(text: str, prefix: str, said: str) -> list[ToolDeclaration]:
    """The tools that `text` declares. Raises `ConfigError`, whose message begins with `said`."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{said} printed no JSON: {error}. It begins: {_short(text)}") from None
    if isinstance(data, Mapping):
        data = data.get("functionDeclarations", data.get("function_declarations"))
    if not isinstance(data, list):
        raise ConfigError(f"{said} printed no list of declarations, and no object with functionDeclarations")
    found: list[ToolDeclaration] = []
    for one in [each for entry in data for each in _flat(entry)]:
        if not isinstance(one, Mapping) or not isinstance(name := one.get("name"), str):
            raise ConfigError(f"{said} declared a tool without a name: {_short(json.dumps(one))}")
        schemas = [one[key] for key in _SCHEMAS if one.get(key) is not None]
        schema = schemas[0] if schemas else {"type": "object", "properties": {}}
        description = one.get("description") or ""
        if not isinstance(schema, Mapping) or str(schema.get("type", "object")).lower() != "object" or len(schemas) > 1:
            raise ConfigError(f"{said} declared {name!r} without one JSON schema of an object as its parameters")
        if not isinstance(description, str):
            raise ConfigError(f"{said} declared {name!r} with a description that is no text")
        try:
            spec = ToolSpec(check_name(f"{prefix}{name}"), description, portable(schema))
        except ConfigError as error:
            raise ConfigError(f"{said}: {error}") from None
        except Exception as error:  # noqa: BLE001 - a schema of somebody else's may be anything
            raise ConfigError(
                f"{said} declared {name!r} with a schema that cannot be read: {describe(error)}"
            ) from None
        found.append(ToolDeclaration(name, spec, schema))
    if len(found) > MOST_TOOLS:
        raise ConfigError(f"{said} declared {len(found):,} tools; at most {MOST_TOOLS:,} are taken")
    return found


_SCHEMAS: Final = ("parameters", "parametersJsonSchema", "parameters_json_schema", "inputSchema", "input_schema")


def _flat(entry: Any) -> Sequence[Any]:
    """Gemini's form has lists of declarations within the list."""
    inner = (
        entry.get("functionDeclarations", entry.get("function_declarations")) if isinstance(entry, Mapping) else None
    )
    return inner if isinstance(inner, list) else [entry]


# --- one command: written to, read, ended


@dataclass(slots=True, frozen=True)
class _CommandOptions:
    directory: Path
    environment: Mapping[str, str]
    max_bytes: int


@dataclass(slots=True)
class CommandResult:
    """The output of a command, and how it ended."""

    code: int
    output: str
    errors: str

    @property
    def status(self) -> str:
        """For the model: exit code or signal."""
        if self.code >= 0:
            return f"exit code {self.code}"
        with suppress(ValueError):
            return f"ended by signal {signal.Signals(-self.code).name}"
        return f"ended by signal {-self.code}"


@dataclass(slots=True)
class _Written:
    data: bytearray = field(default_factory=bytearray)


async def exchange(
    command: Sequence[str],
    given: bytes,
    surroundings: _CommandOptions,
    started: Callable[[int], object] = lambda _pid: None,
) -> CommandResult:
    """Run `command` with `given` on its stdin. However this ends, no process of it is left.
    `started` is called with its process id.

    `ToolError`: it cannot be started, or it wrote too much.
    """
    token = owner_token(secrets.token_hex(8))
    try:
        process = await anyio.open_process(
            [*command],
            stdin=subprocess.PIPE,
            cwd=surroundings.directory,
            env={**environment(surroundings.environment), MARKER: marked(token)},
            start_new_session=sys.platform != "win32",
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"the command {command[0]} cannot be started: {describe(error)}") from None
    started(process.pid)
    output, errors = _Written(), _Written()
    over = False

    async def read(stream: ByteReceiveStream | None, into: _Written) -> None:
        nonlocal over
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while stream is not None and not over:
                into.data += await stream.receive()
                over = len(output.data) + len(errors.data) > surroundings.max_bytes

    async def write() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):  # it need not read
            if process.stdin is not None:
                await process.stdin.send(given)
                await process.stdin.aclose()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(read, process.stdout, output)
            group.start_soon(read, process.stderr, errors)
            group.start_soon(write)
            await _until_gone(process, lambda: over)
            await anyio.sleep(READERS_S)
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, token)
    if over:
        raise ToolError(f"the command wrote more than {surroundings.max_bytes:,} bytes, and was ended")
    text, said = (one.data.decode("utf-8", "replace") for one in (output, errors))
    return CommandResult(process.returncode if process.returncode is not None else -signal.SIGKILL, text, said)


async def _end(process: Process, token: str) -> None:
    """End the processes of the command, and close its pipes. Bounded."""
    try:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with anyio.move_on_after(GRACE_S):
                await _until_gone(process)
    finally:
        _signal(process, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
        sweep(lambda: members(token, None))
        with anyio.move_on_after(GRACE_S):
            await _until_gone(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await stream.aclose()
        # On asyncio a pipe that was not read to its end stays open; nothing public closes it.
        transport = getattr(getattr(process, "_process", None), "_transport", None)
        if callable(close := getattr(transport, "close", None)):
            with suppress(OSError):
                close()


async def _until_gone(process: Process, enough: Callable[[], bool] = lambda: False) -> None:
    """Return when the first process has ended. `wait` would wait for all that hold its pipes."""
    while process.returncode is None and not enough():  # noqa: ASYNC110 - so there is no event to wait for
        await anyio.sleep(POLL_S)


def _signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to the whole group, which lives on when its first process has ended."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        elif process.returncode is None:
            process.send_signal(number)


def _words(command: str | Sequence[str]) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command)) if isinstance(command, str) else tuple(map(str, command))
    except ValueError as error:
        raise ConfigError(f"the command {command!r} cannot be read: {error}") from None
    if not words:
        raise ConfigError("the command is empty")
    return words


def _short(text: str) -> str:
    return printable(" ".join(text[:_SHOWN_CHARS].split())) or "(nothing)"
