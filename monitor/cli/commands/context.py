"""`agent-monitor sessions context`: a recorded conversation as a model would be shown it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import typer
from rich.console import Console
from rich.text import Text

from monitor.adapters.provider_forms import to_form
from monitor.cli.inputs.conversation import Conversation, read_conversation, tokens_by_source
from monitor.cli.options.shared import OneJsonOption, argument, option
from monitor.cli.render import output, table
from monitor.context import (
    ClipResults,
    ContextMeter,
    DropMedia,
    Form,
    History,
    PruneArguments,
    PruneResults,
    RawMessage,
    Reducer,
    Reduction,
    RepairReport,
    Window,
    WireProblem,
    propose_edit,
    validate,
    window_of,
)
from monitor.context.compaction.pinned import recognised
from monitor.context.history import user_turns
from monitor.context.repairs import repair
from monitor.context.tokens import TokenCount
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Message, UserMessage
from monitor.messages import Text as Words
from monitor.view.status import count
from monitor.wires.read import FORMS, NEUTRAL

NOT_AS_IT_STANDS: Final = 1
MOST_LINES: Final = 20
"""How many repairs and problems are printed; `--json` has all."""

Fits: TypeAlias = Literal["yes", "perhaps", "no", "unknown"]

_TARGETS: Final[Mapping[str, Form]] = {
    "google": "gemini",
    "openai": "openai-chat",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic",
}
"""The form of each provider's requests."""
_NEXT: Final = UserMessage((Words("(what the user says next)"),))
"""A conversation that ends with the model's message is sent again with the user's next message."""
_STYLES: Final[Mapping[Fits, str]] = {"yes": "green", "perhaps": "yellow", "no": "red", "unknown": "yellow"}


_REDUCTION: Final = table.RowKind[Reduction](
    table.Fact("kind", None, lambda one: one.edit.kind),
    table.Fact("saved_tokens", "saves", lambda one: one.saved_tokens, "{:,}".format),
    table.Fact("changed", "in messages", lambda one: one.changed, "{:,}".format),
    table.Fact("breaks_at", "cached prefix ends before", lambda one: one.breaks_at, "message {}".format),
    table.Fact("reread_tokens", "is read again", lambda one: one.reread_tokens, "{:,}".format),
)
"""The facts about a reduction of the conversation."""


@dataclass(slots=True, frozen=True)
class _FormProblem:
    """A broken rule of a form. `index=None`: the problem does not belong to one message."""

    form: Form
    index: int | None
    rule: str
    message: str


@dataclass(slots=True, frozen=True)
class _ContextReport:
    """All results that the command prints."""

    conversation: Conversation
    messages: tuple[Message, ...]
    """The repaired messages, as the model would be shown them."""
    report: RepairReport
    problems: Sequence[_FormProblem]
    """The problems of the messages as they stand in the file."""
    left: Sequence[_FormProblem]
    """The problems of the repaired messages, as they would be sent."""
    tokens: Mapping[str, int]
    """Estimated tokens by source."""
    count: TokenCount
    window: Window
    reductions: Mapping[str, Reduction | None]

    @property
    def fits(self) -> Fits:
        """Whether the conversation fits the model's window."""
        most = self.window.tokens
        if most is None:
            return "unknown"
        if self.count.tokens > most:
            return "perhaps" if self.count.low <= most else "no"
        return "yes" if self.count.high <= most else "perhaps"

    @property
    def ok(self) -> bool:
        """Whether the conversation can be sent as it stands."""
        wrong = self.report or self.problems or self.left or self.conversation.not_understood
        return not (wrong or self.fits == "no" or self.window.problem)


