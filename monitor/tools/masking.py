"""Secrets in the arguments and the results of calls, masked for events and logs.

Values are masked if their key names a secret, such as `password`, `api_key` or `token`. Keys in the
forms that services use are masked in every text, and so is pydantic's `SecretStr`. The tool itself
gets the arguments as they are, and so does the model.

`Secrets` remembers the values that it has masked in a run. If a tool writes one of them into its
result, or a detector shows it as evidence, it is masked there too.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from monitor._util.codec import to_plain
from monitor._util.lazy import LazyModule
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta
from monitor.errors import KEY_STARTS, REMOVED, ConfigError, RecordedError, keys_in, message_of, without_keys
from monitor.events import ApprovalAnswered, ToolCallChanged, ToolStarted, TurnEnded
from monitor.outcome import Outcome

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = LazyModule("pydantic")

T = TypeVar("T")

MASK: Final = "**********"
"""The text in the place of a secret. Pydantic writes the same."""
LEAST_CHARS: Final = 6
"""A shorter value is masked under its key only: elsewhere it may be an ordinary word."""
MOST_KNOWN: Final = 100
"""The most values that are remembered of a run."""
_DEPTH: Final = 50
_NAMES: Final = frozenset(
    {
        *("password", "passwd", "passphrase", "pin", "secret", "clientsecret", "credential", "credentials"),
        *("token", "accesstoken", "authtoken", "bearertoken", "refreshtoken", "sessiontoken"),
        *("apikey", "xapikey", "accesskey", "privatekey", "secretkey"),
        *("authorization", "proxyauthorization", "cookie", "setcookie"),
    }
)
"""Names of keys in small letters, without anything that is no letter or digit."""
_PARTS: Final = ("pass", "pin", "secret", "credential", "token", "key", "authorization", "cookie")
"""Every name of a secret has one of these parts."""
_NOT_LETTERS: Final = re.compile("[^a-z0-9]")
_IN_JSON: Final = re.compile(r'"([A-Za-z][\w-]{1,30})" {0,3}: {0,3}"((?:[^"\\]|\\.)*+)', re.DOTALL)
_IN_QUOTED_JSON: Final = re.compile(r'\\"([A-Za-z][\w-]{1,30})\\" {0,3}: {0,3}\\"([^"\\]*+)')
_IN_PYTHON: Final = re.compile(r"'([A-Za-z][\w-]{1,30})' {0,3}: {0,3}'((?:[^'\\]|\\.)*+)", re.DOTALL)
_NAMED: Final = (_IN_JSON, _IN_QUOTED_JSON, _IN_PYTHON)
"""`"password": "x"`, as JSON, as JSON within a text of JSON, and as Python writes it."""
_FORMS: Final = (
    # Tokens, named as in the rules of gitleaks 8; written anew, with shorter least lengths.
    ("ey", re.compile(r"\b()ey[a-zA-Z0-9]{17,}+\.ey[a-zA-Z0-9/\\_-]{17,}+\.(?:[a-zA-Z0-9/\\_-]{10,}+={0,2})?")),  # jwt
    ("private key", re.compile(r"(-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----)(?:[^-]|-(?!----))*+")),
    ("xox", re.compile(r"\b()xox[a-z]-[a-zA-Z0-9-]{10,}+")),  # slack-bot-token and its kin
    ("xapp-", re.compile(r"\b()xapp-\d-[A-Za-z0-9-]{10,}+")),  # slack-app-token
    ("hooks.slack.com", re.compile(r"(hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9+/]{20,}+")),
    ("npm_", re.compile(r"\b()npm_[a-zA-Z0-9]{36}")),
    ("pypi-", re.compile(r"()pypi-AgEIcHlwaS5vcmc[\w-]{50,}+")),
    ("sg.", re.compile(r"\b()SG\.[a-zA-Z0-9=_.-]{66}")),  # sendgrid-api-token
    ("do", re.compile(r"\b()do[opr]_v1_[a-f0-9]{64}")),  # digitalocean
    ("shp", re.compile(r"\b()shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}")),  # shopify
    ("hv", re.compile(r"\b()hv[bs]\.[\w-]{24,}+")),  # vault
    ("dapi", re.compile(r"\b()dapi[a-f0-9]{32}")),  # databricks
    (":a", re.compile(r"\b(\d{5,16}:)A[a-zA-Z0-9_-]{34}")),  # telegram-bot-api-token
    ("a", re.compile(r"\b()(?:A3T[A-Z0-9]|ABIA|ACCA)[A-Z0-9]{16}\b")),  # aws-access-token, beside the forms above
    # Names and places: variables, headers, and the user of an address (RFC 3986).
    (
        "=",
        re.compile(
            r"\b([A-Z0-9_]{0,60}(?:PASSWORD|PASSWD|SECRET|TOKEN|API_KEY|APIKEY)=)"
            r"(?!\$)(?:\"[^\"\n]++\"|'[^'\n]++'|[^\s\"'&;|<>$`()]++)"
        ),
    ),
    ("=", re.compile(r"\b([A-Z0-9_]{0,60}(?:ACCESS|SECRET|PRIVATE)_KEY=)(?!\$)[^\s\"'&;|<>$`()]++")),
    ("://", re.compile(r"(://[^\s:/@\"']{0,100}:)[^\s/@\"']{1,200}(?=@)")),
    (
        ":",
        re.compile(
            r"(?i)\b((?:x-(?:[a-z]{1,20}-){0,4}(?:key|token|secret)|api-key|(?:proxy-)?authorization"
            r"|(?:set-)?cookie): ?(?:basic |token )?)(?!bearer )[^\s\"'|&<>$`()]++"
        ),
    ),
)
"""What services and programs write, each with a word in small letters without which it is not
looked for. Group 1 is shown.
"""
_UNREAD: Final = frozenset({"data", "signature", "xxhash", "key", "raw"})
"""Fields of events that hold bytes as text, a hash, or an object of an SDK."""
_NUMBERS: Final = frozenset(
    {*("int", "float", "bool", "Usage", "FinishReason", "TerminateReason", "CallState", "Channel", "Level")}
    | {*("int | None", "float | None", "FinishReason | None", "ToolErrorKind | None", "TerminateReason | None")}
)
"""Types of fields that have no text of anybody's, as they are written."""
_PLAIN: Final = frozenset({int, float, bool, type(None)})
_LEAST_OF_KEYS: Final = 15
"""`Bearer ` and 8 signs: a shorter text has no key."""


