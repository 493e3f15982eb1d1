"""Secrets in the chunks of a stream, masked for those who watch it, also where a secret is cut over
several chunks.

The end of a text is held back while it may be the beginning of a secret. Arguments of a call are
read as JSON while they come, so the value under `password` is masked before it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from monitor.errors import KEY_STARTS, REMOVED
from monitor.tools.secrets.masking import MASK, Secrets, is_secret

_OF_KEYS: Final = "-._ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_OF_BEARER: Final = f"{_OF_KEYS}~+/="
"""The signs of keys, and of a word behind `Bearer`."""
_SIGNS: Final = frozenset(_OF_BEARER)
_SURE: Final = 40
"""A beginning of a key that is longer is known to be one."""
_BEARER: Final = ("Bearer ", "bearer ")
_KEY_CHARS: Final = 64
"""The most characters of a key of an object that are compared with the names of secrets."""


class MaskedChunks:
    """The chunks of one run as they may be shown."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._last: TextDelta | ReasoningDelta | ToolCallDelta | None = None
        """The chunk whose end may be held back."""
        self._filter = _MaskedText(secrets)
        self._arguments: dict[str, _MaskedArguments] = {}

    def feed(self, chunk: Chunk) -> Iterator[Chunk]:
        """The chunks to show after `chunk` has come."""
        if not isinstance(chunk, TextDelta | ReasoningDelta | ToolCallDelta):
            yield from self.flush()
            self._arguments.clear()
            yield self._secrets.event(chunk)
            return
        if self._last is not None and _channel(self._last) != _channel(chunk):
            yield from self.flush()
        self._last = chunk
        if isinstance(chunk, ToolCallDelta):
            read = self._arguments.setdefault(chunk.id, _MaskedArguments())
            shown = self._filter.feed(read.feed(chunk.arguments_text))
            if shown or not chunk.arguments_text or chunk.name:
                yield chunk if shown == chunk.arguments_text else replace(chunk, arguments_text=shown)
        elif shown := self._filter.feed(chunk.text):
            yield chunk if shown == chunk.text else replace(chunk, text=shown)

    def flush(self) -> Iterator[Chunk]:
        """The chunks that are held back: nothing more belongs to them."""
        last, self._last = self._last, None
        if last is not None and (left := self._filter.flush()):
            yield replace(last, arguments_text=left) if isinstance(last, ToolCallDelta) else replace(last, text=left)


def _channel(chunk: TextDelta | ReasoningDelta | ToolCallDelta) -> object:
    return chunk.id if isinstance(chunk, ToolCallDelta) else type(chunk)


class _MaskedText:
    """Masks one text that comes in pieces."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = ""
        self._before = ""
        """The sign before what is held: within a word no key begins."""
        self._dropped = ""
        """The last sign that came belongs to a key that is shown as removed already. These signs
        would go on with it.
        """

    def feed(self, text: str) -> str:
        """The part that may be shown now."""
        if self._dropped:
            text = text.lstrip(self._dropped)
            self._dropped = "" if text else self._dropped
        text = self._held + text
        start = self._start(text)
        shown, self._held = self._masked(text[:start]), text[start:]
        if len(self._held) > _SURE and (clean := self._clean(self._held)) != self._held:
            if clean.endswith(REMOVED):
                self._dropped = _OF_BEARER if self._held.startswith(_BEARER) else _OF_KEYS
            shown, self._before, self._held = shown + clean, self._held[-1], ""
        return shown

    def flush(self) -> str:
        """The rest of the text, which was held back."""
        left = self._masked(self._held)
        self._held, self._before, self._dropped = "", "", ""
        return left

    def _masked(self, text: str) -> str:
        clean = self._clean(text)
        self._before = text[-1:] or self._before
        return clean

    def _clean(self, text: str) -> str:
        return self._secrets.text(self._before + text)[len(self._before) :]

    def _start(self, text: str) -> int:
        """Where the end of `text` begins that may be the beginning of a secret."""
        start = len(text)
        while start and text[start - 1] in _SIGNS and len(text) - start <= 2 * _SURE:
            start -= 1
        before = text[max(0, start - len(_BEARER[0])) : start]
        if before in _BEARER:
            start -= len(before)
        elif not _may_begin_a_key(text[start:], text[start - 1 : start] if start else self._before):
            start = len(text)
        for secret in self._secrets.known:
            most = min(len(secret) - 1, len(text))
            cut = next((size for size in range(most, 0, -1) if text.endswith(secret[:size])), 0)
            start = min(start, len(text) - cut)
        return min((self._around(text, start, secret) for secret in self._secrets.known), default=start)

    def _around(self, text: str, start: int, secret: str) -> int:
        """`start`, or where `secret` begins if `start` is within it."""
        at = text.find(secret, max(0, start - len(secret) + 1), start + len(secret) - 1)
        return start if at < 0 else min(start, at)


def _may_begin_a_key(run: str, before: str) -> bool:
    """Whether a key, or `Bearer`, may begin in `run`, which ends the text so far. `before`: the
    sign in front of it.
    """
    if len(run) > 2 * _SURE:
        return False
    for at in range(len(run)):
        last = run[at - 1] if at else before
        if last.isalnum() or last == "_":
            continue
        rest = run[at:]
        if any(rest.startswith(one) or one.startswith(rest) for one in (*KEY_STARTS, *_BEARER)):
            return True
    return False


class _MaskedArguments:
    """The JSON of one call, as it comes: values under names of secrets become the mask."""

    def __init__(self) -> None:
        self._open: list[str] = []
        """The brackets that are not closed yet."""
        self._in_text = self._escaped = self._key_is_next = False
        self._key: list[str] | None = None
        """The characters of the key that is being read."""
        self._name = ""
        self._masked_at: int | None = None
        """The number of brackets that are open around the value that is masked."""

    def feed(self, text: str) -> str:
        """The next piece, as it may be shown."""
        return "".join(map(self._sign, text))

    def _sign(self, sign: str) -> str:
        shown = "" if self._masked_at is not None else sign
        if self._in_text:
            self._within_text(sign)
            return shown
        match sign:
            case '"':
                self._in_text = True
                self._key = [] if self._key_is_next and self._open[-1:] == ["{"] else None
            case "{" | "[":
                self._open.append(sign)
                self._key_is_next = True
            case "}" | "]" | ",":
                if sign != ",":
                    self._open[-1:] = []
                self._key_is_next = sign == ","
                if self._masked_at is not None and len(self._open) <= self._masked_at - (sign != ","):
                    self._masked_at = None
                    return sign
            case ":":
                self._key_is_next = False
                if self._masked_at is None and is_secret(self._name):
                    self._masked_at = len(self._open)
                    return f':"{MASK}"'
        return shown

    def _within_text(self, sign: str) -> None:
        if self._escaped:
            self._escaped = False
        elif sign == "\\":
            self._escaped = True
        elif sign == '"':
            self._in_text = False
            if self._key is not None:
                self._name = "".join(self._key)
            return
        if self._key is not None and len(self._key) <= _KEY_CHARS:
            self._key.append(sign)
