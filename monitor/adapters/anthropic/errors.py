"""Classifies the exceptions of anthropic, and of the transports under it.

An error in the middle of a stream is an `APIStatusError` with the stream's status, 200. So the
service's own type of the error is read before the status. If the connection breaks, the SDK raises
the transport's exception.
"""

from __future__ import annotations

from typing import Final

from monitor.adapters.error_causes import (
    attribute,
    classified,
    header_delay_s,
    kind_by_type,
    message_of,
    said_or,
    with_its_cause,
)
from monitor.context.overflow import says_overflow
from monitor.models import ErrorKind, ModelError

_KINDS: Final = {
    "authentication_error": ErrorKind.AUTH,
    "permission_error": ErrorKind.AUTH,
    "rate_limit_error": ErrorKind.RATE_LIMITED,
    "overloaded_error": ErrorKind.SERVER,
    "api_error": ErrorKind.SERVER,
    "timeout_error": ErrorKind.SERVER,
    "billing_error": ErrorKind.REQUEST,
    "not_found_error": ErrorKind.REQUEST,
    "conflict_error": ErrorKind.REQUEST,
    "request_too_large": ErrorKind.OVERFLOW,
    "invalid_request_error": ErrorKind.REQUEST,
}
"""The kind of each `error.type` of a body: https://docs.claude.com/en/api/errors"""

_NO_STATUS: Final = 0
_TOO_LARGE: Final = 413
"""The request has too many bytes (32 MB). Less history and fewer files help, as for too many
tokens, so the kind is the same; `ModelError.status` distinguishes the two.
"""

_FILTERED: Final = "blocked by content filtering"
_UNREADABLE: Final = ("Unable to parse tool parameter JSON", "Unexpected event order", "Unexpected event runtime type")
"""The messages of the `messages.stream` helper for an invalid stream: a plain ValueError,
RuntimeError or TypeError.
"""
_NO_KEY: Final = "Could not resolve authentication method"
"""The SDK's TypeError if there is no key."""


def classify(error: BaseException) -> ModelError:
    """The kind of `error`, its message, and the delay that the service asks for. Never raises."""
    return classified(error, _api_error, _kind_by_type, said=with_its_cause)


def reported(error: object) -> ModelError:
    """The kind and message of an error object of the service."""
    word, said = attribute(error, "type"), attribute(error, "message")
    message = said if isinstance(said, str) and said else "the service sent an error"
    code = word if isinstance(word, str) else None
    return ModelError(_kind(code, _NO_STATUS, message), message, code=code)


def _kind_by_type(error: BaseException) -> ErrorKind | None:
    names = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] == "anthropic"}
    if "CredentialsError" in names:
        return ErrorKind.AUTH
    if "APIConnectionError" in names:
        return ErrorKind.NETWORK
    message = message_of(error)
    if isinstance(error, TypeError) and _NO_KEY in message:
        return ErrorKind.AUTH
    if isinstance(error, ValueError | RuntimeError | TypeError) and message.startswith(_UNREADABLE):
        return ErrorKind.MALFORMED
    return kind_by_type(error)


def _api_error(error: BaseException) -> ModelError | None:
    status = attribute(error, "status_code")
    if type(status) is not int or kind_by_type(error) is not None:
        return None
    said, code = attribute(error, "type"), attribute(error, "error_code")
    word = said if isinstance(said, str) else None
    message = said_or(attribute(error, "api_message") or attribute(error, "message"), error)
    return ModelError(
        kind=_kind(word, status, message),
        message=message,
        retry_after_s=header_delay_s(attribute(attribute(error, "response"), "headers")),
        status=status,
        code=code if isinstance(code, str) else word,
    )


def _kind(word: str | None, status: int, message: str) -> ErrorKind:
    kind = _KINDS.get(word or "") or _kind_by_status(status)
    if kind is ErrorKind.REQUEST and _FILTERED in message:
        return ErrorKind.BLOCKED
    if kind in {ErrorKind.REQUEST, ErrorKind.UNKNOWN} and (
        status == _TOO_LARGE or says_overflow(message, status=status or None)
    ):
        return ErrorKind.OVERFLOW
    return kind


def _kind_by_status(status: int) -> ErrorKind:
    match status:
        case 401 | 403:
            return ErrorKind.AUTH
        case 429:
            return ErrorKind.RATE_LIMITED
        case 408:
            return ErrorKind.SERVER
        case _ if 400 <= status < 500:  # noqa: PLR2004 - the HTTP classes
            return ErrorKind.REQUEST
        case _ if status >= 500:  # noqa: PLR2004
            return ErrorKind.SERVER
    return ErrorKind.UNKNOWN
