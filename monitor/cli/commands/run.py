"""`agent-monitor run`: drive a whole run from the shell."""

from __future__ import annotations

from pathlib import Path

import monitor
from monitor.cli.foreground import drive, log_of
from monitor.cli.options import sample_run
from monitor.cli.options.run_arguments import Asked, as_node
from monitor.cli.options.run_options import (
    ApprovalOption,
    AsJsonOption,
    BaseUrlOption,
    BudgetTokensOption,
    BudgetUsdOption,
    CompactionOption,
    DemoOption,
    IdleTimeoutOption,
    InstructionsOption,
    LastTurnOption,
    LogOption,
    MaxNudgesOption,
    MaxToolCallsOption,
    MaxTurnsOption,
    McpOption,
    ModelOption,
    NoDetectorsOption,
    OutputOption,
    PlanOption,
    PolicyOption,
    PriceOption,
    SessionOption,
    SettingOption,
    StepOption,
    TaskArgument,
    TemperatureOption,
    TimeoutOption,
    ToolOption,
    VarOption,
    VerboseOption,
    WindowOption,
    WorkspaceOption,
)
from monitor.cli.options.session_file import session_file
from monitor.cli.options.settings_options import ConfigOption, DetectorsOption, SetOption, settings_of
from monitor.cli.options.supervisor_arguments import (
    approver,
    instructions_of,
    model_settings_of,
    plan_of,
    task_of,
    variables_of,
)
from monitor.cli.render import output as terminal_output
from monitor.cli.render.output import STDIN
from monitor.cli.render.screen import Heading, Shown, screen_of
from monitor.errors import ConfigError
from monitor.sessions import RunStage, SQLiteSession
from monitor.sessions.run_records import MAIN
from monitor.tools import PendingApprovals


def run(  # noqa: PLR0917 - typer calls it by name
    task: TaskArgument = None,
    model: ModelOption = None,
    demo: DemoOption = False,
    output: OutputOption = None,
    instructions: InstructionsOption = None,
    var: VarOption = None,
    tool: ToolOption = None,
    mcp: McpOption = None,
    workspace: WorkspaceOption = None,
    approval: ApprovalOption = None,
    plan: PlanOption = None,
    step: StepOption = None,
    temperature: TemperatureOption = None,
    setting: SettingOption = None,
    base_url: BaseUrlOption = None,
    session: SessionOption = None,
    max_turns: MaxTurnsOption = "30",
    timeout: TimeoutOption = "600",
    idle_timeout: IdleTimeoutOption = "off",
    max_tool_calls: MaxToolCallsOption = None,
    budget_tokens: BudgetTokensOption = None,
    budget_usd: BudgetUsdOption = None,
    price: PriceOption = None,
    last_turn: LastTurnOption = "60",
    max_nudges: MaxNudgesOption = 3,
    detectors: DetectorsOption = None,
    no_detectors: NoDetectorsOption = False,
    policy: PolicyOption = None,
    compaction: CompactionOption = None,
    window: WindowOption = None,
    settings: SetOption = None,
    config: ConfigOption = None,
    as_json: AsJsonOption = False,
    verbose: VerboseOption = False,
    log: LogOption = None,
) -> None:
    """Drive a model to its outputs, within limits, and say how it ended and why.

    The model works alone: it calls the tools you give it, emits each output, and is reminded
    of missing outputs if it stops too early.

    \b
    Examples:
      agent-monitor run --demo
      agent-monitor run "Why is the sky blue?" --model google:gemini-2.5-flash
      agent-monitor run "Review setup.py" --model google:gemini-2.5-flash \\
        --tool my_tools:read_file --output summary:str --output risk:float
      agent-monitor run "Tidy up the tests" --model google:gemini-2.5-flash \\
        --workspace . --session tidy
      git diff | agent-monitor run - --instructions "Review this change." \\
        --model google:gemini-2.5-flash --output 'issues:list\\[str]' --json

    \b
    With --json, stdout is JSON lines: events as they come, each with its "type";
    the last one is "run_terminated" and holds the "outcome". With --verbose the
    pieces of the answer are among them.

    \b
    With --session, the run survives its process: what it said and did is stored
    step by step, and agent-monitor resume NAME goes on with it.

    \b
    Ctrl-C ends the run and closes its connection; a second one leaves at once.

    \b
    Exit code:
      0    the goal was reached
      1    the model ended the run with failure
      2    an option, the key or a package is wrong or missing
      3    a limit: turns, calls, tokens, money, time
      4    a loop
      5    outputs are missing: the model stopped without them
      6    the model call failed, was blocked or was cut off
      7    another part crashed: a detector, a condition
      8    it waits for an approval: agent-monitor resume asks for it
      130  Ctrl-C (143: SIGTERM; 141: nobody reads what is printed)
    """  # noqa: D301 - \b keeps the lines of an example apart
    with terminal_output.tidy_exit():
        if demo:
            task, tool, output = task or sample_run.TASK, tool or [sample_run.TOOL], output or list(sample_run.OUTPUTS)
        said = None if task == STDIN else task_of(task)
        if no_detectors and detectors is not None:
            raise ConfigError("--detectors and --no-detectors say different things; give one of them")
        planned = plan_of(plan, step or ())
        asked = Asked(
            folder=str(Path.cwd()),
            model=model,
            base_url=base_url,
            demo=demo,
            outputs=tuple(output or ()),
            instructions=instructions_of(instructions),
            variables=variables_of(var or ()),
            tools=tuple(tool or ()),
            mcp=tuple(mcp or ()),
            workspace=None if workspace is None else str(workspace),
            approval=approval,
            steps=tuple(one.text for one in planned.fresh().steps) if planned is not None else (),
            title=planned.title if planned is not None else None,
            model_settings=model_settings_of(temperature, setting or ()),
            max_turns=max_turns,
            timeout=timeout,
            idle_timeout=idle_timeout,
            max_tool_calls=max_tool_calls,
            budget_tokens=budget_tokens,
            budget_usd=budget_usd,
            price=price,
            last_turn=last_turn,
            max_nudges=max_nudges,
            detectors=not no_detectors,
            settings=dict(settings_of(config, detectors, settings, policy, compaction).settings),
            window=window,
        )
        store = SQLiteSession(session_file(session), chunks=True) if session is not None else None
        screen = screen_of(as_json=as_json, verbose=verbose, price=asked.priced, session=session)
        shown = Shown(screen)
        with log_of(log) as sinks:
            made, close = asked.made_model()
            asks = approver() or (PendingApprovals() if session is not None else None)
            supervisor = asked.supervisor(made, approver=asks, sinks=[shown, *sinks])
            wanted = task_of(task) if said is None else said  # read stdin only after the options are checked

            async def begin(opened: SQLiteSession | None) -> monitor.Run:
                if opened is not None:
                    await _check_over(opened, session)
                    await opened.append(as_node(asked))
                command = f"agent-monitor run{' --demo' if demo else ''}"
                screen.begin(Heading(command, made.name, [*supervisor.tools], outputs_in(supervisor), wanted))
                return supervisor.stream(wanted, session=opened)

            drive(begin, store, shown, close)


def outputs_in(supervisor: monitor.Supervisor) -> list[str]:
    """The names of the declared outputs."""
    return supervisor.outputs.names if supervisor.outputs is not None else []


async def _check_over(session: SQLiteSession, name: str | None) -> None:
    """Raises `ConfigError` if a run of the session has not ended."""
    if any(one.purpose == MAIN and one.state is not RunStage.ENDED for one in await session.runs()):
        raise ConfigError(f"a run of the session {name} has not ended: agent-monitor resume {name} goes on with it")
