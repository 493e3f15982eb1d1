"""A program that confines itself with Landlock and becomes another one. It needs the standard
library alone: `python -I -S landlock_program.py RULES COMMAND ...`, with the rules as JSON.

Source of the numbers: include/uapi/linux/landlock.h and the table of system calls, which has the
same three numbers on every architecture.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Any, Final

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_OF_A_FILE: Final = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""The rights that a rule on a file may have: execute, write, read, truncate, ioctl."""
_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""The number of rights of files, by version. Later versions have 16."""
_TCP: Final = 0b11
"""Bind and connect."""
_TCP_SINCE, _SCOPES_SINCE = 4, 6
_SCOPES: Final = 0b11
"""Abstract sockets and signals, to processes outside."""
_NO_NEW_PRIVS: Final = 38


def version() -> int:
    """The version of Landlock in this kernel; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except (OSError, AttributeError):
        return 0


def confine_thread(readable: Iterable[str], writable: Iterable[str], *, network: bool) -> None:
    """Confine the calling thread, and all that it starts, for good. Raises `OSError`."""
    found = version()
    every = (1 << _RIGHTS.get(found, 16)) - 1
    net = 0 if network or found < _TCP_SINCE else _TCP
    scopes = _SCOPES if found >= _SCOPES_SINCE else 0
    size = 8 if found < _TCP_SINCE else 16 if found < _SCOPES_SINCE else 24  # the kernel refuses what it does not know
    ruled = struct.pack("QQQ", every, net, scopes)[:size]
    rules = _call(_CREATE, ctypes.c_char_p(ruled), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for paths, rights in ((readable, _EXECUTE | _READ_FILE | _READ_DIR), (writable, every)):
            for path in paths:
                _allow(rules, path, rights)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        _call(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it is not there
        return
    try:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        allowed = rights if folder else rights & _OF_A_FILE
        rule = ctypes.c_char_p(struct.pack("=Qi", allowed, descriptor))
        _call(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint32(0))
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: Any) -> int:
    result: int = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def main(arguments: list[str]) -> None:
    """Confine this process, and become the command."""
    rules = json.loads(arguments[0])
    confine_thread(rules["readable"], rules["writable"], network=rules["network"])
    os.execvp(arguments[1], arguments[1:])  # noqa: S606 - that is what this program is for


if __name__ == "__main__":
    main(sys.argv[1:])
