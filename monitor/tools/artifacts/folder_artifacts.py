"""Artifacts in a folder, which several processes may use at the same time.

`ab/<digest>` holds a text, and `ab/<digest>.json` the facts about it. `pins/` holds a file for each
run that needs texts. Each file is written whole or not at all, and only its owner may read it. The
time of a text's file is the time of its last use.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import anyio.to_thread

from monitor._util.explained_options import explained
from monitor.errors import ConfigError, StoreError, describe
from monitor.tools.artifacts.artifact_store import (
    MAX_BYTES,
    Artifact,
    ArtifactGone,
    Reference,
    check_max_bytes,
    described,
    digest_of,
    encoded,
    resolved,
    to_remove,
    with_reference,
)

try:
    import fcntl as _fcntl

    fcntl: Any = _fcntl
    _LOCKS = True
except ImportError:  # pragma: no cover - a system without it (Windows) has no lock between processes
    fcntl = None
    _LOCKS = False

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_PROJECT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_BEGINNING: Final = re.compile(r"[0-9a-f]{2}")
_OLD_PIN_S: Final = 86_400.0
"""On a system without locks it is not known whether the owner of a pin still runs. Then the pin
holds for a day.
"""
_LEFT_OVER_S: Final = 3_600.0
"""A half-written file that is older belongs to a process that has ended."""


def _in_thread(do: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """A method that runs in a thread, because a file system may be slow. If the caller is
    cancelled, work that has begun is still finished.
    """

    @wraps(do)
    async def method(store: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        def work() -> R:
            try:
                return do(store, *args, **kwargs)
            except OSError as error:
                raise StoreError(f"the artifacts cannot be read or written: {describe(error)}") from error

        return await anyio.to_thread.run_sync(work)

    return method


@explained(example="monitor.tools.FolderArtifacts('kept')")
class FolderArtifacts:
    """Texts in the folder `path`, at most `max_bytes` in all. The least recently used are removed
    first. A text that a running session has pinned stays, also if that is another process.

    `project`: the texts of this project stand in a folder of their own. No other project reads or
    removes them, and `max_bytes` holds for this project alone.

    The folder is made when the first text is kept. Raises `StoreError` if the folder cannot be read
    or written, or if the digest of a text is not its name.
    """

    def __init__(self, path: str | os.PathLike[str], *, project: str | None = None, max_bytes: int = MAX_BYTES) -> None:
        check_max_bytes(max_bytes)
        self.path = folder_of(path, project)
        self.max_bytes = max_bytes
        self.loads = 0
        """The number of texts that were loaded."""
        self._pins: dict[str, _Pin] = {}

    def __repr__(self) -> str:
        return f"FolderArtifacts({str(self.path)!r})"

    @_in_thread
    def put(self, text: str, *, reference: Reference | None = None, pin: str | None = None) -> Artifact:
        data = encoded(text)
        digest = digest_of(data)
        with self._locked():
            known = self._known(digest)
            if known is None:
                self._make_room(len(data))
                self._write(self._place(digest), data)
            else:
                with suppress(OSError):
                    os.utime(self._place(digest))
            references = with_reference(known.references if known else (), reference)
            artifact = described(text, digest, references)
            if known is None or artifact != known:
                self._write(self._about(digest), json.dumps(_to_json(artifact)).encode())
            if pin is not None:
                self._own(pin).add([digest])
        return artifact

    @_in_thread
    def pin(self, refs: Iterable[str], owner: str) -> None:
        with self._locked():
            digests = [resolved(ref, self._near(ref)) for ref in refs]
            self._own(owner).add(digests)

    @_in_thread
    def unpin(self, owner: str) -> None:
        pin = self._pins.pop(owner, None)
        if pin is not None:
            pin.close()

    @_in_thread
    def find(self, ref: str) -> Artifact | None:
        try:
            return self._known(resolved(ref, self._near(ref)))
        except ArtifactGone:
            return None

    @_in_thread
    def read(self, ref: str) -> str:
        digest = resolved(ref, self._near(ref))
        try:
            data = self._place(digest).read_bytes()
            with suppress(OSError):  # a folder that may only be read
                os.utime(self._place(digest))
        except FileNotFoundError:
            raise ArtifactGone(f"the artifact {digest} was removed just now") from None
        if digest_of(data) != digest:
            raise StoreError(f"the artifact {digest} in {self.path} is damaged: its text is not the one that was kept")
        self.loads += 1
        return data.decode("utf-8", "surrogatepass")

    @_in_thread
    def artifacts(self) -> Sequence[Artifact]:
        return [known for digest in self._sizes() if (known := self._known(digest)) is not None]

    def _known(self, digest: str) -> Artifact | None:
        try:
            data = json.loads(self._about(digest).read_bytes())
            return Artifact(
                digest=digest,
                chars=int(data["chars"]),
                lines=int(data["lines"]),
                references=tuple(Reference.from_dict(one) for one in data["references"]),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, StoreError) as error:
            raise StoreError(f"{self._about(digest)} is damaged: {describe(error)}") from None

    def _make_room(self, new: int) -> None:
        """Remove what must go for `new` bytes more. Raises `ArtifactsFull`."""
        sizes = self._sizes()
        if sum(sizes.values()) + new <= self.max_bytes:
            return
        for digest in to_remove(sizes, pinned=self._pinned(), new=new, most=self.max_bytes):
            # The facts are removed first: without them the text is not found.
            self._about(digest).unlink(missing_ok=True)
            self._place(digest).unlink(missing_ok=True)

    # ------------------------------------------------------------------ files

    def _place(self, digest: str) -> Path:
        return self.path / digest[:2] / digest

    def _about(self, digest: str) -> Path:
        return self.path / digest[:2] / f"{digest}.json"

    def _files(self) -> Iterator[os.DirEntry[str]]:
        with suppress(FileNotFoundError):
            for folder in sorted(self.path.iterdir()):
                if _BEGINNING.fullmatch(folder.name):
                    with os.scandir(folder) as found:
                        yield from found

    def _near(self, ref: str) -> set[str]:
        """The digests that `ref` may mean."""
        begins = ref.strip().lower()[:2]
        if not _BEGINNING.fullmatch(begins):
            return set()
        try:
            names = [path.name for path in (self.path / begins).iterdir()]
        except FileNotFoundError:
            return set()
        return {name for name in names if _DIGEST.fullmatch(name)}

    def _sizes(self) -> dict[str, int]:
        """Bytes of each text, the least recently used first. Half-written files of a killed process
        are removed.
        """
        found: list[tuple[int, str, int]] = []
        for file in self._files():
            with suppress(FileNotFoundError):
                status = file.stat()
                if _DIGEST.fullmatch(file.name):
                    found.append((status.st_mtime_ns, file.name, status.st_size))
                elif file.name.startswith("tmp") and time.time() - status.st_mtime > _LEFT_OVER_S:
                    Path(file.path).unlink(missing_ok=True)
        return {name: size for _, name, size in sorted(found)}

    def _write(self, path: Path, data: bytes) -> None:
        self._folder(path.parent)
        write_whole(path, data)

    def _folder(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Within this, no other process and no other thread removes or pins texts."""
        self._folder(self.path)
        with _opened(self.path / "lock") as number:
            if _LOCKS:
                fcntl.flock(number, fcntl.LOCK_EX)
            yield

    # ------------------------------------------------------------------ pins

    def _own(self, owner: str) -> _Pin:
        pin = self._pins.get(owner)
        if pin is None:
            self._folder(self.path / "pins")
            pin = self._pins[owner] = _Pin(self.path / "pins" / uuid.uuid4().hex)
        return pin

    def _pinned(self) -> set[str]:
        """The digests that running runs need. Pins of a process that has ended are removed."""
        pinned: set[str] = set()
        with suppress(FileNotFoundError):
            for path in list((self.path / "pins").iterdir()):
                with suppress(FileNotFoundError):
                    if _has_an_owner(path):
                        pinned.update(path.read_text().split())
                    else:
                        path.unlink()
        return pinned


