"""Every exception that agent-monitor raises.

    MonitorError
      ConfigError       the call or the configuration is wrong; fix the code
        MissingExtra    an optional package is not installed; the message names the extra
      AdapterError      a provider object or a recorded file cannot be read as a stream
      RunFailed         raised on request only, by `Outcome.raise_for_reason()`
      StoreError        stored data cannot be read or written
      ToolError         raised by a tool: its message is what the model reads
      RecordedError     an exception of another process, read back from JSON; never raised

A run that ends is an `Outcome`, not an exception.
"""

from __future__ import annotations

__all__ = ["AdapterError", "ConfigError", "MissingExtra", "MonitorError", "RecordedError", "StoreError", "ToolError"]


def message_of(error: BaseException) -> str:
    """What `str(error)` says, also if the exception's own `__str__` is broken."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an SDK's exception may be as broken as it likes
        return "(its message cannot be read)"


def describe(error: BaseException) -> str:
    """Type and message in one line."""
    name, message = type(error).__name__, message_of(error)
    return f"{name}: {message}" if message else name


class MonitorError(Exception):
    """Root of all errors of this library."""


class ConfigError(MonitorError):
    """An argument, or a combination of arguments, makes no sense. The message names it and the
    fix.
    """


class MissingExtra(ConfigError):
    """An optional package is needed for this and is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package!r} is not installed; run: pip install 'agent-monitor[{extra}]'")
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), (self.package, self.extra)


class AdapterError(MonitorError):
    """A provider's object, or a line of a recorded file, is not what its format says."""


class StoreError(MonitorError):
    """Stored data cannot be read or written."""


class ToolError(MonitorError):
    """A tool did not do what it was asked. The message goes to the model as it stands, so it should
    say what to do instead.
    """


class RecordedError(MonitorError):
    """An exception as it stood in a JSON record: its type by name, and its message."""

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message

    def __reduce__(self) -> tuple[type[RecordedError], tuple[str, str]]:
        return type(self), (self.type_name, self.message)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedError) and (self.type_name, self.message) == (other.type_name, other.message)

    def __hash__(self) -> int:
        return hash((self.type_name, self.message))
