"""The options of `run` as data. A run is begun and resumed with them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import monitor
from monitor._util.codec import Codec
from monitor.adapters.replay_model import ReplayModel
from monitor.chunks import Price
from monitor.cli.options.output_types import outputs_of
from monitor.cli.options.session_file import complete
from monitor.cli.options.shared import (
    SETTINGS,
    ConfigOption,
    DetectorsOption,
    Read,
    SetOption,
    argument,
    arguments_of,
    flag,
    option,
    setting_option,
    settings_of,
)
from monitor.cli.options.supervisor_arguments import (
    Closing,
    budget_of,
    instructions_of,
    limits_of,
    model_of,
    model_settings_of,
    nothing_to_close,
    number_or_off,
    plan_of,
    price_of,
    sandbox_option,
    servers_of,
    tools_of,
    variables_of,
    with_approval,
    workspace_tools,
)
from monitor.context.compaction.preset import PRESETS
from monitor.errors import ConfigError
from monitor.models import Model
from monitor.prices import list_price
from monitor.runs import Instructions, Requests, ToolCalls
from monitor.sessions import Draft, NodeKind, marker
from monitor.sessions.postgres.postgres_reader import AnyReader
from monitor.settings import Settings
from monitor.sinks.base import Sink
from monitor.tools.approvals.approval import Approver
from monitor.tools.calls.scheduler import MAX_PARALLEL

# --------------------------------------------------------------------------------------------------
# The sample of `run --demo`: a small recorded run with its task, tool and outputs.

SAMPLE_TASK = "Review the change of our dependencies: a summary in a sentence or two, and the risk from 0 to 1."
OUTPUTS: Final = ("summary:str", "risk:float")
TOOL = "monitor.cli.options.run_arguments:read_file"

_FILES: Final[Mapping[str, str]] = {
    "requirements.txt": """\
