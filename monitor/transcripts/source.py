"""The bytes of one transcript: a file, or a member of an archive, packed or not.

Everything is streamed. A line longer than `MAX_LINE_BYTES` is skipped and reported. Only a file
that is one JSON document is read whole, up to `MAX_DOCUMENT_BYTES`.
"""

from __future__ import annotations

import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from monitor._util.lazy import LazyModule
from monitor.errors import MissingExtra
from monitor.transcripts.base import ReadReport

if TYPE_CHECKING:
    import gzip
    import sqlite3
    import zipfile
    from pathlib import Path

    import pydantic_core
    from typing_extensions import Buffer
else:
    gzip, zipfile = LazyModule("gzip"), LazyModule("zipfile")
    pydantic_core = LazyModule("pydantic_core")

Bytes: TypeAlias = io.BufferedIOBase | io.RawIOBase
"""A file of bytes that is open for reading."""
MAX_LINE_BYTES: Final = 256 * 1024 * 1024
"""Codex writes records of many megabytes; a file without line ends must not fill the memory."""
MAX_DOCUMENT_BYTES: Final = 512 * 1024 * 1024
"""The largest file of one JSON document that is read: Python needs several times that memory."""
HEAD_BYTES: Final = 4 * 1024 * 1024
READ_BYTES: Final = 65_536
TELL_BYTES: Final = 1_000_000
PACKED_BYTES: Final = 4_096
"""The number of bytes that are unpacked at once: a hostile file becomes 30,000 times as large."""
QUICK_FROM_BYTES: Final = 10_000_000
"""For less, the import of the quick parser of JSON would take longer than it saves."""
HEAD_RECORDS: Final = 20
"""The most records at the beginning of a file that are looked at to recognise its format. Claude
Code may begin with many records of other kinds, and a first line may hold a whole system prompt.
"""
GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZIP_MAGIC: Final = b"PK\x03\x04"
SQLITE_MAGIC: Final = b"SQLite format 3\x00"
BOM: Final = b"\xef\xbb\xbf"


