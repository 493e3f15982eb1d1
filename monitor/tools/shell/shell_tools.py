"""The shell as a tool: commands that end for sure, and servers that run until the run ends.

A command ends when its shell ends. Processes that it started in the background stay. The result
names them, and they end with the run. A command that writes nothing for a while is handed over: the
model gets the output so far and a process id, and goes on with `shell_wait` and `shell_kill`.
"""

from __future__ import annotations

import inspect
import math
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

import anyio
import anyio.lowlevel
from pydantic import Field

from monitor._util.argument_checks import is_finite, is_whole
from monitor._util.explained_options import explained
from monitor._util.text import printable
from monitor.errors import ConfigError, ToolError, ToolErrorKind
from monitor.tools.base import EVERYTHING, NETWORK, CallPlace, Tool, ToolContext
from monitor.tools.functions import FunctionTool
from monitor.tools.processes.command import OVERRULING, Command, check_platform, environment
from monitor.tools.processes.descendants import inner_id
from monitor.tools.registry import ToolGroup
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.sandbox.confinement import Confinement, confine
from monitor.tools.sandbox.sandbox_places import Sandbox, SandboxOption, sandbox_of
from monitor.tools.shell.shell_jobs import (
    ShellJob,
    answer_of,
    background_processes,
    ending_of,
    kept_from,
    roots,
    screened,
    with_dropped,
    written_to,
)
from monitor.tools.workspace import Workspace

OUTPUT_BYTES: Final = 16 * 1024 * 1024
"""The bound of Gemini CLI for the output of one command."""
BACKGROUND_BYTES: Final = 1024 * 1024
"""The most bytes that are kept of the output of a process that nobody waits for."""
BACKGROUND_MOST: Final = 16
"""The most processes in the background. More are not started."""
POLL_S: Final = 0.1
"""Seconds between two looks of `shell_wait` whether processes that hold no pipe have ended."""
QUIET_S: Final = 0.3
"""A program that writes nothing for so long has probably said what it had to say."""
FIRST_OUTPUT_S: Final = 2.0
"""The most seconds that the first output of a command in the background is read."""

_Why: TypeAlias = Literal["ended", "timeout", "idle", "overflow"]


class _WritingTool(FunctionTool[..., Any]):
    """Writes to programs that another tool has started."""

    writes_to = ""
    """The name of that tool. Rules that ask or refuse about it hold here too."""