def is_secret(key: object) -> bool:
    """Whether `key` is the name of a secret."""
    return isinstance(key, str) and _NOT_LETTERS.sub("", key.lower()) in _NAMES


def masked(value: Any) -> Any:
    """`value` with its secrets masked; the same object if it has none."""
    return Secrets().masked(value)


# --------------------------------------------------------------------------------------------------
# What a person sees who is asked whether a call may be made: the call itself. A secret is hidden
# only if it is one word without any sign that means something to a shell, so no code is hidden.

_WORD: Final = re.compile(r"[A-Za-z0-9_.~+/=:@%^,-]+")
_STAND_IN: Final = re.compile(r"<secret (?:[0-9]+ )?of [0-9]+ characters>")


def secrets_in(value: Any) -> dict[str, str]:
    """The secrets in arguments, each with the text that stands for it before a person."""
    found: dict[str, str] = {}
    for secret in filter(_WORD.fullmatch, _secrets_in(value, _DEPTH, named=False)):
        if secret not in found:
            number = sum(len(one) == len(secret) for one in found)
            found[secret] = f"<secret {f'{number + 1} ' if number else ''}of {len(secret)} characters>"
    return found


def _secrets_in(value: Any, depth: int, *, named: bool) -> Iterator[str]:
    if isinstance(value, Mapping) and depth:
        for key, one in value.items():
            yield from _secrets_in(one, depth - 1, named=named or is_secret(key))
    elif isinstance(value, list | tuple) and depth:
        for one in value:
            yield from _secrets_in(one, depth - 1, named=named)
    elif isinstance(value, str) and named:
        yield value
    elif isinstance(value, str):
        yield from keys_in(value)
        for pattern in _NAMED if '"' in value or "'" in value else ():
            yield from (found[2] for found in pattern.finditer(value) if is_secret(found[1]))