def folder_of(path: str | os.PathLike[str], project: object) -> Path:
    """The folder of `project` in the folder `path`; `path` itself where there is no project. Raises
    `ConfigError` if `project` is no name.
    """
    if project is None:
        return Path(path)
    if not isinstance(project, str) or not _PROJECT.fullmatch(project):
        raise ConfigError(f"project={project!r}: give a name of at most 64 letters, digits, ., - and _")
    return Path(path) / "projects" / project


class _Pin:
    """The file of one run with the digests that it needs. It is locked while the run goes on, and
    the system removes the lock of a process that dies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._digests: set[str] = set()
        if _LOCKS:
            fcntl.flock(self._number, fcntl.LOCK_EX)

    def add(self, digests: Iterable[str]) -> None:
        new = set(digests) - self._digests
        if new:
            os.write(self._number, "".join(f"{digest}\n" for digest in sorted(new)).encode())
            self._digests |= new

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._number)


def _has_an_owner(path: Path) -> bool:
    if not _LOCKS:  # pragma: no cover - see above
        return time.time() - path.stat().st_mtime < _OLD_PIN_S
    with _opened(path, 0) as number:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@contextmanager
def _opened(path: Path, make: int = os.O_CREAT) -> Iterator[int]:
    number = os.open(path, os.O_RDWR | make, 0o600)
    try:
        yield number
    finally:
        os.close(number)


def _to_json(artifact: Artifact) -> dict[str, Any]:
    return {
        "chars": artifact.chars,
        "lines": artifact.lines,
        "references": [one.to_dict() for one in artifact.references],
    }


def write_whole(path: Path, data: bytes) -> None:
    """Write the file `path`, which has that name only when it is whole and on the disk."""
    number, name = tempfile.mkstemp(dir=path.parent)  # for its owner only
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
