"""The kind of a failure: of an exception of an SDK or of a transport under it, or of an error that
a service reports in its stream.

Names and values along the chain of causes decide, because one SDK raises errors of aiohttp, httpx
or httpx2. Each service has a table of its words and of its statuses, and a few rules of its own.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Final

from monitor.adapters.parts import ReportedFailure
from monitor.context.overflow import OverflowKind, read_failure, says_overflow
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


_STATUSES: Final[Mapping[str, Mapping[int, ErrorKind]]] = {
    "openai": {
        **dict.fromkeys((401, 402, 403), ErrorKind.AUTH),
        **dict.fromkeys((408, 409, 425), ErrorKind.SERVER),  # the SDK itself retries these
    },
    "google": {401: ErrorKind.AUTH, 403: ErrorKind.AUTH, 429: ErrorKind.RATE_LIMITED},
    "anthropic": {
        **dict.fromkeys((401, 403), ErrorKind.AUTH),
        408: ErrorKind.SERVER,
        429: ErrorKind.RATE_LIMITED,
    },
}
"""The statuses of each service whose kind is not that of their class in HTTP."""


class SdkErrors(ABC):
    """Tells the failures of one service apart, and of the SDK that calls it."""

    package: ClassVar[str]
    """The package of the SDK."""

    def classify(self, error: BaseException) -> ModelError:
        """The kind of `error`, its message, and the delay that is asked for. Never raises."""
        if isinstance(error, ReportedFailure):
            return error.model_error
        if isinstance(error, AdapterError):
            return ModelError(ErrorKind.MALFORMED, str(error))
        chain = causes(error)
        if (found := next(filter(None, map(self._of_the_sdk, chain)), None)) is not None:
            return found
        if (kind := next(filter(None, map(self._kind_by_type, chain)), None)) is not None:
            return ModelError(kind, self._said(error))
        return ModelError(ErrorKind.UNKNOWN, message_of(error))

    @abstractmethod
    def _of_the_sdk(self, error: BaseException) -> ModelError | None:
        """The failure that an exception of the SDK tells of. `None`: it is no such one."""

    def _kind_by_type(self, error: BaseException) -> ErrorKind | None:
        """The kind of another exception by its class."""
        return kind_by_type(error)

    def _said(self, error: BaseException) -> str:
        """The message of a failure that is known by its class."""
        return message_of(error)

    def _names(self, error: BaseException) -> set[str]:
        """The classes of `error` that belong to the SDK."""
        return {kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] == self.package}

    def _by_status(self, status: int) -> ErrorKind:
        classes = {4: ErrorKind.REQUEST, 5: ErrorKind.SERVER}
        return _STATUSES[self.package].get(status) or classes.get(min(status // 100, 5), ErrorKind.UNKNOWN)


def _header_delay_s(error: BaseException) -> float | None:
    return header_delay_s(attribute(attribute(error, "response"), "headers"))


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


# --------------------------------------------------------------------------------------------------
# OpenAI, and the many services that its SDK talks to. OpenAI itself sends a code; others send an
# HTTP status and words.

_CODES: Final = {
    "context_length_exceeded": ErrorKind.OVERFLOW,
    "string_above_max_length": ErrorKind.OVERFLOW,
    "request_too_large": ErrorKind.OVERFLOW,
    "rate_limit_exceeded": ErrorKind.RATE_LIMITED,
    "rate_limit_error": ErrorKind.RATE_LIMITED,
    "too_many_requests": ErrorKind.RATE_LIMITED,
    "insufficient_quota": ErrorKind.AUTH,  # also 429, but waiting does not help: the account is not paid for
    "billing_not_active": ErrorKind.AUTH,
    "billing_hard_limit_reached": ErrorKind.AUTH,
    "invalid_api_key": ErrorKind.AUTH,
    "authentication_error": ErrorKind.AUTH,
    "permission_error": ErrorKind.AUTH,
    "content_filter": ErrorKind.BLOCKED,
    "content_policy_violation": ErrorKind.BLOCKED,
    "image_content_policy_violation": ErrorKind.BLOCKED,
    "responsibleaipolicyviolation": ErrorKind.BLOCKED,
    "moderation_blocked": ErrorKind.BLOCKED,
    "data_inspection_failed": ErrorKind.BLOCKED,  # DashScope
    "invalid_prompt": ErrorKind.BLOCKED,  # the prompt was flagged; a malformed one is an invalid_request_error
    "cyber_policy": ErrorKind.BLOCKED,
    "bio_policy": ErrorKind.BLOCKED,
    "server_error": ErrorKind.SERVER,
    "internal_error": ErrorKind.SERVER,
    "internal_server_error": ErrorKind.SERVER,
    "overloaded_error": ErrorKind.SERVER,
    "service_unavailable": ErrorKind.SERVER,
    "service_unavailable_error": ErrorKind.SERVER,
    "server_is_overloaded": ErrorKind.SERVER,
    "slow_down": ErrorKind.SERVER,
    "engine_overloaded_error": ErrorKind.RATE_LIMITED,  # Kimi
    "vector_store_timeout": ErrorKind.SERVER,
    "invalid_request_error": ErrorKind.REQUEST,
    "model_not_found": ErrorKind.REQUEST,
    "not_found_error": ErrorKind.REQUEST,
}
"""The services' own codes (`code` before `type`), in lower case."""