def with_texts(value: Any, texts: Mapping[str, str], depth: int = _DEPTH) -> Any:
    """`value` with each key of `texts` replaced by its value, in every text. A short one is
    replaced only where it is the whole text.
    """
    if isinstance(value, str):
        for text in sorted(texts, key=len, reverse=True):
            if text == value or len(text) >= LEAST_CHARS:
                value = value.replace(text, texts[text])
        return value
    if isinstance(value, Mapping) and depth:
        return {key: with_texts(one, texts, depth - 1) for key, one in value.items()}
    if isinstance(value, list | tuple) and depth:
        return [with_texts(one, texts, depth - 1) for one in value]
    return value


def restored(edited: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """`edited`, the arguments that a person has changed, with the secrets of `original` in the
    places of what stood for them. Raises `ConfigError` if a mask is left: nobody means to run it.
    """
    made: dict[str, Any] = with_texts(edited, {shown: secret for secret, shown in secrets_in(original).items()})
    written, before = (json.dumps(to_plain(one), ensure_ascii=False) for one in (made, original))
    if any(one in written and one not in before for one in (MASK, *_STAND_IN.findall(written))):
        raise ConfigError("a secret that was hidden is missing in the changed arguments: write the secret itself")
    return made


class Secrets:
    """Masks secrets in everything that leaves one run."""

    def __init__(self) -> None:
        self.known: dict[str, None] = {}
        """The values that were found under the names of secrets."""

    def event(self, event: T) -> T:
        """`event` with its secrets masked; the same object if it has none. Secrets in its calls are
        remembered.
        """
        self.learn(event)
        made: T = self._masked(event, _DEPTH)
        return made

    def learn(self, event: object) -> None:
        """Remember the secrets in the calls of `event`."""
        for arguments in _arguments_in(event):
            self._learn(arguments, _DEPTH, secret=False)

    def outcome(self, outcome: Outcome) -> Outcome:
        """`outcome` with the secrets masked in what it says to people about the end. The text and
        the outputs of the model stay as they are: they are the result.
        """
        detail, evidence = self.text(outcome.detail), self.masked(outcome.evidence)
        if detail == outcome.detail and evidence is outcome.evidence:
            return outcome
        return replace(outcome, detail=detail, evidence=evidence)

    def masked(self, value: Any) -> Any:
        """`value` with its secrets masked; the same object if it has none."""
        return self._masked(value, _DEPTH)

    def text(self, text: str) -> str:
        """`text` with its secrets masked; the same object if it has none."""
        if len(text) < LEAST_CHARS:
            return text
        clean = without_keys(text) if len(text) >= _LEAST_OF_KEYS else text
        if '"' in clean or "'" in clean:
            small = clean.lower()
            if any(part in small for part in _PARTS):
                for pattern in _NAMED:
                    clean = pattern.sub(_mask_named, clean)
        if len(text) >= _LEAST_OF_KEYS:
            small = clean.lower()
            for word, form in _FORMS:
                if word in small:
                    clean = form.sub(rf"\g<1>{MASK}", clean)
        for secret in self.known:
            if secret in clean:
                clean = clean.replace(secret, MASK)
        return text if clean == text else clean

    def _learn(self, value: Any, depth: int, *, secret: bool) -> None:
        if depth <= 0 or len(self.known) >= MOST_KNOWN:
            return
        if isinstance(value, Mapping):
            for key, one in value.items():
                self._learn(one, depth - 1, secret=secret or is_secret(key))
        elif isinstance(value, list | tuple):
            for one in value:
                self._learn(one, depth - 1, secret=secret)
        elif _is_pydantic(value) and isinstance(value, pydantic.SecretStr):
            self._learn(value.get_secret_value(), 1, secret=True)
        elif secret and isinstance(value, str) and len(value) >= LEAST_CHARS and value != MASK:
            self.known[value] = None

    def _masked(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if (names := _names.get(kind)) is not None:
            return self._object(value, names, depth)
        if kind in _PLAIN or depth <= 0:
            return value
        if isinstance(value, str):
            return value if isinstance(value, Enum) else self.text(value)
        if isinstance(value, Mapping):
            made: dict[Any, Any] = {}
            same = True
            for key, one in value.items():
                shown = self.text(key) if isinstance(key, str) and not isinstance(key, Enum) else key
                while shown in made:  # two secrets look alike
                    shown += "*"
                made[shown] = MASK if is_secret(key) and one not in (None, "") else self._masked(one, depth - 1)
                same = same and shown == key and made[shown] is one
            return value if same else made
        if isinstance(value, list | tuple):
            items = [self._masked(one, depth - 1) for one in value]
            same = all(one is other for one, other in zip(items, value, strict=True))
            return value if same else tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, BaseException):
            return self._error(value)
        if _is_pydantic(value):
            if isinstance(value, pydantic.SecretStr | pydantic.SecretBytes):
                return MASK
            plain = value.model_dump()
            clean = self._masked(plain, depth - 1)
            return value if clean is plain else type(value).model_construct(**clean)
        return self._object(value, _names_of(kind), depth) if is_dataclass(kind) else value

    def _object(self, value: Any, names: Sequence[str], depth: int) -> Any:
        """A dataclass, with the same masked in its fields."""
        made = None
        for name in names:
            before = getattr(value, name)
            if before is None:
                continue
            after = self._masked(before, depth - 1)
            if after is not before:
                made = copy.copy(value) if made is None else made
                object.__setattr__(made, name, after)
        if made is not None and isinstance(made, ToolCall):
            object.__setattr__(made, "raw", None)  # the SDK's own object has the secret too
        return value if made is None else made

    def _error(self, error: BaseException) -> BaseException:
        said = message_of(error)
        clean = self.text(said)
        if isinstance(error, RecordedError):
            return error if clean == said else RecordedError(error.type_name, clean)
        kind = type(error)
        return error if clean == said else RecordedError(f"{kind.__module__}.{kind.__qualname__}", clean)


def _is_pydantic(value: object) -> bool:
    """Whether `value` is a model or a secret of pydantic, which is loaded then."""
    if "pydantic" not in sys.modules:
        return False
    return isinstance(value, pydantic.BaseModel | pydantic.SecretStr | pydantic.SecretBytes)


def _mask_named(found: re.Match[str]) -> str:
    if not is_secret(found[1]) or not found[2]:
        return found[0]
    return f"{found[0][: found.start(2) - found.start()]}{MASK}"


def _arguments_in(event: object) -> Sequence[Any]:
    """The arguments of the calls that `event` is about."""
    match event:
        case TurnEnded(turn=turn):
            return [call.arguments for call in turn.tool_calls]
        case ToolStarted(call=holder) | ToolCallChanged(record=holder) | ApprovalAnswered(answer=holder):
            return (holder.arguments,)
        case ToolCall():
            return (event.arguments,)
    return ()


_names: Final[dict[type[Any], tuple[str, ...]]] = {}


def _names_of(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass that may have a secret."""
    names = tuple(one.name for one in fields(kind) if one.name not in _UNREAD and str(one.type) not in _NUMBERS)
    return _names.setdefault(kind, names)


# --------------------------------------------------------------------------------------------------
# Secrets in the chunks of a stream, masked for those who watch it, also where a secret is cut
# over several chunks.
#
# The end of a text is held back while it may be the beginning of a secret. Arguments of a call
# are read as JSON while they come, so the value under `password` is masked before it is complete.

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
