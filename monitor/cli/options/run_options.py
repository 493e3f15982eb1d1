"""The options of `run`, as typer reads them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from monitor.cli.options import run_arguments
from monitor.cli.options.run_arguments import RunArguments
from monitor.cli.options.session_file import complete
from monitor.cli.options.settings_options import ConfigOption, DetectorsOption, SetOption, setting_option, settings_of
from monitor.cli.options.supervisor_arguments import instructions_of, model_settings_of, plan_of, variables_of
from monitor.context.compaction.preset import PRESETS
from monitor.errors import ConfigError

WHAT, LIMITS, SHOWN = "The run", "Limits", "What is shown"
"""The headings of these options in the help."""
run_option = partial(typer.Option, rich_help_panel=WHAT)
limit_option = partial(typer.Option, rich_help_panel=LIMITS)
shown_option = partial(typer.Option, rich_help_panel=SHOWN)

BaseUrlOption: TypeAlias = Annotated[
    str | None, run_option("--base-url", metavar="URL", help="A compatible server in the place of the service.")
]
IdleTimeoutOption: TypeAlias = Annotated[
    str, limit_option(metavar="SECONDS|off", help="How long the model may send nothing.")
]
MaxToolCallsOption: TypeAlias = Annotated[int | None, limit_option(metavar="N", min=1, help="Most tool calls.")]
PriceOption: TypeAlias = Annotated[
    str | None,
    limit_option(metavar="IN,OUT", help="US dollars per million tokens, e.g. 0.30,2.50; a third number: cached."),
]
NoDetectorsOption: TypeAlias = Annotated[bool, setting_option("--no-detectors", help="Look for no loops.")]
VerboseOption: TypeAlias = Annotated[
    bool, shown_option("--verbose", "-v", help="The thinking too, and every event, whole.")
]


@dataclass(slots=True, frozen=True, kw_only=True)
class RunCommandOptions:
    """The run: its model, its parts and its limits."""

    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="What to do; - reads it from stdin.", show_default=False)
    ] = None
    model: Annotated[
        str | None,
        run_option(
            "--model", metavar="NAME", help="google:gemini-2.5-flash, openai:..., anthropic:..., or replay:FILE."
        ),
    ] = None
    demo: Annotated[
        bool, run_option("--demo", help="A sample: a recorded model, a tool and two outputs. No key, no network.")
    ] = False
    output: Annotated[
        list[str] | None,
        run_option(
            "--output",
            metavar="NAME:TYPE",
            help=(
                "What the model must emit; may be given again. str, int, float, bool, json, list\\[str], module:Model,"
                " or a JSON schema."
            ),
        ),
    ] = None
    instructions: Annotated[
        str | None, run_option(metavar="TEXT|@FILE", help="The system prompt; ${name} is a variable.")
    ] = None
    var: Annotated[
        list[str] | None, run_option("--var", metavar="NAME=VALUE", help="A variable of the instructions.")
    ] = None
    tool: Annotated[
        list[str] | None, run_option("--tool", metavar="MODULE:FUNCTION", help="A Python function the model may call.")
    ] = None
    mcp: Annotated[
        list[str] | None,
        run_option(
            "--mcp", metavar="COMMAND|URL", help="An MCP server whose tools the model may call; may be given again."
        ),
    ] = None
    workspace: Annotated[
        Path | None,
        run_option(
            "--workspace", metavar="FOLDER", help="Tools for the files in this folder, and a shell that begins there."
        ),
    ] = None
    sandbox: Annotated[
        str,
        run_option(
            "--sandbox",
            metavar="MODE",
            help="Confines the shell and MCP servers: auto (as this machine can), required (else an error), or off.",
        ),
    ] = "auto"
    approval: Annotated[
        str | None,
        run_option(
            "--approval",
            metavar="MODE|FILE",
            help=(
                "Which calls need a yes on the terminal: default (all that do not read; so it is with --workspace),"
                " auto_edit, yolo (none), plan (only reads run), or a TOML file with rules. It overrides the settings."
            ),
        ),
    ] = None
    plan: Annotated[Path | None, run_option("--plan", metavar="FILE", help="The steps of the task, one a line.")] = None
    step: Annotated[list[str] | None, run_option("--step", metavar="TEXT", help="One step; may be given again.")] = None
    temperature: Annotated[float | None, run_option(metavar="NUMBER", help="Temperature of the model.")] = None
    setting: Annotated[
        list[str] | None,
        run_option("--setting", metavar="NAME=VALUE", help="A setting of the provider's own, as its SDK names it."),
    ] = None
    base_url: BaseUrlOption = None
    session: Annotated[
        str | None,
        run_option(
            "--session",
            metavar="NAME|FILE",
            help="Store the run in this session, step by step; agent-monitor resume goes on with it.",
            autocompletion=complete,
        ),
    ] = None
    max_turns: Annotated[str, limit_option(metavar="N|off", help="Most turns.")] = "30"
    timeout: Annotated[str, limit_option(metavar="SECONDS|off", help="Longest time of the whole run.")] = "600"
    idle_timeout: IdleTimeoutOption = "off"
    max_tool_calls: MaxToolCallsOption = None
    budget_tokens: Annotated[
        int | None, limit_option(metavar="N", min=1, help="Tokens, in and out, those of subagents included.")
    ] = None
    budget_usd: Annotated[float | None, limit_option(metavar="USD", help="Money, by --price or the list price.")] = None
    price: PriceOption = None
    last_turn: Annotated[
        str, limit_option(metavar="SECONDS|off", help="One more turn, to emit what there is, after a limit.")
    ] = "60"
    max_nudges: Annotated[int, limit_option(metavar="N", min=0, help="How often missing outputs are asked for.")] = 3
    detectors: DetectorsOption = None
    no_detectors: NoDetectorsOption = False
    policy: Annotated[
        str | None,
        setting_option(
            "--policy", metavar="NAME", help="What follows from a loop: ladder (the default), stop or observe."
        ),
    ] = None
    compaction: Annotated[
        str | None,
        setting_option(
            "--compaction",
            metavar="PRESET|off",
            help=f"How the history is kept inside the model's window: {', '.join(PRESETS)}, or off.",
        ),
    ] = None
    window: Annotated[
        int | None,
        setting_option("--window", metavar="N", min=1, help="The model's window in tokens, where no table knows it."),
    ] = None
    settings: SetOption = None
    config: ConfigOption = None

    def arguments(self) -> RunArguments:
        """The options as data. Files that the options name are read, except for rules of approval.

        A field of `RunArguments` that is not named here is the option of the same name.
        """
        outputs = self.output or (run_arguments.OUTPUTS if self.demo else ())
        tools = self.tool or ([run_arguments.TOOL] if self.demo else [])
        refuse_detectors_without(self.detectors, no_detectors=self.no_detectors)
        planned = plan_of(self.plan, self.step or ())
        made: dict[str, Any] = {
            "folder": str(Path.cwd()),
            "outputs": tuple(outputs),
            "instructions": instructions_of(self.instructions),
            "variables": variables_of(self.var or ()),
            "tools": tuple(tools),
            "mcp": tuple(self.mcp or ()),
            "workspace": None if self.workspace is None else str(self.workspace),
            "steps": tuple(one.text for one in planned.fresh().steps) if planned is not None else (),
            "title": planned.title if planned is not None else None,
            "model_settings": model_settings_of(self.temperature, self.setting or ()),
            "detectors": not self.no_detectors,
            "settings": dict(
                settings_of(self.config, self.detectors, self.settings, self.policy, self.compaction).settings
            ),
        }
        same = {one.name: getattr(self, one.name) for one in fields(RunArguments) if one.name not in made}
        return RunArguments(**made, **same)


@dataclass(slots=True, frozen=True, kw_only=True)
class ShownOptions:
    """The form in which a run is shown, and its log."""

    as_json: Annotated[
        bool, shown_option("--json", help="Print JSON lines: one event each; the last is the outcome.")
    ] = False
    verbose: VerboseOption = False
    log: Annotated[
        Path | None, shown_option("--log", metavar="FILE", help="Append every event to this file, as JSON lines.")
    ] = None


def refuse_detectors_without(detectors: str | None, *, no_detectors: bool) -> None:
    """Raises `ConfigError` if detectors are named and switched off."""
    if no_detectors and detectors is not None:
        raise ConfigError("--detectors and --no-detectors say different things; give one of them")