_REQUEST_CODE: Final = re.compile(r"(?:invalid|unsupported|unknown|missing|image|empty|failed_to_download)_")
_TRY_AGAIN: Final = re.compile(r"try again in (?:(\d{1,4})m)?(\d{1,9}(?:\.\d{1,9})?)(ms|s)\b", re.IGNORECASE)
_HTTP: Final = range(400, 600)
_STATUS: Final = re.compile(r"[45]\d\d", re.ASCII)
_CLASSES: Final = {
    "LengthFinishReasonError": ErrorKind.REQUEST,
    "ContentFilterFinishReasonError": ErrorKind.BLOCKED,
    "APIConnectionError": ErrorKind.NETWORK,
    "SubjectTokenProviderError": ErrorKind.AUTH,
    "OAuthError": ErrorKind.AUTH,
}


class OpenAIErrors(SdkErrors):
    """The failures of the OpenAI SDK."""

    package = "openai"

    def reported(
        self, code: object, message: object, *, type_: object = None, otherwise: str = "the service reported an error"
    ) -> ModelError:
        """Classify an error that a service reports inside a stream, without a status."""
        said = message if isinstance(message, str) and message else otherwise
        number = _number(code)
        kind = self._kind(number, [_word(code), _word(type_)], said)
        delay = _said_delay_s(said) if kind is ErrorKind.RATE_LIMITED else None
        return ModelError(kind, said, delay, number, _word(code) or _word(type_))

    def _of_the_sdk(self, error: BaseException) -> ModelError | None:
        names = self._names(error)
        for name, kind in _CLASSES.items():
            if name in names:
                return ModelError(kind, with_its_cause(error))
        status = attribute(error, "status_code")
        if type(status) is int and status in _HTTP:
            return self._api_error(error, status)
        if "APIError" in names and "APIResponseValidationError" not in names:
            return self._api_error(error, None)
        if names == {"OpenAIError"}:
            return ModelError(
                ErrorKind.AUTH if "api_key" in message_of(error) else ErrorKind.REQUEST, message_of(error)
            )
        return None

    def _api_error(self, error: BaseException, status: int | None) -> ModelError:
        """Classify an APIError. `status=None`: the error came inside the stream. Its code may
        then be a status.
        """
        body = _body(error)
        code = attribute(error, "code") or body.get("code")
        type_ = attribute(error, "type") or body.get("type")
        inner = body.get("innererror")
        message = said_or(body.get("message"), error)
        words = [_word(inner.get("code")) if isinstance(inner, Mapping) else None, _word(code), _word(type_)]
        kind = self._kind(status if status is not None else _number(code), words, message)
        delay = _header_delay_s(error)
        if delay is None and kind is ErrorKind.RATE_LIMITED:
            delay = _said_delay_s(message)
        return ModelError(
            kind, message, delay, status if status is not None else _number(code), _word(code) or _word(type_)
        )

    def _kind(self, status: int | None, words: list[str | None], message: str) -> ErrorKind:
        by_word = next((kind for word in words if word is not None and (kind := _kind_by_word(word)) is not None), None)
        if status == 429:  # noqa: PLR2004 - HTTP
            return by_word if by_word is ErrorKind.AUTH else ErrorKind.RATE_LIMITED
        if status == 413:  # noqa: PLR2004 - Groq also sends it when the tokens of a minute are used up
            too_much = read_failure(message, status=status)
            return (
                ErrorKind.RATE_LIMITED if too_much and too_much.kind is OverflowKind.RATE_LIMIT else ErrorKind.OVERFLOW
            )
        if status is None or status < 500:  # noqa: PLR2004 - the HTTP classes
            if by_word is ErrorKind.OVERFLOW or says_overflow(message, status=status):
                return ErrorKind.OVERFLOW
            if by_word is not None and by_word is not ErrorKind.REQUEST:
                return by_word
        if status is None:  # inside a stream the request was accepted, so an unknown code is a failure of the service
            return by_word or ErrorKind.SERVER
        if status == 403 and "flagged" in message.lower():  # noqa: PLR2004
            return ErrorKind.BLOCKED
        return self._by_status(status)


