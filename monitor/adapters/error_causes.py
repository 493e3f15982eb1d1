"""The common parts of classifying the SDKs' exceptions: their causes, the transports under them,
delays.

Names and values along the chain of causes decide, because one SDK raises errors of aiohttp, httpx
or httpx2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from monitor.adapters.parts import ReportedFailure
from monitor.errors import AdapterError, without_keys
from monitor.models import ErrorKind, ModelError

_NETWORK_PACKAGES: Final = frozenset(
    {"aiohttp", "anyio", "h11", "httpcore", "httpcore2", "httpx", "httpx2", "requests", "urllib3"}
)
_UNREADABLE: Final = frozenset({"APIResponseValidationError", "JSONDecodeError", "UnknownApiResponseError"})
_DELAY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s?")
_MAX_CAUSES: Final = 20
_MAX_MESSAGE_CHARS: Final = 2000


def causes(error: BaseException) -> list[BaseException]:
    """The exception and its causes, nearest first; members of a group as well."""
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


def classified(
    error: BaseException,
    of_the_sdk: Callable[[BaseException], ModelError | None],
    kind_of: Callable[[BaseException], ErrorKind | None],
    *,
    said: Callable[[BaseException], str],
) -> ModelError:
    """The kind of `error`, its message, and the delay that the service asks for. Never raises.

    `of_the_sdk`: reads an exception of the SDK; `None`: it is no such one. `kind_of`: the kind of
    another exception by its class. `said`: the message of a failure that is known by its class.
    """
    if isinstance(error, ReportedFailure):
        return error.model_error
    if isinstance(error, AdapterError):
        return ModelError(ErrorKind.MALFORMED, str(error))
    chain = causes(error)
    if (found := next(filter(None, map(of_the_sdk, chain)), None)) is not None:
        return found
    if (kind := next(filter(None, map(kind_of, chain)), None)) is not None:
        return ModelError(kind, said(error))
    return ModelError(ErrorKind.UNKNOWN, message_of(error))


def kind_by_type(error: BaseException) -> ErrorKind | None:
    """The kind of `error` by its class, for any SDK. `None`: the class does not decide."""
    types = [(kind.__name__, kind.__module__.partition(".")[0]) for kind in type(error).__mro__]
    if any(name in _UNREADABLE for name, _ in types):
        return ErrorKind.MALFORMED
    if any(name == "ValidationError" and package in {"pydantic", "pydantic_core"} for name, package in types):
        return ErrorKind.MALFORMED
    if isinstance(error, OSError) or any(package in _NETWORK_PACKAGES for _, package in types):
        return ErrorKind.NETWORK
    return None


# --- how long to wait


def delay_s(value: object) -> float | None:
    """A delay as a service writes it, in seconds: `7`, `7.5s`, or a date. `None`: anything else."""
    text = str(value).strip()
    delay = _DELAY.fullmatch(text)
    if delay:
        return float(delay[1])
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def header_delay_s(headers: object) -> float | None:
    """The delay that the headers of a response ask for: `retry-after-ms`, else `retry-after`."""
    if not isinstance(headers, Mapping):
        return None
    said = {str(name).lower(): value for name, value in headers.items()}
    milliseconds = delay_s(said.get("retry-after-ms"))
    if milliseconds is not None and math.isfinite(milliseconds):
        return milliseconds / 1000
    return delay_s(said["retry-after"]) if "retry-after" in said else None


# --- reading objects that may be anything: classifying a failure must not fail


def has(holder: object, name: str) -> bool:
    """`hasattr`; True if the attribute raises."""
    try:
        return hasattr(holder, name)
    except Exception:  # noqa: BLE001 - see above
        return True


def attribute(holder: object, name: str) -> Any:
    """`getattr`; `None` if the attribute is missing or raises."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - see above
        return None


def message_of(error: BaseException) -> str:
    """The text of `error`, or else the name of its class; at most 2,000 characters."""
    try:
        return (without_keys(str(error), error) or type(error).__name__)[:_MAX_MESSAGE_CHARS]
    except Exception:  # noqa: BLE001 - see above
        return type(error).__name__


def with_its_cause(error: BaseException) -> str:
    """The text of `error`, and that of its last cause which has one: an SDK says no more of a lost
    network, a wrong host or an unusable key than "Connection error."
    """
    said, cause = message_of(error), next((one for one in reversed(causes(error)) if attribute(one, "args")), error)
    behind = message_of(cause)
    return said if behind in said else f"{said.rstrip('.')}: {behind}"


def said_or(said: object, error: BaseException) -> str:
    """The service's own words, or else the exception's; without keys."""
    return without_keys(said, error)[:_MAX_MESSAGE_CHARS] if isinstance(said, str) and said else message_of(error)
