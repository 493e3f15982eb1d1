"""Whether the current folder has settings: a quick look, before they are read."""

import os
import re

OWN_FILE, PROJECT_FILE, TABLE = "agent-monitor.toml", "pyproject.toml", "agent-monitor"
_AS_KEY = re.compile(rb"agent-monitor[\"']?[ \t]*[].=]")
"""Wherever the name is a key. A project that only requires the package names it in a text."""


def has_settings() -> bool:
    """Whether the folder may have settings. A file that cannot be read may have them."""
    if os.path.lexists(OWN_FILE):
        return True
    try:
        with open(PROJECT_FILE, "rb") as file:
            data = file.read()
        if _AS_KEY.search(data) is None:
            return False
        import tomllib  # noqa: PLC0415 - takes long, and few projects have such a key

        return TABLE in tomllib.loads(data.decode()).get("tool", {})
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
