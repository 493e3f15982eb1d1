"""Commands in namespaces of their own, made by bubblewrap (`bwrap`), on Linux.

The order of the arguments is the meaning: a later mount covers an earlier one. Root keeps all its
rights in such a namespace unless they are dropped, and could mount everything anew. A fresh `/proc`
has a writable `/proc/sys`, through which root reaches the kernel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from monitor.tools.sandbox.sandbox_places import SandboxPlaces, is_itself

PROBE_S: Final = 5.0
SYSTEM: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin")
"""Folders that are looked into besides `PATH`."""
TMP: Final = "tmp"
HOME: Final = "home"
SHM: Final = "shm"
"""The folders within that of a sandbox which stand at the places of these, and of `/dev/shm`. They
lie on a disk: files in memory would be bounded by nothing but the memory of this machine.
"""
KEYS: Final = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers")
"""Files that root alone may read, so they are hidden from commands of root."""
UBUNTU: Final = "; on Ubuntu 24.04 and newer: install apparmor-profiles and enable its profile bwrap-userns-restrict"


def program(workspace: Path | None = None) -> str | None:
    """The path of `bwrap`. One in the workspace is never used. `None`: there is none."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM]
    for folder in folders:
        found = shutil.which("bwrap", path=folder) if folder.startswith("/") else None
        if found is None:
            continue
        real = Path(found).resolve()
        if workspace is None or not any(workspace in path.parents for path in (real, Path(found))):
            return str(real)
    return None


@lru_cache(maxsize=16)
def failure(bwrap: str) -> str:
    """Why `bwrap` does not work here; empty if it does. It is tried once."""
    here = SandboxPlaces(
        workspace=Path("/usr"),  # any folder: nothing is written
        home=None,
        hidden=tuple(Path(one) for one in ("/tmp", "/run") if Path(one).is_dir()),  # noqa: S108 - the same
        read=(),
        write=(),
        protected=(),
        watched=(),
    )
    tried = [bwrap, *arguments(here, network=False, scratch=None), "--", "/bin/sh", "-c", "exit 42"]
    try:
        said = subprocess.run(  # noqa: S603 - it has just been found
            tried, capture_output=True, timeout=PROBE_S, check=False, stdin=subprocess.DEVNULL, env={"LC_ALL": "C"}
        )
    except subprocess.TimeoutExpired:
        return f"{bwrap} did not end within {PROBE_S:g} s"
    except OSError as error:
        return f"{bwrap} cannot be started: {error.strerror}"
    if said.returncode == 42:  # noqa: PLR2004 - the command's own code: it has run
        return ""
    text = said.stderr.decode("utf-8", "replace").strip().splitlines()
    why = text[-1][:300] if text else f"exit code {said.returncode}"
    denied = "uid map" in why or "RTM_NEWADDR" in why
    return f"{why}{UBUNTU if denied else ''}"


def arguments(
    places: SandboxPlaces,
    *,
    network: bool,
    scratch: Path | None,
    directory: Path | None = None,
    dies_with_starter: bool = False,
) -> list[str]:
    """The options of `bwrap` for a command in `directory`.

    `scratch`: the folder of this sandbox with `tmp`, `home` and `shm`. `None`: nothing is kept.
    `dies_with_starter`: all ends as soon as the thread that has started it ends.
    """
    made = [*("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")]
    made += [] if network else ["--unshare-net"]
    made += ["--die-with-parent"] if dies_with_starter else []
    made += [*("--new-session", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")]
    made += ["--ro-bind-try", "/proc/sys", "/proc/sys"]
    own = {Path("/tmp"): TMP, Path("/var/tmp"): TMP, places.home: HOME}  # noqa: S108 - folders of its own stand there
    empty = []
    for folder in sorted({*places.hidden, *filter(None, [places.home])}, key=lambda one: len(one.parts)):
        if scratch is not None and folder in own:
            made += ["--bind", f"{scratch}/{own[folder]}", str(folder)]
        else:
            made += ["--tmpfs", str(folder)]
            empty.append(str(folder))
    if scratch is not None:
        made += ["--bind", f"{scratch}/{SHM}", "/dev/shm"]  # noqa: S108 - the same
    for path in _outermost(places.read):
        made += ["--ro-bind-try", str(path), str(path)]
    if network:  # names are resolved by a file that systemd keeps in /run
        resolver = os.path.realpath("/etc/resolv.conf")
        made += ["--ro-bind-try", resolver, resolver] if resolver.startswith("/run/") else []
    if os.getuid() == 0:
        made += [word for path in KEYS if Path(path).exists() for word in ("--ro-bind", "/dev/null", path)]
    for path in places.writable:
        made += ["--bind", str(path), str(path)]
    # A link that stands there now would lead this mount to what it names.
    for real in filter(is_itself, _outermost(places.protected)):
        made += ["--ro-bind", str(real), str(real)]
    for place in (*empty, "/dev"):
        made += ["--remount-ro", place]
    return [*made, "--chdir", str(directory or places.workspace)]


def _outermost(paths: Sequence[Path]) -> Iterator[Path]:
    """The paths that lie in no other one: a mount covers all that is below it."""
    return (path for path in paths if not any(other in path.parents for other in paths))