def damage(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """The errors that a damaged or cut file raises, and `others`."""
    return EOFError, OSError, zlib.error, zipfile.BadZipFile, *others


class Source:
    """One transcript. `open_raw` opens its bytes as they are stored. `path` is its file, if it has
    one of its own.
    """

    def __init__(
        self,
        name: str,
        open_raw: Callable[[], Bytes],
        *,
        path: Path | None = None,
        size: int | None = None,
        is_plain: bool = False,
    ) -> None:
        self.name = name
        """For people: the path, and within an archive the member."""
        self.path = path
        self._open_raw = open_raw
        self._is_plain = is_plain
        self._size = size
        self.max_line_bytes = MAX_LINE_BYTES
        """The longest line that is read."""
        self.on_read: Callable[[int], None] | None = None
        """Called after each `TELL_BYTES` of lines, with the bytes since its last call."""
        self.fault = ""
        """Why its bytes cannot be read to the end of the head."""

    @classmethod
    def of_path(cls, path: str | Path) -> Source:
        """The transcript in the file at `path`."""
        from pathlib import Path  # noqa: PLC0415 - see `of_file`

        file = Path(path)
        try:
            size = file.stat().st_size
        except OSError:
            size = None
        return cls(str(path), lambda: file.open("rb"), path=file, size=size)

    @classmethod
    def of_bytes(cls, name: str, data: bytes) -> Source:
        """A transcript whose bytes are in memory."""
        return cls(name, lambda: io.BytesIO(data), size=len(data))

    def part(self, start: int, end: int) -> Source:
        """The bytes from `start` to `end` of a file that is not packed, as a transcript of the same
        name.
        """
        return Source(self.name, lambda: _FileSlice(self._open_raw(), start, end), size=end - start, is_plain=True)

    @property
    def stem(self) -> str:
        """The name without folders and endings."""
        base = self.name.replace("\\", "/").rsplit("/", 1)[-1]
        for ending in (".gz", ".zst", ".jsonl", ".json", ".md", ".traj"):
            base = base.removesuffix(ending)
        return base

    @cached_property
    def is_packed(self) -> bool:
        """Whether the stored bytes are compressed. Raises `OSError` if they cannot be read."""
        with self._open_raw() as raw:
            return not self._is_plain and (raw.read(len(ZSTD_MAGIC)) or b"").startswith((GZIP_MAGIC, ZSTD_MAGIC))

    @contextmanager
    def open(self) -> Iterator[Bytes]:
        """Open the transcript. The bytes that are read are unpacked."""
        with self._open_raw() as raw:
            magic = b""
            if not self._is_plain:
                magic = raw.read(len(ZSTD_MAGIC)) or b""
                raw.seek(0)
            if magic.startswith(GZIP_MAGIC):
                with gzip.GzipFile(fileobj=raw) as unzipped:
                    yield unzipped
            elif magic == ZSTD_MAGIC:
                with _unpack_zstd(raw) as unpacked:
                    yield unpacked
            else:
                yield raw

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the transcript, unpacked."""
        found = bytearray()
        try:
            with self.open() as file:
                while len(found) < HEAD_BYTES and (more := file.read(READ_BYTES)):
                    found += more
        except OSError as error:
            self.fault = error.strerror or str(error)
        except damage() as error:  # the part that could be read may be enough to recognise it
            self.fault = f"the file is damaged or cut: {error}"
        return bytes(found[:HEAD_BYTES]).removeprefix(BOM)

    @cached_property
    def first_records(self) -> tuple[Mapping[str, Any], ...]:
        """The first JSON objects that stand on lines of their own."""
        found: list[Mapping[str, Any]] = []
        whole_lines = self.head if len(self.head) < HEAD_BYTES else self.head[: self.head.rfind(b"\n") + 1]
        parse = _parser(self._size)
        for line in io.BytesIO(whole_lines):
            if len(found) >= HEAD_RECORDS:
                break
            if not line.lstrip().startswith(b"{"):
                continue
            try:
                value = _json(line, parse)
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
        return tuple(found)

    @property
    def first_record(self) -> Mapping[str, Any]:
        """The first of `first_records`; an empty object if there is none."""
        return self.first_records[0] if self.first_records else {}

    @cached_property
    def document(self) -> Any:
        """The file as one JSON document; `None`: it is not one.

        A file of JSON lines is no such document. If it has only one line, which is an object of one
        record, `first_records` has the same object.
        """
        start = self.head.lstrip()[:1]
        if start not in {b"{", b"["}:
            return None
        if len(self.first_records) > 1 and start == b"{":
            return None
        try:
            with self.open() as file:
                data = file.read(MAX_DOCUMENT_BYTES + 1)
            return None if len(data) > MAX_DOCUMENT_BYTES else _json(data.removeprefix(BOM), _parser(len(data)))
        except damage(ValueError):
            return None

    @cached_property
    def tables(self) -> frozenset[str]:
        """The tables of an SQLite database; none where it cannot be read."""
        import sqlite3  # noqa: PLC0415 - few transcripts are databases

        try:
            with closing(self.database()) as database:
                return frozenset(name for (name,) in database.execute("SELECT name FROM sqlite_master"))
        except (sqlite3.Error, OSError) as error:
            self.fault = f"it is an SQLite database that cannot be read: {error}"
            return frozenset()

    def database(self) -> sqlite3.Connection:
        """The SQLite database, to be read while its owner writes to it. Raises `OSError` if it has
        no file of its own.
        """
        import sqlite3  # noqa: PLC0415

        if self.path is None or self.is_packed:
            raise OSError("it is packed; unpack it first")
        return sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)

    def lines(self, report: ReadReport) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, until the end or until the file turns out to be damaged.
        They are numbered on from the lines that `report` has counted.
        """
        number, untold, most = report.lines, 0, self.max_line_bytes
        tell = None if self.on_read is None or (self._size or 0) < TELL_BYTES or self.is_packed else self.on_read
        try:
            with self.open() as file:
                while line := file.readline(most + 1):
                    number = report.lines = report.lines + 1
                    if tell is not None and (untold := untold + len(line)) >= TELL_BYTES:
                        tell(untold)
                        untold = 0
                    if len(line) > most and not line.endswith(b"\n"):
                        report.cannot_read(number, f"longer than {most} bytes", lost=True)
                        while (rest := file.readline(most)) and not rest.endswith(b"\n"):
                            pass
                        continue
                    if number == 1:
                        line = line.removeprefix(BOM)
                    if line.strip():
                        yield number, line
        except Exception as error:  # not `damage()` here, which takes long and is asked when a reading ends early, too
            if not isinstance(error, damage()):
                raise
            report.cannot_read(number + 1, f"the file is damaged or cut from here on: {error}", lost=True)

    def records(self, report: ReadReport, *, grows: bool = True) -> Iterator[Mapping[str, Any]]:
        """The JSON objects of a file of JSON lines. Other lines are reported and skipped. `grows`:
        an agent may be writing the file, so an incomplete last line is no fault.

        Two objects on one line are two records.
        """
        parse = _parser(self._size)
        for number, line in self.lines(report):
            try:
                value = parse(line)
            except (ValueError, RecursionError):
                pass
            else:
                if isinstance(value, dict):
                    yield value
                    continue
            text = line.decode("utf-8", "replace").strip()
            at = 0
            while at < len(text):
                try:
                    value, end = _DECODER.raw_decode(text, at)
                except (ValueError, RecursionError) as error:
                    if grows and not line.endswith(b"\n"):
                        report.cut = True
                    else:
                        report.cannot_read(number, f"not JSON: {error}" if at == 0 else "text after the record")
                    break
                if isinstance(value, dict):
                    yield value
                else:
                    report.cannot_read(number, f"expected a JSON object, not {type(value).__name__}")
                at = end
                while at < len(text) and text[at].isspace():
                    at += 1


class _FileSlice(io.RawIOBase):
    """The bytes from `start` to `end` of a file."""

    def __init__(self, file: Bytes, start: int, end: int) -> None:
        self._file = file
        self._left = end - start
        file.seek(start)

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> bytes:
        line = self._file.readline(self._left if size is None or size < 0 else min(size, self._left))
        self._left -= len(line)
        return line

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._file.read(self._left if size is None or size < 0 else min(size, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


_DECODER = json.JSONDecoder()


def _quickly(data: bytes) -> Any:
    """The value of `data`, by the parser of pydantic: it takes half the time. Raises `ValueError`
    for what is no JSON, and for some JSON as well, such as a lone surrogate.
    """
    return pydantic_core.from_json(data, cache_strings="keys")


def _plainly(data: bytes) -> Any:
    return json.loads(data.decode())


def _parser(size: int | None) -> Callable[[bytes], Any]:
    """The quick parser, if it is imported, or if the file is so large that its import pays. A hook
    is waited for, and reads little.
    """
    small = size is not None and size < QUICK_FROM_BYTES
    return _plainly if small and "pydantic_core" not in sys.modules else _quickly


def _json(data: bytes, parse: Callable[[bytes], Any]) -> Any:
    """The value of `data`. Raises `ValueError` if it is not JSON."""
    try:
        return parse(data)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextmanager
def _unpack_zstd(file: Bytes) -> Iterator[Bytes]:
    """All frames of the file: a file that was appended to has several."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - few transcripts are packed

        try:
            with zstd.ZstdFile(file) as reader:
                yield reader
        except zstd.ZstdError as error:
            raise EOFError(str(error)) from None
    else:
        with io.BufferedReader(_Unpacked(_frames_of(file))) as reader:
            yield reader


def _frames_of(file: Bytes) -> Iterator[bytes]:
    """The unpacked pieces. The package's own reader says nothing of a frame that was cut."""
    try:
        import zstandard  # noqa: PLC0415 - optional, needed for packed transcripts only
    except ImportError:
        raise MissingExtra("zstandard", "zstd") from None
    unpacker = zstandard.ZstdDecompressor()
    frame = unpacker.decompressobj()
    try:
        while data := file.read(PACKED_BYTES):
            while data:
                if frame.eof:
                    frame = unpacker.decompressobj()
                yield frame.decompress(data)
                data = frame.unused_data
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from None
    if not frame.eof:
        raise EOFError("the last frame has no end")


class _Unpacked(io.RawIOBase):
    """A file of bytes that come in pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        target = memoryview(buffer)
        number = min(len(target), len(self._rest))
        target[:number], self._rest = self._rest[:number], self._rest[number:]
        return number
