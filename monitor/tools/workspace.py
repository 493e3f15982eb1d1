"""A folder that file tools do not leave, whatever path a model writes.

A path is resolved first, symbolic links included, and must lie in the folder. Then each of its
directories is opened from the one before, without following links. So if somebody replaces a
directory by a link in the meantime, that is an error, and no way out of the folder.

Two ways out are not seen: a hard link to a file elsewhere, and a file system that is mounted within
the folder. Shell commands are not confined: only approval or a sandbox confines them.
"""

from __future__ import annotations

import codecs
import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from monitor._util.explained_options import explained
from monitor.errors import ConfigError, ToolError, ToolErrorKind
from monitor.tools.base import excerpt

# --------------------------------------------------------------------------------------------------
# One writer at a time for the files of a folder: in this process, and between processes.
#
# The lock is that of the operating system on the folder itself (`flock`), so nothing is left
# behind. A file system without such locks keeps apart the writers of this process only.

WAIT_S: Final = 30.0
"""The most seconds to wait for another writer. A write takes milliseconds."""
LOOK_S: Final = 0.002
"""Seconds between two looks whether the writer of another process has finished."""
_locks: Final[WeakValueDictionary[tuple[int, int], threading.Lock]] = WeakValueDictionary()
"""The lock of each folder in which this process writes now, by device and inode."""
_finding: Final = threading.Lock()
_without_folders: Final = threading.Lock()


@contextmanager
def only_writer(*folders: int, wait_s: float = WAIT_S) -> Iterator[None]:
    """Within this, nobody else who asks writes into the folders. `folders`: descriptors that were
    opened for this call. Call it in a worker thread: it waits for the other writers.

    Raises `ToolError` if another one has not finished after `wait_s` seconds.
    """
    until = time.monotonic() + wait_s
    by_identity = {_identity(folder): folder for folder in folders}
    held: list[threading.Lock] = []
    try:
        for identity in sorted(by_identity):  # in one order, so that two writers never wait for each other
            with _finding:
                lock = _locks.setdefault(identity, threading.Lock())
            if not lock.acquire(timeout=max(0.0, until - time.monotonic())):
                raise _busy()
            held.append(lock)
            _lock_between_processes(by_identity[identity], until)
        yield
    finally:
        for folder in by_identity.values():
            _unlock(folder)
        for lock in held:
            lock.release()


@contextmanager
def only_writer_of(folder: Path) -> Iterator[None]:
    """`only_writer` for the path of a folder. On a system that opens no folders (Windows), only
    writers of this process are kept apart.
    """
    if not hasattr(os, "O_DIRECTORY"):
        with _without_folders:
            yield
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with only_writer(number):
            yield
    finally:
        os.close(number)


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _lock_between_processes(folder: int, until: float) -> None:
    import fcntl  # noqa: PLC0415 - a system without it has no workspace

    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise _busy() from None
            time.sleep(LOOK_S)
        except OSError:  # this file system has no locks
            return
        else:
            return


def _unlock(folder: int) -> None:
    import fcntl  # noqa: PLC0415 - as above

    try:
        fcntl.flock(folder, fcntl.LOCK_UN)
    except OSError:  # it has none
        return


def _busy() -> ToolError:
    return ToolError(
        "another program is writing into this folder and does not finish; try again later",
        kind=ToolErrorKind.WRITE_FAILED,
    )


_ENTRY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY = _ENTRY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = _ENTRY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""`O_NONBLOCK`: opening a named pipe must not block."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
READ_BYTES = 65_536


