"""`agent-monitor sessions compact`: a recorded conversation before and after its compaction."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import typer
from rich.console import Console
from rich.text import Text

import monitor
from monitor.adapters.adapter import adapter_of
from monitor.cli.inputs.conversation import Conversation, read_conversation, tokens_by_source, written
from monitor.cli.options.session_file import complete, found_file, found_place
from monitor.cli.options.shared import OneJsonOption, argument, flag, option
from monitor.cli.options.supervisor_arguments import Closing, model_of, nothing_to_close
from monitor.cli.render import output, table
from monitor.cli.render.files import check_out, write_out
from monitor.cli.render.output import STDIN
from monitor.context import Window, window_of
from monitor.context.compaction.hooks import compaction_codec
from monitor.context.compaction.pinned import gathered, read_back, recognised
from monitor.context.compaction.preset import PRESETS
from monitor.context.reduce import difference
from monitor.context.repairs import repair
from monitor.context.window import WindowSource
from monitor.errors import CompactionReason, ConfigError
from monitor.events import CompactionProgressed, CompactionStarted, Event
from monitor.messages import Message, message_codec
from monitor.models import Model, ModelRequest
from monitor.sessions import ENDING
from monitor.sessions.postgres.postgres_reader import without_password
from monitor.sessions.postgres.postgres_session import is_database, owner_at, reader_at
from monitor.settings import known_name
from monitor.sinks.log import line_of
from monitor.view.status import count
from monitor.wires.fields import RawMessage
from monitor.wires.read import FORMS, NEUTRAL

EXTRACTIVE: Final = "extractive"
ASSUMED_TOKENS: Final = 128_000
"""The window that is assumed if none is known; many models of today have it."""
REASONS: Final = ("manual", "overflow")


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactOptions:
    """Who compacts which conversation, for which window."""

    preset: Annotated[str, option("NAME", f"How: {', '.join(PRESETS)}.")] = "default"
    model: Annotated[
        str | None,
        option("NAME", "Who summarises: google:gemini-2.5-flash, ..., or extractive, which calls no model."),
    ] = None
    base_url: Annotated[str | None, option("URL", "A compatible server in the place of the service.")] = None
    window: Annotated[
        int | None,
        option("N", "The window in tokens that the conversation is for.", min=1),
    ] = None
    run: Annotated[str | None, option("ID", "Of a transcript with several runs, this one.")] = None
    form: Annotated[
        str | None,
        option("FORM", f"The form of the file, if it is not recognised: {', '.join(FORMS)}."),
    ] = None
    reason: Annotated[str, option("WHY", "manual, or overflow: whatever gets it inside the window.")] = "manual"

    def check(self) -> None:
        """Raises `ConfigError` for a preset or a reason that does not exist."""
        known_name(self.preset, PRESETS, "preset", "--preset")
        if self.reason not in REASONS:
            raise ConfigError(f"--reason {self.reason}: it is one of {', '.join(REASONS)}")

    @property
    def asks_nobody(self) -> bool:
        """Whether no model is asked."""
        return self.model in {None, EXTRACTIVE}


@dataclass(slots=True, frozen=True)
class CompactInput:
    """The conversation to compact, with its window and model."""

    conversation: Conversation
    messages: tuple[Message, ...]
    """The messages of the conversation, repaired."""
    repairs: int
    system: str | None
    """The text of a system message among the messages."""
    window: Window

    @property
    def instructions(self) -> str | None:
        """All instructions that are sent before the messages."""
        return "\n\n".join(filter(None, (self.conversation.instructions, self.system))) or None

    def by_source(self, messages: tuple[Message, ...]) -> dict[str, int]:
        """The estimated tokens of `messages`, by source."""
        return tokens_by_source(messages, self.instructions, self.conversation.tools)


def session_of(given: str) -> Path | str | None:
    """The session that is meant; `None`: a file, or stdin. A file in this folder goes before a
    name, and a word with another ending is no name of a session.
    """
    if given.endswith(ENDING) or is_database(given):
        return found_place(given, None)
    if given == STDIN or Path(given).exists() or Path(given).suffix or len(Path(given).parts) > 1:
        return None
    return found_file(given, None)


def check_session_options(options: CompactOptions, out: Path | None) -> None:
    """Raises `ConfigError` for an option that only a file can have."""
    for name, value in (("out", out), ("form", options.form), ("run", options.run)):
        if value is not None:
            raise ConfigError(f"--{name} is for files; a session is compacted in its own file")


def read_input(file: str, session: Path | str | None, options: CompactOptions) -> CompactInput:
    """The conversation of `session`, or that of `file` if there is none."""
    if session is None:
        conversation, raw = read_conversation(file, options.form, options.run)
        return _given(conversation, raw, options)
    with reader_at(session) as reader:
        messages = reader.context().messages
    return _given(Conversation(NEUTRAL, ()), messages, options)


def _given(conversation: Conversation, raw: Sequence[RawMessage | Message], options: CompactOptions) -> CompactInput:
    messages, report = repair(raw, form=None if conversation.form == NEUTRAL else conversation.form)
    names = [options.model if not options.asks_nobody else None, conversation.model]
    found = [window_of(name, config=options.window) for name in names if name is not None]
    found = found or [window_of(None, config=options.window)]
    known = next((one for one in found if one.tokens is not None), None)
    return CompactInput(
        conversation,
        recognised(messages),
        len(report.repairs),
        report.instructions,
        known or Window(ASSUMED_TOKENS, source=WindowSource.DEFAULT, note="assumed; --window says it"),
    )


# --------------------------------------------------------------------------------------------------
# What a compaction did, for people and for programs.

SCALED: Final = 0.05
"""A refused request was larger than the window, so it counts as larger than its estimate by this
share.
"""


@dataclass(slots=True, frozen=True)
class PinnedCounts:
    """The counted pinned facts beside the summary."""

    verbatim: int = 0
    """User messages that are kept word for word."""
    shortened: int = 0
    left_out: int = 0
    identifiers: int = 0
    files: int = 0


@dataclass(slots=True, frozen=True)
class CompactReport:
    """The result of the compaction, with all numbers to print."""

    given: CompactInput
    compaction: monitor.Compaction
    result: monitor.context.CompactionResult
    calls: int
    reason: CompactionReason
    breaks_at: int
    """The index of the first message that changed."""

    named_nobody: bool
    """No model was named."""

    @property
    def runs_compact_at(self) -> int:
        """The tokens at which a run with this window compacts."""
        return self.compaction.headroom.usable(self.given.window) or 0

    @property
    def summarised(self) -> int:
        """The number of messages that the summary replaces."""
        return self.result.record.first_kept if self.result.record is not None else 0

    @property
    def text(self) -> str:
        """The text in the place of the old messages; empty: there is none."""
        if self.result.record is None:
            return ""
        return "\n".join(
            part.text for part in self.result.record.shown[0].content if isinstance(part, monitor.messages.Text)
        )

    @property
    def pinned(self) -> PinnedCounts:
        """The facts for which there was room."""
        found = read_back(self.text)
        if found is None:
            return PinnedCounts()
        facts, said = found[1], set(gathered(self.given.messages[: self.summarised]).user_messages)
        verbatim = sum(text in said for text in facts.user_messages)
        files = {*facts.details.files_read, *facts.details.files_modified}
        return PinnedCounts(
            verbatim,
            len(facts.user_messages) - verbatim,
            facts.left_out,
            len(facts.identifiers) + len(facts.listed),
            len(files),
        )


def show_report(console: Console, done: CompactReport, *, text: bool, written_to: Path | str | None) -> None:
    """Print the result for people. `text`: with the summary. `written_to`: where it stands now."""
    rows = [*_facts(done), *_remarks(done)]
    if written_to is not None:
        rows.append(("written", output.on_one_line(without_password(str(written_to)))))
    output.card(console, "compacted", rows, style="green")
    output.heading(console, "tokens by source")
    before, after = (done.given.by_source(messages) for messages in (done.given.messages, done.result.messages))
    table.show(
        console,
        ("source", "before", "after"),
        [
            (source, f"{before.get(source, 0):,}", f"{after.get(source, 0):,}")
            for source in dict.fromkeys((*before, *after))
        ],
    )
    if text:
        output.heading(console, "what stands in their place")
        console.print(output.printable(done.text or "(nothing: no message is gone)"), soft_wrap=True)


def _facts(done: CompactReport) -> list[tuple[str, str | Text]]:
    given, result = done.given, done.result
    saved = result.tokens_before - result.tokens_after
    scaled = result.tokens_before > (1 + SCALED) * sum(given.by_source(given.messages).values())
    rows: list[tuple[str, str | Text]] = [
        ("preset", done.compaction.name),
        (
            "window",
            output.on_one_line(
                f"{given.window.tokens or 0:,} ({given.window.note or given.window.source.value}); a run compacts at"
                f" {done.runs_compact_at:,}"
            ),
        ),
        (
            "tokens",
            (
                f"{result.tokens_before:,} -> {result.tokens_after:,}, {saved * 100 // max(1, result.tokens_before)}%"
                f" less; {_how(scaled)}"
            ),
        ),
        ("messages", _messages(done)),
        ("by", output.on_one_line(_by(done))),
        ("cost", _cost(done)),
        ("cache", f"{_kept_in_cache(done.breaks_at)}; about {result.reread_tokens:,} tokens are read anew, once"),
    ]
    if result.record is not None:
        rows.insert(5, ("beside it", _pinned(done.pinned)))
    return rows


def _remarks(done: CompactReport) -> Iterator[tuple[str, str | Text]]:
    given, result = done.given, done.result
    if given.conversation.doubt:
        yield "but", Text(given.conversation.doubt, style="red")
    if given.repairs:
        yield "repaired", f"{count(given.repairs, 'repair')} first; agent-monitor sessions context says which"
    if (said := given.window.problem or given.window.warning) is not None:
        yield "but", Text(output.on_one_line(said), style="yellow")
    if result.tokens_after >= done.runs_compact_at:
        yield "but", Text("that is still where a run compacts: nothing makes it smaller", style="yellow")
    for number, one in enumerate(result.warnings):
        yield "instead" if number == 0 else "", Text(output.on_one_line(one), style="yellow")


def _how(scaled: bool) -> str:
    """How the numbers of tokens were found."""
    return "what was refused has at least a window; the table has estimates" if scaled else "estimated"


def _kept_in_cache(breaks_at: int) -> str:
    if breaks_at == 0:
        return "none of the messages is cached any more"
    return f"the cached prefix ends before message {breaks_at:,}"


def _messages(done: CompactReport) -> str:
    kept = count(done.result.kept_messages, "message")
    if not done.summarised:
        return f"{kept}, all kept; nothing had to be summarised"
    if not done.result.kept_messages:
        return f"all {done.summarised:,} are one summary" if done.summarised > 1 else "the only one is a summary"
    gone = f"{done.summarised:,} are one summary" if done.summarised > 1 else "1 is a summary"
    return f"{gone}, the last {kept if done.result.kept_messages > 1 else 'message'} kept"


def _by(done: CompactReport) -> str:
    by = done.result.summarised_by
    if done.result.record is None:
        return f"no summary: {by} was enough"
    length = f", a summary of {len(done.result.record.summary):,} characters"
    return f"{by}{length}{'; no model was asked, --model names one' if done.named_nobody else ''}"


def _cost(done: CompactReport) -> str:
    usage, estimated = done.result.cost.usage, done.result.cost.estimated
    if not done.calls:
        return "nothing"
    tokens = f"{usage.total_tokens:,} tokens{' (partly estimated)' if estimated else ''}"
    return f"{count(done.calls, 'model call')}, {tokens}: {usage.input_tokens:,} in, {usage.output_tokens:,} out"


def _pinned(pinned: PinnedCounts) -> str:
    shortened = f", {pinned.shortened:,} shortened" if pinned.shortened else ""
    left_out = f", {pinned.left_out:,} left out" if pinned.left_out else ""
    names = f"{count(pinned.identifiers, 'identifier')}, {count(pinned.files, 'file')}"
    return f"{count(pinned.verbatim, 'user message')} word for word{shortened}{left_out}; {names}"


def report_as_json(done: CompactReport) -> dict[str, Any]:
    """The result as JSON data."""
    given, result, pinned = done.given, done.result, done.pinned
    return {
        "ok": True,
        "preset": done.compaction.name,
        "form": given.conversation.form,
        "window": {"tokens": given.window.tokens, "source": given.window.source.value, "note": given.window.note},
        "tokens": {
            "before": result.tokens_before,
            "after": result.tokens_after,
            "before_by_source": given.by_source(given.messages),
            "after_by_source": given.by_source(result.messages),
        },
        "messages": {
            "before": len(given.messages),
            "after": len(result.messages),
            "summarised": done.summarised,
            "kept": result.kept_messages,
            "kept_tokens": result.kept_tokens,
        },
        "pinned": {
            "user_messages": pinned.verbatim,
            "user_messages_shortened": pinned.shortened,
            "user_messages_left_out": pinned.left_out,
            "identifiers": pinned.identifiers,
            "files": pinned.files,
        },
        "summarised_by": result.summarised_by,
        "cost": {
            "model_calls": done.calls,
            "input_tokens": result.cost.usage.input_tokens,
            "output_tokens": result.cost.usage.output_tokens,
            "tokens_estimated": result.cost.estimated,
        },
        "cache": {"breaks_at": done.breaks_at, "reread_tokens": result.reread_tokens},
        "repairs": given.repairs,
        "not_understood": given.conversation.not_understood,
        "warnings": list(result.warnings),
        "text": done.text,
        "record": None if result.record is None else compaction_codec.to_dict(result.record),
    }


# --------------------------------------------------------------------------------------------------
# Compacts a conversation or a session, and counts what that costs.


class _CountedModel:
    """A model whose calls are counted."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self.adapter = adapter_of(model)
        self.calls = 0
        self._model = model

    def stream(self, request: ModelRequest) -> Any:
        """Count a call, and stream the answer of the model."""
        self.calls += 1
        return self._model.stream(request)