def _body(error: BaseException) -> Mapping[Any, Any]:
    """The error object: the SDK's `body`, or the field `error` in it."""
    body = attribute(error, "body")
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, Mapping) else body


def _kind_by_word(word: str) -> ErrorKind | None:
    return _CODES.get(word.lower()) or (ErrorKind.REQUEST if _REQUEST_CODE.match(word) else None)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value and not value.isdigit() else None


def _number(value: object) -> int | None:
    """A status as a number. Some services put the status in the field of the code."""
    text = str(value) if type(value) is int or isinstance(value, str) else ""
    return int(text) if _STATUS.fullmatch(text) else None


def _said_delay_s(message: str) -> float | None:
    """The delay in a message of OpenAI: "Please try again in 1m2.5s"."""
    said = _TRY_AGAIN.search(message)
    if said is None:
        return None
    seconds = float(said[2]) / (1000 if said[3].lower() == "ms" else 1)
    return int(said[1] or 0) * 60 + seconds


# --------------------------------------------------------------------------------------------------
# google-genai.


class GoogleErrors(SdkErrors):
    """The failures of google-genai."""

    package = "google"

    def reported(self, error: object) -> ModelError:
        """The kind and message of an error object of the service."""
        fields = error if isinstance(error, Mapping) else {}
        code, said, status = fields.get("code"), fields.get("message"), fields.get("status")
        message = said if isinstance(said, str) and said else "the service sent an error"
        return ModelError(
            self._kind_by_code(code if type(code) is int else 0, message, str(fields.get("details"))),
            message,
            _retry_delay_s(fields),
            code if type(code) is int else None,
            status if isinstance(status, str) else None,
        )

    def _of_the_sdk(self, error: BaseException) -> ModelError | None:
        code = attribute(error, "code")
        if type(code) is not int or not has(error, "details"):
            return None
        status = attribute(error, "status")
        message = said_or(attribute(error, "message"), error)
        return ModelError(
            kind=self._kind_by_code(code, message, str(attribute(error, "details"))),
            message=message,
            retry_after_s=_retry_after_s(error),
            status=code,
            code=status if isinstance(status, str) and status.isupper() else None,
        )

    def _kind_by_type(self, error: BaseException) -> ErrorKind | None:
        if any(kind.__module__.split(".")[:2] == ["google", "auth"] for kind in type(error).__mro__):
            return ErrorKind.AUTH
        kind = kind_by_type(error)
        if kind is ErrorKind.MALFORMED and str(attribute(error, "title")).endswith("Config"):
            return ErrorKind.REQUEST  # pydantic refuses the caller's arguments
        return kind

    def _kind_by_code(self, code: int, message: str, details: str) -> ErrorKind:
        if code == 400 and says_overflow(message, status=code):  # noqa: PLR2004 - HTTP
            return ErrorKind.OVERFLOW
        if code == 400 and ("API_KEY_INVALID" in details or "API key not valid" in message):  # noqa: PLR2004
            return ErrorKind.AUTH
        return self._by_status(code)


