"""The options of a part, as JSON data, and the same part made from them again.

A part keeps each option of its constructor in an attribute of the same name, perhaps with an
underscore before it. A part may say otherwise with a method `options`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, make_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_type_hints

from monitor._util.argument_checks import signature_of
from monitor._util.codec import to_plain
from monitor._util.lazy import LazyModule

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = LazyModule("pydantic")

T = TypeVar("T")
_NONE_SUCH: Any = object()


def options_of(part: object) -> dict[str, Any] | None:
    """The options of `part`. `None`: it has one that JSON cannot hold, such as a function."""
    own = getattr(part, "options", None)
    if callable(own):
        values = cast("dict[str, Any]", own())
    else:
        names = signature_of(type(part)).parameters
        values = {name: getattr(part, f"_{name}", getattr(part, name, _NONE_SUCH)) for name in names}
    if any(value is _NONE_SUCH or _has_code(value) for value in values.values()):
        return None
    return {name: to_plain(value) for name, value in values.items()}


def _has_code(value: object) -> bool:
    """Whether a function stands somewhere in `value`."""
    if isinstance(value, Mapping):
        return any(map(_has_code, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_code, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(_has_code(getattr(value, field.name)) for field in fields(value))
    return callable(value)


def made_again(cls: type[T], options: Mapping[str, Any]) -> T:
    """The part of the class `cls` with these options. Raises `ValueError` if it cannot be made."""
    hints = get_type_hints(cls.__init__)
    try:
        return cls(**{name: _read(value, hints[name]) for name, value in options.items()})
    except (KeyError, TypeError, pydantic.ValidationError) as error:
        raise ValueError(f"{cls.__name__} cannot be made from {dict(options)!r}: {error}") from None


def _read(value: Any, annotation: Any) -> Any:
    try:
        return None if value is None else pydantic.TypeAdapter(annotation).validate_python(value)
    except pydantic.errors.PydanticSchemaGenerationError:  # it is a type of JSON data then
        return value


# --------------------------------------------------------------------------------------------------
# Frozen dataclasses of many fields, made quickly: the constructor of one takes three to five
# times as long, because it sets each field around its own lock.


def draft_of(cls: type) -> Any:
    """A class with the fields of the frozen dataclass `cls`, which has slots. Its constructor takes
    all of them by name, and has no defaults.
    """
    bases = getattr(cls, "__orig_bases__", ())  # a generic class and one that is not cannot be exchanged
    return make_dataclass("Draft", [(field.name, field.type) for field in fields(cls)], bases=bases, slots=True)


def frozen(draft: Any, cls: type[T]) -> T:
    """`draft`, of the class that `draft_of(cls)` is, as an object of `cls`."""
    draft.__class__ = cls  # both have the same slots
    made: T = draft
    return made


# --------------------------------------------------------------------------------------------------
# Signatures that hold more than a signature: all data that a provider needs back with its
# reasoning, as one string.
#
# OpenAI's services need fields in addition to text and calls. These fields are a small JSON
# object after a prefix, so that no other provider's signature is mistaken for them. Anthropic
# needs its redacted thinking back, which has its own prefix.
#
# A signature goes only to the provider that gave it (`goes_to`): all others refuse the whole
# request. Its origin is recorded beside it: `google`, `anthropic` or `openai`, and the model if
# the stream names it.
#
# - Anthropic's signatures are bound to the model: another Claude model answers "Invalid signature
#   in thinking block".
# - Gemini's signatures are accepted by other Gemini models.
# - OpenAI's reasoning is bound to the service; each compatible service has its own signatures.

OPENAI: Final = "openai:"
REDACTED: Final = "redacted_thinking:"
"""Prefix of the data of Anthropic's redacted thinking."""

CUSTOM: Final = {"type": "custom_tool_call"}
"""The field `call` of a mark for a custom tool's call, whose input is a text, in both of OpenAI's
APIs.
"""


def mark(fields: Mapping[str, Any]) -> str:
    """The signature that holds `fields`, by their names in OpenAI's wire format."""
    return OPENAI + json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str)


def read_mark(signature: str | None) -> dict[str, Any] | None:
    """The fields in a signature of OpenAI's. `None`: it is another provider's signature, or there
    is none.
    """
    if signature is None or not signature.startswith(OPENAI):
        return None
    try:
        fields = json.loads(signature[len(OPENAI) :])
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


# --- who signed it


def origin(provider: str, model: object) -> str:
    """The origin that is recorded beside a signature. `model`: the name in the stream, if there is
    one.
    """
    return f"{provider}:{model}" if isinstance(model, str) and model else provider


def goes_to(origin: str | None, provider: str, model: str | None = None) -> bool:
    """Whether a signature of `origin` may be sent to `model` of `provider`.

    A model with an unknown name (e.g. of a deployment) is taken for the one that signed. If the
    origin is unknown, every model is.
    """
    if origin is None:
        return True
    signer, _, signed_by = origin.partition(":")
    if signer != provider:
        return False
    ours, theirs = _line(model or ""), _line(signed_by)
    return provider == "google" or ours is None or theirs is None or ours == theirs


_MAKERS: Final = re.compile(
    r"(?<![a-z])(claude|gpt|chatgpt|codex|o\d|gemini|grok|deepseek|kimi|qwen|qwq|mistral|glm|minimax|llama)(?![a-z])"
)
_OPENAI: Final = frozenset({"gpt", "chatgpt", "codex"})
_PIECE: Final = re.compile(r"[a-z]+|\d+")
_LONGEST_VERSION: Final = 2


def _line(model: str) -> tuple[str, ...] | None:
    """The part of a model's name to which its signatures are bound, without dates, regions and
    aliases: `("claude", "sonnet", "4", "5")`, or the maker. `None`: the name is unknown.
    """
    found = _MAKERS.search(model.lower())
    if found is None:
        return None
    maker = "openai" if found[1] in _OPENAI or found[1][0] == "o" else found[1]
    if maker != "claude":
        return (maker,)
    pieces = _PIECE.findall(re.split(r"[@:]|-v\d", model.lower()[found.end() :])[0])
    words = [piece for piece in pieces if piece.isalpha() and piece != "latest"]
    version = [piece for piece in pieces if piece.isdigit() and len(piece) <= _LONGEST_VERSION]
    while version[-1:] == ["0"]:
        version.pop()
    return (maker, *words[:1], *version)
