"""The end of a guarded run, for frameworks that may end without an exception."""

from __future__ import annotations

from monitor.errors import ConfigError
from monitor.outcome import StoppedByGuard


def check_exit_behavior(given: str) -> None:
    """Raise `ConfigError` for what is no `exit_behavior`."""
    if given not in {"end", "error"}:
        raise ConfigError(f"exit_behavior is 'end' or 'error', not {given!r}")


def reason_of(stopped: StoppedByGuard) -> dict[str, str]:
    """The reason as data, which a framework keeps beside its last message."""
    stop = stopped.stop
    return {"reason": stop.reason.value, "detail": stop.detail, "source": stop.source}


def last_words(stopped: StoppedByGuard) -> str:
    """The text of the last response until the run was ended, without the copies of a loop. If there
    is none, the reason: an empty text looks like an answer, and is no valid history.
    """
    turn = stopped.turn
    return (turn.text[: turn.loop_offset] if turn is not None else "") or str(stopped)
