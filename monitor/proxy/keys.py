"""The keys of clients: their names, what each may, and the file that has them. The key itself is
kept nowhere.

A key in the table has its name. Any other is known by a keyed hash: nobody can find out from a page
or a log whether a key of theirs was used. Its secret is made of the token of the proxy's pages, so
that several proxies with one token give a key one name.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from monitor._util.argument_checks import is_whole
from monitor.errors import ConfigError, ToolError
from monitor.proxy.http_messages import SEVERAL_KEYS
from monitor.sessions.tables.marked_folder import write_whole
from monitor.tools.workspace import only_writer

NOBODY: Final = "no-key"
"""The name of a client without a key."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(key: str) -> str:
    """The form of a key in the table of names: `sha256:` and 64 digits."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


class KeyNames:
    """Gives names to the keys of clients."""

    def __init__(
        self, names: Mapping[str, str] | None = None, *, secret: bytes | None = None, only: bool = False
    ) -> None:
        """`names`: the digest of a key (`digest_of`) by its name. `secret`: of the keyed hash.
        `None`: a new one, or that of `with_secret`. `only`: no other key may pass.
        """
        if only and not names:
            raise ConfigError("only keys with a name may pass, and no key has one: nobody could")
        self.only: bool = only
        """Only a key that has a name may pass."""
        for name, digest in (names or {}).items():
            if not _NAME.fullmatch(name) or name == NOBODY or name.startswith("key-"):
                raise ConfigError(f"the name of a key has letters, digits, . _ and -, and not {name!r}")
            if not _DIGEST.fullmatch(digest):
                raise ConfigError(f"the key {name!r} is given as digest_of(key), not as the key itself")
        self._names = {digest: name for name, digest in (names or {}).items()}
        if len(self._names) < len(names or {}):
            raise ConfigError("one key has two names: each key has one, from which it spends")
        self._has_secret = secret is not None
        self._secret = secret or secrets.token_bytes(32)

    def with_secret(self, token: str) -> KeyNames:
        """The same names, with a secret that is made of `token` if none was given."""
        if self._has_secret:
            return self
        digest = hashlib.sha256(b"agent-monitor names of keys\0" + token.encode()).digest()
        return KeyNames({name: known for known, name in self._names.items()}, secret=digest, only=self.only)

    def __contains__(self, name: object) -> bool:
        """Whether a key in the table has this name."""
        return name in self._names.values()

    def name_of(self, key: bytes | None) -> str:
        """The name of the key."""
        if not key:
            return NOBODY
        named = self._names.get(f"sha256:{hashlib.sha256(key).hexdigest()}") if self._names else None
        return named or f"key-{hmac.new(self._secret, key, hashlib.sha256).hexdigest()[:12]}"


# --------------------------------------------------------------------------------------------------
# Keys that the operator gives to clients: who may ask for what, and how often.
#
# Only the digest of a key is kept. With such keys, a request with any other key is refused. The
# service gets its own key in place of the client's, if the proxy has one.

_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualKey:
    """One key, and what it may."""

    name: str
    digest: str
    """The digest of the key, as `digest_of` gives it."""
    owner: str = ""
    """The person or the team whose key it is."""
    expires: datetime | None = None
    """From this moment on it is refused. `None`: it does not expire."""
    models: tuple[str, ...] = ()
    """Patterns such as `gpt-4o*`, of which the model of a request must fit one. Empty: any model.
    """
    tokens: int | None = None
    """The limit of its budget. `None`: that of all keys."""
    requests_per_minute: int | None = None
    """`None`: no limit."""

    def __post_init__(self) -> None:
        KeyNames({self.name: self.digest})  # the same rules
        if self.expires is not None and self.expires.tzinfo is None:
            raise ConfigError(f"the key {self.name!r} expires at a moment without a time zone: {self.expires}")
        if not all(self.models) or {type(pattern) for pattern in self.models} - {str}:
            raise ConfigError(f"the key {self.name!r}: a model is a pattern such as 'gpt-4o*'")
        for field in ("tokens", "requests_per_minute"):
            value = getattr(self, field)
            if value is not None and (not is_whole(value) or not value >= 1):
                raise ConfigError(f"{field} of the key {self.name!r} is a whole number of at least 1, not {value!r}")

    def may_ask(self, model: str) -> bool:
        """Whether it may ask for the model."""
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)

    def is_over(self, now_s: float) -> bool:
        """Whether it has expired. `now_s`: seconds since 1970."""
        return self.expires is not None and datetime.fromtimestamp(now_s, UTC) >= self.expires


class VirtualKeys:
    """All keys that open a proxy."""

    def __init__(self, keys: Iterable[VirtualKey]) -> None:
        self._by_digest: dict[str, VirtualKey] = {}
        for key in keys:
            if key.digest in self._by_digest:
                raise ConfigError(f"the keys {self._by_digest[key.digest].name!r} and {key.name!r} are the same")
            self._by_digest[key.digest] = key
        names = [key.name for key in self._by_digest.values()]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"two keys are called {twice!r}")

    def __len__(self) -> int:
        return len(self._by_digest)

    @property
    def all(self) -> list[VirtualKey]:
        """The keys, in the order in which they were given."""
        return list(self._by_digest.values())

    def find(self, key: bytes) -> VirtualKey | None:
        """The key that a client has sent. `None`: it is none of these."""
        return self._by_digest.get(digest_of(key.decode("latin-1")))


class RequestRate:
    """Counts the requests of keys. A key that was idle may send the requests of a minute at once;
    then they come back evenly.
    """

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}
        """For each key, the requests that count at a moment, and the moment."""

    def wait_s(self, key: str, most: int | None, now: float) -> float:
        """Count a request. Above 0: it exceeds the rate, and passes after this number of seconds.
        `most`: requests a minute; `None`: any number.
        """
        if most is None:
            return 0.0
        used, since = self._used.get(key, (0.0, now))
        used = max(0.0, used - (now - since) * most / _MINUTE_S)
        if used + 1 > most:
            self._used[key] = used, now
            return (used + 1 - most) * _MINUTE_S / most
        self._used[key] = used + 1, now
        return 0.0


# --------------------------------------------------------------------------------------------------
# Who may pass: the keys of clients, and the keys that services get in their place.

UNKNOWN: Final = "this proxy does not know the key of the request: ask its operator for one"
EXPIRED: Final = "the key of the request has expired: ask the operator of this proxy for another one"
_BAD_REQUEST, _UNAUTHORIZED, FORBIDDEN, _TOO_MANY = 400, 401, 403, 429


@dataclass(frozen=True, slots=True)
class Denied:
    """A request that may not pass."""

    status: int
    why: str
    retry_after_s: float | None = None
    """The seconds after which it may pass. `None`: it may not."""


@dataclass(frozen=True, slots=True)
class AllowedKey:
    """A request that may pass."""

    key: str
    """The name of its key."""
    may: VirtualKey | None = None
    """What the key may. `None`: everything."""

    def denies(self, model: str | None) -> Denied | None:
        """Why the key may not ask for the model. `model`: `None` if it is not known."""
        if self.may is None or not self.may.models or (model is not None and self.may.may_ask(model)):
            return None
        asked = "for what this proxy cannot read" if model is None else "for this model"
        return Denied(FORBIDDEN, f"the key {self.key!r} may not ask {asked}")


class Gate:
    """Looks at the keys of requests."""

    def __init__(
        self,
        names: KeyNames,
        keys: VirtualKeys | None,
        *,
        service_keys: Mapping[str, str],
        fallback_keys: Mapping[str, str],
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """`keys`: the only ones that may pass; `None`: all may. `service_keys` and `fallback_keys`:
        the keys that services get, by the names of the upstreams. `now`: seconds of a clock that
        only goes forward. `wall`: seconds since 1970.
        """
        if keys is None and (service_keys or fallback_keys):
            raise ConfigError("a key for a service needs keys of the clients: anybody else could spend from it")
        self.keys = keys
        self.service_keys = dict(service_keys)
        self.fallback_keys = dict(fallback_keys)
        self._names = names
        self._rate = RequestRate()
        self._now = now
        self._wall = wall

    def tokens_of(self, name: str) -> int | None:
        """The limit of the budget of this key. `None`: it has none of its own."""
        return next((key.tokens for key in self.keys.all if key.name == name), None) if self.keys is not None else None

    def enter(self, keys: Sequence[bytes]) -> AllowedKey | Denied:
        """A request with the `keys` comes. Each request is counted once."""
        if len(keys) > 1 and (self.keys is not None or self._names.only):
            return Denied(_BAD_REQUEST, SEVERAL_KEYS)
        if self.keys is None:
            name = self._names.name_of(keys[0] if keys else None)
            return AllowedKey(name) if not self._names.only or name in self._names else Denied(_UNAUTHORIZED, UNKNOWN)
        found = self.keys.find(keys[0]) if keys else None
        if found is None:
            return Denied(_UNAUTHORIZED, UNKNOWN)
        if found.is_over(self._wall()):
            return Denied(_UNAUTHORIZED, EXPIRED)
        wait_s = self._rate.wait_s(found.name, found.requests_per_minute, self._now())
        if wait_s > 0:
            most = found.requests_per_minute
            return Denied(_TOO_MANY, f"the key {found.name!r} may send {most} requests a minute: try again", wait_s)
        return AllowedKey(found.name, found)


# --------------------------------------------------------------------------------------------------
# The file of virtual keys: JSON, which `agent-monitor proxy keys` writes, or TOML, which it reads.
#
# {"keys": {"alice": {"digest": "sha256:...", "owner": "alice@example.com", "tokens": 2000000,
# "expires": "2027-01-31T00:00:00+00:00", "models": ["gpt-4o*"], "requests_per_minute": 60}}}

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
