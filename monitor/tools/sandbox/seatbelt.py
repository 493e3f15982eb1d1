"""Commands under `sandbox-exec`, which macOS has had since 10.5 and marks as deprecated.

It confines files and network. It ends no process. Source of the profile: those of Codex and Gemini
CLI.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from monitor.tools.sandbox.sandbox_places import SandboxPlaces

PROGRAM: Final = "/usr/bin/sandbox-exec"
_HEAD: Final = """(version 1)
(deny default)
(allow process-exec) (allow process-fork)
(allow signal (target same-sandbox)) (allow process-info* (target same-sandbox))
(allow sysctl-read) (allow user-preference-read) (allow ipc-posix-sem)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo")
 (global-name "com.apple.trustd.agent"))
(allow pseudo-tty)
(allow file-write-data (require-all (path "/dev/null") (vnode-type CHARACTER-DEVICE)))
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (regex #"^/dev/ttys"))
(allow file-read*)"""


def profile(places: SandboxPlaces, scratch: Path, *, network: bool) -> str:
    """The rules for `sandbox-exec -p`. A later rule wins."""
    lines = [_HEAD, *(["(allow network*) (allow system-socket)"] if network else [])]
    hidden = [one for one in (places.home, *places.hidden) if one is not None]
    lines += [f"(deny file-read* (subpath {_quoted(path)}))" for path in hidden]
    shown = [*places.read, scratch, places.workspace, *places.write]
    # The folders above must be looked up, though not listed.
    lines += [f"(allow file-read-metadata (path-ancestors {_quoted(path)}))" for path in shown]
    lines += [f"(allow file-read* (subpath {_quoted(path)}))" for path in shown]
    lines += [f"(allow file-write* (subpath {_quoted(path)}))" for path in (scratch, places.workspace, *places.write)]
    for path in places.watched:  # renaming a folder is a way round
        lines.append(f"(deny file-write* (subpath {_quoted(path)}))")
    lines.append(f"(deny file-write-unlink (literal {_quoted(places.workspace)}))")
    return "\n".join(lines)


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
