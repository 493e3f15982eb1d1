"""Finds transcripts: in the known places of this user, in folders, by patterns, in archives."""

from __future__ import annotations

import codecs
import fnmatch
import glob
import io
import json
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from monitor.chunks import chunk_codec
from monitor.errors import AdapterError
from monitor.events import event_codec
from monitor.transcripts.base import ReadReport, RecordedRun, TranscriptEntry, collected
from monitor.transcripts.readers.registry import READERS, reader_of
from monitor.transcripts.source import MAX_DOCUMENT_BYTES, ZIP_MAGIC, Source, damage

ENDINGS: Final = (".jsonl", ".json", ".traj", ".eval", ".md", ".db", ".log", ".ndjson", ".gz", ".zst")
"""The endings of files in a folder that are looked at. Their content shows their format. A file
that is named itself is always looked at.
"""
ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
NESTED: Final = "it is an archive within an archive; unpack it first"
SKIPPED: Final = frozenset({"node_modules", ".git", ".venv", "__pycache__", "site-packages"})
"""Folders that hold very many files, and no transcripts."""


def known_places(home: Path | None = None) -> Iterator[tuple[str, Path]]:
    """The transcripts of this user, each with the format of its place. A folder that cannot be read
    stands for its files.
    """
    base = Path.home() if home is None else home
    for reader in READERS:
        for pattern in reader.places:
            yield from ((reader.format, path) for path in _matching(base, pattern) if _may_be_transcript(path))


def files(paths: Iterable[str], *, missing: list[str] | None = None) -> Iterator[Path]:
    """The files that `paths` name: files, folders, patterns. A path where nothing is found is added
    to `missing`. A folder below them that cannot be read stands for its files.
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
    if is_folder(path):
        yield from _folder(path)
    elif os.path.lexists(path):
        yield path
    elif glob.has_magic(given):
        for inner in _matching(Path(path.anchor), str(path.relative_to(path.anchor))):
            if is_folder(inner) and _is_readable(inner):
                yield from _folder(inner)
            elif _may_be_transcript(inner):
                yield inner


def _folder(folder: Path) -> Iterator[Path]:
    for path in _matching(folder, "**/*"):
        named = path.name.endswith((*ENDINGS, *ARCHIVES))
        if _may_be_transcript(path) and (named or is_folder(path)):
            yield path


def _matching(folder: Path, pattern: str) -> list[Path]:
    """The paths below `folder` that fit `pattern`, also behind links to folders. With them come the
    folders to look into that cannot be read.
    """
    return sorted(set(_expanded(folder, tuple(Path(pattern).parts), frozenset())))


def _expanded(folder: Path, parts: tuple[str, ...], above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    """`above`: the folders around `folder` that `**` has found, because links may make a circle."""
    if not parts:
        yield folder
    elif not glob.has_magic(parts[0]):
        yield from _expanded(folder / parts[0], parts[1:], above) if os.path.lexists(folder / parts[0]) else ()
    else:
        try:
            inside = list(os.scandir(folder))
            status = folder.stat()
        except PermissionError:
            yield folder
            return
        except OSError:  # no folder, or it has just gone
            return
        here = status.st_dev, status.st_ino
        if parts[0] != "**":
            for entry in inside:
                if fnmatch.fnmatch(entry.name, parts[0]):
                    yield from _expanded(folder / entry.name, parts[1:], above)
        elif here not in above:
            yield from _expanded(folder, parts[1:], above)
            for entry in inside:
                if entry.name not in SKIPPED and is_folder(entry):
                    yield from _expanded(folder / entry.name, parts, above | {here})


def _may_be_transcript(path: Path) -> bool:
    """Whether `path` is a file, or cannot be looked at. A pipe or a device has no transcript, and
    reading it may never end.
    """
    try:
        mode = path.stat().st_mode
    except PermissionError:
        return True
    except OSError:  # a link to nothing, or a file that has just gone
        return False
    return stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and not _is_readable(path))


def is_folder(path: Path | os.DirEntry[str]) -> bool:
    """Whether `path` is a folder. A path that cannot be looked at is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _is_readable(folder: Path) -> bool:
    return os.access(folder, os.R_OK | os.X_OK)


def sources_of(path: Path) -> Iterator[Source]:
    """The transcript in the file, or those in the files of an archive. An evaluation of Inspect is
    an archive, and one transcript.
    """
    if is_folder(path):
        yield _unreadable(str(path), "the folder cannot be read")
        return
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
    except damage(tarfile.TarError) as error:
        yield _unreadable(str(path), f"the archive is damaged or cut: {error}")


