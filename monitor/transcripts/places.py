"""Finds transcripts: in the known places of this user, in folders, by patterns, in archives."""

from __future__ import annotations

import glob
import io
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from monitor.transcripts.readers.registry import READERS
from monitor.transcripts.source import DAMAGED, MAX_DOCUMENT_BYTES, ZIP_MAGIC, Source

ENDINGS: Final = (".jsonl", ".json", ".traj", ".eval", ".md", ".db", ".log", ".ndjson", ".gz", ".zst")
"""The endings of files in a folder that are looked at. Their content shows their format. A file
that is named itself is always looked at.
"""
ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
SKIPPED: Final = frozenset({"node_modules", ".git", ".venv", "__pycache__", "site-packages"})
"""Folders that hold very many files, and no transcripts."""


def known_places(home: Path | None = None) -> Iterator[tuple[str, Path]]:
    """The transcripts of this user, each with the format of its place."""
    base = Path.home() if home is None else home
    for reader in READERS:
        for pattern in reader.places:
            for path in sorted(base.glob(pattern)):
                if path.is_file():
                    yield reader.format, path


def files(paths: Iterable[str], *, missing: list[str] | None = None) -> Iterator[Path]:
    """The files that `paths` name: files, folders, patterns. A path where nothing is found is added
    to `missing`.
    """
    for given in paths:
        found = False
        for path in _of(given):
            found = True
            yield path
        if not found and missing is not None:
            missing.append(given)


def sources(paths: Iterable[str]) -> Iterator[Source]:
    """The transcripts in files, folders, patterns (`logs/**/*.jsonl`) and archives."""
    for path in files(paths):
        yield from sources_of(path)


def _of(given: str) -> Iterator[Path]:
    path = Path(given).expanduser()
    if path.is_dir():
        yield from _folder(path)
    elif path.exists():
        yield path
    elif glob.has_magic(given):
        for name in sorted(glob.iglob(str(path), recursive=True)):  # noqa: PTH207 - patterns may be absolute
            inner = Path(name)
            yield from _folder(inner) if inner.is_dir() else (inner,)


def _folder(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        looked_at = path.name.endswith((*ENDINGS, *ARCHIVES)) and SKIPPED.isdisjoint(path.relative_to(folder).parts)
        if looked_at and path.is_file():
            yield path


def sources_of(path: Path) -> Iterator[Source]:
    """The transcript in the file, or those in the files of an archive. An evaluation of Inspect is
    an archive, and one transcript.
    """
    found = False
    for member in _members(path) if path.name.endswith(ARCHIVES) else ():
        found = True
        yield member
    if not found:
        yield Source.of_path(path)


def _members(path: Path) -> Iterator[Source]:
    """The transcripts in an archive. A part that cannot be read is a transcript that cannot be
    opened.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
        yield from _of_zip(path) if zipped else _of_tar(path)
    except OSError as error:
        yield _unreadable(str(path), error.strerror or str(error))
    except (*DAMAGED, tarfile.TarError) as error:
        yield _unreadable(str(path), f"the archive is damaged or cut: {error}")


def _of_zip(path: Path) -> Iterator[Source]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir() and info.filename.endswith(ENDINGS):
                yield Source(f"{path}!{info.filename}", partial(_in_zip, path, info.filename))


def _of_tar(path: Path) -> Iterator[Source]:
    with tarfile.open(path) as tar:
        for member in tar:
            if not member.isfile() or not member.name.endswith(ENDINGS):
                continue
            name = f"{path}!{member.name}"
            if member.size > MAX_DOCUMENT_BYTES:
                yield _unreadable(name, f"it is longer than {MAX_DOCUMENT_BYTES} bytes")
            elif (extracted := tar.extractfile(member)) is not None:
                yield Source.of_bytes(name, extracted.read())


def _unreadable(name: str, why: str) -> Source:
    def fail() -> io.BytesIO:
        raise OSError(why)

    return Source(name, fail)


def _in_zip(path: Path, name: str) -> io.BytesIO:
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo(name).file_size > MAX_DOCUMENT_BYTES:
            raise OSError(f"it is longer than {MAX_DOCUMENT_BYTES} bytes, unpacked")
        try:
            return io.BytesIO(archive.read(name))
        except (NotImplementedError, RuntimeError) as error:  # packed in another way, or encrypted
            raise OSError(str(error)) from None
