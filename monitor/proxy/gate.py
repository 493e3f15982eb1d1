"""Who may pass: the keys of clients, and the keys that services get in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from monitor.errors import ConfigError
from monitor.proxy.keys import KeyNames
from monitor.proxy.transport.headers import SEVERAL_KEYS
from monitor.proxy.virtual_keys import RequestRate, VirtualKey, VirtualKeys

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
        if self.keys is None:
            return AllowedKey(self._names.name_of(keys[0] if keys else None))
        if len(keys) > 1:
            return Denied(_BAD_REQUEST, SEVERAL_KEYS)
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