def _of_zip(path: Path) -> Iterator[Source]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.endswith(ARCHIVES):
                yield _unreadable(f"{path}!{info.filename}", NESTED)
            elif not info.is_dir() and info.filename.endswith(ENDINGS):
                yield Source(f"{path}!{info.filename}", partial(_in_zip, path, info.filename))


def _of_tar(path: Path) -> Iterator[Source]:
    with tarfile.open(path) as tar:
        for member in tar:
            if not member.isfile() or not member.name.endswith((*ENDINGS, *ARCHIVES)):
                continue
            name = f"{path}!{member.name}"
            if member.name.endswith(ARCHIVES):
                yield _unreadable(name, NESTED)
            elif member.size > MAX_DOCUMENT_BYTES:
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


# --------------------------------------------------------------------------------------------------
# Recognises files that a command does not read, by their first bytes, for the error message.

CONVERSATION: Final = "a conversation, which agent-monitor sessions context reads"
EVENTS: Final = "a log of events, which agent-monitor scan reads"
RUN: Final = "a recorded run, which agent-monitor scan reads"
HEAD_BYTES: Final = 65_536
"""How many bytes at the start of a file are examined."""

MAGIC_BYTES: Final = 16
"""The length of the longest signature of a binary file."""

_MAGIC: Final[Mapping[bytes, str]] = {
    b"PK\x03\x04": "a ZIP archive",
    b"SQLite format 3\x00": "an SQLite database",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it first",
    b"BZh": "compressed with bzip2; unpack it first",
    b"\xfd7zXZ\x00": "compressed with xz; unpack it first",
    b"\x1f\x8b": "gzipped twice; unpack it first",
    codecs.BOM_UTF32_LE: "text in UTF-32; save it as UTF-8",
    codecs.BOM_UTF32_BE: "text in UTF-32; save it as UTF-8",
    codecs.BOM_UTF16_LE: "text in UTF-16; save it as UTF-8",
    codecs.BOM_UTF16_BE: "text in UTF-16; save it as UTF-8",
}
"""UTF-32 stands before UTF-16, whose mark begins like it."""
_REQUESTS: Final = ("messages", "contents", "input")


def kind_of(head: bytes) -> str | None:
    """The kind of a file that begins with `head`, unpacked. `None`: unknown."""
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if b"\x00" in head:
        return "binary data"
    return None if (first := _first_record(head)) is None else kind_of_record(first)


def kind_of_record(record: Mapping[str, Any]) -> str | None:
    """The kind of a file by its first JSON object, and the command that reads such files."""
    tag = record.get("type")
    if isinstance(tag, str) and "at_s" in record and tag in event_codec.tags:
        return EVENTS
    if "chunk" in record or (isinstance(tag, str) and tag in chunk_codec.tags):
        return "a recording of chunks, which agent-monitor run --model replay:FILE plays"
    messages = record.get("messages")
    if isinstance(record.get("id"), str) and isinstance(messages, list) and any(map(is_recorded, messages)):
        return RUN
    if "role" in record or any(isinstance(record.get(name), list) for name in _REQUESTS):
        return CONVERSATION
    return None


def is_recorded(message: object) -> bool:
    """Whether `message` is one of a recorded run, which no provider takes."""
    return (
        isinstance(message, Mapping) and ("text" in message or "tool_results" in message) and "content" not in message
    )


def _first_record(head: bytes) -> Mapping[str, Any] | None:
    text = head.decode("utf-8-sig", "replace")
    for part in (text.lstrip().partition("\n")[0], text):
        try:
            found: Any = json.loads(part)
        except (ValueError, RecursionError):
            continue
        first = found[0] if isinstance(found, list) and found else found
        return first if isinstance(first, Mapping) else None
    return None


# --------------------------------------------------------------------------------------------------
# Reads a transcript. Its content shows the format.


def read_transcript(source: Source, report: ReadReport | None = None) -> Iterator[TranscriptEntry]:
    """The entries of a transcript, as they come: `Began`, `Said`, `CompactionSeen`,
    `Ended`, each of one run. Unreadable parts are noted in `report`.

    Raises `AdapterError` if its format is unknown, and `OSError` if it cannot be opened.
    """
    reader = reader_of(source)
    if reader is None:
        raise AdapterError(f"{source.name}: it is no transcript of a known format")
    yield from reader.read(source, report if report is not None else ReadReport())


def runs(source: Source, report: ReadReport | None = None) -> Iterator[RecordedRun]:
    """The whole runs of a transcript, each when it is over. For long runs, `read_transcript`
    needs less memory.

    Raises what `read_transcript` raises.
    """
    for run, _ in collected(read_transcript(source, report)):
        yield run
