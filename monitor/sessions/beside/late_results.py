"""Results of calls that come from outside, after the run that made the calls has paused."""

from __future__ import annotations

from monitor.calls import CallRecord, CallState, stepped
from monitor.errors import ConfigError
from monitor.reasons import ToolErrorKind
from monitor.sessions.run_records import Changes
from monitor.sessions.session_store import SessionStore


async def waiting_calls(session: SessionStore) -> list[CallRecord]:
    """The calls of the session whose results come from outside and are not there yet."""
    return [one for one in await session.calls() if one.state is CallState.AWAITING_RESULT]


async def deliver(session: SessionStore, key: str, text: str, *, is_error: bool = False) -> CallRecord:
    """Store `text` as the result of the call with this key, for which its run waits. Then
    `supervisor.resume(session)` goes on with it. `is_error`: the call has failed.

    The key is `context.idempotency_key` of the tool, and `CallRecord.key`. Delivering the same
    result again changes nothing. Raises `ConfigError` if no such call waits for its result.
    """
    known = await session.find(key)
    if known is not None and (known.text, known.is_error) == (text, is_error):
        return known
    if known is None or known.state is not CallState.AWAITING_RESULT:
        state = "there is none" if known is None else f"it is {known.state.value}"
        raise ConfigError(f"no call with the key {key!r} waits for its result: {state}")
    kind = ToolErrorKind.EXECUTION_FAILED if is_error else None
    state = CallState.FAILED if is_error else CallState.DONE
    ended = stepped(known, state=state, text=text, is_error=is_error, error_kind=kind)
    await session.commit(Changes(calls=[ended]))
    return ended
