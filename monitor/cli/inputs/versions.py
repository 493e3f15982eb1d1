"""The installed versions, which every bug report needs."""

from __future__ import annotations

import platform
import re
from importlib import metadata
from typing import Any

import anyio

import monitor
from monitor.tools import find_sandbox

DISTRIBUTION = "agent-monitor"
NOT_FOR_USERS = {"all", "engines", "frameworks", "test"}
"""Extras that only name others, or that users of the library do not need."""
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def environment() -> dict[str, Any]:
    """The relevant versions, as JSON data. `None`: not installed."""
    return {
        "agent_monitor": monitor.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "needs": {name: version_of(name) for name in _requirements().get("", [])},
        "extras": {
            extra: {name: version_of(name) for name in names}
            for extra, names in sorted(_requirements().items())
            if extra and extra not in NOT_FOR_USERS
        },
        "event_loops": {
            name: platform.python_version() if name == "asyncio" else version_of(name)
            for name in anyio.get_all_backends()
        },
        "sandbox": {"kind": (found := find_sandbox()).kind, "detail": found.detail},
    }


def version_of(package: str) -> str | None:
    """The installed version of a distribution. `None`: it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> dict[str, list[str]]:
    """Packages by extra, from the metadata of the installed distribution. Required packages are
    under "". Empty for a bare checkout.
    """
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for line in lines:
        extra, name = _EXTRA.search(line), _NAME.match(line)
        if name is not None and name.group() != DISTRIBUTION:
            found.setdefault(extra.group(1) if extra else "", []).append(name.group())
    return found
