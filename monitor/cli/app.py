"""The commands, put together. Apart from `monitor.cli`, so that this package can be imported
without typer.

The module of a command is imported when somebody asks for the command: all of them take a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

import monitor
from monitor.cli.options.signature import flattened
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
        with _printable_complaints():
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
    See it work, without a key and without a network:
      agent-monitor demo

    \b
    Drive a whole run to its outputs; then with a Gemini key and a task of yours:
      agent-monitor run --demo
      agent-monitor run "Why is the sky blue?" --model google:gemini-2.5-flash

    \b
    Store a run, go on with it after a crash, and look at it again:
      agent-monitor run "Tidy up" --model google:gemini-2.5-flash --workspace . --session tidy
      agent-monitor resume tidy
      agent-monitor tell tidy "Leave the tests as they are."
      agent-monitor replay tidy

    \b
    Runs that wait for an answer, and the answer:
      agent-monitor inbox

    \b
    Look for loops in the sessions that coding agents keep here, or in a file:
      agent-monitor scan
      agent-monitor scan runs.jsonl.gz

    \b
    The same as one page, to look around in and to share:
      agent-monitor report -o page.html

    \b
    Follow the sessions that are being written, and ring when a loop begins:
      agent-monitor watch --bell

    \b
    Which loops would your settings see, how soon, and what would follow:
      agent-monitor doctor

    \b
    A conversation that was kept: does it fit, is it in order, what could go:
      agent-monitor context request.json --model google:gemini-2.5-flash

    \b
    The same conversation, compacted; without a model, or by one:
      agent-monitor compact request.json --preset pi --out shorter.json

    \b
    Conversations that were stored: what is in them, and is all of it as it was written:
      agent-monitor sessions list

    \b
    The same guard in front of clients in any language:
      agent-monitor proxy --upstream https://api.openai.com

    \b
    Budgets that many processes share: what is spent, held and left:
      agent-monitor budget show --store budgets.db

    \b
    Watch what a real model writes, with a Gemini key:
      GEMINI_API_KEY=... agent-monitor demo --model gemini-2.5-flash

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
    return typer.main.get_command(command)
