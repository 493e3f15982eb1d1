"""The conversation to compact, from a file, from stdin or from a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from monitor.cli.inputs.conversation import Conversation, read_conversation, tokens_by_source
from monitor.cli.options.session_file import found_file, found_place
from monitor.cli.render.output import STDIN
from monitor.compaction.pinned import recognised
from monitor.compaction.preset import PRESETS
from monitor.context import Window, repair, window_of
from monitor.context.measure.window import WindowSource
from monitor.errors import ConfigError
from monitor.messages import Message
from monitor.sessions import ENDING
from monitor.sessions.postgres.session_address import is_database, reader_at
from monitor.settings import known_name
from monitor.wires.raw import RawMessage
from monitor.wires.recognise import FORMS, NEUTRAL

EXTRACTIVE: Final = "extractive"
ASSUMED_TOKENS: Final = 128_000
"""The window that is assumed if none is known; many models of today have it."""
REASONS: Final = ("manual", "overflow")


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactOptions:
    """Who compacts which conversation, for which window."""

    preset: Annotated[str, typer.Option("--preset", metavar="NAME", help=f"How: {', '.join(PRESETS)}.")] = "default"
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Who summarises: google:gemini-2.5-flash, ..., or extractive, which calls no model.",
        ),
    ] = None
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="A compatible server in the place of the service.")
    ] = None
    window: Annotated[
        int | None,
        typer.Option("--window", min=1, metavar="N", help="The window in tokens that the conversation is for."),
    ] = None
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Of a transcript with several runs, this one.")
    ] = None
    form: Annotated[
        str | None,
        typer.Option(
            "--form", metavar="FORM", help=f"The form of the file, if it is not recognised: {', '.join(FORMS)}."
        ),
    ] = None
    reason: Annotated[
        str, typer.Option("--reason", metavar="WHY", help="manual, or overflow: whatever gets it inside the window.")
    ] = "manual"

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
