"""A program that confines itself and becomes another one. It needs the standard library alone:
`python -I -S box_program.py RULES COMMAND ...`, with the `BoxRules` as JSON.

Landlock confines files, signals and abstract sockets. A filter of system calls (seccomp) confines
what Landlock and namespaces leave open: families of sockets, keyrings, and rings of io_uring, which
no filter sees into. Source of the numbers: include/uapi/linux/landlock.h, seccomp.h and audit.h,
and the tables of system calls.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_OF_A_FILE: Final = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""The rights that a rule on a file may have: execute, write, read, truncate, ioctl."""
_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""The number of rights of files, by version. Later versions have 16."""
SCOPES_SINCE: Final = 6
_SCOPES: Final = 0b11
"""Abstract sockets and signals, to processes outside."""
_NO_NEW_PRIVS, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_CALLS: Final = {
    "x86_64": (0xC000003E, 41, (248, 249, 250)),
    "aarch64": (0xC00000B7, 198, (217, 218, 219)),
    "riscv64": (0xC00000F3, 198, (217, 218, 219)),
}
"""By processor: its number, `socket`, and the calls of keyrings (add_key, request_key, keyctl)."""
_IO_URING: Final = 425
_X32: Final = 0x40000000
"""From here on x86_64 counts the calls of a second table."""
UNIX: Final = 1
NETWORK: Final = (2, 10, 16)
"""Families of sockets: IPv4, IPv6 and netlink, which lists the interfaces."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOWED, _REFUSED = 0x7FFF0000, 0x00050000 | 13
"""The answers of a filter: the call is made, or it fails with EACCES."""


class BoxRules(NamedTuple):
    """What a command may use."""

    files: bool
    """Whether `readable` and `writable` confine files. False: bubblewrap does."""
    readable: Sequence[str] = ()
    writable: Sequence[str] = ()
    families: Sequence[int] = ()
    """The families of sockets that can be made."""
    scoped: bool = True
    """Whether signals and abstract sockets of processes outside are out of reach."""


def version() -> int:
    """The version of Landlock in this kernel; 0 where there is none, or no filter is known."""
    if sys.platform != "linux" or platform.machine() not in _CALLS:
        return 0
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except (OSError, AttributeError):
        return 0


def confine_thread(rules: BoxRules) -> None:
    """Confine the calling thread, and all that it starts, for good. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if rules.files or rules.scoped:
        _landlock(rules)
    if rules.files:
        program = socket_filter(rules.families)
        held = ctypes.create_string_buffer(program, len(program))
        given = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
        if libc.prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(given), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp")


def _landlock(rules: BoxRules) -> None:
    found = version()
    every = (1 << _RIGHTS.get(found, 16)) - 1
    scopes = _SCOPES if found >= SCOPES_SINCE else 0
    ruled = struct.pack("QQQ", every if rules.files else 0, 0, scopes)
    size = 24 if found >= SCOPES_SINCE else 8  # the kernel refuses what it does not know
    made = _call(_CREATE, ctypes.c_char_p(ruled), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for paths, rights in ((rules.readable, _EXECUTE | _READ_FILE | _READ_DIR), (rules.writable, every)):
            for path in paths:
                _allow(made, path, rights)
        _call(_RESTRICT, ctypes.c_int(made), ctypes.c_uint32(0))
    finally:
        os.close(made)


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


def socket_filter(families: Sequence[int]) -> bytes:
    """The filter of system calls, as the kernel and bubblewrap read it. Empty: this processor is
    not known. Programs for another kind of processor (of 32 bits) make no call at all.
    """
    if platform.machine() not in _CALLS:
        return b""
    arch, socket, keyrings = _CALLS[platform.machine()]
    refused = len(keyrings) + len(families) + 3  # steps from the first comparison of a call to the refusal
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _REFUSED),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, refused, 0, _X32),
    ]
    steps += [(_EQUAL, refused - 1 - at, 0, call) for at, call in enumerate((*keyrings, _IO_URING))]
    steps += [(_EQUAL, 0, len(families) + 2, socket), (_LOAD, 0, 0, 16)]
    steps += [(_EQUAL, len(families) - at, 0, family) for at, family in enumerate(families)]
    steps += [(_RETURN, 0, 0, _REFUSED), (_RETURN, 0, 0, _ALLOWED)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def filter_pipe(families: Sequence[int]) -> Iterator[int]:
    """The descriptor from which bubblewrap reads the filter, if there is one."""
    if program := socket_filter(families):
        reading, writing = os.pipe()
        os.write(writing, program)
        os.close(writing)
        yield reading


def main(arguments: list[str]) -> None:
    """Confine this process, and become the command."""
    rules, command = BoxRules(*json.loads(arguments[0])), arguments[1:]
    confine_thread(rules)
    for descriptor in () if rules.files else filter_pipe(rules.families):
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - its only form
        command[1:1] = ["--seccomp", str(descriptor)]
    os.execvp(command[0], command)  # noqa: S606 - that is what this program is for


if __name__ == "__main__":
    main(sys.argv[1:])
