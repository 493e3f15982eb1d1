"""The commands, put together. Apart from `monitor.cli`, so that this package can be imported
without typer.

The module of a command is imported when somebody asks for the command: all of them take a second.
"""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, get_type_hints

import typer
from typer.core import TyperGroup

import monitor
from monitor.cli.render import output

_ClickError: Any = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")
"""Typer's exception for wrong use, of whichever click it contains."""


@contextmanager
def _printable_complaints() -> Iterator[None]:
    """Typer itself prints errors about arguments. These may be names of files (`scan *`), so
    control characters in them are escaped.
    """
    try:
        yield
    except _ClickError as error:
        said = output.printable(error.format_message())
        error.format_message = lambda: said
        raise


COMMANDS: Final = (
    "demo",
    "run",
    "resume",
    "tell",
    "inbox",
    "deliver",
    "replay",
    "scan",
    "report",
    "watch",
    "hook",
    "calibrate",
    "doctor",
    "judge-eval",
    "context",
    "compact",
    "proxy",
    "sessions",
    "keys",
    "budget",
)
"""In the order of the help. `judge-eval` is the function `judge_eval` of
`cli/commands/judge_eval.py`. The others are named likewise.
"""


class _Group(TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self.commands.get(cmd_name) is None and cmd_name in COMMANDS:
            self.commands[cmd_name] = _loaded(cmd_name)
        return self.commands.get(cmd_name)

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _printable_complaints():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _printable_complaints(), output.tidy_exit():
            return super().invoke(ctx)


app = typer.Typer(
    name="agent-monitor",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a bug's traceback is for a bug report, and must not show local variables
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        output.write(f"agent-monitor {monitor.__version__}")
        raise typer.Exit


@app.callback()
def agent_monitor(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Watch streaming LLM agents: see loops while they are being written, stop for real, say why.

    \b
    These need no key and no network:
      agent-monitor demo          three recorded runs: two loop, one ends well
      agent-monitor run --demo    a whole run, driven to its outputs
      agent-monitor scan          loops in the sessions of your coding agents
      agent-monitor doctor        the loops that your settings see, and how soon

    \b
    With a Gemini key and a task of yours; a session can be resumed after a crash:
      agent-monitor run "Tidy up" --model google:gemini-2.5-flash --session tidy
      agent-monitor resume tidy

    \b
    In a program it is two lines around the stream that you already have:
      async with monitor.watch(stream) as watched:
          async for chunk in watched: ...
    """  # noqa: D301 - \b keeps the lines of an example apart


def _loaded(name: str) -> Any:
    """The command, whose module is imported now."""
    attribute = name.replace("-", "_")
    command = getattr(import_module(f"monitor.cli.commands.{attribute}"), attribute)
    if not isinstance(command, typer.Typer):  # else it is a group of commands
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(name)(flattened(command))
        command = alone
    command.pretty_exceptions_enable = False
    made = typer.main.get_command(command)
    made.short_help = " ".join((made.help or "").partition("\n\n")[0].split())  # its lines are those of the source
    return made


# --------------------------------------------------------------------------------------------------
# The options of a command as dataclasses: typer gets one parameter for each field.


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the fields of a dataclass in the place of each parameter that is one.

    The help has the options in the order of the parameters, and of the fields in them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    flat: list[Parameter] = []
    for one in signature(command).parameters.values():
        if one.name in groups:
            flat += _parameters(groups[one.name])
        else:
            flat.append(one.replace(annotation=hints[one.name], kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def called(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    called.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    return called


def _parameters(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=_default(one), annotation=hints[one.name])
        for one in fields(group)
    ]


def _default(field: Field[Any]) -> Any:
    return Parameter.empty if field.default is MISSING else field.default


# --------------------------------------------------------------------------------------------------
# Output of other libraries is made printable too: tracebacks, warnings and log lines must not
# contain control characters for the terminal either.

CRASHED = 70
"""The exit code of a bug of agent-monitor. No command uses it for a result."""


def run() -> None:
    """Carry out the command line; a bug is a traceback on stderr, without local variables."""
    show_warning = warnings.formatwarning
    warnings.formatwarning = lambda *args, **more: output.printable(show_warning(*args, **more))
    last = logging.StreamHandler()
    last.setLevel(logging.WARNING)
    last.setFormatter(_Printable())
    logging.lastResort = last  # used if no logging is configured, as in the command
    try:
        app()
    except Exception as error:  # noqa: BLE001 - every bug is shown with its whole traceback
        sys.stderr.write(output.printable("".join(traceback.format_exception(error))))
        sys.exit(CRASHED)


class _Printable(logging.Formatter):
    """Lines without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return output.printable(super().format(record))
