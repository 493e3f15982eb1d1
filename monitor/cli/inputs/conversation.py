"""Reads a conversation from a file of any form: a provider's messages or a whole request as JSON,
or JSON lines of messages.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from monitor.cli.render.output import STDIN
from monitor.context import RawMessage, read_history, sizes_by_source
from monitor.context.compaction.pinned import head_of_messages
from monitor.context.tokens import size_of_message
from monitor.errors import AdapterError, ConfigError
from monitor.messages import Message, message_codec
from monitor.models import ModelRequest, ToolSpec
from monitor.transcripts.base import ReadReport, collected
from monitor.transcripts.places import CONVERSATION, HEAD_BYTES, MAGIC_BYTES, is_recorded, kind_of, kind_of_record
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.recorded_history import history_of
from monitor.transcripts.source import GZIP_MAGIC, Source
from monitor.wires.fields import MESSAGES, declarations_of, instructions_of, messages_of, snake
from monitor.wires.read import FORMS, NEUTRAL, Kept, form_of, not_understood

SHOWN: Final = 5
_BARE: Final = frozenset({"messages", "responses", "runs", "events"})
"""Formats without an agent of their own: their messages are read as a request has them."""


@dataclass(slots=True, frozen=True)
class Conversation:
    """The content of a file with a conversation."""

    form: Kept
    given: Sequence[Mapping[str, Any]]
    """The messages as they stand in the file."""
    instructions: str | None = None
    """The system prompt, if the request has a field for it beside the messages."""
    tools: tuple[ToolSpec, ...] = ()
    model: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    """The whole request around the messages. Empty: the messages stand alone."""
    is_lines: bool = False
    """Whether the file has one message on each line."""
    not_understood: int = 0
    """How many messages do not have the form that `--form` names; 0 if the form was recognised."""

    @property
    def doubt(self) -> str:
        """`not_understood` in words; empty: all messages are understood."""
        number = self.not_understood
        return (
            f"{number:,} of its {len(self.given):,} records {'is' if number == 1 else 'are'} none of {self.form}"
            if number
            else ""
        )


def read_conversation(
    file: str, form: str | None = None, run: str | None = None
) -> tuple[Conversation, tuple[RawMessage | Message, ...]]:
    """`file` (`-`: stdin), plain or gzipped, and its messages before any repair. A transcript of an
    agent is read as the history of its `run`.

    Raises `ConfigError` for an unreadable file, and if no form fits.
    """
    if form is not None and form not in FORMS:
        raise ConfigError(f"--form {form}: it is one of {', '.join(FORMS)}")
    try:
        if form is None and (transcript := _transcript(file, run)) is not None:
            return transcript
        if run is not None:
            raise ConfigError("--run is for transcripts of agents; it is none")
        data, is_lines = _parsed(_text(file))
        conversation = replace(_conversation(data, form), is_lines=is_lines)
        messages = tuple(_messages(conversation))
        if conversation.not_understood == len(messages):
            raise ConfigError(
                f"none of its {len(messages):,} records is {conversation.form}; without --form the form is recognised"
            )
        return conversation, messages
    except ConfigError as error:
        raise ConfigError(f"{'stdin' if file == STDIN else file}: {error}") from None


def _transcript(file: str, run: str | None) -> tuple[Conversation, tuple[Message, ...]] | None:
    """The history of a run of a transcript. `None`: the file is no transcript of an agent."""
    if file == STDIN or not Path(file).is_file():
        return None
    source = Source.of_path(file)
    reader = reader_of(source)
    if reader is None or reader.format in _BARE:
        return None
    runs = {one.id: one for one, _ in collected(reader.read(source, ReadReport()))}
    if run is None and len(runs) > 1:
        names = ", ".join(list(runs)[:SHOWN])
        more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
        raise ConfigError(f"it holds {len(runs)} runs of {reader.agent}; name one with --run: {names}{more}")
    chosen = next(iter(runs.values()), None) if run is None else runs.get(run)
    if chosen is None:
        raise ConfigError(f"there is no run {run!r} in it" if run else f"there is no run of {reader.agent} in it")
    history = history_of(chosen.messages)
    if not history:
        raise ConfigError(f"in the run {chosen.id!r} nobody says anything")
    given = [message_codec.to_dict(message) for message in history]
    return Conversation(
        NEUTRAL, given, model=chosen.model or next((one.model for one in chosen.messages if one.model), None)
    ), history


def written(conversation: Conversation, messages: Sequence[Mapping[str, Any]], system: str | None = None) -> str:
    """The text of a file with other `messages` in the place of those of `conversation`: in the
    request, in a list, or one on each line.

    `system`: the text of a system message of the conversation, which is not among `messages`.
    """
    form, request = conversation.form, dict(conversation.request)
    if system and form in {"openai-chat", "openai-responses"}:
        messages = [{"role": "system", "content": system}, *messages]
    elif system and form == "anthropic":
        request["system"] = "\n\n".join(filter(None, (conversation.instructions, system)))
    if (conversation.is_lines or form == NEUTRAL) and not request:
        return "".join(f"{_json(message)}\n" for message in messages)
    if not request:
        return f"{_json(list(messages), indent=1)}\n"
    place = next((name for name in MESSAGES if isinstance(request.get(name), list | str)), MESSAGES[0])
    return f"{_json({**request, place: list(messages)}, indent=1)}\n"


def _json(data: Any, *, indent: int | None = None) -> str:
    return json.dumps(data, ensure_ascii=False, indent=indent, default=_in_base64)


def _in_base64(data: object) -> str:
    if isinstance(data, bytes):  # Gemini's media and signatures
        return base64.b64encode(data).decode()
    raise TypeError(f"{type(data).__name__} has no JSON form")


def tokens_by_source(
    messages: tuple[Message, ...], instructions: str | None, tools: tuple[ToolSpec, ...]
) -> dict[str, int]:
    """Estimated tokens of a request by source. The summary of compacted messages is a separate
    source.
    """
    sizes = sizes_by_source(ModelRequest(messages, instructions, tools))
    if head_of_messages(messages):
        own = size_of_message(messages[0])
        sizes["user"] -= own
        sizes = {"summary": own, **sizes}
    return {source: size.tokens for source, size in sizes.items() if size.tokens}


# --- reading


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
    except (EOFError, zlib.error) as error:
        raise ConfigError(f"it is damaged: {error}") from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}") from None
    try:
        if not (kind := kind_of(data[:MAGIC_BYTES])):
            return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        kind = kind_of(data[:HEAD_BYTES])
    raise ConfigError(f"it is {kind or 'not text in UTF-8'}")


def _parsed(text: str) -> tuple[Any, bool]:
    """One JSON document, or one for each line, and whether it is lines."""
    if not text.strip():
        raise ConfigError("it is empty")
    try:
        return json.loads(text), False
    except ValueError as error:
        whole = error
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None
    found: list[Any] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ConfigError(
                    f"line {number} is not JSON: {error}" if found else f"it is not JSON: {whole}"
                ) from None
    return found, True


def _conversation(data: Any, form: str | None) -> Conversation:
    request: Mapping[str, Any] = {}
    if isinstance(data, list) and len(data) == 1 and messages_of(data[0]) is not None:
        data = data[0]  # one request, as a line of a log
    if isinstance(data, Mapping) and (found := messages_of(data)) is not None:
        request, data = data, found
    elif isinstance(data, Mapping):
        data = [data]  # a line of one message
    if request and isinstance(data, str):
        data = [{"role": "user", "content": data}]
    if not isinstance(data, list):
        raise ConfigError(f"a conversation is a list of messages or a request with one, not {type(data).__name__}")
    for index, one in enumerate(data):
        if not isinstance(one, Mapping):
            raise ConfigError(f"message {index} is {type(one).__name__}, not an object")
        if (inside := messages_of(one)) is not None:
            if isinstance(inside, list) and any(map(_is_recorded, inside)):
                raise ConfigError(_RECORDING)
            raise ConfigError(
                f"record {index} is a whole conversation; give one of them, e.g. the last: tail -n 1 FILE, and - for"
                " FILE"
            )
    if not data:
        raise ConfigError("there are no messages in it")
    kept = _form(form, request, data)
    settings = request.get("config")
    fields = {**(settings if isinstance(settings, Mapping) else {}), **request}
    system = (fields.get(name) for name in ("system", "instructions", "systemInstruction", "system_instruction"))
    model = fields.get("model")
    return Conversation(
        kept,
        data,
        "\n\n".join(filter(None, map(instructions_of, system))) or None,
        tuple(_tool_specs(fields.get("tools"))),
        model if isinstance(model, str) and model else None,
        request,
        not_understood=not_understood(kept, data) if form is not None else 0,
    )


def _form(said: str | None, request: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Kept:
    """The form that `--form` names, else the recognised one."""
    if said is not None:
        return next(one for one in FORMS if one == said)
    if any(map(_is_recorded, records)):
        raise ConfigError(_RECORDING)
    try:
        return form_of(request, records)
    except ConfigError:
        if (kind := kind_of_record(records[0])) not in {None, CONVERSATION}:
            raise ConfigError(f"it is {kind}") from None
        raise


def _tool_specs(tools: object) -> Iterator[ToolSpec]:
    """The tools of the request, in any provider's form, for the estimate of their size."""
    for one in declarations_of(tools):
        fields = snake(one)
        name, described = fields.get("name", fields.get("type")), fields.get("description")
        schemas = (fields.get(name) for name in ("parameters", "parameters_json_schema", "input_schema"))
        schema = next((schema for schema in schemas if schema is not None), None)
        yield ToolSpec(str(name or ""), str(described or ""), schema if isinstance(schema, Mapping) else {})


def _messages(conversation: Conversation) -> Iterator[RawMessage | Message]:
    try:
        if conversation.form != NEUTRAL:
            yield from read_history(conversation.form, conversation.given)
            return
    except AdapterError as error:
        raise ConfigError(f"{error}; it was read as {conversation.form}, --form sets another one") from None
    for index, data in enumerate(conversation.given):
        try:
            yield message_codec.from_dict(data)
        except ValueError as error:
            raise ConfigError(f"message {index}: {error}") from None


_RECORDING: Final = (
    "this looks like a recording for agent-monitor scan: its calls have no ids, and no provider takes it"
)


def _is_recorded(message: object) -> bool:
    return isinstance(message, Mapping) and "role" in message and is_recorded(message)
