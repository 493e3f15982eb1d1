"""The environment of a command: variables from this process, and variables with fixed values."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Final

PASSED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "USERNAME", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "JAVA_HOME", "GOPATH", "GOROOT", "GOFLAGS"),
        *("CARGO_HOME", "RUSTUP_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    }
)
"""Variables that are passed on beside `LC_*`. They say where programs, settings and certificates
are. Keys of services stand in other variables, which a command does not get.
"""
FIXED: Final[Mapping[str, str]] = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "PYTHONUNBUFFERED": "1",
}
"""Nobody sits at a terminal: no pager, no colours, no questions. Output comes at once."""

COLOURED: Final[Mapping[str, str]] = {"TERM": "xterm-256color", "CLICOLOR_FORCE": "1", "FORCE_COLOR": "1"}
"""Programs are asked for colours, though they write into a pipe."""


def environment(
    own: Mapping[str, str] | None = None,
    *,
    passed: Collection[str] = (),
    columns: int = 120,
    lines: int = 50,
    colours: bool = False,
) -> dict[str, str]:
    """The environment of a command. `own`: variables to set; they replace others of the same name.
    `passed`: names of further variables of this process that are passed on. `columns`, `lines`: the
    size of the terminal. `colours`: programs are asked to write colours.
    """
    names = PASSED.union(passed)
    kept = {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
    fixed = (
        FIXED if not colours else {name: value for name, value in FIXED.items() if name != "NO_COLOR"} | dict(COLOURED)
    )
    return {**kept, **fixed, "COLUMNS": str(columns), "LINES": str(lines), **(own or {})}
