"""The options of `run` as arguments of a `Supervisor`. An invalid option raises a `ConfigError` of
one sentence.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, Final, Protocol, get_args
from urllib.parse import urlsplit

import monitor
from monitor.adapters.replay_model import RecordedChunk, ReplayModel
from monitor.chunks import ToolResult, TurnFinished, UsageReport
from monitor.cli.options.output_types import load
from monitor.cli.render.output import STDIN
from monitor.conditions import Condition
from monitor.errors import ConfigError, MissingExtra
from monitor.settings import Settings, joined_tables, parse_setting
from monitor.tools.approvals.approval import Mode
from monitor.tools.functions import as_tool
from monitor.tools.remote.mcp_server import McpServer
from monitor.tools.sandbox.sandbox_places import NAMES, SandboxOption
from monitor.transcripts.base import ReadReport, RecordedRun
from monitor.transcripts.places import runs
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import Source

Closing = Callable[[], Awaitable[None]]


@dataclass(slots=True, frozen=True)
class Service:
    """How the command line reaches one provider."""

    keys: tuple[str, ...]
    """Environment variables; one of them must be set. Messages name the first.
    """
    client: Callable[[str, str], tuple[Any, Closing]]
    """A client for a base URL and a key, without retries of its own, and how to close it."""


def _import(module: str, package: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == module.partition(".")[0]:
            raise MissingExtra(package, extra) from None
        raise


def _google(base_url: str, key: str) -> tuple[Any, Closing]:
    genai = _import("google.genai", "google-genai", "google")
    options = genai.types.HttpOptions(base_url=base_url, retry_options=genai.types.HttpRetryOptions(attempts=1))
    client = genai.Client(api_key=key, vertexai=False, http_options=options)
    return client, client.aio.aclose


def _openai(base_url: str, key: str) -> tuple[Any, Closing]:
    client = _import("openai", "openai", "openai").AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0)
    return client, client.close


def _anthropic(base_url: str, key: str) -> tuple[Any, Closing]:
    client = _import("anthropic", "anthropic", "anthropic").AsyncAnthropic(
        base_url=base_url, api_key=key, max_retries=0
    )
    return client, client.close


_OPENAI = Service(("OPENAI_API_KEY",), _openai)

SERVICES = {
    "google": Service(
        ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"), _google
    ),
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": Service(("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), _anthropic),
}
"""The services by the provider's name before the colon."""


def client_for(name: str, base_url: str | None, *, keyless: str) -> tuple[Any, Closing] | None:
    """The client for the model `name`; `None`: the model makes its own. `ConfigError`: no key, or
    no service for the URL.

    `keyless`: a command that needs no key, for the message about a missing key.
    """
    provider = name.partition(":")[0]
    service = SERVICES.get(provider)
    if service is None:
        if base_url is not None:
            raise ConfigError(
                f"--base-url is for {', '.join(f'{known}:' for known in SERVICES)} models, not for {name}"
            )
        return None
    keys = [os.environ[key] for key in service.keys if os.environ.get(key)]
    if base_url is not None:
        if urlsplit(base_url).scheme not in {"http", "https"} or not urlsplit(base_url).netloc:
            raise ConfigError(f"--base-url {base_url}: write the whole address, e.g. http://localhost:8000/v1")
        return service.client(
            base_url, keys[0] if keys else "none"
        )  # the SDK requires a key, even if a local server does not
    if not keys:
        raise ConfigError(f"{name} needs a key: set {service.keys[0]} (without a key: {keyless})")
    return None


# --------------------------------------------------------------------------------------------------
# `replay:FILE`: a recorded run in the place of a model. The file is a recording of chunks, a log
# of events, or a transcript of any format that `scan` reads.

REPLAY: Final = "replay:"
NAMED: Final = 5


def replay_of(name: str) -> ReplayModel:
    """The model for `replay:FILE`. Of a transcript with several runs, `replay:FILE#RUN` names one.

    Raises `OSError` for a file that cannot be opened, and `MonitorError` for one without turns.
    """
    file, run = _named(name.removeprefix(REPLAY))
    source = Source.of_path(file)
    reader = reader_of(source)
    if reader is None or reader.format == "events":  # these recordings have times and pieces of their own
        return ReplayModel(file)
    found = [*runs(source, ReadReport())]
    chosen = found if run is None else [one for one in found if one.id == run]
    if len(chosen) != 1:
        names = ", ".join(one.id for one in found[:NAMED]) + (", ..." if len(found) > NAMED else "")
        raise ConfigError(f"{file}: it holds {len(found)} runs; name one of them, {REPLAY}FILE#RUN: {names}")
    return ReplayModel(file, turns=_turns(chosen[0]))


def _named(given: str) -> tuple[str, str | None]:
    """The file, and the run that is named behind `#`. Either may have `#` in its name."""
    parts = given.split("#")
    for number in range(len(parts), 0, -1):
        file = "#".join(parts[:number])
        if Path(file).exists():
            return file, "#".join(parts[number:]) if number < len(parts) else None
    return given, None


