"""The options of a `Supervisor` that belong together, each group as one object, checked where it is
made.

    supervisor = monitor.Supervisor(
        monitor.model("google:gemini-2.5-flash"),
        instructions=monitor.runs.Instructions("Read the ${what}.", variables={"what": "log"}),
        calls=monitor.runs.ToolCalls(approval="default", approver=monitor.tools.TerminalApprover()),
        results=monitor.runs.Results(bound=monitor.tools.Bound(20_000)),
        requests=monitor.runs.Requests(retries=monitor.Retries(5)),
    )

Until release 0.4 a `Supervisor` also takes the options of a group by themselves, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import wraps
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, cast

from monitor._util.argument_checks import (
    check_kind,
    check_model,
    check_part,
    check_parts,
    is_whole,
    with_context,
)
from monitor._util.checked_words import checked
from monitor._util.explained_options import explained, in_a_line
from monitor.core.turn import LoopedText
from monitor.errors import ConfigError
from monitor.goal.goal import MAX_NUDGES
from monitor.goal.plan import render
from monitor.guard.options import KEEP_TEXT_CHARS, check_bounds
from monitor.messages import CallLedger
from monitor.models import Model, Retries, ToolChoice
from monitor.shared.outages import Outages
from monitor.tools.approvals.approval import Approval, Approver, AskFunction, Mode, approval_of, approver_of
from monitor.tools.artifacts.artifact_store import ArtifactStore
from monitor.tools.base import Bound, GuidanceContext
from monitor.tools.calls.scheduler import MAX_PARALLEL
from monitor.tools.files.file_memory import Notes
from monitor.tools.results.kept_results import ResultStore, Summarise

R = TypeVar("R")

Offer: TypeAlias = Callable[[int, Sequence[str]], Collection[str]]
"""The tools that the model is offered, by the number of the turn and the names of the tools."""
ResultSummary: TypeAlias = Model | Summarise
"""A model, or a function of the result, which may be async."""
GuidanceFlag: TypeAlias = bool | Callable[[str], bool] | Callable[[str, GuidanceContext], bool]
"""Whether guidance is given; or a function that decides this for an experiment, by the name of a
tool, or by the name and the run.
"""
BOUND: Final = Bound()
RETRIES: Final = Retries()
Unfinished: TypeAlias = Literal["supersede", "refuse"]
"""What a new run does with a run of its session that has not ended."""


@explained(example="monitor.runs.Instructions('Read ${topic}.', variables={'topic': 'logs'})")
@dataclass(slots=True, frozen=True)
class Instructions:
    """The system prompt of a run, with the values and the notes that are put into it: the option
    `instructions` of a `Supervisor`.
    """

    text: str | None = None
    """The prompt. `None`: that of the history."""
    _: KW_ONLY
    variables: Mapping[str, object] | None = None
    """The value of each `${name}` in the prompt. Functions that choose guidance read them, too."""
    notes: Sequence[Notes] = ()
    """Texts behind the prompt, read when a run begins, such as
    `monitor.tools.NotesFile("AGENTS.md")`.
    """

    def __post_init__(self) -> None:
        check_parts("notes", self.notes, "text")
        self.filled()

    def filled(self) -> str | None:
        """The prompt with the values of its variables. Raises `ConfigError` if one is missing."""
        said = render("" if self.text is None else self.text, self.variables)
        return None if self.text is None else said


@explained(example="monitor.runs.ToolCalls(approval='default')")
@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class ToolCalls:
    """How the calls of a run are carried out and recorded: the option `calls` of a `Supervisor`."""

    approval: Approval | Mode | None = None
    """A mode such as `"default"`, or a `monitor.tools.Approval`: which calls need a person."""
    approver: Approver | AskFunction | None = None
    """Asks that person. `None`: what needs one is refused."""
    parallel: int = MAX_PARALLEL
    """How many calls run at once."""
    offer: Offer | None = None
    """Chooses the tools of each turn."""
    ledger: CallLedger | None = None
    """Records each call before its effect, in a run without a session."""
    unfinished: Unfinished = "supersede"
    """What `run` does with a run of the session that has not ended. `"supersede"` closes it, and
    the conversation says what is known of its calls. `"refuse"` raises `ConfigError`.
    """

    def __post_init__(self) -> None:
        approval_of(self.approval)
        approver_of(self.approver)
        if not is_whole(self.parallel) or self.parallel < 1:
            raise ConfigError(f"parallel={self.parallel!r}: give 1 or more")
        if self.offer is not None and not callable(self.offer):
            raise ConfigError(f"offer takes a function of the turn and the tools' names, not {self.offer!r}")
        if self.ledger is not None:
            check_part("ledger", self.ledger, "advance")


@explained(example="monitor.runs.Results(bound=monitor.tools.Bound(20_000))")
@dataclass(slots=True, frozen=True, kw_only=True)
class Results:
    """What the model reads of the results of its tools, and where the rest is kept: the option
    `results` of a `Supervisor`.
    """

    bound: Bound | None = BOUND
    """A longer result is cut when it comes. `None` cuts nothing."""
    artifacts: ArtifactStore | None = None
    """Where full results are kept, e.g. `monitor.tools.FolderArtifacts("artifacts")`. The model
    then has tools to read the rest of a result that was cut; else the rest is lost.
    """
    summary: ResultSummary | None = None
    """A model, or a function of the result, that makes a summary of a result above `bound`. The
    summary stands in its place, with its reference.
    """
    guidance: GuidanceFlag = True
    """Whether the guidance of a tool stands beside its first result. A function of the tool's name,
    or `False`, switches it off.
    """

    def __post_init__(self) -> None:
        if self.artifacts is not None:
            check_part("artifacts", self.artifacts, "put")
        if self.bound is not None and not isinstance(self.bound, Bound):
            raise ConfigError(f"bound takes a Bound, not {self.bound!r}: write bound=monitor.tools.Bound(20_000)")
        if self.summary is not None:
            if not callable(self.summary):
                check_model("summary", self.summary)
            if self.bound is None:
                raise ConfigError("summary needs a bound, above which a result is summarised: leave out bound=None")
        check_flag(self.guidance)

    def keeper(
        self, run_id: str, shows: Callable[[str, str], bool], summary: Summarise | None = None
    ) -> ResultStore | None:
        """What bounds and keeps the results of the run, if anything does. `shows`, `summary`: see
        `ResultStore`.
        """
        if self.artifacts is None and self.bound is None:
            return None
        return ResultStore(self.artifacts, self.bound, summary=summary, run=run_id, shows=shows)


@explained(example="monitor.runs.Requests(retries=monitor.Retries(5))")
@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class Requests:
    """How the model is asked, and what becomes of its answers: the option `requests` of a
    `Supervisor`.
    """

    settings: Mapping[str, Any] | None = None
    """Settings of the model, passed to the provider unchanged."""
    tool_choice: ToolChoice = "auto"
    """Whether the model may, must or must not call tools."""
    retries: Retries | None = RETRIES
    """How failed model calls are repeated. `None`: they are not."""
    outages: Outages | None = None
    """A `monitor.shared.Outages`, shared by many supervisors. What fails in many runs is found
    once, and the runs wait until it works again.
    """
    looped_text: LoopedText = "trim"
    """What happens to looped text before it goes back to the model."""
    max_nudges: int | None = MAX_NUDGES
    """How often missing outputs are asked for. `None`: without a bound."""
    keep_text_chars: int | None = KEEP_TEXT_CHARS
    """How much of an answer the outcome keeps at most. `None`: all of it."""

    def __post_init__(self) -> None:
        check_kind("settings", self.settings, Mapping, "a dict")
        check_kind("retries", self.retries, Retries, "a monitor.Retries, such as monitor.Retries(3)")
        check_kind("outages", self.outages, Outages, "a monitor.shared.Outages")
        check_bounds(self.keep_text_chars, None, self.max_nudges)


# --------------------------------------------------------------------------------------------------
# The options of the groups by themselves, as they were written before there were groups. To be
# removed in release 0.4, with the decorator.


class FlatOptions(TypedDict, total=False):
    """The options that stand in groups now: see `in_groups`."""

    variables: Mapping[str, object] | None
    notes: Sequence[Notes]
    approval: Approval | Mode | None
    approver: Approver | AskFunction | None
    max_parallel_tools: int
    offer: Offer | None
    ledger: CallLedger | None
    unfinished: Unfinished
    artifacts: ArtifactStore | None
    result_bound: Bound | None
    result_summary: ResultSummary | None
    guidance: GuidanceFlag
    model_settings: Mapping[str, Any] | None
    tool_choice: ToolChoice
    retries: Retries | None
    outages: Outages | None
    looped_text: LoopedText
    max_nudges: int | None
    keep_text_chars: int | None


GROUPS: Final[Mapping[str, type[Any]]] = {
    "instructions": Instructions,
    "calls": ToolCalls,
    "results": Results,
    "requests": Requests,
}
"""For the name of an option: the class of its group."""
_BEFORE: Final = {
    "parallel": "max_parallel_tools",
    "bound": "result_bound",
    "summary": "result_summary",
    "settings": "model_settings",
}
"""Where they differ: the name of an option in its group, and by itself."""
MOVED: Final = {
    _BEFORE.get(field.name, field.name): (option, field.name)
    for option, group in GROUPS.items()
    for field in fields(group)
    if field.name != "text"
}
"""For the name of an option by itself: the option that holds it now, and its name there."""


def in_groups(init: Callable[..., R]) -> Callable[..., R]:
    """Decorator of a function that takes the groups: it takes their options by themselves as well,
    with a `DeprecationWarning` that says the line to type.
    """

    @wraps(init)
    def grouped(*args: Any, **options: Any) -> R:
        if MOVED.keys().isdisjoint(options):
            return init(*args, **options)
        kept = {name: value for name, value in options.items() if name not in MOVED}
        parts: dict[str, dict[str, Any]] = {}
        for name in [name for name in options if name in MOVED]:
            option, part = MOVED[name]
            parts.setdefault(option, {})[part] = options[name]
        lines = []
        for option, given in parts.items():
            group, now = GROUPS[option], kept.get(option)
            text = () if now is None or isinstance(now, group) else (now,)  # instructions may be a text alone
            kept[option] = replace(now, **given) if isinstance(now, group) else group(*text, **given)
            words = [*map(in_a_line, text), *(f"{part}={in_a_line(value)}" for part, value in given.items())]
            lines.append(f"{option}=monitor.runs.{group.__name__}({', '.join(words)})")
        made = init(*args, **kept)
        before = ", ".join(f"{name}=" for name in options if name in MOVED)
        warnings.warn(
            f"{before} will not be options of a Supervisor in release 0.4: write {', '.join(lines)}",
            DeprecationWarning,
            stacklevel=2,
        )
        return made

    return grouped


def decides(flag: Callable[..., bool]) -> Callable[[str, GuidanceContext], bool]:
    """`flag` as a function of the tool's name and the run."""
    return with_context("guidance", flag, "lambda tool, context: ...")


def check_flag(flag: object) -> None:
    """Raise `ConfigError` if `flag` is neither a boolean nor a function of one or two arguments."""
    if callable(flag):
        decides(cast("Callable[..., bool]", flag))
    elif not isinstance(flag, bool):
        raise ConfigError(f"guidance={flag!r}: give True, False, or a function of the tool's name")
