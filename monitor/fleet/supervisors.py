"""The supervisors of a fleet, by name and version."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from monitor.errors import ConfigError
from monitor.fleet.receipts import MAX_NAME_CHARS
from monitor.harness.runs.supervisor import Supervisor


class UnknownSupervisor(ConfigError):
    """The worker has no supervisor for the run. The run waits for a worker that has it."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(f"no supervisor {name!r} of version {version!r} here: the run waits for a worker that has it")
        self.name = name
        self.version = version

    def __reduce__(self) -> tuple[type[UnknownSupervisor], tuple[str, str]]:
        return type(self), (self.name, self.version)


@dataclass(slots=True, frozen=True)
class _Registered:
    supervisor: Supervisor[Any]
    version: str
    runs: frozenset[str]
    """The versions whose runs it may carry out."""


class Supervisors:
    """The supervisors that a worker can run. Every worker registers them in its code.

        supervisors = Supervisors()
        supervisors.add("writer", supervisor, version="2", also=["1"])

    A run is carried out by the version that it was submitted to. Another version takes it only if
    that was declared with `also`. Otherwise the run waits.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[_Registered]] = {}

    def add(
        self, name: str, supervisor: Supervisor[Any], *, version: str = "1", also: Collection[str] = ()
    ) -> Supervisor[Any]:
        """Register `supervisor`, and return it. `also`: the other versions whose runs it may carry
        out. Raises `ConfigError` if two supervisors would carry out the same version.
        """
        if isinstance(also, str):
            raise ConfigError(f"also is a list of versions, not the text {also!r}")
        if not isinstance(supervisor, Supervisor):
            raise ConfigError(f"{name} is a monitor.Supervisor, not {supervisor!r}")
        for text in (name, version, *also):
            check_name(text)
        runs = frozenset({version, *also})
        beside = self._known.setdefault(name, [])
        for one in beside:
            if both := sorted(one.runs & runs):
                raise ConfigError(f"two supervisors {name!r} would carry out the version {', '.join(both)}")
        beside.append(_Registered(supervisor, version, runs))
        return supervisor

    def find(self, name: str, version: str) -> Supervisor[Any]:
        """The supervisor that carries out runs of this version. Raises `UnknownSupervisor`."""
        for one in self._known.get(name, ()):
            if version in one.runs:
                return one.supervisor
        raise UnknownSupervisor(name, version)

    def newest(self, name: str) -> str:
        """The version of the supervisor of this name that was registered last. Raises
        `ConfigError` if there is none.
        """
        known = self._known.get(name)
        if not known:
            raise ConfigError(f"no supervisor {name!r} is registered here")
        return known[-1].version

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The name and the version of all runs that can be carried out here."""
        return ((name, version) for name, known in self._known.items() for one in known for version in sorted(one.runs))


def check_name(text: object) -> None:
    """Raise `ConfigError` if `text` cannot name a supervisor or a version."""
    if not isinstance(text, str) or not text or len(text) > MAX_NAME_CHARS or not set(text) <= _ALLOWED:
        raise ConfigError(
            f"a name is 1 to {MAX_NAME_CHARS} ASCII letters, digits, dots, hyphens and underscores, not {text!r}"
        )


_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