-httpclient==2.3.0
+httpclient==2.4.1
-retryhelper==1.1.0
-yamlreader==6.0.1
+yamlreader==6.0.2
""",
}


def sample_model() -> ReplayModel:
    """The recorded run, a little slower than it is read."""
    model = ReplayModel(Path(str(files("monitor.cli").joinpath("data", "subagent_run.jsonl"))), pace=1)
    model.name = "a recorded model"
    return model


def read_file(path: str) -> str:
    """Read what has changed in a file.

    Args:
        path: Its path in the repository.
    """
    if path not in _FILES:
        raise FileNotFoundError(f"nothing has changed in {path}")
    return _FILES[path]


# --------------------------------------------------------------------------------------------------
# The options of `run`, as typer reads them.

WHAT, LIMITS, SHOWN = "The run", "Limits", "What is shown"
"""The headings of these options in the help."""
run_option = partial(option, panel=WHAT)
limit_option = partial(option, panel=LIMITS)
shown_option = partial(option, panel=SHOWN)

BaseUrlOption: TypeAlias = Annotated[
    str | None, run_option("URL", "A compatible server in the place of the service.", "--base-url")
]
IdleTimeoutOption: TypeAlias = Annotated[str, limit_option("SECONDS|off", "How long the model may send nothing.")]
MaxToolCallsOption: TypeAlias = Annotated[int | None, limit_option("N", "Most tool calls.", min=1)]
PriceOption: TypeAlias = Annotated[
    str | None,
    limit_option("IN,OUT", "US dollars per million tokens, e.g. 0.30,2.50; a third number: cached.", "--price"),
]
NoDetectorsOption: TypeAlias = Annotated[bool, flag("--no-detectors", panel=SETTINGS, said="Look for no loops.")]
VerboseOption: TypeAlias = Annotated[
    bool, flag("--verbose -v", panel=SHOWN, said="The thinking too, and every event, whole.")
]


@dataclass(slots=True, frozen=True, kw_only=True)
class StoredOptions:
    """The options of `run` that a session stores as they were given."""

    model: Annotated[
        str | None, run_option("NAME", "google:gemini-2.5-flash, openai:..., anthropic:..., or replay:FILE.")
    ] = None
    base_url: BaseUrlOption = None
    demo: Annotated[
        bool, flag("--demo", "A sample: a recorded model, a tool and two outputs. No key, no network.", panel=WHAT)
    ] = False
    sandbox: Annotated[
        str,
        run_option(
            "MODE",
            "Confines the shell and MCP servers: auto (as this machine can), required (else an error), or off.",
        ),
    ] = "auto"
    approval: Annotated[
        str | None,
        run_option(
            "MODE|FILE",
            "Which calls need a yes on the terminal: default (all that do not read; so it is with --workspace),"
            " auto_edit, yolo (none), plan (only reads run), or a TOML file with rules. It overrides the settings.",
        ),
    ] = None
    max_turns: Annotated[str, limit_option("N|off", "Most turns.")] = "30"
    timeout: Annotated[str, limit_option("SECONDS|off", "Longest time of the whole run.")] = "600"
    idle_timeout: IdleTimeoutOption = "off"
    max_tool_calls: MaxToolCallsOption = None
    budget_tokens: Annotated[
        int | None, limit_option("N", "Tokens, in and out, those of subagents included.", min=1)
    ] = None
    budget_usd: Annotated[float | None, limit_option("USD", "Money, by --price or the list price.")] = None
    price: PriceOption = None
    last_turn: Annotated[str, limit_option("SECONDS|off", "One more turn, to emit what there is, after a limit.")] = (
        "60"
    )
    max_nudges: Annotated[int, limit_option("N", "How often missing outputs are asked for.", min=0)] = 3
    window: Annotated[
        int | None, setting_option("N", "The model's window in tokens, where no table knows it.", min=1)
    ] = None


MARKER: Final = "agent-monitor run"
"""The marker of the command's options in a session has this name."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RunArguments(StoredOptions):
    """The options of `run` as they were given. Files that they name were read, except for rules of
    approval.
    """

    folder: str
    """Where the command was called: names of modules and files count from there."""
    outputs: tuple[str, ...] = ()
    instructions: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    workspace: str | None = None
    steps: tuple[str, ...] = ()
    title: str | None = None
    model_settings: dict[str, Any] = field(default_factory=dict)
    detectors: bool = True
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def priced(self) -> Price | None:
        """The price of the model: the given one, else its list price. `None`: neither is known."""
        return price_of(self.price) or (list_price(self.model) if self.model is not None else None)

    def made_model(self) -> tuple[Model, Closing]:
        """The model, and a function that closes its client."""
        if self.demo and self.model is None and self.base_url is None:
            return sample_model(), nothing_to_close
        return model_of(self.model, self.base_url)

    def supervisor(self, model: Model, *, approver: Approver | None, sinks: Sequence[Sink]) -> monitor.Supervisor:
        """The supervisor of the run. Raises `ConfigError` for an option that is wrong."""
        priced = self.priced
        workspace = Path(self.workspace) if self.workspace is not None else None
        settings = with_approval(Settings(self.settings), self.approval, workspace)
        sandbox = sandbox_option(self.sandbox)
        seconds = number_or_off(self.last_turn, "--last-turn")
        return monitor.Supervisor(
            model,
            instructions=Instructions(self.instructions, variables=self.variables),
            tools=[*tools_of(self.tools), *servers_of(self.mcp, sandbox), *workspace_tools(workspace, sandbox)],
            calls=ToolCalls(
                approval=settings.approval(),
                approver=approver,
                parallel=settings.max_parallel_tools or MAX_PARALLEL,
            ),
            outputs=outputs_of(self.outputs) if self.outputs else None,
            stop_when=limits_of(self),
            budget=budget_of(self.budget_tokens, self.budget_usd, priced, self.model),
            prices=priced,
            detectors=settings.detectors() if self.detectors else None,
            policy=settings.policy(),
            window=self.window,
            compaction=settings.compaction(),
            plan=monitor.Plan(list(self.steps), self.title) if self.steps else None,
            last_turn=monitor.LastTurn(seconds) if seconds is not None else None,
            requests=Requests(settings=self.model_settings, max_nudges=self.max_nudges),
            sinks=sinks,
        )

    def go_there(self) -> None:
        """Go to the folder where the command was called. Raises `ConfigError` if it is gone."""
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise ConfigError(f"{self.folder}, where the run was begun: {error.strerror}") from None


arguments_codec: Codec[RunArguments] = Codec(RunArguments, tags={RunArguments: "asked"})


def as_node(arguments: RunArguments) -> Draft:
    """The node of a session that keeps `arguments`."""
    return marker(MARKER, arguments_codec.to_dict(arguments))


def arguments_in(session: AnyReader) -> RunArguments | None:
    """The options of the last run. `None`: no run of this session was begun by the command."""
    found: Mapping[str, Any] | None = None
    for node in session.active_path():
        if node.kind is NodeKind.MARKER and node.data.get("name") == MARKER:
            found = node.data.get("data")
    if found is None:
        return None
    try:
        return arguments_codec.from_dict(found)
    except ValueError as error:
        raise ConfigError(f"the options of this run were stored by another version: {error}") from None