def _retry_after_s(error: BaseException) -> float | None:
    """The delay of a RetryInfo detail, else of the headers."""
    delay = _retry_delay_s(attribute(error, "details"))
    return delay if delay is not None else _header_delay_s(error)


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


# --------------------------------------------------------------------------------------------------
# anthropic. An error in the middle of a stream is an `APIStatusError` with the stream's status,
# 200. So the service's own type of the error is read before the status. If the connection breaks,
# the SDK raises the transport's exception.

_TYPES: Final = {
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
_BROKEN_STREAM: Final = (
    "Unable to parse tool parameter JSON",
    "Unexpected event order",
    "Unexpected event runtime type",
)
"""The messages of the `messages.stream` helper for an invalid stream: a plain ValueError,
RuntimeError or TypeError.
"""
_NO_KEY: Final = "Could not resolve authentication method"
"""The SDK's TypeError if there is no key."""


class AnthropicErrors(SdkErrors):
    """The failures of anthropic."""

    package = "anthropic"

    def reported(self, error: object) -> ModelError:
        """The kind and message of an error object of the service."""
        word, said = attribute(error, "type"), attribute(error, "message")
        message = said if isinstance(said, str) and said else "the service sent an error"
        code = word if isinstance(word, str) else None
        return ModelError(self._kind(code, _NO_STATUS, message), message, code=code)

    def _of_the_sdk(self, error: BaseException) -> ModelError | None:
        status = attribute(error, "status_code")
        if type(status) is not int or kind_by_type(error) is not None:
            return None
        said, code = attribute(error, "type"), attribute(error, "error_code")
        word = said if isinstance(said, str) else None
        message = said_or(attribute(error, "api_message") or attribute(error, "message"), error)
        return ModelError(
            kind=self._kind(word, status, message),
            message=message,
            retry_after_s=_header_delay_s(error),
            status=status,
            code=code if isinstance(code, str) else word,
        )

    def _kind_by_type(self, error: BaseException) -> ErrorKind | None:
        names = self._names(error)
        if "CredentialsError" in names:
            return ErrorKind.AUTH
        if "APIConnectionError" in names:
            return ErrorKind.NETWORK
        message = message_of(error)
        if isinstance(error, TypeError) and _NO_KEY in message:
            return ErrorKind.AUTH
        if isinstance(error, ValueError | RuntimeError | TypeError) and message.startswith(_BROKEN_STREAM):
            return ErrorKind.MALFORMED
        return kind_by_type(error)

    def _kind(self, word: str | None, status: int, message: str) -> ErrorKind:
        kind = _TYPES.get(word or "") or self._by_status(status)
        if kind is ErrorKind.REQUEST and _FILTERED in message:
            return ErrorKind.BLOCKED
        if kind in {ErrorKind.REQUEST, ErrorKind.UNKNOWN} and (
            status == _TOO_LARGE or says_overflow(message, status=status or None)
        ):
            return ErrorKind.OVERFLOW
        return kind

    def _said(self, error: BaseException) -> str:
        return with_its_cause(error)


OPENAI: Final = OpenAIErrors()
GOOGLE: Final = GoogleErrors()
ANTHROPIC: Final = AnthropicErrors()


# --------------------------------------------------------------------------------------------------
# How long to wait.


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


# --------------------------------------------------------------------------------------------------
# Reading objects that may be anything: classifying a failure must not fail.


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
