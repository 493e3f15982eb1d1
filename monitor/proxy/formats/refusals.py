"""Refusals: the words that services use for the statuses of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor.proxy.formats.base import RETRY_LATER, RETRY_NEVER, Refusal, to_bytes
from monitor.proxy.formats.wire import Wire

CODE: Final = "agent_monitor"
"""The code of an error that no other code fits."""

_SERVER: Final = 500
_TIMED_OUT: Final = 408

OPENAI_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
ANTHROPIC_TYPES: Final = OPENAI_TYPES | {504: "timeout_error", 529: "overloaded_error"}
RPC_STATUSES: Final = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def type_of(status: int, types: Mapping[int, str], of_server: str, of_client: str = "invalid_request_error") -> str:
    """The service's word for an error with this status."""
    return types.get(status) or (of_server if status >= _SERVER else of_client)


def refused(status: int, body: Mapping[str, Any]) -> Refusal:
    """A refusal with `body` as its JSON. A client may try again if the next request may pass."""
    passes = status >= _SERVER or status == _TIMED_OUT
    return Refusal(status, RETRY_LATER if passes else RETRY_NEVER, to_bytes(body))


def refusal_of(wire: Wire | None, reason: str, status: int) -> Refusal:
    """A refusal in the form of `wire`. `None`: the form is not known, and OpenAI's is used."""
    return refused(status, openai_error(status, reason, CODE)) if wire is None else wire.refusal(reason, status=status)


def openai_error(status: int, reason: str, code: str) -> dict[str, Any]:
    """The error object of both of OpenAI's formats."""
    kind = type_of(status, OPENAI_TYPES, "server_error")
    return {"error": {"message": reason, "type": kind, "param": None, "code": code}}
