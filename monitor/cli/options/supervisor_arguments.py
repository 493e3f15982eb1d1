"""The options of `run` as arguments of a `Supervisor`. An invalid option raises a `ConfigError` of
one sentence.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, Protocol, get_args

import monitor
from monitor.cli.options.named_models import REPLAY, Closing, client_for, replay_of
from monitor.cli.options.output_types import load
from monitor.cli.render.output import STDIN
from monitor.conditions import Condition
from monitor.errors import ConfigError
from monitor.settings import Settings, joined_tables, parse_setting
from monitor.tools.approvals.approval import Mode
from monitor.tools.functions import as_tool
from monitor.tools.remote.mcp_server import McpServer
from monitor.tools.sandbox.sandbox_places import NAMES, SandboxOption

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


def variables_of(given: Iterable[str]) -> dict[str, str]:
    """The variables of all `--var name=value`."""
    variables: dict[str, str] = {}
    for one in given:
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