def _turns(run: RecordedRun) -> Iterator[list[RecordedChunk]]:
    """The answers of the model, response by response."""
    turn: list[RecordedChunk] = []
    for index, chunk in run.chunks():
        usage = run.messages[index].usage
        if isinstance(chunk, TurnFinished) and usage is not None:
            reported = UsageReport(
                usage.input_tokens,
                usage.output_tokens,
                usage.reasoning_tokens,
                usage.cached_tokens,
                usage.total_tokens,
            )
            turn.append(RecordedChunk(0.0, reported))
        if not isinstance(chunk, ToolResult):
            turn.append(RecordedChunk(0.0, chunk))
        if isinstance(chunk, TurnFinished):
            yield turn
            turn = []


# --------------------------------------------------------------------------------------------------
# The options of `run` as arguments of a `Supervisor`. An invalid option raises a `ConfigError` of
# one sentence.

_MARKER = re.compile(r"(?:[-*+]|\d{1,9}[.)])\s+(?:\[.\]\s+)?")


def task_of(given: str | None) -> str:
    """The task: as it was given, or all of stdin."""
    if given is None:
        raise ConfigError(
            'what is the task? agent-monitor run "..." --model google:gemini-2.5-flash; or see a run: agent-monitor run'
            " --demo"
        )
    task = stdin_of("task") if given == STDIN else given
    if not task.strip():
        raise ConfigError(f"the task is empty{' (nothing came from stdin)' if given == STDIN else ''}")
    return task


def stdin_of(what: str) -> str:
    """All of stdin, which is called `what` in messages. Raises `ConfigError` if it is no text."""
    if sys.stdin.isatty():
        print(f"The {what}, then Ctrl-D:", file=sys.stderr)
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise ConfigError(f"the {what} on stdin is not text in UTF-8") from None


def model_of(
    name: str | None, base_url: str | None, *, keyless: str = "agent-monitor run --demo"
) -> tuple[monitor.models.Model, Closing]:
    """The model by its name, and a function that closes its client. `base_url`: the address of a
    compatible server. `keyless`: a command that needs no key.
    """
    if name is None and base_url is not None:
        raise ConfigError("--base-url needs a model; name it as well: --model openai:NAME")
    if name is None:
        raise ConfigError(
            "which model? --model google:gemini-2.5-flash asks Gemini (with GEMINI_API_KEY); "
            "openai:, openai-responses: and anthropic: ask the others; --model replay:FILE plays a recorded run; "
            "or see a run without any: agent-monitor run --demo"
        )
    made = client_for(name, base_url, keyless=keyless)
    try:
        model = (
            replay_of(name)
            if name.startswith(REPLAY)
            else monitor.model(name, client=made[0] if made is not None else None)
        )
    except OSError as error:
        raise ConfigError(f"--model {name}: {error.strerror or error}") from None
    close: Closing = made[1] if made is not None else getattr(model, "aclose", nothing_to_close)
    return model, close


async def nothing_to_close() -> None:
    """Does nothing: the model has no client to close."""


def instructions_of(given: str | None) -> str | None:
    """The instructions: `given`, or the content of `@FILE`."""
    return _read(given[1:], "--instructions") if given is not None and given.startswith("@") else given


def variables_of(given: Iterable[str] | None) -> dict[str, str]:
    """The variables of all `--var name=value`."""
    variables: dict[str, str] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--var {one}: write NAME=VALUE")
        variables[name.strip()] = value
    return variables


def tools_of(given: Iterable[str]) -> list[monitor.tools.Tool]:
    """`--tool module:function`, each."""
    return [_tool(one) for one in given]


def sandbox_option(given: str) -> SandboxOption:
    """`--sandbox auto|required|off`."""
    if given not in (*NAMES, "off"):
        raise ConfigError(f"--sandbox {given}: give auto, required or off")
    return None if given == "off" else "required" if given == "required" else "auto"


def servers_of(given: Iterable[str], sandbox: SandboxOption = "auto") -> list[McpServer]:
    """`--mcp COMMAND|URL`, each; commands in `sandbox`. Of servers with one name the later
    ones get a number.
    """
    servers: dict[str, McpServer] = {}
    for target in given:
        try:
            made = McpServer(target, sandbox=None)
            names = itertools.chain(
                [made.name], (f"{made.name[:28].rstrip('_')}_{number}" for number in itertools.count(2))
            )
            name = next(name for name in names if name not in servers)
            servers[name] = McpServer(target, name=name, sandbox=None if made.remote else sandbox)
        except ConfigError as error:
            raise ConfigError(f"--mcp {target}: {error}") from None
    return list(servers.values())


def _tool(spec: str) -> monitor.tools.Tool:
    thing = load(spec, "--tool")
    try:
        return as_tool(thing)
    except ConfigError as error:
        raise ConfigError(f"--tool {spec}: {error}") from None


def workspace_tools(folder: Path | None, sandbox: SandboxOption = "auto") -> list[monitor.tools.Toolset]:
    """The tools for `--workspace FOLDER`: files, and a shell."""
    if folder is None:
        return []
    place = monitor.tools.Workspace(folder)
    return [monitor.tools.FileTools(place), monitor.tools.ShellTools(place, sandbox=sandbox)]