def context(
    file: Annotated[str, argument("FILE", "The conversation: JSON or JSON lines, plain or gzipped; - is stdin.")],
    *,
    model: Annotated[
        str | None,
        option("NAME", "For this model: its form, its window. google:gemini-2.5-flash"),
    ] = None,
    window: Annotated[int | None, option("N", "The window in tokens, if you know it better.", min=1)] = None,
    form: Annotated[
        str | None,
        option("FORM", f"The form of the file, if it is not recognised: {', '.join(FORMS)}."),
    ] = None,
    run: Annotated[str | None, option("ID", "Of a transcript with several runs, this one.")] = None,
    as_json: OneJsonOption = False,
) -> None:
    """Show a recorded conversation as a model would see it: tokens by source, whether it fits, its
    problems, and what each reduction would save.

    FILE holds messages of OpenAI (chat or responses), Anthropic or Gemini, or a
    whole request with its instructions and tools, as JSON; or JSON lines of one
    message each, of a provider or as monitor.messages.message_codec writes them.
    A transcript of an agent (Claude Code, Codex, ...) is read as its history.

    Examples:
      agent-monitor sessions context request.json
      agent-monitor sessions context chat.json --model google:gemini-2.5-flash
      agent-monitor sessions context history.jsonl.gz --form anthropic
      tail -n 1 requests.jsonl | agent-monitor sessions context - --json

    Tokens are estimated, without a tokenizer; 19 of 20 estimates lie in
    the range. No model is asked and nothing leaves the machine.

    Exit code: 0 it can be sent as it stands; 1 it needs a repair, breaks a rule
    of its form, or does not fit; 2 the file cannot be read.
    """
    console = output.stdout()
    looked = _look(*read_conversation(file, form, run), model, window)
    if as_json:
        output.write_json(_as_json(looked))
    else:
        _show(console, looked)
    raise typer.Exit(0 if looked.ok else NOT_AS_IT_STANDS)


def _look(
    conversation: Conversation, raw: tuple[RawMessage | Message, ...], model: str | None, window_tokens: int | None
) -> _ContextReport:
    own = None if conversation.form == NEUTRAL else conversation.form
    target = _target(model) or own
    window = window_of(model or conversation.model, config=window_tokens)
    messages, report = repair(raw, form=target)
    instructions = "\n\n".join(filter(None, (conversation.instructions, report.instructions))) or None
    messages = recognised(messages)
    history = History(messages)
    ahead = (_NEXT,) if messages and isinstance(messages[-1], AssistantMessage) and not messages[-1].results else ()
    return _ContextReport(
        conversation,
        messages,
        report,
        [] if own is None else _named(own, validate(own, [*conversation.given, *to_form(own, ahead)])),
        [problem for one in ((target,) if target else get_args(Form)) for problem in _left(one, (*messages, *ahead))]
        if messages
        else [],
        tokens_by_source(messages, instructions, conversation.tools),
        ContextMeter(history, instructions=instructions, tools=conversation.tools).count(),
        window,
        _reductions(history, window),
    )


def _target(model: str | None) -> Form | None:
    return None if model is None else _TARGETS.get(model.partition(":")[0])


def _named(form: Form, problems: Sequence[WireProblem]) -> list[_FormProblem]:
    return [_FormProblem(form, one.index, one.rule, one.message) for one in problems]


def _left(form: Form, messages: tuple[Message, ...]) -> list[_FormProblem]:
    """The reasons for which the service would refuse the messages, in the form that its model
    sends.
    """
    try:
        return _named(form, validate(form, to_form(form, messages)))
    except ConfigError as error:
        return [_FormProblem(form, None, "media", str(error))]


def _reductions(history: History, window: Window) -> dict[str, Reduction | None]:
    each: dict[str, Reducer] = {
        "results that are too long": ClipResults.oversized(window.tokens),
        "old results": PruneResults(),
        "old arguments": PruneArguments(),
        "old media": DropMedia(),
    }
    return {
        **{name: propose_edit(history, one) for name, one in each.items()},
        "all together": propose_edit(history, *each.values()),
    }


# ------------------------------------------------------------------ for people


