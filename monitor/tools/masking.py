"""Secrets in the arguments of calls, masked for events, logs and approvers.

Values are masked if their key names a secret, such as `password`, `api_key` or `token`. Keys in the
forms that services use are masked in every text, and so is pydantic's `SecretStr`. The tool itself
gets the arguments as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import SecretBytes, SecretStr

from monitor.chunks import ToolCall
from monitor.errors import without_keys

MASK: Final = "**********"
"""The text in the place of a secret. Pydantic writes the same."""
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
_NOT_LETTERS: Final = re.compile("[^a-z0-9]")


def masked(value: Any, depth: int = _DEPTH) -> Any:
    """`value` with its secrets masked; the same object if it has none."""
    if isinstance(value, str):
        clean = without_keys(value)
        return value if clean == value else clean
    if isinstance(value, SecretStr | SecretBytes):
        return MASK
    if depth <= 0:
        return value
    if isinstance(value, Mapping):
        made = {
            key: MASK if _is_secret(key) and one not in (None, "") else masked(one, depth - 1)
            for key, one in value.items()
        }
        return value if all(made[key] is one for key, one in value.items()) else made
    if isinstance(value, list | tuple):
        items = [masked(one, depth - 1) for one in value]
        return value if all(one is other for one, other in zip(items, value, strict=True)) else items
    return value


def restored(edited: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """`edited`, the arguments that a person has changed, with the secrets of `original` where the
    person has left the mask.
    """
    seen = masked(original)
    made: dict[str, Any] = {}
    for key, value in edited.items():
        before = original.get(key)
        if key in original and value == seen[key]:
            made[key] = before
        elif isinstance(value, Mapping) and isinstance(before, Mapping):
            made[key] = restored(value, before)
        else:
            made[key] = value
    return made


def without_secrets(call: ToolCall) -> ToolCall:
    """`call` with its arguments masked; the same object if they have no secret."""
    arguments = masked(call.arguments)
    return call if arguments is call.arguments else replace(call, arguments=arguments, raw=None)


def _is_secret(key: object) -> bool:
    return isinstance(key, str) and _NOT_LETTERS.sub("", key.lower()) in _NAMES
