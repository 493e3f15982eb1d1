"""The SDKs' clients for the command line: their keys, and compatible servers."""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from monitor.adapters.replay_model import RecordedChunk, ReplayModel
from monitor.chunks import ToolResult, TurnFinished, UsageReport
from monitor.errors import ConfigError, MissingExtra
from monitor.transcripts.base import ReadReport, RecordedRun
from monitor.transcripts.places import runs
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import Source

Closing = Callable[[], Awaitable[None]]


@dataclass(slots=True, frozen=True)
class Service:
    """How the command line reaches one provider."""

    keys: tuple[str, ...]
    """Environment variables; one of them must be set. Messages name the first.
    """
    client: Callable[[str, str], tuple[Any, Closing]]
    """A client for a base URL and a key, without retries of its own, and how to close it."""


def _import(module: str, package: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == module.partition(".")[0]:
            raise MissingExtra(package, extra) from None
        raise


def _google(base_url: str, key: str) -> tuple[Any, Closing]:
    genai = _import("google.genai", "google-genai", "google")
    options = genai.types.HttpOptions(base_url=base_url, retry_options=genai.types.HttpRetryOptions(attempts=1))
    client = genai.Client(api_key=key, vertexai=False, http_options=options)
    return client, client.aio.aclose


def _openai(base_url: str, key: str) -> tuple[Any, Closing]:
    client = _import("openai", "openai", "openai").AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0)
    return client, client.close


def _anthropic(base_url: str, key: str) -> tuple[Any, Closing]:
    client = _import("anthropic", "anthropic", "anthropic").AsyncAnthropic(
        base_url=base_url, api_key=key, max_retries=0
    )
    return client, client.close


_OPENAI = Service(("OPENAI_API_KEY",), _openai)

SERVICES = {
    "google": Service(
        ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"), _google
    ),
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": Service(("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), _anthropic),
}
"""The services by the provider's name before the colon."""


def client_for(name: str, base_url: str | None, *, keyless: str) -> tuple[Any, Closing] | None:
    """The client for the model `name`; `None`: the model makes its own. `ConfigError`: no key, or
    no service for the URL.

    `keyless`: a command that needs no key, for the message about a missing key.
    """
    provider = name.partition(":")[0]
    service = SERVICES.get(provider)
    if service is None:
        if base_url is not None:
            raise ConfigError(
                f"--base-url is for {', '.join(f'{known}:' for known in SERVICES)} models, not for {name}"
            )
        return None
    keys = [os.environ[key] for key in service.keys if os.environ.get(key)]
    if base_url is not None:
        if urlsplit(base_url).scheme not in {"http", "https"} or not urlsplit(base_url).netloc:
            raise ConfigError(f"--base-url {base_url}: write the whole address, e.g. http://localhost:8000/v1")
        return service.client(
            base_url, keys[0] if keys else "none"
        )  # the SDK requires a key, even if a local server does not
    if not keys:
        raise ConfigError(f"{name} needs a key: set {service.keys[0]} (without a key: {keyless})")
    return None


# --------------------------------------------------------------------------------------------------
# `replay:FILE`: a recorded run in the place of a model. The file is a recording of chunks, a log
# of events, or a transcript of any format that `scan` reads.

REPLAY: Final = "replay:"
NAMED: Final = 5


def replay_of(name: str) -> ReplayModel:
    """The model for `replay:FILE`. Of a transcript with several runs, `replay:FILE#RUN` names one.

    Raises `OSError` for a file that cannot be opened, and `MonitorError` for one without turns.
    """
    file, run = _named(name.removeprefix(REPLAY))
    source = Source.of_path(file)
    reader = reader_of(source)
    if reader is None or reader.format == "events":  # these recordings have times and pieces of their own
        return ReplayModel(file)
    found = [*runs(source, ReadReport())]
    chosen = found if run is None else [one for one in found if one.id == run]
    if len(chosen) != 1:
        names = ", ".join(one.id for one in found[:NAMED]) + (", ..." if len(found) > NAMED else "")
        raise ConfigError(f"{file}: it holds {len(found)} runs; name one of them, {REPLAY}FILE#RUN: {names}")
    return ReplayModel(file, turns=_turns(chosen[0]))


def _named(given: str) -> tuple[str, str | None]:
    """The file, and the run that is named behind `#`. Either may have `#` in its name."""
    parts = given.split("#")
    for number in range(len(parts), 0, -1):
        file = "#".join(parts[:number])
        if Path(file).exists():
            return file, "#".join(parts[number:]) if number < len(parts) else None
    return given, None


def _turns(run: RecordedRun) -> Iterator[list[RecordedChunk]]:
    """The answers of the model, response by response."""
    turn: list[RecordedChunk] = []
    for index, chunk in run.chunks():
        usage = run.messages[index].usage
        if isinstance(chunk, TurnFinished) and usage is not None:
            reported = UsageReport(
                usage.input_tokens,
                usage.output_tokens,
                usage.reasoning_tokens,
                usage.cached_tokens,
                usage.total_tokens,
            )
            turn.append(RecordedChunk(0.0, reported))
        if not isinstance(chunk, ToolResult):
            turn.append(RecordedChunk(0.0, chunk))
        if isinstance(chunk, TurnFinished):
            yield turn
            turn = []
