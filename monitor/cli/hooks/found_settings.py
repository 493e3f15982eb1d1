"""Whether the current folder has settings: a quick look, before they are read."""

import os

OWN_FILE, PROJECT_FILE, TABLE = "agent-monitor.toml", "pyproject.toml", "agent-monitor"


def has_settings() -> bool:
    """Whether the folder may have settings. A file that cannot be read may have them."""
    if os.path.lexists(OWN_FILE):
        return True
    try:
        with open(PROJECT_FILE, "rb") as file:
            data = file.read()
        if TABLE.encode() not in data:
            return False
        import tomllib  # noqa: PLC0415 - few projects name it

        return TABLE in tomllib.loads(data.decode()).get("tool", {})
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
