"""The path of a request: as it came, whether it is plain, and how services read it."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from monitor.proxy.transport.asgi import Scope


def path_in(scope: Scope) -> bytes:
    """The path as the client sent it, below the place where the application is mounted."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    root = scope.get("root_path", "").encode()
    return raw[len(root) :] if root and raw.startswith(root) else raw


def is_plain(path: bytes) -> bool:
    """Whether the upstream reads the path as it stands here. One with `..` in it means another path
    there, so it would pass without being watched.
    """
    parts = unquote_to_bytes(path).split(b"/")
    return path.startswith(b"/") and b"." not in parts and b".." not in parts


def squeezed(path: bytes) -> bytes:
    """The path with one slash where several stand, and none at its end. Services may read both
    alike.
    """
    return b"/" + b"/".join(part for part in path.split(b"/") if part)