@dataclass(slots=True, frozen=True)
class WorkspacePath:
    """A path within a workspace: the path of its directory, and its name."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return "/".join(self.parts) or "."


@dataclass(slots=True, frozen=True)
class FileContent:
    """What a file was when it was read."""

    content: bytes
    """The beginning of the file, or all of it."""
    size: int
    """The size of the file in bytes. `NO_FILE` has less than 0."""


NO_FILE: Final = FileContent(b"", -1)
"""Stands for a file that is not there."""


@explained(example="monitor.tools.Workspace('.')")
class Workspace:
    """The folder `path`. Relative paths begin there; absolute ones must lie in it.

    Raises `ConfigError` if there is no such folder, or if the system cannot open files relative to
    a directory (Windows).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise ConfigError("Workspace needs a system that opens files relative to a directory: Linux or macOS")
        try:
            self.root = Path(path).resolve(strict=True)
        except FileNotFoundError:
            raise ConfigError(f"Workspace({str(path)!r}): there is no such folder") from None
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(f"Workspace({str(path)!r}): {error}") from None
        if not self.root.is_dir():
            raise ConfigError(f"Workspace({str(path)!r}) is no folder")

    @classmethod
    def at(cls, place: Workspace | str | os.PathLike[str]) -> Workspace:
        """`place`, or the workspace of the folder with that path."""
        return place if isinstance(place, Workspace) else cls(place)

    def __repr__(self) -> str:
        return f"Workspace({str(self.root)!r})"

    def place(self, path: str) -> WorkspacePath:
        """The real place of `path`. Raises `ToolError` (`outside_workspace`) if that is not in this
        workspace.
        """
        try:
            real = os.path.realpath(self.root / path)
            real.encode()
        except ValueError:
            raise ToolError(f"{excerpt(path)} is no path", kind=ToolErrorKind.INVALID_ARGUMENTS) from None
        except (OSError, RuntimeError) as error:
            raise failed(path, error) from None
        try:
            return WorkspacePath(Path(real).relative_to(self.root).parts)
        except ValueError:
            raise ToolError(
                f"{excerpt(path)} is outside the workspace; give a path relative to it",
                kind=ToolErrorKind.OUTSIDE_WORKSPACE,
            ) from None

    def directory(self, path: str) -> Path:
        """The existing directory `path`, for a command. Raises `ToolError` if `path` is outside of
        the workspace, or is no directory.
        """
        place = self.place(path)
        with errors_of(path), self._opened(place.parts):
            return self.root.joinpath(*place.parts)

    @contextmanager
    def listed(self, path: str) -> Iterator[tuple[WorkspacePath, int]]:
        """Open the directory `path`. Gives its place and its descriptor."""
        place = self.place(path)
        with errors_of(path), self._opened(place.parts) as descriptor:
            yield place, descriptor

    def read(self, path: str, limit: int) -> tuple[WorkspacePath, bytes, int]:
        """The place of the file, at most `limit` bytes of its beginning, and its size in bytes."""
        place = self.place(path)
        with errors_of(path), self._opened(place.parts[:-1]) as parent:
            name = place.parts[-1] if place.parts else "."
            descriptor = os.open(name, _FILE, dir_fd=parent)
            try:
                status = os.fstat(descriptor)
                _check_regular(path, status)
                pieces, left = [], limit
                while left > 0 and (piece := os.read(descriptor, min(left, READ_BYTES))):
                    pieces.append(piece)
                    left -= len(piece)
                content = b"".join(pieces)
                return place, content, max(status.st_size, len(content))
            finally:
                os.close(descriptor)

    @contextmanager
    def only_writer(self, *paths: str) -> Iterator[None]:
        """Within this, nobody else writes these files: no other tool of this process, and none of
        another process that asks in this way. Call it in a worker thread. See
        `monitor.tools.workspace`.
        """
        above = {self.place(path).parts[:-1]: path for path in paths}
        with ExitStack() as opened:
            folders = []
            for parts, path in above.items():
                with errors_of(path, ToolErrorKind.WRITE_FAILED):
                    folders.append(opened.enter_context(self._opened(parts, make=True)))
            with only_writer(*folders):
                yield

    def write(self, path: str, content: bytes, *, before: FileContent | None = None) -> WorkspacePath:
        """Replace the file by `content`, whole or not at all. Its mode and its extended attributes
        stay, and missing directories are made.

        `before`: what the file has to be until then. If somebody else has changed it, nothing is
        written, and `ToolError` is raised. `None`: whatever it is.
        """
        place = self.place(path)
        if not place.parts:
            raise ToolError(f"{excerpt(path)} is a directory", kind=ToolErrorKind.INVALID_ARGUMENTS)
        *above, name = place.parts
        with errors_of(path, ToolErrorKind.WRITE_FAILED), self._opened(tuple(above), make=True) as parent:
            old = _status_of(path, name, parent)
            if old is not None and not old.st_mode & 0o222:  # a replacement would need no permission of the file
                raise ToolError(f"{excerpt(path)} is read-only", kind=ToolErrorKind.PERMISSION)
            temporary = f".{name[:100]}.{secrets.token_hex(6)}.tmp"
            descriptor = os.open(temporary, _NEW, 0o666 if old is None else 0o600, dir_fd=parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    if old is not None:
                        with suppress(OSError):  # only root may give a file to somebody else
                            os.fchown(descriptor, old.st_uid, old.st_gid)
                        os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
                        _copy_attributes(name, parent, descriptor)
                    os.fsync(descriptor)
                if before is not None and _content_of(name, parent, len(before.content)) != before:
                    raise ToolError(
                        f"{excerpt(path)} has changed while it was being written: nothing was written; read it again",
                        kind=ToolErrorKind.WRITE_FAILED,
                    )
                os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise
            with suppress(OSError):  # some file systems cannot
                os.fsync(parent)
        return place

    def remove(self, path: str) -> WorkspacePath:
        """Remove the file. Raises `ToolError` if it is none."""
        place = self.place(path)
        with errors_of(path, ToolErrorKind.WRITE_FAILED), self._opened(place.parts[:-1]) as parent:
            name = place.parts[-1] if place.parts else "."
            if _status_of(path, name, parent) is None:
                raise ToolError(f"{excerpt(path)} does not exist", kind=ToolErrorKind.NOT_FOUND)
            os.unlink(name, dir_fd=parent)
        return place

    @contextmanager
    def _opened(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """A descriptor of the directory, each part opened from the one before."""
        descriptor = os.open(self.root, _DIRECTORY)
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                below = os.open(part, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def errors_of(path: str, other: ToolErrorKind = ToolErrorKind.EXECUTION_FAILED) -> Iterator[None]:
    """Within this, an error of the system becomes a `ToolError` that a model can act on. `other`:
    the kind of an error that has no kind of its own.
    """
    try:
        yield
    except OSError as error:
        raise failed(path, error, other) from None


def failed(
    path: str, error: OSError | RuntimeError, other: ToolErrorKind = ToolErrorKind.EXECUTION_FAILED
) -> ToolError:
    """The `ToolError` for an error of the system about `path`."""
    shown = excerpt(path)
    match getattr(error, "errno", None):
        case errno.ENOENT:
            return ToolError(f"{shown} does not exist", kind=ToolErrorKind.NOT_FOUND)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return ToolError(f"{shown}: permission denied", kind=ToolErrorKind.PERMISSION)
        case errno.ELOOP:
            return ToolError(
                f"{shown} is a symbolic link that leads nowhere, or that has changed meanwhile",
                kind=ToolErrorKind.OUTSIDE_WORKSPACE,
            )
        case errno.ENOTDIR:
            return ToolError(f"{shown}: a part of this path is no directory", kind=ToolErrorKind.NOT_FOUND)
        case errno.EISDIR:
            return ToolError(f"{shown} is a directory", kind=ToolErrorKind.INVALID_ARGUMENTS)
        case errno.ENAMETOOLONG:
            return ToolError(f"{shown}: the name is too long", kind=ToolErrorKind.INVALID_ARGUMENTS)
        case _:
            what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return ToolError(f"{shown}: {what}", kind=other)


def _copy_attributes(name: str, parent: int, new: int) -> None:
    """Give the file `new` the extended attributes of the one that it replaces."""
    if not hasattr(os, "listxattr"):  # macOS
        return
    with suppress(OSError):  # it cannot be read, or the file system has none
        old = os.open(name, _FILE, dir_fd=parent)
        try:
            for attribute in os.listxattr(old):
                with suppress(OSError):  # some belong to the system
                    os.setxattr(new, attribute, os.getxattr(old, attribute))
        finally:
            os.close(old)


def _content_of(name: str, parent: int, most: int) -> FileContent:
    """The file as it is now, with at most `most` bytes of it."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=parent)
    except FileNotFoundError:
        return NO_FILE
    with os.fdopen(descriptor, "rb") as file:
        return FileContent(file.read(most), os.fstat(descriptor).st_size)


def _status_of(path: str, name: str, parent: int) -> os.stat_result | None:
    """Owner and permissions of an existing file. `None`: there is no such file."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _check_regular(path, status)
    return status


def _check_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{excerpt(path)} is a directory; list it with ls", kind=ToolErrorKind.INVALID_ARGUMENTS)
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(
            f"{excerpt(path)} is no ordinary file but a link, a pipe, a socket or a device",
            kind=ToolErrorKind.INVALID_ARGUMENTS,
        )


# --------------------------------------------------------------------------------------------------
# Text of files: read in the encoding of the file, and written back in the same encoding.

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark begins like it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL_SHARE: Final = 0.1
"""If a file is not UTF-8, and more of its characters are control characters, it is no text."""
_CONTROLS: Final = bytes({*range(32), 127} - set(b"\t\n\r\f\v\b\x1b"))


@dataclass(slots=True, frozen=True)
class Encoding:
    """The way in which the bytes of a file hold its text."""

    name: str = "utf-8"
    """The name that Python has for it."""
    mark: bytes = b""
    """The byte order mark before the text."""
    crlf: bool = False
    """Every line ends with CR LF. The text has LF in their place."""

    def encode(self, text: str) -> bytes:
        """The bytes of a file with this text. Raises `UnicodeEncodeError` if the encoding lacks a
        character of it.
        """
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        return self.mark + text.encode(self.name)

    def __str__(self) -> str:
        marked = " with a byte order mark" if self.mark else ""
        return f"{self.name}{marked}{', lines end with CRLF' if self.crlf else ''}"


UTF_8: Final = Encoding()


def decoded(content: bytes, *, whole: bool = True) -> tuple[str, Encoding] | None:
    """The text of a file, and its encoding. `None`: it is no text.

    `whole`: `content` is the whole file; else a character at its end may be cut. A file without a
    mark is UTF-8, or Latin-1 if it cannot be UTF-8. UTF-16 without a mark counts as binary.
    """
    for mark, name in _MARKS:
        if content.startswith(mark):
            text = _decoded(content[len(mark) :], name, whole=whole)
            return None if text is None else _with_ends(text, name, mark)
    if b"\0" in content:
        return None
    if (text := _decoded(content, "utf-8", whole=whole)) is not None:
        return _with_ends(text, "utf-8", b"")
    controls = len(content) - len(content.translate(None, _CONTROLS))
    if controls > _CONTROL_SHARE * len(content):
        return None
    return _with_ends(content.decode("latin-1"), "latin-1", b"")


def _decoded(content: bytes, name: str, *, whole: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(name)().decode(content, whole)
    except UnicodeDecodeError:
        return None


def _with_ends(text: str, name: str, mark: bytes) -> tuple[str, Encoding]:
    ends = text.count("\r\n")
    crlf = ends > 0 and ends == text.count("\n") and ends == text.count("\r")
    return (text.replace("\r\n", "\n") if crlf else text), Encoding(name, mark, crlf)