@dataclass(slots=True, frozen=True)
class _ProgressSink:
    """A sink that prints the progress."""

    console: Console

    def emit(self, event: Event) -> None:
        """Print `event` if it tells the progress of a compaction."""
        if isinstance(event, CompactionStarted | CompactionProgressed):
            output.line(self.console, line_of(event, chars=None), "dim")


def summariser(options: CompactOptions) -> tuple[monitor.Compaction, Model | None, Closing]:
    """The compaction, the model that it asks, and how that is closed. `None`: it asks nobody."""
    compaction = getattr(monitor.Compaction, known_name(options.preset, PRESETS, "preset", "--preset"))()
    if options.asks_nobody:
        if options.base_url is not None:
            raise ConfigError("--base-url needs a model; name it as well: --model openai:NAME")
        return replace(compaction, summarizer=monitor.context.Extractive()), None, nothing_to_close
    return compaction, *model_of(options.model, options.base_url, keyless="leave --model out")


async def compacted(
    given: CompactInput, options: CompactOptions, session: Path | str | None, complaints: Console
) -> CompactReport:
    """Compact `given`, which is that of `session` if there is one.

    Raises `CompactionError` if it cannot be made smaller.
    """
    compaction, model, close = summariser(options)
    reason = CompactionReason(options.reason)
    counted = _CountedModel(model) if model is not None else None
    sinks = [_ProgressSink(complaints)] if counted is not None else []
    try:
        if session is not None:
            async with owner_at(session, create=False) as store:
                result = await compaction.compact_session(
                    store, window=given.window, model=counted, reason=reason, sinks=sinks
                )
        else:
            result = await compaction.compact(
                given.messages,
                window=given.window,
                model=counted,
                instructions=given.instructions,
                tools=given.conversation.tools,
                reason=reason,
                form=None if given.conversation.form == NEUTRAL else given.conversation.form,
                sinks=sinks,
            )
    finally:
        with anyio.CancelScope(shield=True):
            await close()
    breaks_at, *_ = difference(given.messages, result.messages)
    calls = counted.calls if counted is not None else 0
    return CompactReport(given, compaction, result, calls, reason, breaks_at, named_nobody=options.model is None)