@explained(example="monitor.tools.ShellTools('.')")
class ShellTools(ToolGroup):
    """The tools `shell`, `shell_wait`, `shell_write` and `shell_kill`, for commands that begin in
    `workspace`.

    Open it (`async with`) as a supervisor does. Closing it ends all processes that are left. While
    it is not open, no process outlives its call, and `idle_s` has no effect.

    - `timeout_s`: the most seconds of a command; the model may ask for up to `longest_s`.
    - `idle_s`: seconds without output after which a command is handed over. `None`: never.
    - `grace_s`: seconds between TERM and KILL.
    - `output_bytes`: a command that writes more is ended, and the result has the output so far.
    - `columns`, `lines`: the size of the terminal, for programs that ask. `colours`: programs are
      asked to write colours. Live output has them; the result has not.
    - `env`: variables to set. `pass_env`: names of variables that are passed on beside the usual
      ones, see `monitor.tools.processes.command.PASSED`.
    - `shell`: the program before the command. `None`: bash, else sh.
    - `sandbox`: what the operating system keeps commands from; see `monitor.tools.Sandbox`.
    - `needs_approval`, `prefix`, `filter`: as for any tool and group.

    Raises `ConfigError` for an option that is not possible, and on a system without process groups
    (Windows).
    """

    def __init__(
        self,
        workspace: Workspace | str | PathLike[str],
        *,
        timeout_s: float = 300,
        longest_s: float = 3600,
        idle_s: float | None = 60,
        grace_s: float = 2.0,
        output_bytes: int = OUTPUT_BYTES,
        columns: int = 120,
        lines: int = 50,
        colours: bool = False,
        env: Mapping[str, str] | None = None,
        pass_env: Collection[str] = (),
        shell: Sequence[str] | None = None,
        sandbox: SandboxOption = "auto",
        needs_approval: bool | Callable[[Mapping[str, Any], ToolContext], bool] = False,
        prefix: str = "",
        filter: Collection[str] | Callable[[Tool], bool] | None = None,  # noqa: A002 - as ToolGroup has it
    ) -> None:
        check_platform()
        for name, seconds in {"timeout_s": timeout_s, "longest_s": longest_s, "idle_s": idle_s}.items():
            if seconds is not None and not (is_finite(seconds) and seconds > 0):
                raise ConfigError(f"ShellTools({name}={seconds!r}): give seconds above 0")
        if not (is_finite(grace_s) and grace_s >= 0):
            raise ConfigError(f"ShellTools(grace_s={grace_s!r}): give seconds, 0 for none")
        for name, number in {"output_bytes": output_bytes, "columns": columns, "lines": lines}.items():
            if not (is_whole(number) and number > 0):
                raise ConfigError(f"ShellTools({name}={number!r}): give a whole number above 0")
        if isinstance(pass_env, str) or isinstance(shell, str):
            raise ConfigError("ShellTools: pass_env and shell are lists of texts")
        self._workspace = workspace = Workspace.at(workspace)
        self._timeout_s, self._longest_s = min(timeout_s, longest_s), longest_s
        self._idle_s, self._grace_s, self._bound = idle_s, grace_s, output_bytes
        own = sandbox_of(sandbox)
        passed = [*pass_env, *(own.env if own else ())]
        self._environment = environment(env, passed=passed, columns=columns, lines=lines, colours=colours)
        self._confinement, self.sandbox = confine(sandbox, workspace.root, self._environment)
        self._sandbox = own or Sandbox()
        self._widened: dict[frozenset[str], Confinement | None] = {}
        """The confinements of calls for which a person has opened more."""
        self._shell = tuple(shell or (shutil.which("bash") or "/bin/sh", "-c"))
        self._jobs: list[ShellJob] = []
        self._users = 0
        """The number of runs that have it open: several runs may share it."""
        rules = f"\n\nCommands run {self._confinement.rules}." if self._confinement else ""
        run = FunctionTool(
            self._run,
            name="shell",
            description=f"{inspect.getdoc(self._run)}{rules}",
            kind="execute",
            command_argument="command",
            keep="ends",
            needs_approval=needs_approval,
            loop_key=_loop_key,
        )
        run.place = self._place
        wait = FunctionTool(self._wait, name="shell_wait", kind="read", keep="ends")
        kill = FunctionTool(self._kill, name="shell_kill", kind="execute", keep="ends")
        write = _WritingTool(
            self._write,
            name="shell_write",
            kind="execute",
            command_argument="text",
            keep="ends",
            needs_approval=needs_approval,
        )
        write.writes_to = f"{prefix}shell"
        super().__init__([run, wait, write, kill], prefix=prefix, filter=filter)

    @property
    def background(self) -> tuple[int, ...]:
        """The ids of the commands that have processes left, or whose output nobody has read."""
        return tuple(job.command.pid for job in self._jobs)

    async def __aenter__(self) -> Self:
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all processes that are left, side by side, so it takes no longer than one of them."""
        self._users -= 1
        if self._users > 0:
            return
        jobs, self._jobs = self._jobs, []
        try:
            async with anyio.create_task_group() as group:
                for job in jobs:
                    group.start_soon(job.command.end, self._grace_s)
        finally:
            for job in jobs:
                job.command.kill()
                job.command.close()

    # --- the tools

    async def _run(
        self,
        command: Annotated[str, Field(min_length=1, description="The command, as one line or a script.")],
        context: ToolContext,
        directory: Annotated[str, Field(description="Where it runs, relative to the workspace.")] = ".",
        timeout_s: Annotated[float | None, Field(gt=0, description="The most seconds it may take.")] = None,
        background: Annotated[bool, Field(description="Leave it running, with an open input.")] = False,  # noqa: FBT002 - named by the model
    ) -> ToolAnswer:
        """Run a command in the shell and return its output (stdout and stderr) and exit code.

        Each command starts anew in the workspace: directory and variables of an earlier one are
        gone. There is no terminal and no input, so use options that ask no questions. Commands
        started with & stay in the background. A command that is silent for long is handed over:
        read on with shell_wait, or end it with shell_kill. With background it is handed over at
        once: shell_write gives it input.
        """
        if background and not self._users:
            raise ToolError("nothing can run in the background here", kind=ToolErrorKind.INVALID_ARGUMENTS)
        if timeout_s is not None and timeout_s > self._longest_s:
            raise ToolError(
                f"timeout_s: at most {self._longest_s:g}; start what takes longer in the background",
                kind=ToolErrorKind.INVALID_ARGUMENTS,
            )
        job = self._start(command, directory, context, has_input=background)
        context.process_started(job.command.pid)
        parts: list[str] = []
        kept = False
        try:
            if background:
                why = await self._attend(job, context, parts, FIRST_OUTPUT_S, QUIET_S)
                why = "idle" if why == "timeout" else why
            else:
                why = await self._attend(job, context, parts, timeout_s or self._timeout_s, self._idle_s)
            answer, kept = await self._finished(job, parts, why)
            return answer
        except anyio.get_cancelled_exc_class():
            kept = True  # the job is closed here
            await self._ended(job)
            if anyio.current_effective_deadline() > -math.inf:  # no scope will raise it again, so it is raised here
                raise
            text = ""
            with anyio.CancelScope(shield=True):
                text = await screened("".join([*parts, job.take(last=True)]))
            status = f"cancelled after {job.command.elapsed_s:.2f} s; this is the output so far"
            return answer_of(job, text, status, kind=ToolErrorKind.CANCELLED)
        finally:
            if not kept:
                await self._ended(job)

    async def _wait(
        self,
        pid: Annotated[int, Field(description="The process id that an answer of shell named.")],
        timeout_s: Annotated[float, Field(gt=0, description="How long to wait, in seconds.")] = 10,
    ) -> ToolAnswer:
        """Wait until a process in the background ends, at most timeout_s seconds, and return what
        it has written since you read its output last.
        """
        job = self._job_of(pid)
        deadline = time.monotonic() + min(timeout_s, self._longest_s)
        async with job.busy:
            while (left := deadline - time.monotonic()) > 0 and not self._is_over(job):
                await job.command.changed(min(left, POLL_S))
            over = self._is_over(job)
            if over:
                await job.command.last_output()
            text = await screened(with_dropped(job, job.take(last=over)))
            if not over:
                status = f"still running, pid {pid}, {job.command.elapsed_s:.2f} s"
                return ToolAnswer(text, status=status, data={"pid": pid, "running": True})
            self._forget(job)
            return answer_of(job, text, ending_of(job.command) + self._confined(job))

    async def _write(
        self,
        pid: Annotated[int, Field(description="The process id of a command in the background.")],
        text: Annotated[str, Field(description="What it reads. A line ends with a newline.")] = "",
        end: Annotated[bool, Field(description="Close its input behind the text.")] = False,  # noqa: FBT002 - named by the model
        timeout_s: Annotated[float, Field(gt=0, description="How long to wait for its answer, in seconds.")] = 5,
    ) -> ToolAnswer:
        """Write to the input of a command that was started with background, and return what it
        writes then: until it is quiet for a moment or, with end, until it has ended; at most
        timeout_s seconds.
        """
        job = self._job_of(pid)
        deadline = time.monotonic() + min(timeout_s, self._longest_s)
        async with job.busy:
            note = await written_to(job.command, text, deadline)
            if end:
                job.command.close_input()
            parts: list[str] = []
            while (left := deadline - time.monotonic()) > 0 and not job.command.first_ended:
                news = await job.command.changed(min(left, QUIET_S) if parts else left)
                if said := job.take():
                    parts.append(said)
                elif parts and not news and not end:
                    break
            if job.command.first_ended:
                await job.command.last_output()
            running = not self._is_over(job)
            parts.append(job.take(last=not running))
            text = await screened(with_dropped(job, "".join(parts)))
            status = f"still running, pid {pid}, {job.command.elapsed_s:.2f} s" if running else ending_of(job.command)
            if not running:
                self._forget(job)
            return ToolAnswer(text, status=status + note, data={"pid": pid, "running": running})

    async def _kill(
        self, pid: Annotated[int, Field(description="The process id that an answer of shell named.")]
    ) -> ToolAnswer:
        """End a process in the background, and all that it started; return its last output."""
        job = self._job_of(pid)
        async with job.busy:
            was_over = self._is_over(job)
            await job.command.end(self._grace_s)
            text = await screened(with_dropped(job, job.take(last=True)))
            self._forget(job)
            how = "had ended before" if was_over else "ended by shell_kill"
            return answer_of(job, text, f"{how}: {ending_of(job.command)}")

    # --- the steps of the tools

    def _place(self, arguments: Mapping[str, Any]) -> CallPlace:
        """Where a command would run."""
        root = self._workspace.root
        within = root.joinpath(*self._workspace.place(str(arguments.get("directory", "."))).parts)
        boxed = self.sandbox is not None and self.sandbox.holds and not self._sandbox.network
        return CallPlace(root, within, self._environment.get("PATH", ""), boxed=boxed, overrules=True)

    def _confinement_for(self, opened: frozenset[str]) -> Confinement | None:
        """The confinement of a call, with what a person has opened."""
        if not opened or self._confinement is None or EVERYTHING in opened:
            return None if EVERYTHING in opened else self._confinement
        if opened not in self._widened:
            own = self._sandbox
            more = replace(own, network=own.network or NETWORK in opened, write=[*own.write, *(opened - {NETWORK})])
            self._widened[opened], _ = confine(more, self._workspace.root, self._environment)
        return self._widened[opened] or self._confinement

    def _start(self, command: str, directory: str, context: ToolContext, *, has_input: bool) -> ShellJob:
        place = self._workspace.directory(directory)
        for job in [job for job in self._jobs if len(self._jobs) >= BACKGROUND_MOST and self._is_over(job)]:
            self._forget(job)
        if len(self._jobs) >= BACKGROUND_MOST:
            raise ToolError(
                f"{BACKGROUND_MOST} commands run in the background; end one with shell_kill: {self._pids()}"
            )
        own = {**self._environment, "PWD": str(place), **(OVERRULING if context.overruled else {})}
        confinement = self._confinement_for(context.opened)
        before = confinement.state() if confinement else {}
        try:
            argv = [*self._shell, command]
            if shutil.which(argv[0]) is None:
                said = f"the command cannot be started: there is no {argv[0]}"
                raise ToolError(said, kind=ToolErrorKind.SHELL_FAILED)
            made = Command(
                argv,
                directory=place,
                environment=own,
                bound=self._bound,
                launcher=confinement,
                has_input=has_input,
            )
            return ShellJob(made, confinement, before)
        except ValueError as error:  # a NUL, a lone surrogate
            raise ToolError(f"the command cannot be run: {error}", kind=ToolErrorKind.INVALID_ARGUMENTS) from None
        except OSError as error:  # too long; no shell; no process left
            said = f"the command cannot be started: {error.strerror or error}"
            raise ToolError(said, kind=ToolErrorKind.SHELL_FAILED) from None

    async def _attend(
        self, job: ShellJob, context: ToolContext, parts: list[str], timeout_s: float, idle_s: float | None
    ) -> _Why:
        """Read the command until it ends, takes too long, writes too much or is silent too long."""
        command = job.command
        deadline = time.monotonic() + timeout_s
        heard = time.monotonic()
        idle_s = math.inf if idle_s is None or not self._users else idle_s
        while True:
            if text := job.take():
                heard = time.monotonic()
                parts.append(text)
                await context.output(text)
            if command.first_ended:
                return "ended"
            if command.overflowed:
                return "overflow"
            left = min(deadline, heard + idle_s) - time.monotonic()
            if left <= 0:
                return "timeout" if time.monotonic() >= deadline else "idle"
            await command.changed(left)

    async def _finished(self, job: ShellJob, parts: list[str], why: _Why) -> tuple[ToolAnswer, bool]:
        """The answer, and whether the job is kept."""
        command = job.command
        if why == "idle":
            self._keep(job)
            text = await screened("".join(parts))
            status = (
                f"still running, pid {command.pid}, {command.elapsed_s:.2f} s; this is the output so far."
                f" Use shell_wait(pid={command.pid}) to read on, shell_kill(pid={command.pid}) to end it"
            )
            if command.takes_input:
                status += f", shell_write(pid={command.pid}, text=...) to give it input"
            return ToolAnswer(text, status=status, data={"pid": command.pid, "running": True}), True
        if why == "ended":
            others = command.others()
            await command.last_output()
            if command.never_began:
                said = "".join([*parts, job.take(last=True)]).strip()
                raise ToolError(f"the sandbox of the command could not be made, and it did not run: {said}")
            others = roots(command.others()) if others else []
            keep = bool(others and self._users)
            parts.append(job.take(last=not keep))
            ending = ending_of(command) + background_processes(others, kept=keep) + self._confined(job)
            if command.overflowed:
                why = "overflow"
            elif keep:
                self._keep(job)
            if why == "ended":
                answer = answer_of(job, await screened("".join(parts)), ending, others)
                stopped = command.returncode and job.confinement is not None and not keep
                said = kept_from(answer.text, self._workspace.root) if stopped else ""
                return replace(answer, kept_from=said), keep
        await self._ended(job)
        parts.append(job.take(last=True))
        text = await screened("".join(parts))
        if why == "timeout":
            status = f"ended after {command.elapsed_s:.2f} s, its timeout; this is the output so far"
            return answer_of(job, text, status, kind=ToolErrorKind.TIMEOUT), False
        status = f"ended after {self._bound:,} bytes of output, which is the most; this is its beginning"
        return answer_of(job, text, status, kind=ToolErrorKind.EXECUTION_FAILED), False

    def _confined(self, job: ShellJob) -> str:
        """What there is to say about the sandbox: why something may have failed, and what has
        appeared in the workspace that runs programs outside of it.
        """
        if job.confinement is None:
            return ""
        replaced = ", ".join(map(printable, job.confinement.replaced_since(job.before)))
        risk = f"; changed, and may run programs outside of the sandbox: {replaced}" if replaced else ""
        return f"{risk}; it ran {job.confinement.rules}" if job.command.returncode else risk

    async def _ended(self, job: ShellJob) -> None:
        try:
            await job.command.end(self._grace_s)
        finally:
            job.command.close()

    def _keep(self, job: ShellJob) -> None:
        job.command.detach(BACKGROUND_BYTES)
        self._jobs.append(job)

    def _forget(self, job: ShellJob) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        job.command.close()

    def _is_over(self, job: ShellJob) -> bool:
        return job.command.first_ended and not job.command.others()

    def _job_of(self, pid: int) -> ShellJob:
        for job in self._jobs:
            if job.command.pid == pid or any(entry.pid == pid for entry in job.command.others()):
                return job
        if self._confinement is not None and self._confinement.namespaced:  # as the command itself sees it
            seen = [job for job in self._jobs if any(inner_id(entry.pid) == pid for entry in job.command.others())]
            if len(seen) == 1:
                return seen[0]
        known = self._pids()
        raise ToolError(
            f"no process {pid} of an earlier command is in the background; there are: {known}"
            if known
            else f"no process {pid} of an earlier command is in the background",
            kind=ToolErrorKind.NOT_FOUND,
        )

    def _pids(self) -> str:
        return ", ".join(map(str, self.background))


def _loop_key(arguments: Mapping[str, Any]) -> Any:
    """The identity of a call for the detectors: its timeout is no part of it."""
    return {name: value for name, value in arguments.items() if name != "timeout_s"}
