"""`agent-monitor compact`: a recorded conversation before and after its compaction."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import typer
from rich.console import Console
from rich.text import Text

import monitor
from monitor.adapters.adapter import adapter_of
from monitor.cli.inputs.conversation import Conversation, read_conversation, tokens_by_source, written
from monitor.cli.options.clients import Closing
from monitor.cli.options.selection import OneJsonOption
from monitor.cli.options.session_file import complete, found_file, found_place
from monitor.cli.options.supervisor_arguments import model_of, nothing_to_close
from monitor.cli.render import output, table
from monitor.cli.render.out_file import check_out, write_out
from monitor.cli.render.output import STDIN
from monitor.compaction.pinned import gathered, read_back, recognised
from monitor.compaction.preset import PRESETS
from monitor.compaction.records import compaction_codec
from monitor.context import Window, repair, window_of
from monitor.context.measure.window import WindowSource
from monitor.context.reduce.reduction import difference
from monitor.errors import ConfigError
from monitor.events import CompactionProgressed, CompactionStarted, Event
from monitor.messages import Message, message_codec
from monitor.models import Model, ModelRequest
from monitor.reasons import CompactionReason
from monitor.sessions import ENDING
from monitor.sessions.postgres.postgres_reader import without_password
from monitor.sessions.postgres.session_address import is_database, owner_at, reader_at
from monitor.settings import known_name
from monitor.sinks.lines import line_of
from monitor.view.run_ending import count
from monitor.wires.raw import RawMessage
from monitor.wires.recognise import FORMS, NEUTRAL

NOT_COMPACTED: Final = 1
EXTRACTIVE: Final = "extractive"
ASSUMED_TOKENS: Final = 128_000
"""The window that is assumed if none is known; many models of today have it."""
SCALED: Final = 0.05
"""A refused request was larger than the window, so it counts as larger than its estimate by this
share.
"""
REASONS: Final = ("manual", "overflow")


@dataclass(slots=True, frozen=True)
class _CompactInput:
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


@dataclass(slots=True, frozen=True)
class _PinnedCounts:
    """The counted pinned facts beside the summary."""

    verbatim: int = 0
    """User messages that are kept word for word."""
    shortened: int = 0
    left_out: int = 0
    identifiers: int = 0
    files: int = 0


@dataclass(slots=True, frozen=True)
class _CompactReport:
    """The result of the compaction, with all numbers to print."""

    given: _CompactInput
    compaction: monitor.Compaction
    result: monitor.compaction.CompactionResult
    calls: int
    reason: CompactionReason
    breaks_at: int
    """The index of the first message that changed."""

    @property
    def summarised(self) -> int:
        """How many messages the summary replaces."""
        return self.result.record.first_kept if self.result.record is not None else 0

    @property
    def text(self) -> str:
        """The text in the place of the old messages; empty: there is none."""
        if self.result.record is None:
            return ""
        return "\n".join(part.text for part in self.result.record.shown[0].content if isinstance(part, monitor.Text))

    @property
    def pinned(self) -> _PinnedCounts:
        """The facts for which there was room."""
        found = read_back(self.text)
        if found is None:
            return _PinnedCounts()
        facts, said = found[1], set(gathered(self.given.messages[: self.summarised]).user_messages)
        verbatim = sum(text in said for text in facts.user_messages)
        files = {*facts.details.files_read, *facts.details.files_modified}
        return _PinnedCounts(
            verbatim,
            len(facts.user_messages) - verbatim,
            facts.left_out,
            len(facts.identifiers) + len(facts.listed),
            len(files),
        )


def compact(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The conversation: JSON or JSON lines, plain or gzipped; - is stdin. Or the name of a session.",
            autocompletion=complete,
        ),
    ],
    *,
    preset: Annotated[str, typer.Option("--preset", metavar="NAME", help=f"How: {', '.join(PRESETS)}.")] = "default",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Who summarises: google:gemini-2.5-flash, ..., or extractive, which calls no model.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="A compatible server in the place of the service.")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option("--window", min=1, metavar="N", help="The window in tokens that the conversation is for."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Of a transcript with several runs, this one.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--form", metavar="FORM", help=f"The form of the file, if it is not recognised: {', '.join(FORMS)}."
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="WHY", help="manual, or overflow: whatever gets it inside the window.")
    ] = "manual",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the compacted conversation here, in its own form."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Also print what stands in the place of the old messages.")
    ] = False,
    as_json: OneJsonOption = False,
) -> None:
    """Compact a recorded conversation, and show the result: tokens before and after, pinned facts,
    and the cost.

    \b
    FILE is what `agent-monitor context` reads: messages of OpenAI, Anthropic or
    Gemini, a whole request, or JSON lines. It is repaired first, and not changed.
    The name or the file of a session compacts that session: its next run goes on
    from the summary, and its messages stay in the file.

    \b
    Examples:
      agent-monitor compact request.json
      agent-monitor compact chat.json --preset claude-code --window 200000 --show
      agent-monitor compact chat.json --out shorter.json --preset pi \\
        --model google:gemini-2.5-flash
      agent-monitor compact work --window 200000
      tail -n 1 requests.jsonl | agent-monitor compact - --reason overflow --json

    \b
    Without --model no model is asked and nothing leaves the machine: headings,
    user messages, names and files make the summary. With one, its key is in the
    environment, and its progress is written to stderr. Ctrl-C writes nothing.

    \b
    Exit code: 0 compacted; 1 not, and why; 2 the file cannot be read, or an
    option, the key or a package is wrong or missing.
    """  # noqa: D301 - \b keeps the lines of an example apart
    console, complaints = output.stdout(), output.stderr()
    with output.tidy_exit():
        if reason not in REASONS:
            raise ConfigError(f"--reason {reason}: it is one of {', '.join(REASONS)}")
        compaction = getattr(monitor.Compaction, known_name(preset, PRESETS, "preset", "--preset"))()
        session = _session_of(file)
        if session is not None:
            _check_session_options(out=out, form=form, run=run)
        _check_out(out, file)
        given = _read_session(session, model, window) if session is not None else _read(file, form, run, model, window)
        asked, close = (
            (None, nothing_to_close)
            if model in {None, EXTRACTIVE}
            else model_of(model, base_url, keyless="leave --model out")
        )
        if asked is None:
            if base_url is not None:
                raise ConfigError("--base-url needs a model; name it as well: --model openai:NAME")
            compaction = replace(compaction, summarizer=monitor.compaction.Extractive())
        try:
            done = anyio.run(
                partial(
                    _compacted,
                    given,
                    compaction,
                    asked,
                    close=close,
                    reason=CompactionReason(reason),
                    complaints=complaints,
                    session=session,
                )
            )
        except monitor.compaction.CompactionError as error:
            _say_why_not(error, complaints, as_json=as_json)
            raise typer.Exit(NOT_COMPACTED) from None
        if out is not None:
            _write(out, _in_its_words(given, done.result.messages))
        if as_json:
            output.write_json(_as_json(done))
        else:
            _show(console, done, asked_nobody=model is None, show=show, out=out, session=session)


# ------------------------------------------------------------------ what is given


def _session_of(given: str) -> Path | str | None:
    """The session that is meant; `None`: a file, or stdin. A file in this folder goes before a
    name, and a word with another ending is no name of a session.
    """
    if given.endswith(ENDING) or is_database(given):
        return found_place(given, None)
    if given == STDIN or Path(given).exists() or Path(given).suffix or len(Path(given).parts) > 1:
        return None
    return found_file(given, None)


def _check_session_options(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"--{name} is for files; a session is compacted in its own file")


def _read_session(place: Path | str, model: str | None, window: int | None) -> _CompactInput:
    with reader_at(place) as session:
        messages = session.context().messages
    return _given(Conversation(NEUTRAL, ()), messages, model, window)


def _read(file: str, form: str | None, run: str | None, model: str | None, window: int | None) -> _CompactInput:
    conversation, raw = read_conversation(file, form, run)
    return _given(conversation, raw, model, window)


def _given(
    conversation: Conversation, raw: Sequence[RawMessage | Message], model: str | None, window: int | None
) -> _CompactInput:
    messages, report = repair(raw, form=None if conversation.form == NEUTRAL else conversation.form)
    names = [name for name in (model if model != EXTRACTIVE else None, conversation.model) if name is not None]
    found = [window_of(name, config=window) for name in names] or [window_of(None, config=window)]
    known = next((one for one in found if one.tokens is not None), None)
    return _CompactInput(
        conversation,
        recognised(messages),
        len(report.repairs),
        report.instructions,
        known or Window(ASSUMED_TOKENS, source=WindowSource.DEFAULT, note="assumed; --window says it"),
    )


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
            output.complain(self.console, line_of(event, chars=None), style="dim")


async def _compacted(
    given: _CompactInput,
    compaction: monitor.Compaction,
    model: Model | None,
    *,
    close: Closing,
    reason: CompactionReason,
    complaints: Console,
    session: Path | str | None,
) -> _CompactReport:
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
    return _CompactReport(given, compaction, result, counted.calls if counted is not None else 0, reason, breaks_at)


def _say_why_not(error: monitor.compaction.CompactionError, complaints: Console, *, as_json: bool) -> None:
    if as_json:
        output.write_json(
            {"ok": False, "failure": error.failure.value, "retryable": error.retryable, "detail": str(error)}
        )
    output.complain(complaints, f"agent-monitor: not compacted ({error.failure.value}): {error}")


# ------------------------------------------------------------------ what is written


def _check_out(out: Path | None, file: str) -> None:
    """Check the file for `--out` before a model is paid for."""
    if out is None:
        return
    check_out(out, "--out")
    if file != STDIN and out.exists() and Path(file).exists() and out.samefile(file):
        raise ConfigError(f"--out {out}: that is the conversation itself; give the compacted one another name")


def _in_its_words(given: _CompactInput, messages: tuple[Message, ...]) -> str:
    form = given.conversation.form
    if form == NEUTRAL:
        return written(given.conversation, list(map(message_codec.to_dict, messages)))
    return written(given.conversation, monitor.adapters.to_form(form, messages), given.system)


def _write(out: Path, text: str) -> None:
    data = text.encode("utf-8", "replace")
    write_out(out, [gzip.compress(data, mtime=0) if out.suffix == ".gz" else data], "--out")


# ------------------------------------------------------------------ for people


def _show(
    console: Console,
    done: _CompactReport,
    *,
    asked_nobody: bool,
    show: bool,
    out: Path | None,
    session: Path | str | None,
) -> None:
    given, result = done.given, done.result
    saved = result.tokens_before - result.tokens_after
    before, after = given.by_source(given.messages), given.by_source(result.messages)
    mark = done.compaction.headroom.usable(given.window) or 0
    scaled = result.tokens_before > (1 + SCALED) * sum(before.values())
    rows: list[tuple[str, str | Text]] = [
        ("preset", done.compaction.name),
        (
            "window",
            output.on_one_line(
                f"{given.window.tokens or 0:,} ({given.window.note or given.window.source.value}); a run compacts at"
                f" {mark:,}"
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
        ("by", output.on_one_line(_by(done, asked_nobody=asked_nobody))),
        ("cost", _cost(done)),
        ("cache", f"{_kept_in_cache(done.breaks_at)}; about {result.reread_tokens:,} tokens are read anew, once"),
    ]
    if result.record is not None:
        rows.insert(5, ("beside it", _pinned(done.pinned)))
    if given.conversation.doubt:
        rows.append(("but", Text(given.conversation.doubt, style="red")))
    if given.repairs:
        rows.append(("repaired", f"{count(given.repairs, 'repair')} first; agent-monitor context says which"))
    if (said := given.window.problem or given.window.warning) is not None:
        rows.append(("but", Text(output.on_one_line(said), style="yellow")))
    if result.tokens_after >= mark:
        rows.append(("but", Text("that is still where a run compacts: nothing makes it smaller", style="yellow")))
    rows += [
        ("instead" if number == 0 else "", Text(output.on_one_line(one), style="yellow"))
        for number, one in enumerate(result.warnings)
    ]
    if (written_to := session or out) is not None:
        rows.append(("written", output.on_one_line(without_password(str(written_to)))))
    output.card(console, "compacted", rows, style="green")
    output.heading(console, "tokens by source")
    sources = dict.fromkeys((*before, *after))
    table.show(
        console,
        ("source", "before", "after"),
        [(source, f"{before.get(source, 0):,}", f"{after.get(source, 0):,}") for source in sources],
    )
    if show:
        output.heading(console, "what stands in their place")
        console.print(output.printable(done.text or "(nothing: no message is gone)"), soft_wrap=True)


def _how(scaled: bool) -> str:
    """How the numbers of tokens were found."""
    return "what was refused has at least a window; the table has estimates" if scaled else "estimated"


def _kept_in_cache(breaks_at: int) -> str:
    if breaks_at == 0:
        return "none of the messages is cached any more"
    return f"the cached prefix ends before message {breaks_at:,}"


def _messages(done: _CompactReport) -> str:
    kept = count(done.result.kept_messages, "message")
    if not done.summarised:
        return f"{kept}, all kept; nothing had to be summarised"
    if not done.result.kept_messages:
        return f"all {done.summarised:,} are one summary" if done.summarised > 1 else "the only one is a summary"
    gone = f"{done.summarised:,} are one summary" if done.summarised > 1 else "1 is a summary"
    return f"{gone}, the last {kept if done.result.kept_messages > 1 else 'message'} kept"


def _by(done: _CompactReport, *, asked_nobody: bool) -> str:
    by = done.result.summarised_by
    if done.result.record is None:
        return f"no summary: {by} was enough"
    length = f", a summary of {len(done.result.record.summary):,} characters"
    return f"{by}{length}{'; no model was asked, --model names one' if asked_nobody else ''}"


def _cost(done: _CompactReport) -> str:
    usage, estimated = done.result.cost.usage, done.result.cost.estimated
    if not done.calls:
        return "nothing"
    tokens = f"{usage.total_tokens:,} tokens{' (partly estimated)' if estimated else ''}"
    return f"{count(done.calls, 'model call')}, {tokens}: {usage.input_tokens:,} in, {usage.output_tokens:,} out"


def _pinned(pinned: _PinnedCounts) -> str:
    shortened = f", {pinned.shortened:,} shortened" if pinned.shortened else ""
    left_out = f", {pinned.left_out:,} left out" if pinned.left_out else ""
    names = f"{count(pinned.identifiers, 'identifier')}, {count(pinned.files, 'file')}"
    return f"{count(pinned.verbatim, 'user message')} word for word{shortened}{left_out}; {names}"


# ------------------------------------------------------------------ for programs


def _as_json(done: _CompactReport) -> dict[str, Any]:
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
