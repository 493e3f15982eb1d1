"""The headers of a request and of an answer on their way through.

Failure answered: a header of one connection is passed on to the next one, and the two ends no
longer agree where a message ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""As ASGI has them: names in small letters."""

OWN: Final = b"x-agent-monitor"
"""Says on every answer what the proxy did with it."""
RUN: Final = b"x-agent-monitor-run"
"""The header that names the run of a request."""
NUDGED: Final = b"x-agent-monitor-nudge"
"""Says that a message of the proxy was added to the request."""

_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"trailers", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers that hold for one connection only (RFC 9110, 7.6.1)."""
_MADE_ANEW: Final = frozenset({b"host", b"expect"})
_KEYS: Final = (b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")
"""Headers in which the providers' SDKs send the key."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_SAID_CHARS: Final = 300
SEVERAL_KEYS: Final = "this request has more than one key, so nobody knows whose budget it spends: send one"
NO_NAME: Final = "x-agent-monitor-run takes up to 100 letters, digits and . _ : -"


def first(headers: Headers, name: bytes) -> bytes | None:
    """The value of the header `name`. `None`: there is none."""
    return next((value for known, value in headers if known == name), None)


def to_upstream(headers: Headers, *, identity: bool, length: int | None = None) -> list[tuple[bytes, bytes]]:
    """The headers of a request for the upstream. `identity`: the answer is to come uncompressed.
    `length`: of a body that was changed.
    """
    dropped = _of_this_connection(headers) | _MADE_ANEW
    if identity:
        dropped |= {b"accept-encoding"}
    if length is not None or first(headers, b"transfer-encoding") is not None:
        dropped |= {b"content-length"}  # beside a transfer encoding it does not count (RFC 9112, 6.3)
    kept = [(name, value) for name, value in headers if name not in dropped and not name.startswith(OWN)]
    if identity:
        kept.append((b"accept-encoding", b"identity"))
    if length is not None:
        kept.append((b"content-length", b"%d" % length))
    return kept


def to_client(
    headers: Headers, *, said: str, cuttable: bool, more: Iterable[tuple[bytes, bytes]] = ()
) -> list[tuple[bytes, bytes]]:
    """The headers of an answer for the client. `said`: what the proxy says of it. `cuttable`: the
    answer may become shorter or longer than the upstream has announced.
    """
    dropped = _of_this_connection(headers)
    if cuttable:
        dropped |= {b"content-length"}
    kept = [(name, value) for name, value in _in_small_letters(headers) if name not in dropped and name != OWN]
    return [*kept, (OWN, _word(said)), *more]


def _word(said: str) -> bytes:
    """`said` as the value of a header: a client may have chosen a part of it."""
    shown = "".join(char if char.isprintable() else "?" for char in said[:_SAID_CHARS])
    return shown.encode("ascii", "replace")


def keys_in(headers: Headers, query: bytes) -> Sequence[bytes]:
    """The different keys of the client, in all places where SDKs send one."""
    found = [value for name in _KEYS if (value := first(headers, name))]
    found = [value[7:].strip() if value[:7].lower() == b"bearer " else value.strip() for value in found]
    found += [part[4:] for part in query.split(b"&") if part.startswith(b"key=")]
    return [*dict.fromkeys(key for key in found if key)]


def run_in(headers: Headers) -> str | None:
    """The run that the client names. `None`: it names none, or it is no name (`NO_NAME`)."""
    name = (first(headers, RUN) or b"").decode("latin-1")
    return name if _NAME.fullmatch(name) else None


def _of_this_connection(headers: Headers) -> frozenset[bytes]:
    named = (part for name, value in headers if name.lower() == b"connection" for part in value.split(b","))
    return _HOP | {name.strip().lower() for name in named}


def _in_small_letters(headers: Headers) -> Iterable[tuple[bytes, bytes]]:
    return ((name.lower(), value) for name, value in headers)
