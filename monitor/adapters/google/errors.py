"""Classifies the exceptions of google-genai, and of the transports under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monitor.adapters.error_causes import (
    attribute,
    classified,
    delay_s,
    has,
    header_delay_s,
    kind_by_type,
    message_of,
    said_or,
)
from monitor.context.overflow import says_overflow
from monitor.models import ErrorKind, ModelError


def classify(error: BaseException) -> ModelError:
    """The kind of `error`, its message, and the delay that the service asks for. Never raises."""
    return classified(error, _api_error, _kind_by_type, said=message_of)


def reported(error: object) -> ModelError:
    """The kind and message of an error object of the service."""
    fields = error if isinstance(error, Mapping) else {}
    code, said, status = fields.get("code"), fields.get("message"), fields.get("status")
    message = said if isinstance(said, str) and said else "the service sent an error"
    return ModelError(
        _kind_by_code(code if type(code) is int else 0, message, str(fields.get("details"))),
        message,
        _retry_delay_s(fields),
        code if type(code) is int else None,
        status if isinstance(status, str) else None,
    )


def _kind_by_type(error: BaseException) -> ErrorKind | None:
    if any(kind.__module__.split(".")[:2] == ["google", "auth"] for kind in type(error).__mro__):
        return ErrorKind.AUTH
    kind = kind_by_type(error)
    if kind is ErrorKind.MALFORMED and str(attribute(error, "title")).endswith("Config"):
        return ErrorKind.REQUEST  # pydantic refuses the caller's arguments
    return kind


def _api_error(error: BaseException) -> ModelError | None:
    code = attribute(error, "code")
    if type(code) is not int or not has(error, "details"):
        return None
    status = attribute(error, "status")
    message = said_or(attribute(error, "message"), error)
    return ModelError(
        kind=_kind_by_code(code, message, str(attribute(error, "details"))),
        message=message,
        retry_after_s=_retry_after_s(error),
        status=code,
        code=status if isinstance(status, str) and status.isupper() else None,
    )


def _kind_by_code(code: int, message: str, details: str) -> ErrorKind:
    match code:
        case 429:
            return ErrorKind.RATE_LIMITED
        case 400 if says_overflow(message, status=code):
            return ErrorKind.OVERFLOW
        case 400 if "API_KEY_INVALID" in details or "API key not valid" in message:
            return ErrorKind.AUTH
        case 401 | 403:
            return ErrorKind.AUTH
        case _ if 400 <= code < 500:  # noqa: PLR2004 - the HTTP classes
            return ErrorKind.REQUEST
        case _ if code >= 500:  # noqa: PLR2004
            return ErrorKind.SERVER
    return ErrorKind.UNKNOWN


def _retry_after_s(error: BaseException) -> float | None:
    """The delay of a RetryInfo detail, else of the headers."""
    delay = _retry_delay_s(attribute(error, "details"))
    return delay if delay is not None else header_delay_s(attribute(attribute(error, "response"), "headers"))


def _retry_delay_s(body: object) -> float | None:
    for detail in _error_details(body):
        if isinstance(detail, Mapping) and str(detail.get("@type")).endswith("RetryInfo"):
            delay = delay_s(detail.get("retryDelay"))
            if delay is not None:
                return delay
    return None


def _error_details(body: object) -> Sequence[Any]:
    """The `details` list of the error object. The object may be in the field `error`, and that in a
    list.
    """
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        details = inner.get("details") if isinstance(inner, Mapping) else None
        if isinstance(details, list):
            return details
    return ()
