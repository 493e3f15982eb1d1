"""Which kind of failure an exception of google-genai, or of a transport under it, is.

Decided by names and values along the chain of causes: the same SDK raises errors of aiohttp, httpx or httpx2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from monitor.errors import AdapterError
from monitor.models import ErrorKind, ModelError

_OVERFLOW: Final = re.compile(r"token count.{0,40}\bexceed|exceeds the maximum number of tokens", re.IGNORECASE | re.DOTALL)
_DELAY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s?")
_NETWORK_PACKAGES: Final = frozenset({"aiohttp", "anyio", "h11", "httpcore", "httpcore2", "httpx", "httpx2", "requests", "urllib3"})
_UNREADABLE: Final = frozenset({"JSONDecodeError", "UnknownApiResponseError"})
_MAX_CAUSES: Final = 20
_MAX_MESSAGE_CHARS: Final = 2000


def classify(error: BaseException) -> ModelError:
    """The kind of `error`, its message, and what the service says of waiting. Never raises."""
    chain = _causes(error)
    if isinstance(error, AdapterError):
        return ModelError(ErrorKind.MALFORMED, str(error))
    for cause in chain:
        code = attribute(cause, "code")
        if type(code) is int and has(cause, "details"):
            return _api_error(cause, code)
    for cause in chain:
        kind = _kind_by_type(cause)
        if kind is not None:
            return ModelError(kind, _message(error))
    return ModelError(ErrorKind.UNKNOWN, _message(error))


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and what it came from, nearest first; members of a group as well."""
    chain: list[BaseException] = []
    waiting = [error]
    while waiting and len(chain) < _MAX_CAUSES:
        one = waiting.pop(0)
        if any(one is known for known in chain):
            continue
        chain.append(one)
        members = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        behind = one.__cause__ if one.__suppress_context__ else one.__cause__ or one.__context__
        waiting += [*members, *([] if behind is None else [behind])]
    return chain


def _kind_by_type(error: BaseException) -> ErrorKind | None:
    types = [(kind.__name__, kind.__module__.split(".")) for kind in type(error).__mro__]
    if any(name in _UNREADABLE for name, _ in types):
        return ErrorKind.MALFORMED
    if any(name == "ValidationError" and packages[0] in {"pydantic", "pydantic_core"} for name, packages in types):
        return ErrorKind.REQUEST if str(attribute(error, "title")).endswith("Config") else ErrorKind.MALFORMED
    if any(packages[:2] == ["google", "auth"] for _, packages in types):
        return ErrorKind.AUTH
    if isinstance(error, OSError) or any(packages[0] in _NETWORK_PACKAGES for _, packages in types):
        return ErrorKind.NETWORK
    return None


def _api_error(error: BaseException, code: int) -> ModelError:
    status = attribute(error, "status")
    said = attribute(error, "message")
    message = said[:_MAX_MESSAGE_CHARS] if isinstance(said, str) and said else _message(error)
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
        case 400 if _OVERFLOW.search(message):
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
    """From a RetryInfo detail, else from the header `Retry-After`."""
    for detail in _error_details(attribute(error, "details")):
        if isinstance(detail, Mapping) and str(detail.get("@type")).endswith("RetryInfo"):
            delay = _DELAY.fullmatch(str(detail.get("retryDelay")))
            if delay:
                return float(delay[1])
    return _header_delay_s(attribute(attribute(error, "response"), "headers"))


def _error_details(body: object) -> Sequence[Any]:
    """The `details` list, which stands in the error object, which may stand in `error`, which may stand in a list."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        details = inner.get("details") if isinstance(inner, Mapping) else None
        if isinstance(details, list):
            return details
    return ()


def _header_delay_s(headers: object) -> float | None:
    if not isinstance(headers, Mapping):
        return None
    value = next((str(value) for name, value in headers.items() if str(name).lower() == "retry-after"), None)
    if value is None:
        return None
    delay = _DELAY.fullmatch(value.strip())
    if delay:
        return float(delay[1])
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def has(holder: object, name: str) -> bool:
    """`hasattr` of an object that may be anything."""
    try:
        return hasattr(holder, name)
    except Exception:  # noqa: BLE001 - classifying a failure must not fail
        return True


def attribute(holder: object, name: str) -> Any:
    """An attribute of an object that may be anything; `None` where reading it fails."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - classifying a failure must not fail
        return None


def _message(error: BaseException) -> str:
    try:
        return (str(error) or type(error).__name__)[:_MAX_MESSAGE_CHARS]
    except Exception:  # noqa: BLE001 - the same
        return type(error).__name__