# --------------------------------------------------------------------------------------------------
# `agent-monitor sessions compact`: a recorded conversation before and after its compaction.

NOT_COMPACTED: Final = 1


def compact(
    file: Annotated[
        str,
        argument(
            "FILE",
            "The conversation: JSON or JSON lines, plain or gzipped; - is stdin. Or the name of a session.",
            autocompletion=complete,
        ),
    ],
    *,
    options: CompactOptions,
    out: Annotated[
        Path | None,
        option("FILE", "Write the compacted conversation here, in its own form."),
    ] = None,
    show: Annotated[bool, flag("--show", "Also print what stands in the place of the old messages.")] = False,
    as_json: OneJsonOption = False,
) -> None:
    """Compact a recorded conversation, and show the result: tokens before and after, pinned facts,
    and the cost.

    FILE is what `agent-monitor sessions context` reads: messages of OpenAI, Anthropic or
    Gemini, a whole request, or JSON lines. It is repaired first, and not changed.
    The name or the file of a session compacts that session: its next run goes on
    from the summary, and its messages stay in the file.

    Examples:
      agent-monitor sessions compact request.json
      agent-monitor sessions compact chat.json --preset claude-code --show
      agent-monitor sessions compact chat.json --out shorter.json --preset pi \\
        --model google:gemini-2.5-flash
      agent-monitor sessions compact work --window 200000
      tail -n 1 requests.jsonl | agent-monitor sessions compact - --json

    Without --model no model is asked and nothing leaves the machine: headings,
    user messages, names and files make the summary. With one, its key is in the
    environment, and its progress is written to stderr. Ctrl-C writes nothing.

    Exit code: 0 compacted; 1 not, and why; 2 the file cannot be read, or an
    option, the key or a package is wrong or missing.
    """
    console, complaints = output.stdout(), output.stderr()
    options.check()
    session = session_of(file)
    if session is not None:
        check_session_options(options, out)
    _check_out(out, file)
    given = read_input(file, session, options)
    try:
        done = anyio.run(compacted, given, options, session, complaints)
    except monitor.context.CompactionError as error:
        _say_why_not(error, complaints, as_json=as_json)
        raise typer.Exit(NOT_COMPACTED) from None
    if out is not None:
        _write(out, _in_its_words(given, done.result.messages))
    if as_json:
        output.write_json(report_as_json(done))
    else:
        show_report(console, done, text=show, written_to=session or out)


def _say_why_not(error: monitor.context.CompactionError, complaints: Console, *, as_json: bool) -> None:
    if as_json:
        output.write_json(
            {"ok": False, "failure": error.failure.value, "retryable": error.retryable, "detail": str(error)}
        )
    output.complain(complaints, f"agent-monitor: not compacted ({error.failure.value}): {error}")


def _check_out(out: Path | None, file: str) -> None:
    """Check the file for `--out` before a model is paid for."""
    if out is None:
        return
    check_out(out, "--out")
    if file != STDIN and out.exists() and Path(file).exists() and out.samefile(file):
        raise ConfigError(f"--out {out}: that is the conversation itself; give the compacted one another name")


def _in_its_words(given: CompactInput, messages: tuple[Message, ...]) -> str:
    form = given.conversation.form
    if form == NEUTRAL:
        return written(given.conversation, list(map(message_codec.to_dict, messages)))
    return written(given.conversation, monitor.adapters.to_form(form, messages), given.system)


def _write(out: Path, text: str) -> None:
    data = text.encode("utf-8", "replace")
    write_out(out, [gzip.compress(data, mtime=0) if out.suffix == ".gz" else data], "--out")
