"""The kind of a failure: of an exception of the OpenAI SDK or of a transport under it, or of an
error that a service reports in its stream.

The SDK talks to many services. OpenAI itself sends a code; others send an HTTP status and words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from monitor.adapters.error_causes import (
    attribute,
    classified,
    header_delay_s,
    kind_by_type,
    message_of,
    said_or,
    with_its_cause,
)
from monitor.context.overflow import OverflowKind, read_failure, says_overflow
from monitor.models import ErrorKind, ModelError

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


def classify(error: BaseException) -> ModelError:
    """The kind of `error`, its message, and the delay that the service asks for. Never raises."""
    return classified(error, _of_the_sdk, kind_by_type, said=message_of)


def reported(
    code: object, message: object, *, type_: object = None, otherwise: str = "the service reported an error"
) -> ModelError:
    """Classify an error that a service reports inside a stream, without a status."""
    said = message if isinstance(message, str) and message else otherwise
    number = _number(code)
    kind = _kind(number, [_word(code), _word(type_)], said)
    delay = _said_delay_s(said) if kind is ErrorKind.RATE_LIMITED else None
    return ModelError(kind, said, delay, number, _word(code) or _word(type_))


def _of_the_sdk(error: BaseException) -> ModelError | None:
    names = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] == "openai"}
    for name, kind in _CLASSES.items():
        if name in names:
            return ModelError(kind, with_its_cause(error))
    status = attribute(error, "status_code")
    if type(status) is int and status in _HTTP:
        return _api_error(error, status)
    if "APIError" in names and "APIResponseValidationError" not in names:
        return _api_error(error, None)
    if names == {"OpenAIError"}:
        return ModelError(ErrorKind.AUTH if "api_key" in message_of(error) else ErrorKind.REQUEST, message_of(error))
    return None


def _api_error(error: BaseException, status: int | None) -> ModelError:
    """Classify an APIError. `status=None`: the error came inside the stream, and its code may be a
    status.
    """
    body = _body(error)
    code = attribute(error, "code") or body.get("code")
    type_ = attribute(error, "type") or body.get("type")
    inner = body.get("innererror")
    message = said_or(body.get("message"), error)
    words = [_word(inner.get("code")) if isinstance(inner, Mapping) else None, _word(code), _word(type_)]
    kind = _kind(status if status is not None else _number(code), words, message)
    delay = header_delay_s(attribute(attribute(error, "response"), "headers"))
    if delay is None and kind is ErrorKind.RATE_LIMITED:
        delay = _said_delay_s(message)
    return ModelError(
        kind, message, delay, status if status is not None else _number(code), _word(code) or _word(type_)
    )


def _body(error: BaseException) -> Mapping[Any, Any]:
    """The error object: the SDK's `body`, or the field `error` in it."""
    body = attribute(error, "body")
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, Mapping) else body


def _kind(status: int | None, words: list[str | None], message: str) -> ErrorKind:
    by_word = next((kind for word in words if word is not None and (kind := _kind_by_word(word)) is not None), None)
    if status == 429:  # noqa: PLR2004 - HTTP
        return by_word if by_word is ErrorKind.AUTH else ErrorKind.RATE_LIMITED
    if status == 413:  # noqa: PLR2004 - Groq also sends it when the tokens of a minute are used up
        too_much = read_failure(message, status=status)
        return ErrorKind.RATE_LIMITED if too_much and too_much.kind is OverflowKind.RATE_LIMIT else ErrorKind.OVERFLOW
    if status is None or status < 500:  # noqa: PLR2004 - the HTTP classes
        if by_word is ErrorKind.OVERFLOW or says_overflow(message, status=status):
            return ErrorKind.OVERFLOW
        if by_word is not None and by_word is not ErrorKind.REQUEST:
            return by_word
    if status is None:  # inside a stream the request was accepted, so an unknown code is a failure of the service
        return by_word or ErrorKind.SERVER
    return _by_status(status, message)


def _kind_by_word(word: str) -> ErrorKind | None:
    return _CODES.get(word.lower()) or (ErrorKind.REQUEST if _REQUEST_CODE.match(word) else None)


def _by_status(status: int, message: str) -> ErrorKind:
    match status:
        case 401 | 402:
            return ErrorKind.AUTH
        case 403:
            return ErrorKind.BLOCKED if "flagged" in message.lower() else ErrorKind.AUTH
        case 408 | 409 | 425:  # the SDK itself retries these
            return ErrorKind.SERVER
        case _ if status >= 500:  # noqa: PLR2004
            return ErrorKind.SERVER
        case _ if status >= 400:  # noqa: PLR2004
            return ErrorKind.REQUEST
    return ErrorKind.UNKNOWN


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