def with_approval(settings: Settings, given: str | None, workspace: Path | None) -> Settings:
    """`settings` with `--approval`: a mode, or the path of a file with rules. With a workspace,
    `default` is the default: a model that may run commands asks first.
    """
    known = settings.approval()
    if workspace is not None and (known is None or known.mode is None):
        settings = settings.updated({"approval": {"mode": "default"}})
    if given is None:
        return settings
    if given in get_args(Mode):
        return settings.updated({"approval": {"mode": given}})
    if Path(given).suffix != ".toml":
        raise ConfigError(f"--approval {given}: give {', '.join(get_args(Mode))}, or a .toml file with rules")
    return settings.updated({"approval": {"rules": str(Path(given).absolute())}})


def approver() -> monitor.tools.TerminalApprover | None:
    """Asks on the terminal. `None`: there is none, and what has to be approved is refused."""
    return monitor.tools.TerminalApprover(read=_line) if sys.stdin.isatty() else None


def _line(prompt: str) -> str:
    """A line of the terminal. The prompt goes to stderr: stdout may be JSON lines."""
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def plan_of(file: Path | None, steps: Sequence[str]) -> monitor.Plan | None:
    """The plan: from a file, one step a line, or from `--step`s."""
    if file is None:
        return monitor.Plan(list(steps)) if steps else None
    if steps:
        raise ConfigError("--plan and --step both say the plan; give one of them")
    lines = [line.strip() for line in _read(str(file), "--plan").splitlines() if line.strip()]
    titles = [line.lstrip("# ") for line in lines if line.startswith("#")]
    found = [
        line[marker.end() :] if (marker := _MARKER.match(line)) else line for line in lines if not line.startswith("#")
    ]
    if not found:
        raise ConfigError(f"--plan {file}: there is no step in it; write one a line")
    return monitor.Plan(found, titles[0] if titles else None)


class LimitOptions(Protocol):
    """The options of a command that limit a run. `None` and `off`: no limit."""

    @property
    def max_turns(self) -> str | None: ...
    @property
    def timeout(self) -> str | None: ...
    @property
    def idle_timeout(self) -> str | None: ...
    @property
    def max_tool_calls(self) -> int | None: ...


def limits_of(given: LimitOptions) -> Condition | None:
    """The limits of the run as one condition."""
    limits: list[Condition] = []
    if (turns := number_or_off(given.max_turns, "--max-turns")) is not None:
        limits.append(monitor.MaxTurns(int(turns)))
    if given.max_tool_calls is not None:
        limits.append(monitor.MaxToolCalls(given.max_tool_calls))
    if (seconds := number_or_off(given.timeout, "--timeout")) is not None:
        limits.append(monitor.Timeout(seconds))
    if (seconds := number_or_off(given.idle_timeout, "--idle-timeout")) is not None:
        limits.append(monitor.IdleTimeout(seconds))
    return reduce(or_, limits) if limits else None


def number_or_off(given: str | None, option: str) -> float | None:
    """A number above 0, or `None` for `off`, and where nothing is given."""
    if given is None or given.strip().lower() == "off":
        return None
    try:
        number = float(given)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf") or (option == "--max-turns" and number != int(number)):
        raise ConfigError(
            f"{option} {given}: give {'a whole number' if option == '--max-turns' else 'seconds'} above 0, or off"
        )
    return number


def price_of(given: str | None) -> monitor.Price | None:
    """`IN,OUT` or `IN,OUT,CACHED`, in US dollars per million tokens."""
    if given is None:
        return None
    try:
        numbers = [float(number) for number in given.split(",")]
        input_, output, *cached = numbers
        if len(cached) > 1:
            raise ValueError(given)
    except ValueError:
        raise ConfigError(
            f"--price {given}: write IN,OUT or IN,OUT,CACHED: US dollars per million tokens, e.g. --price 0.30,2.50"
        ) from None
    return monitor.Price(input_, output, cached[0] if cached else None)


def budget_of(
    tokens: int | None, usd: float | None, price: monitor.Price | None, model: str | None
) -> monitor.Budget | None:
    """The budget of the run and of its nested runs."""
    if usd is not None and price is None:
        raise ConfigError(f"--budget-usd: the price table does not have {model or 'this model'}: add --price IN,OUT")
    return monitor.Budget(tokens=tokens, usd=usd) if tokens is not None or usd is not None else None


def model_settings_of(temperature: float | None, given: Iterable[str]) -> dict[str, Any]:
    """The settings that are passed to the provider unchanged."""
    settings: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    for one in given:
        try:
            settings = joined_tables(settings, parse_setting(one))
        except ConfigError:
            raise ConfigError(
                f"--setting {one}: write NAME=VALUE, e.g. --setting thinking_config.include_thoughts=true"
            ) from None
    return settings


def _read(file: str, option: str) -> str:
    try:
        text = Path(file).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{option}: cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigError(f"{option}: {file} is not text in UTF-8")
    return text
