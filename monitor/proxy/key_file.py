"""The file of virtual keys: JSON, which `agent-monitor keys` writes, or TOML, which it only reads.

{"keys": {"alice": {"digest": "sha256:...", "owner": "alice@example.com", "tokens": 2000000,
"expires": "2027-01-31T00:00:00+00:00", "models": ["gpt-4o*"], "requests_per_minute": 60}}}
"""

from __future__ import annotations

import json
import os
import secrets
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from monitor.errors import ConfigError, ToolError
from monitor.proxy.virtual_keys import VirtualKey, VirtualKeys
from monitor.sessions.tables.marked_folder import write_whole
from monitor.tools.workspace.folder_locks import only_writer

_FIELDS: Final = frozenset(field.name for field in fields(VirtualKey)) - {"name"}
_PREFIX: Final = "am-"


def new_key() -> str:
    """A new key, which nobody can guess."""
    return f"{_PREFIX}{secrets.token_urlsafe(32)}"


def read_keys(path: str | os.PathLike[str]) -> VirtualKeys:
    """The keys in the file. Raises `ConfigError`, which never has the text of the file."""
    file = Path(path)
    try:
        text = file.read_text("utf-8")
        value = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"the keys in {file} cannot be read: {reason}") from None
    except (ValueError, RecursionError):
        kind = "TOML" if file.suffix == ".toml" else "JSON"
        raise ConfigError(f"the keys in {file} cannot be read: it is not {kind}") from None
    keys = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(keys, dict):
        raise ConfigError(f'the keys in {file} cannot be read: it has no object "keys"')
    return VirtualKeys([_key(file, name, given) for name, given in keys.items()])


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within this, nobody else who asks changes the file: they wait. Windows has no such lock.
    Raises `ConfigError` if the folder cannot be read, or another change does not end.
    """
    if os.name == "nt":
        yield
        return
    try:
        folder = os.open(Path(path).resolve().parent, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"the keys cannot be written to {path}: {error.strerror}") from None
    try:
        with only_writer(folder):
            yield
    except ToolError as error:
        raise ConfigError(f"the keys cannot be written to {path}: {error}") from None
    finally:
        os.close(folder)


def write_keys(path: str | os.PathLike[str], keys: Sequence[VirtualKey]) -> None:
    """Replace the file at once, so that no reader finds half of it. A link stays one, and a file
    keeps its mode; a new one is for its owner alone. Raises `ConfigError`.
    """
    file = Path(path).resolve()
    if file.suffix == ".toml":
        raise ConfigError(f"{file} is TOML, which is only read: change it by hand, or use a file of JSON")
    content = json.dumps({"keys": {key.name: _as_json(key) for key in keys}}, indent=2) + "\n"
    try:
        mode = file.stat().st_mode & 0o777 if file.exists() else None
        write_whole(file, content.encode(), half=f".{file.name}.{secrets.token_hex(4)}", mode=mode)
    except OSError as error:
        raise ConfigError(f"the keys cannot be written to {file}: {error.strerror}") from None


def _key(file: Path, name: str, given: object) -> VirtualKey:
    if not isinstance(given, Mapping):
        raise ConfigError(f"the key {name!r} in {file} is no object")
    if unknown := sorted(given.keys() - _FIELDS):
        raise ConfigError(f"the key {name!r} in {file} has the unknown field {unknown[0]!r}")
    if not isinstance(given.get("digest"), str):
        raise ConfigError(f"the key {name!r} in {file} has no digest")
    if not isinstance(given.get("owner", ""), str) or not isinstance(given.get("models", []), list):
        raise ConfigError(f"the key {name!r} in {file}: owner is a text, and models is a list")
    more: dict[str, Any] = {**given, "models": tuple(given.get("models", ()))}
    return VirtualKey(**{**more, "name": name, "expires": moment(given.get("expires"), name)})


def moment(given: object, name: str) -> datetime | None:
    """The moment at which a key expires. A day begins at midnight UTC, and a time without a zone is
    UTC. Raises `ConfigError`.
    """
    match given:
        case None:
            return None
        case str():
            try:
                found = datetime.fromisoformat(given)
            except ValueError:
                raise ConfigError(f"the key {name!r} expires at a time such as 2027-01-31, not {given!r}") from None
        case datetime():
            found = given
        case date():
            found = datetime(given.year, given.month, given.day)  # noqa: DTZ001 - the zone follows
        case _:
            raise ConfigError(f"the key {name!r} expires at a time such as 2027-01-31, not {given!r}")
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _as_json(key: VirtualKey) -> dict[str, Any]:
    """The key without what is not set."""
    value: dict[str, Any] = {
        "digest": key.digest,
        "owner": key.owner,
        "expires": key.expires.isoformat() if key.expires is not None else None,
        "models": list(key.models),
        "tokens": key.tokens,
        "requests_per_minute": key.requests_per_minute,
    }
    return {name: one for name, one in value.items() if one not in (None, "", [])}
