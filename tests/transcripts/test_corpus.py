import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import AdapterError, ConfigError
from monitor.transcripts import Corpus, LoopLabel, RecordedCall, RecordedMessage, RecordedResult, RecordedRun, record
from monitor.transcripts.corpus import parse_run


def line(id: str = "r", **fields: Any) -> bytes:
    return json.dumps({"id": id, "messages": [], **fields}).encode() + b"\n"


def read(path: Path, **options: Any) -> tuple[list[str], list[str]]:
    corpus = Corpus(path, **options)
    return [run.id for run in corpus], [str(bad).removeprefix(f"{path}:") for bad in corpus.bad_lines]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def test_every_field_is_read(file: Path):
    call = {"name": "search", "args": {"q": "x"}}
    result = {"name": "search", "text": "none", "is_error": True, "len": 4, "sha1": "71f8e7976e4c"}
    loop = {
        "kind": "tool_identical",
        "turn": 1,
        "turn_3": 5,
        "turn_5": None,
        "period": 1,
        "repeats": 3,
        "same_results": True,
    }
    messages = [
        {"role": "user", "text": "hi", "tool_calls": [], "tool_results": []},
        {"role": "assistant", "text": "ok", "tool_calls": [call], "tool_results": []},
        {"role": "tool", "text": "", "tool_calls": [], "tool_results": [result]},
    ]
    file.write_bytes(
        line("a", source="s", label="loop", loop=loop, license="MIT", model="m", verified=True, messages=messages)
    )
    assert list(Corpus(file)) == [
        RecordedRun(
            "a",
            (
                RecordedMessage("user", "hi"),
                RecordedMessage("assistant", "ok", (RecordedCall("search", {"q": "x"}),)),
                RecordedMessage(
                    "tool", "", (), (RecordedResult("search", "none", is_error=True, length=4, sha1="71f8e7976e4c"),)
                ),
            ),
            source="s",
            label="loop",
            loop=LoopLabel("tool_identical", turn=1, turn_3=5, period=1, repeats=3, same_results=True),
            model="m",
        )
    ]


def test_what_is_absent_or_null_has_a_default(file: Path):
    message: dict[str, Any] = {"role": "assistant", "text": None, "tool_calls": [{"name": "t"}], "tool_results": [{}]}
    file.write_bytes(line(messages=[message, {"role": "user"}], label=None, loop=None))
    (run,) = Corpus(file)
    assert run.messages[0] == RecordedMessage("assistant", "", (RecordedCall("t", {}),), (RecordedResult("", ""),))
    assert run.messages[1] == RecordedMessage("user")
    assert (run.source, run.label, run.loop) == ("", None, None)


@pytest.mark.parametrize("name", ["runs.jsonl", "runs.gz", "runs"])
@pytest.mark.parametrize("zipped", [False, True])
def test_gzip_is_seen_by_its_bytes_and_not_by_the_name(tmp_path: Path, name: str, zipped: bool):
    data = line("a") + line("b")
    (tmp_path / name).write_bytes(gzip.compress(data) if zipped else data)
    assert read(tmp_path / name) == (["a", "b"], [])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"{nonsense}\n", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        (b'{"id": "x"\n', "not JSON: Expecting ',' delimiter at character 12"),
        (b'{"id": "\xff"}\n', "not UTF-8: byte 0xff at byte 9"),
        (b"[1]\n", "expected a JSON object, not list"),
        (b"{}\n", "id: Field required (and 1 more)"),
        (line(id=7), "id: Input should be a valid string"),  # type: ignore[arg-type]
        (line(messages={}), "messages: Input should be a valid list"),
        (line(messages=["hi"]), "messages.0: expected a JSON object"),
        (
            line(messages=[{"role": "robot"}]),
            "messages.0.role: Input should be 'system', 'user', 'assistant' or 'tool'",
        ),
        (
            line(messages=[{"role": "tool", "tool_results": [{"is_error": "no"}]}]),
            "messages.0.tool_results.0.is_error: ",
        ),
        (line(messages=[{"role": "tool", "tool_results": [{"len": -1}]}]), "messages.0.tool_results.0.len: "),
        (line(messages=[{"role": "tool", "tool_results": [{"sha1": "zz"}]}]), "messages.0.tool_results.0.sha1: "),
        (
            line(messages=[{"role": "assistant", "tool_calls": [{"args": {}}]}]),
            "messages.0.tool_calls.0.name: Field required",
        ),
        (line(loop={}), "loop.kind: Field required"),
        (b'{"id": ' + b"9" * 5000 + b"}\n", "not JSON that can be read: "),
        (b"[" * 100_000 + b"\n", "not JSON that can be read: "),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_bad_line_is_named_and_its_neighbours_are_read(file: Path, bad: bytes, message: str):
    file.write_bytes(line("before") + bad + line("after"))
    ids, bad_lines = read(file)
    assert ids == ["before", "after"]
    assert len(bad_lines) == 1
    assert bad_lines[0].startswith(f"2: {message}")


