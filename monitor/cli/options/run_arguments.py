"""The options of `run` as data. A run is begun and resumed with them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import monitor
from monitor._util.codec import Codec
from monitor.adapters.replay_model import ReplayModel
from monitor.chunks import Price
from monitor.cli.options.named_models import Closing
from monitor.cli.options.output_types import outputs_of
from monitor.cli.options.supervisor_arguments import (
    budget_of,
    limits_of,
    model_of,
    nothing_to_close,
    number_or_off,
    price_of,
    sandbox_option,
    servers_of,
    tools_of,
    with_approval,
    workspace_tools,
)
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

TASK = "Review the change of our dependencies: a summary in a sentence or two, and the risk from 0 to 1."
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


MARKER: Final = "agent-monitor run"
"""The marker of the command's options in a session has this name."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RunArguments:
    """The options of `run` as they were given. Files that they name were read, except for rules of
    approval.
    """

    folder: str
    """Where the command was called: names of modules and files count from there."""
    model: str | None = None
    base_url: str | None = None
    demo: bool = False
    outputs: tuple[str, ...] = ()
    instructions: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    workspace: str | None = None
    sandbox: str = "auto"
    approval: str | None = None
    steps: tuple[str, ...] = ()
    title: str | None = None
    model_settings: dict[str, Any] = field(default_factory=dict)
    max_turns: str = "30"
    timeout: str = "600"
    idle_timeout: str = "off"
    max_tool_calls: int | None = None
    budget_tokens: int | None = None
    budget_usd: float | None = None
    price: str | None = None
    last_turn: str = "60"
    max_nudges: int = 3
    detectors: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    window: int | None = None

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
