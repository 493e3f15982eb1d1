"""The commands, put together. Apart from `monitor.cli`, so that this package can be imported
without typer.

The module of a command is imported when somebody asks for the command: all of them take a second.
"""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

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


class Place(NamedTuple):
    """Where a command is: the function or the group `name` of a module."""

    module: str
    name: str
    panel: str | None = None
    """Its heading in the help of the group above it."""


def _below(module: str, *names: str, panel: str | None = None) -> dict[str, Place]:
    """Commands of one module. `judge-eval` is the function `judge_eval`."""
    return {name: Place(module, name.replace("-", "_"), panel) for name in names}


LOOK, GUARD, RUN = "Look for loops", "Stop loops", "Runs of agent-monitor"
COMMANDS: Final[Mapping[str, Place]] = {
    **_below("demo", "demo", panel=LOOK),
    **_below("run", "run", panel=RUN),
    **_below("scan", "scan", panel=LOOK),
    **_below("report", "report", panel=LOOK),
    **_below("watch", "watch", panel=LOOK),
    **_below("hook", "hook", panel=GUARD),
    **_below("calibrate", "calibrate", panel=GUARD),
    **_below("doctor", "doctor", panel=GUARD),
    **_below("proxy", "proxy", panel=GUARD),
    **_below("sessions", "sessions", panel=RUN),
}
"""The commands, in the order of the help, with their modules in `monitor.cli.commands`."""
STORED, RUNNING, HISTORY = "Stored sessions", "Go on with a run", "What a model is shown"
BELOW: Final[Mapping[str, Mapping[str, Place]]] = {
    "calibrate": _below("judge_eval", "judge-eval"),
    "proxy": _below("proxy_stores", "keys", "budget"),
    "sessions": {
        **_below("run", "resume", panel=RUNNING),
        **_below("inbox", "tell", "inbox", "deliver", panel=RUNNING),
        **_below("replay", "replay", panel=STORED),
        **_below("context", "context", panel=HISTORY),
        **_below("compact", "compact", panel=HISTORY),
    },
}
"""The commands below a command, each with its module. Those of `sessions` itself are in it."""
MOVED: Final = {name: parent for parent, below in BELOW.items() for name in below}
"""Commands that stood beside the others before 0.3, and the command below which they are now."""


class _Tidy:
    """Help in which a flag, which takes no value, and an argument have no type beside them."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if one.param_type_name == "argument":
                one.display_type_rich = lambda ctx: ""  # noqa: ARG005 - as typer calls it
            elif getattr(one, "is_flag", False):
                one.metavar = ""
        return found


class _TidyCommand(_Tidy, TyperCommand):
    pass


class _Group(_Tidy, TyperGroup):
    """Commands whose modules are imported when somebody asks for them."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.allow_interspersed_args = self.invoke_without_command
        self._places: dict[str, Place] = {}

    def add(self, places: Mapping[str, Place]) -> None:
        """Add commands, whose modules are not imported yet."""
        self._places |= places
        self.commands: dict[str, Any] = {**self.commands, **dict.fromkeys(places)}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self._places and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _loaded(cmd_name, self._places[cmd_name])
        return self.commands.get(cmd_name)


class _Root(_Group):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.add(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if (parent := MOVED.get(args[0])) is not None:
            now = f"agent-monitor {parent} {args[0]}"
            output.complain(output.stderr(), f"agent-monitor {args[0]} is {now} now; the old name goes with 0.4")
            args = [parent, *args]
        if (place := BELOW.get(args[0], {}).get(args[1] if len(args) > 1 else "")) is not None:
            return " ".join(args[:2]), _loaded(args[1], place), args[2:]  # without the command above it
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _printable_complaints():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _printable_complaints(), output.tidy_exit():
            return super().invoke(ctx)


app = typer.Typer(
    name="agent-monitor",
    cls=_Root,
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

    These need no key and no network:
      agent-monitor demo          three recorded runs: two loop, one ends well
      agent-monitor run --demo    a whole run, driven to its outputs
      agent-monitor scan          loops in the sessions of your coding agents
      agent-monitor doctor        the loops that your settings see, and how soon

    With a Gemini key and a task of yours; a session can be resumed after a crash:
      agent-monitor run "Tidy up" --model google:gemini-2.5-flash --session tidy
      agent-monitor sessions resume tidy

    In a program it is two lines around the stream that you already have:
      async with monitor.watch(stream) as watched:
          async for chunk in watched: ...
    """


def _loaded(name: str, place: Place) -> Any:
    """The command, whose module is imported now."""
    command = getattr(import_module(f"monitor.cli.commands.{place.module}"), place.name)
    if not isinstance(command, typer.Typer):
        made = typer.Typer(add_completion=False, rich_markup_mode="rich")
        if name in BELOW:
            made.callback(cls=_Group, invoke_without_command=True)(flattened(command))
        else:
            made.command(name, cls=_TidyCommand)(flattened(command))
        command = made
    command.pretty_exceptions_enable = False
    command.info.cls = _Group
    for one in command.registered_commands:
        one.cls = _TidyCommand
    made = _tidied(typer.main.get_command(command), place.panel)
    made.name = name
    if isinstance(made, _Group):
        made.add(BELOW.get(name, {}))
    return made


def _tidied(command: Any, panel: str | None = None) -> Any:
    """`command` with its help as paragraphs: lines that are indented stay as they are."""
    command.rich_help_panel = panel
    paragraphs = cleandoc(command.help or "").replace("\b\n", "").split("\n\n")
    command.short_help = " ".join(paragraphs[0].split())
    command.help = "\n\n".join(map(_reflowed, paragraphs))
    for one in getattr(command, "commands", {}).values():
        _tidied(one, one.rich_help_panel)
    return command


def _reflowed(paragraph: str) -> str:
    """The lines of a sentence as one line, which the terminal breaks."""
    lines: list[str] = []
    for line in paragraph.splitlines():
        if lines and not line.startswith(" ") and not lines[-1].startswith(" "):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


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
