"""The options of `run`, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from monitor.cli.options.session_file import complete
from monitor.cli.options.settings_options import SETTINGS
from monitor.compaction.preset import PRESETS

WHAT, LIMITS, SHOWN = "The run", "Limits", "What is shown"
"""The headings of these options in the help."""

TaskArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="TASK", help="What to do; - reads it from stdin.", show_default=False)
]
ModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="google:gemini-2.5-flash, openai:..., anthropic:..., or replay:FILE.",
        rich_help_panel=WHAT,
    ),
]
DemoOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--demo",
        help="A sample: a recorded model, a tool and two outputs. No key, no network.",
        rich_help_panel=WHAT,
    ),
]
OutputOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        metavar="NAME:TYPE",
        help=(
            "What the model must emit; may be given again. str, int, float, bool, json, list\\[str], module:Model,"
            " or a JSON schema."
        ),
        rich_help_panel=WHAT,
    ),
]
InstructionsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TEXT|@FILE", help="The system prompt; ${name} is a variable.", rich_help_panel=WHAT),
]
VarOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--var", metavar="NAME=VALUE", help="A variable of the instructions.", rich_help_panel=WHAT),
]
ToolOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--tool", metavar="MODULE:FUNCTION", help="A Python function the model may call.", rich_help_panel=WHAT
    ),
]
McpOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp",
        metavar="COMMAND|URL",
        help="An MCP server whose tools the model may call; may be given again.",
        rich_help_panel=WHAT,
    ),
]
WorkspaceOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        metavar="FOLDER",
        help="Tools for the files in this folder, and a shell that begins there.",
        rich_help_panel=WHAT,
    ),
]
ApprovalOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--approval",
        metavar="MODE|FILE",
        help=(
            "Which calls need a yes on the terminal: default (all that do not read; so it is with --workspace),"
            " auto_edit, yolo (none), plan (only reads run), or a TOML file with rules. It overrides the settings."
        ),
        rich_help_panel=WHAT,
    ),
]
PlanOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="The steps of the task, one a line.", rich_help_panel=WHAT),
]
StepOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--step", metavar="TEXT", help="One step; may be given again.", rich_help_panel=WHAT),
]
TemperatureOption: TypeAlias = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Of the model.", rich_help_panel=WHAT)
]
SettingOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="NAME=VALUE",
        help="A setting of the provider's own, as its SDK names it.",
        rich_help_panel=WHAT,
    ),
]
BaseUrlOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--base-url", metavar="URL", help="A compatible server in the place of the service.", rich_help_panel=WHAT
    ),
]
MaxTurnsOption: TypeAlias = Annotated[str, typer.Option(metavar="N|off", help="Turns.", rich_help_panel=LIMITS)]
TimeoutOption: TypeAlias = Annotated[
    str, typer.Option(metavar="SECONDS|off", help="For the whole run.", rich_help_panel=LIMITS)
]
IdleTimeoutOption: TypeAlias = Annotated[
    str, typer.Option(metavar="SECONDS|off", help="How long the model may send nothing.", rich_help_panel=LIMITS)
]
MaxToolCallsOption: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Tool calls.", rich_help_panel=LIMITS)
]
BudgetTokensOption: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Tokens, in and out, those of subagents included.", rich_help_panel=LIMITS),
]
BudgetUsdOption: TypeAlias = Annotated[
    float | None, typer.Option(metavar="USD", help="Money; needs --price.", rich_help_panel=LIMITS)
]
PriceOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="IN,OUT",
        help="US dollars per million tokens, e.g. 0.30,2.50; a third number: cached.",
        rich_help_panel=LIMITS,
    ),
]
LastTurnOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="SECONDS|off", help="One more turn, to emit what there is, after a limit.", rich_help_panel=LIMITS
    ),
]
MaxNudgesOption: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=0, help="How often missing outputs are asked for.", rich_help_panel=LIMITS)
]
NoDetectorsOption: TypeAlias = Annotated[
    bool, typer.Option("--no-detectors", help="Look for no loops.", rich_help_panel=SETTINGS)
]
PolicyOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="What follows from a loop: ladder (the default), stop or observe.",
        rich_help_panel=SETTINGS,
    ),
]
CompactionOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--compaction",
        metavar="PRESET|off",
        help=f"How the history is kept inside the model's window: {', '.join(PRESETS)}, or off.",
        rich_help_panel=SETTINGS,
    ),
]
WindowOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--window",
        metavar="N",
        min=1,
        help="The model's window in tokens, where no table knows it.",
        rich_help_panel=SETTINGS,
    ),
]
AsJsonOption: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="Print JSON lines: one event each; the last is the outcome.", rich_help_panel=SHOWN),
]
VerboseOption: TypeAlias = Annotated[
    bool, typer.Option("--verbose", "-v", help="The thinking too, and every event, whole.", rich_help_panel=SHOWN)
]
LogOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--log", metavar="FILE", help="Append every event to this file, as JSON lines.", rich_help_panel=SHOWN
    ),
]
SessionOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="NAME|FILE",
        help="Store the run in this session, step by step; agent-monitor resume goes on with it.",
        rich_help_panel=WHAT,
        autocompletion=complete,
    ),
]
