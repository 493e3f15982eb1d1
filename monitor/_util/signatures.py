"""Signatures that hold more than a signature: all data that a provider needs back with its
reasoning, as one string.

OpenAI's services need fields in addition to text and calls. These fields are a small JSON object
after a prefix, so that no other provider's signature is mistaken for them. Anthropic needs its
redacted thinking back, which has its own prefix.

A signature goes only to the provider that gave it (`goes_to`): all others refuse the whole request.
Its origin is recorded beside it: `google`, `anthropic` or `openai`, and the model if the stream
names it.

- Anthropic's signatures are bound to the model: another Claude model answers "Invalid signature in
  thinking block".
- Gemini's signatures are accepted by other Gemini models.
- OpenAI's reasoning is bound to the service; each compatible service has its own signatures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

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
