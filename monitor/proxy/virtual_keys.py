"""Keys that the operator gives to clients: who may ask for what, and how often.

Only the digest of a key is kept. With such keys, a request with any other key is refused. The
service gets its own key in place of the client's, if the proxy has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final

from monitor._util.argument_checks import is_whole
from monitor.errors import ConfigError
from monitor.proxy.keys import KeyNames, digest_of

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