def _show(console: Console, looked: _ContextReport) -> None:
    conversation = looked.conversation
    turns = count(len(user_turns(looked.messages)), "user turn")
    rows: list[tuple[str, str | Text]] = [
        ("form", f"{conversation.form}, {count(len(conversation.given), 'record')}"),
        *_not_understood(conversation),
        ("shown", f"{count(len(looked.messages), 'message')} in {turns}, {count(len(conversation.tools), 'tool')}"),
        ("tokens", f"about {looked.count.tokens:,}; between {looked.count.low:,} and {looked.count.high:,}"),
        ("window", output.on_one_line(_window(looked.window))),
        ("fits", Text(_fits(looked), style=_STYLES[looked.fits])),
    ]
    if (said := looked.window.problem or looked.window.warning) is not None:
        rows.append(("but", Text(output.on_one_line(said), style="red" if looked.window.problem else "yellow")))
    output.card(console, "the context", rows, style="cyan")
    output.heading(console, "tokens by source")
    total = sum(looked.tokens.values())
    shares = [(source, f"{tokens:,}", f"{tokens / total:.0%}") for source, tokens in looked.tokens.items() if tokens]
    table.show(console, ("source", "tokens", "share"), shares)
    output.heading(console, "what could go")
    nothing = ("nothing", *[""] * (len(_REDUCTION.columns) - 1))
    saved = [(name, *(_REDUCTION.cells(one) if one else nothing)) for name, one in looked.reductions.items()]
    table.show(console, (table.Column("reduction", "fold"), *_REDUCTION.columns), saved)
    _show_list(
        console,
        "repairs",
        [f"{one.index}  {one.kind.value}  {one.note}" for one in looked.report.repairs],
        "None: it is in order.",
    )
    own = (
        "It breaks no rule of its form."
        if conversation.form != NEUTRAL
        else "Of a neutral history every form is made anew."
    )
    _show_list(console, "problems as it stands", _lines(looked.problems), own)
    _show_list(console, "problems when repaired", _lines(looked.left), "None.")


def _not_understood(conversation: Conversation) -> list[tuple[str, str | Text]]:
    return [("but", Text(conversation.doubt, style="red"))] if conversation.doubt else []


def _window(window: Window) -> str:
    if window.tokens is None:
        return "not known; --model or --window says it"
    answer = "" if window.max_output_tokens is None else f", an answer may have {window.max_output_tokens:,}"
    return f"{window.tokens:,}{answer} ({window.source.value}{': ' if window.note else ''}{window.note})"


def _fits(looked: _ContextReport) -> str:
    most = looked.window.tokens
    if most is None:
        return "unknown"
    share = f"{looked.count.tokens / most:.1%} of the window"
    match looked.fits:
        case "no":
            return f"no: {looked.count.tokens - most:,} tokens too many"
        case "perhaps":
            return f"perhaps: {share}, and the estimate is not sure enough"
    return f"yes: {share}; {most - looked.count.tokens:,} are left"


def _lines(problems: Sequence[_FormProblem]) -> list[str]:
    return [f"{one.form}  {'' if one.index is None else one.index}  {one.rule}  {one.message}" for one in problems]


def _show_list(console: Console, title: str, lines: Sequence[str], nothing: str) -> None:
    output.heading(console, title)
    for line in lines[:MOST_LINES] or [nothing]:
        output.line(console, line)
    if len(lines) > MOST_LINES:
        console.print(f"(and {len(lines) - MOST_LINES:,} more; --json has them)")


# ------------------------------------------------------------------ for programs


def _as_json(looked: _ContextReport) -> dict[str, Any]:
    window = looked.window
    return {
        "ok": looked.ok,
        "form": looked.conversation.form,
        "records": len(looked.conversation.given),
        "not_understood": looked.conversation.not_understood,
        "messages": len(looked.messages),
        "user_turns": len(user_turns(looked.messages)),
        "tools": len(looked.conversation.tools),
        "tokens": {
            "total": looked.count.tokens,
            "low": looked.count.low,
            "high": looked.count.high,
            "by_source": dict(looked.tokens),
        },
        "window": {
            "tokens": window.tokens,
            "max_output_tokens": window.max_output_tokens,
            "source": window.source.value,
        }
        | {"note": window.note, "problem": window.problem, "warning": window.warning},
        "fits": looked.fits,
        "reductions": {
            name: None if one is None else _REDUCTION.as_json(one) for name, one in looked.reductions.items()
        },
        "repairs": [{"index": one.index, "kind": one.kind.value, "note": one.note} for one in looked.report.repairs],
        "problems": list(map(asdict, looked.problems)),
        "problems_when_repaired": list(map(asdict, looked.left)),
    }
