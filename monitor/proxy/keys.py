"""The names of clients' keys. The key itself is kept nowhere.

A key in the table has its name. Any other is known by a keyed hash: nobody can find out from a page
or a log whether a key of theirs was used. Its secret is made of the token of the proxy's pages, so
that several proxies with one token give a key one name.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Final

from monitor.errors import ConfigError

NOBODY: Final = "no-key"
"""The name of a client without a key."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(key: str) -> str:
    """The form of a key in the table of names: `sha256:` and 64 digits."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


class KeyNames:
    """Gives names to the keys of clients."""

    def __init__(self, names: Mapping[str, str] | None = None, *, secret: bytes | None = None) -> None:
        """`names`: the digest of a key (`digest_of`) by its name. `secret`: of the keyed hash.
        `None`: a new one, or that of `with_secret`.
        """
        for name, digest in (names or {}).items():
            if not _NAME.fullmatch(name) or name == NOBODY or name.startswith("key-"):
                raise ConfigError(f"the name of a key has letters, digits, . _ and -, and not {name!r}")
            if not _DIGEST.fullmatch(digest):
                raise ConfigError(f"the key {name!r} is given as digest_of(key), not as the key itself")
        self._names = {digest: name for name, digest in (names or {}).items()}
        if len(self._names) < len(names or {}):
            raise ConfigError("one key has two names: each key has one, from which it spends")
        self._has_secret = secret is not None
        self._secret = secret or secrets.token_bytes(32)

    def with_secret(self, token: str) -> KeyNames:
        """The same names, with a secret that is made of `token` if none was given."""
        if self._has_secret:
            return self
        digest = hashlib.sha256(b"agent-monitor names of keys\0" + token.encode()).digest()
        return KeyNames({name: known for known, name in self._names.items()}, secret=digest)

    def name_of(self, key: bytes | None) -> str:
        """The name of the key."""
        if not key:
            return NOBODY
        named = self._names.get(f"sha256:{hashlib.sha256(key).hexdigest()}") if self._names else None
        return named or f"key-{hmac.new(self._secret, key, hashlib.sha256).hexdigest()[:12]}"