def test_parse_run_says_what_is_wrong():
    with pytest.raises(AdapterError, match="id: Field required"):
        parse_run("{}")


def test_empty_lines_count_but_are_no_runs(file: Path):
    file.write_bytes(b"\n" + line("a") + b"  \r\n" + b"x\n")
    assert read(file) == (["a"], ["4: not JSON: Expecting value at character 1"])


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_runs(file: Path, data: bytes):
    file.write_bytes(data)
    assert read(file) == ([], [])


def test_byte_order_mark_crlf_and_a_missing_last_newline_do_no_harm(file: Path):
    file.write_bytes(b"\xef\xbb\xbf" + line("a").replace(b"\n", b"\r\n") + line("b").rstrip())
    assert read(file) == (["a", "b"], [])


def test_nul_and_lone_surrogates_are_kept(file: Path):
    file.write_bytes(line(messages=[{"role": "assistant", "text": "\ud800\0"}]))
    (run,) = Corpus(file)
    assert run.messages[0].text == "\ud800\0"


def test_a_gzip_file_cut_in_the_middle_gives_what_it_still_holds(file: Path):
    lines = [line(f"run{n}", note=f"{n * 7919 % 1000}" * 20) for n in range(200)]
    data = gzip.compress(b"".join(lines))
    file.write_bytes(data[: len(data) // 2])
    ids, bad_lines = read(file)
    assert 0 < len(ids) < 200
    assert ids == [f"run{n}" for n in range(len(ids))]
    assert len(bad_lines) == 1
    assert bad_lines[0].startswith(f"{len(ids) + 1}: the file is damaged or cut from here on: ")


@pytest.mark.parametrize("garbage", [b"garbage", b"\x1f\x8bgarbage that looks like gzip"])
def test_garbage_behind_the_gzip_data_is_noted(file: Path, garbage: bytes):
    file.write_bytes(gzip.compress(line("a")) + garbage)
    ids, bad_lines = read(file)
    assert ids == ["a"]
    assert bad_lines[0].startswith("2: the file is damaged or cut from here on: ")


@pytest.mark.parametrize("zipped", [b"\x1f\x8b", b"\x1f\x8b\x08\x00garbage garbage"])
def test_a_gzip_header_with_nothing_good_behind_it_is_noted(file: Path, zipped: bytes):
    file.write_bytes(zipped)
    ids, bad_lines = read(file)
    assert ids == []
    assert bad_lines[0].startswith("1: the file is damaged or cut from here on: ")


def test_a_line_over_the_limit_is_skipped_as_a_whole(file: Path):
    file.write_bytes(line("a") + line("b", note="x" * 1000) + line("c") + b"y" * 1000)
    assert read(file, max_line_bytes=100) == (["a", "c"], ["2: longer than 100 bytes", "4: longer than 100 bytes"])


def test_the_limit_includes_the_last_character_but_not_the_line_end(file: Path):
    file.write_bytes(line("a") + line("bb") + line("c").rstrip())
    size = len(line("a")) - 1
    assert read(file, max_line_bytes=size) == (["a", "c"], [f"2: longer than {size} bytes"])


def test_no_limit_is_possible_but_zero_is_not(file: Path):
    file.write_bytes(line("a"))
    assert read(file, max_line_bytes=None) == (["a"], [])
    with pytest.raises(ConfigError, match="max_line_bytes=0"):
        Corpus(file, max_line_bytes=0)


def test_each_iteration_starts_anew(file: Path):
    file.write_bytes(line("a") + b"x\n")
    corpus = Corpus(file)
    assert [run.id for run in corpus] == [run.id for run in corpus] == ["a"]
    assert len(corpus.bad_lines) == 1


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        list(Corpus(tmp_path / "absent"))


def test_a_label_in_a_file_has_the_fields_of_the_label():
    fields = {field.name for field in dataclasses.fields(LoopLabel)}
    assert set(record._LoopFields.model_fields) == fields
