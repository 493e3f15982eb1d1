"""What holds for every reader of transcripts. Samples: `fixtures/readers/`, a folder a format."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from monitor.transcripts import source as parsers
from monitor.transcripts.base import Began, CompactionSeen, Ended, ReadReport, Said, TranscriptEntry, collected
from monitor.transcripts.readers.base import TranscriptReader
from monitor.transcripts.readers.registry import READERS, reader_of
from monitor.transcripts.source import Source
from tests.examples import tries

ROOT = Path(__file__).parents[2] / "fixtures"
SAMPLES = sorted(path for path in (ROOT / "readers").rglob("*") if path.is_file())
KNOWN = [path for path in SAMPLES if path.relative_to(ROOT / "readers").parts[0] != "unknown"]
OWN = {"runs", "events"}  # tests/transcripts has their files


def folder(path: Path) -> str:
    return path.relative_to(ROOT / "readers").parts[0]


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT / "readers"))


def entries(source: Source, reader: TranscriptReader | None = None) -> tuple[list[TranscriptEntry], ReadReport]:
    found, report = reader or reader_of(source), ReadReport()
    assert found is not None
    return list(found.read(source, report)), report


def follow_the_rules(found: list[TranscriptEntry]) -> None:
    """Each run begins once, ends once, and says nothing outside of that."""
    open_runs: set[str] = set()
    began: set[str] = set()
    for entry in found:
        match entry:
            case Began(run=run):
                assert run not in began
                began.add(run)
                open_runs.add(run)
            case Said(run=run) | CompactionSeen(run=run):
                assert run in open_runs
            case Ended(run=run):
                open_runs.remove(run)
    assert not open_runs


def test_every_reader_has_samples_and_every_folder_a_reader():
    formats = {reader.format for reader in READERS}
    assert len(formats) == len(READERS)
    assert {folder(path) for path in KNOWN} | OWN | {"cline", "cursor"} == formats


@pytest.mark.parametrize("path", KNOWN, ids=name_of)
def test_a_sample_is_recognised_by_its_content_and_by_one_reader_alone(path: Path):
    source = Source.of_path(path)
    fitting = [reader.format for reader in READERS if reader.fits(source)]
    assert reader_of(source) is not None
    assert fitting[0] == folder(path)
    nameless = Source.of_bytes("x", path.read_bytes())
    found = reader_of(nameless)
    assert found is not None
    assert found.format == folder(path)


@pytest.mark.parametrize("path", KNOWN, ids=name_of)
def test_a_sample_is_read_to_its_end_and_its_runs_begin_and_end_once(path: Path):
    found, _ = entries(Source.of_path(path))
    follow_the_rules(found)
    assert any(isinstance(entry, Said) for entry in found) or "legacy" in path.name
    for run, _ in collected(found):
        list(run.chunks())


@pytest.mark.parametrize("path", KNOWN, ids=name_of)
def test_results_name_calls_that_were_made(path: Path):
    found, _ = entries(Source.of_path(path))
    for run, _ in collected(found):
        calls = [call.id for message in run.messages for call in message.tool_calls if call.id]
        assert len(calls) == len(set(calls)) or folder(path) == "tau-bench" or _trimmed(path)
        answered = [r.call_id for message in run.messages for r in message.tool_results if r.call_id]
        if answered and calls and not _trimmed(path):
            assert len(set(answered) & set(calls)) >= 0.8 * len(set(answered))


def _trimmed(path: Path) -> bool:
    """Its publisher removed or replaced ids, or lines of it are broken."""
    return any(
        word in path.name for word in ("stage0", "telemetry", "554b9fa6", "sdk-goal", "no_function_calling", "terminus")
    )


@pytest.mark.parametrize("path", [p for p in SAMPLES if folder(p) == "unknown"], ids=name_of)
def test_a_format_that_nobody_knows_is_not_guessed_into_another(path: Path):
    assert reader_of(Source.of_path(path)) is None


STRANGE: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n\n \n",
    "text": b"Dear all,\nthe build is broken again.\n",
    "csv": b"id,role,content\n1,user,hi\n2,assistant,hello\n",
    "html": b"<!doctype html><title>x</title><body>role content</body>",
    "binary": bytes(range(256)) * 100,
    "package.json": b'{"name": "x", "version": "1.0.0", "dependencies": {"a": "1"}, "messages": "none"}',
    "json": b'{"id": 1, "type": "message", "info": {}, "data": [1, 2]}',
    "array": b"[1, 2, 3]",
    "scalar": b'"hello"',
    "logs": b'{"level": "info", "message": "started", "timestamp": "2026-01-01"}\n' * 5,
    "github": b'[{"id": 1, "role": "admin", "user": "x"}, {"id": 2, "role": "user", "user": "y"}]',
    "chat without content": b'[{"role": "user"}, {"role": "assistant"}]',
    "geojson": b'{"type": "FeatureCollection", "features": []}',
    "lock file": b'{"lockfileVersion": 3, "packages": {"": {"name": "x"}}}',
    "notebook": b'{"cells": [], "metadata": {}, "nbformat": 4}',
    "zip": b"PK\x03\x04" + bytes(200),
    "sqlite": b"SQLite format 3\x00" + bytes(200),
    "gzip": gzip.compress(b"nothing at all"),
    "cut gzip": gzip.compress(b'{"type": "session_meta", "payload": {}}' * 50)[:40],
    "deep": b"[" * 100_000,
    "deep line": b'{"a":' * 100_000 + b"\n" + b'{"b": 1}\n',
}


@pytest.mark.parametrize("data", STRANGE.values(), ids=STRANGE.keys())
def test_what_is_no_transcript_is_nobodys(data: bytes):
    assert reader_of(Source.of_bytes("x", data)) is None


@pytest.mark.parametrize("path", KNOWN, ids=name_of)
def test_a_file_that_is_cut_anywhere_is_read_as_far_as_it_goes(path: Path):
    data = content(path)
    whole, _ = entries(Source.of_bytes(path.name, data))
    chance = random.Random(path.name)
    for _ in range(6):
        cut = Source.of_bytes(path.name, data[: chance.randrange(len(data))])
        reader = reader_of(cut)
        if reader is None:
            continue  # a document that is cut is none
        found, _ = entries(cut, reader)
        follow_the_rules(found)
        assert sum(isinstance(entry, Said) for entry in found) <= sum(isinstance(entry, Said) for entry in whole) + 2


DEEP = '{"a":' * 20_000
"""JSON in a text, which is too deep for every parser."""
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**400,
    "",
    "x",
    "\ud800",
    "\x1b[2J",
    DEEP,
    [],
    {},
    [None],
    {"a": []},
    [[[]]],
]


def mutated(value: Any, chance: random.Random, rate: float) -> Any:
    """`value` with parts of it replaced, removed, repeated."""
    if chance.random() < rate:
        return chance.choice(VALUES)
    if isinstance(value, dict):
        return {key: mutated(item, chance, rate) for key, item in value.items() if chance.random() > rate / 2}
    if isinstance(value, list):
        items = [mutated(item, chance, rate) for item in value if chance.random() > rate / 2]
        if items and chance.random() < rate:
            items.append(items[0])
        return items
    return value


def hostile(path: Path) -> Iterator[bytes]:
    """The sample as its format, with wrong types anywhere in it."""
    data = content(path)
    for seed in range(int(os.environ.get("MONITOR_EXAMPLES", tries(6)))):
        chance = random.Random(f"{path.name}{seed}")
        rate = (0.002, 0.02, 0.1)[seed % 3]
        try:
            document = json.loads(data)
        except ValueError:
            lines = []
            for line in data.split(b"\n"):
                try:
                    lines.append(json.dumps(mutated(json.loads(line), chance, rate)).encode("utf-8"))
                except ValueError:
                    lines.append(line)
            yield b"\n".join(lines)
        else:
            yield json.dumps(mutated(document, chance, rate)).encode("utf-8")


@pytest.mark.parametrize("path", [p for p in KNOWN if p.suffix != ".eval" and p.stat().st_size < 200_000], ids=name_of)
def test_wrong_types_anywhere_are_survived(path: Path):
    reader = next(reader for reader in READERS if reader.format == folder(path))
    for data in hostile(path):
        source = Source.of_bytes(path.name, data)
        found = reader_of(source)
        if found is not None:
            follow_the_rules(entries(source, found)[0])
        if reader.fits(source):
            follow_the_rules(entries(source, reader)[0])


def rearranged(lines: list[bytes], chance: random.Random) -> Iterator[list[bytes]]:
    """The lines as a careless program leaves them."""
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    swapped = [*lines]
    swapped[at], swapped[other] = swapped[other], swapped[at]
    yield swapped
    yield [*lines[:at], lines[at], *lines[at:]]
    yield [*lines[:at], *lines[at + 1 :]]
    yield [*lines[:at], b'{"type": "of tomorrow", "kind": "of tomorrow", "role": 7}', *lines[at:]]
    yield [*lines[:at], lines[at][: len(lines[at]) // 2], *lines[at + 1 :]]
    yield [*lines, *lines[: at + 1]]


JSON_LINES = [p for p in KNOWN if ".jsonl" in p.name and p.stat().st_size < 60_000]


@pytest.mark.parametrize("path", JSON_LINES, ids=name_of)
def test_lines_in_another_order_twice_missing_or_unknown_are_survived(path: Path):
    lines = content(path).rstrip(b"\n").split(b"\n")
    reader = next(reader for reader in READERS if reader.format == folder(path))
    chance = random.Random(path.name)
    for changed in rearranged(lines, chance):
        given = Source.of_bytes(path.name, b"\n".join(changed) + b"\n")
        found, report = entries(given, reader)
        follow_the_rules(found)
        for run, _ in collected(found):
            list(run.chunks())
        assert report.lines <= 2 * len(changed)  # some readers read twice
        assert not report.cut


@pytest.mark.parametrize("path", JSON_LINES, ids=name_of)
def test_a_record_of_an_unknown_type_is_guessed_into_nothing(path: Path):
    """It changes no message, wherever it stands behind the first ones."""
    lines = content(path).rstrip(b"\n").split(b"\n")
    reader = next(reader for reader in READERS if reader.format == folder(path))
    if folder(path) in {"otel", "openhands", "messages"} or len(lines) < 4:
        return  # there a foreign line ends a message that is held, or the whole file is one document
    stranger = b'{"type": "of tomorrow", "payload": {"text": "no words of a model"}}'
    at = random.Random(path.name).randrange(len(lines) // 2, len(lines))
    plain, _ = entries(Source.of_bytes(path.name, b"\n".join(lines)), reader)
    mixed, _ = entries(Source.of_bytes(path.name, b"\n".join([*lines[:at], stranger, *lines[at:]])), reader)
    assert [one.message for one in mixed if isinstance(one, Said)] == [
        one.message for one in plain if isinstance(one, Said)
    ]


PARSED = [
    b'{"a": 1}',
    b'{"a": "\\ud800"}',
    b'{"a": NaN}',
    b'{"a": 1e400, "b": -0}',
    b'{"a": 1, "a": 2}',
    b'{"a": "\xff"}',
]


@pytest.mark.parametrize("line", [*PARSED, b'{"a": 1} {"b": 2}', b'{"a": ' + b"9" * 400 + b"}", b'{"a": "\t"}', b"{}x"])
def test_the_quick_parser_and_the_plain_one_give_the_same_records(line: bytes, monkeypatch: pytest.MonkeyPatch):
    def read(parse: Any) -> str:
        monkeypatch.setattr("monitor.transcripts.source._parser", lambda _: parse)
        report = ReadReport()
        return repr((list(Source.of_bytes("x", line + b"\n").records(report)), report.bad))

    assert read(parsers._quickly) == read(parsers._plainly)


def test_lines_that_are_no_json_are_counted_and_named():
    path = ROOT / "readers" / "claude-code" / "554b9fa6-f719-40e8-ba70-beee69bd60b5.jsonl.gz"
    _, report = entries(Source.of_path(path))
    assert report.bad == 28
    assert report.first_bad[0][1].startswith("not JSON")


def test_two_records_on_one_line_are_two():
    path = ROOT / "readers" / "pi" / "pi-v3.jsonl"
    data = content(path)
    whole, _ = entries(Source.of_bytes("x", data))
    glued, report = entries(Source.of_bytes("x", data.replace(b'}\n{"type":"message"', b'}{"type":"message"')))
    assert glued == whole
    assert report.bad == 0


IN_LINES = ("claude-code", "codex", "copilot-cli", "iflow", "pi", "kimi-cli")


@pytest.mark.parametrize("kind", [k for k in IN_LINES if k not in {"codex", "kimi-cli", "pi"}])
def test_a_file_whose_records_stand_twice_counts_each_once(kind: str):
    for path in (
        p
        for p in KNOWN
        if folder(p) == kind
        and not _trimmed(p)
        and "print" not in p.name
        and "stream" not in p.name
        and ".jsonl" in p.name
    ):
        data = content(path).rstrip(b"\n") + b"\n"
        once, twice = (entries(Source.of_bytes(path.name, part))[0] for part in (data, data + data))
        said = [entry for entry in once if isinstance(entry, Said)]
        assert len([entry for entry in twice if isinstance(entry, Said)]) == len(said), path.name


def test_a_line_of_a_megabyte_is_read_and_a_longer_result_is_kept_by_its_beginning_and_hash():
    block = {"type": "tool_result", "tool_use_id": "t", "content": "x" * 1_000_000}
    record = {
        "type": "user",
        "uuid": "1",
        "parentUuid": None,
        "sessionId": "s",
        "message": {
            "role": "user",
            "content": [block],
        },
    }
    found, report = entries(Source.of_bytes("s.jsonl", json.dumps(record).encode() + b"\n"))
    (result,) = (entry.message.tool_results[0] for entry in found if isinstance(entry, Said))
    assert report.bad == 0
    assert (result.length, len(result.text), result.whole) == (1_000_000, 65_536, False)


def test_a_file_that_is_packed_with_zstd_is_read():
    path = ROOT / "readers" / "codex" / "codex-exec-json.jsonl"
    packed = Source.of_bytes("x.jsonl.zst", zstandard.ZstdCompressor().compress(content(path)))
    assert entries(packed)[0] == entries(Source.of_bytes("x.jsonl", content(path)))[0]
    cut, report = entries(Source.of_bytes("x.jsonl.zst", zstandard.ZstdCompressor().compress(content(path) * 50)[:-9]))
    follow_the_rules(cut)
    assert report.bad <= 1


TOLD = frozenset({"output", "arguments", "content", "text", "result"})
"""Fields in which recordings have the words of models and tools."""


def deepened(value: Any) -> Any:
    """`value` with JSON that is too deep for a parser in place of what models and tools say."""
    if isinstance(value, dict):
        return {key: DEEP if isinstance(item, str) and key in TOLD else deepened(item) for key, item in value.items()}
    return [deepened(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", [path for path in KNOWN if b'"output":' in content(path)], ids=name_of)
def test_json_that_is_too_deep_for_a_parser_is_a_text(path: Path):
    reader, data = next(reader for reader in READERS if reader.format == folder(path)), content(path)
    try:
        documents = [json.loads(data)]
    except ValueError:
        documents = [json.loads(line) for line in data.split(b"\n")[:60] if line.endswith(b"}")]
    deep = b"\n".join(json.dumps(deepened(one)).encode() for one in documents)
    assert DEEP.replace('"', '\\"').encode() in deep
    follow_the_rules(entries(Source.of_bytes(path.name, deep), reader)[0])
