"""Whether the owner of a leased session has died on this machine, so that its lease need not end.

Each owner holds the lock of a file of its own. The system releases the lock when the process ends.
The file is asked about only under the kernel that has locked it: the owner's row says its boot id.
No process number and no host name decides. Another machine waits for the end of the lease.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from functools import cache
from pathlib import Path
from typing import Final

from monitor.errors import SessionBusy, SessionUnavailable
from monitor.sessions.files import default_folder
from monitor.sessions.lock import OwnerLock

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
"""Linux's id of the running kernel. Elsewhere there is none, and leases are waited for."""


_FAULTS: Final = (OSError, RuntimeError, SessionUnavailable, SessionBusy)
"""The lock file cannot be used, or the user has no home. Then the lease alone holds."""


@cache
def this_boot() -> str:
    """The id of the running kernel; empty where the system has none."""
    try:
        return _BOOT.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _path(nonce: str) -> Path:
    return default_folder() / ".owners" / f"{nonce}.lock"


class OwnerProof:
    """The lock file of one owner. Where none can be made, the owner has just its lease."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(16)
        self._lock: OwnerLock | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The part of the owner's row that names the lock file."""
        return {"nonce": self._nonce, "boot": this_boot() if self._lock is not None else ""}

    def hold(self) -> None:
        """Make the file and lock it, until `give_up`."""
        if self._lock is not None or not this_boot():
            return
        with contextlib.suppress(*_FAULTS):
            path = _path(self._nonce)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = OwnerLock(path, "")
            lock.acquire()
            self._lock = lock

    def give_up(self) -> None:
        """Unlock the file and remove it."""
        lock, self._lock = self._lock, None
        if lock is not None and lock.held:  # else this process was forked, and the file is its parent's
            lock.release()
            with contextlib.suppress(OSError):
                _path(self._nonce).unlink()


def has_died(holder: str) -> bool:
    """Whether the owner in the row of a session is known to have died. Its file is removed then."""
    try:
        named = json.loads(holder)
        nonce, boot = named["nonce"], named["boot"]
        name = f"{int(nonce, 16):032x}"
    except (ValueError, TypeError, KeyError):
        return False
    if not boot or boot != this_boot():
        return False
    try:
        path = _path(name)
        if not path.is_file():
            return False
        with OwnerLock(path, ""):
            path.unlink(missing_ok=True)
    except _FAULTS:
        return False
    return True