# --------------------------------------------------------------------------------------------------
# The options of `run`, as they are typed.


def _listed(given: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(given or ())


@dataclass(slots=True, frozen=True, kw_only=True)
class RunCommandOptions(StoredOptions):
    """The run: its model, its parts and its limits."""

    task: Annotated[str | None, argument("TASK", "What to do; - reads it from stdin.", show_default=False)] = None
    outputs: Annotated[
        list[str] | None,
        run_option(
            "NAME:TYPE",
            "What the model must emit; may be given again. str, int, float, bool, json, list\\[str], module:Model,"
            " or a JSON schema.",
            "--output",
        ),
        Read(_listed),
    ] = None
    instructions: Annotated[
        str | None, run_option("TEXT|@FILE", "The system prompt; ${name} is a variable."), Read(instructions_of)
    ] = None
    variables: Annotated[
        list[str] | None, run_option("NAME=VALUE", "A variable of the instructions.", "--var"), Read(variables_of)
    ] = None
    tools: Annotated[
        list[str] | None,
        run_option("MODULE:FUNCTION", "A Python function the model may call.", "--tool"),
        Read(_listed),
    ] = None
    mcp: Annotated[
        list[str] | None,
        run_option("COMMAND|URL", "An MCP server whose tools the model may call; may be given again."),
        Read(_listed),
    ] = None
    workspace: Annotated[
        str | None, run_option("FOLDER", "Tools for the files in this folder, and a shell that begins there.")
    ] = None
    plan: Annotated[Path | None, run_option("FILE", "The steps of the task, one a line.")] = None
    step: Annotated[list[str] | None, run_option("TEXT", "One step; may be given again.")] = None
    temperature: Annotated[float | None, run_option("NUMBER", "Temperature of the model.")] = None
    setting: Annotated[
        list[str] | None, run_option("NAME=VALUE", "A setting of the provider's own, as its SDK names it.")
    ] = None
    session: Annotated[
        str | None,
        run_option(
            "NAME|FILE",
            "Store the run in this session, step by step; agent-monitor sessions resume goes on with it.",
            autocompletion=complete,
        ),
    ] = None
    detectors: DetectorsOption = None
    no_detectors: NoDetectorsOption = False
    policy: Annotated[
        str | None, setting_option("NAME", "What follows from a loop: ladder (the default), stop or observe.")
    ] = None
    compaction: Annotated[
        str | None,
        setting_option(
            "PRESET|off", f"How the history is kept inside the model's window: {', '.join(PRESETS)}, or off."
        ),
    ] = None
    settings: SetOption = None
    config: ConfigOption = None

    def arguments(self) -> RunArguments:
        """The options as data. The files that they name are read, except for rules of approval."""
        refuse_detectors_without(self.detectors, no_detectors=self.no_detectors)
        planned = plan_of(self.plan, self.step or ())
        chosen = settings_of(self.config, self.detectors, self.settings, self.policy, self.compaction)
        made = arguments_of(self) | {
            "folder": str(Path.cwd()),
            "steps": tuple(one.text for one in planned.fresh().steps) if planned is not None else (),
            "title": planned.title if planned is not None else None,
            "model_settings": model_settings_of(self.temperature, self.setting or ()),
            "detectors": not self.no_detectors,
            "settings": dict(chosen.settings),
        }
        if self.demo:
            made |= {"outputs": made["outputs"] or OUTPUTS, "tools": made["tools"] or (TOOL,)}
        return RunArguments(**{one.name: made[one.name] for one in fields(RunArguments)})


@dataclass(slots=True, frozen=True, kw_only=True)
class ShownOptions:
    """The form in which a run is shown, and its log."""

    as_json: Annotated[
        bool, flag("--json", panel=SHOWN, said="Print JSON lines: one event each; the last is the outcome.")
    ] = False
    verbose: VerboseOption = False
    log: Annotated[Path | None, shown_option("FILE", "Append every event to this file, as JSON lines.")] = None


def refuse_detectors_without(detectors: str | None, *, no_detectors: bool) -> None:
    """Raises `ConfigError` if detectors are named and switched off."""
    if no_detectors and detectors is not None:
        raise ConfigError("--detectors and --no-detectors say different things; give one of them")
