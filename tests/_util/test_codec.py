"""The JSON form of the vocabulary.

The strategies are made from the classes' own annotations, so a new field or class is covered at
once.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, FrozenInstanceError, fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor import chunks, events, messages, models, outcome, verdicts
from monitor._util.codec import Codec, tag_of, to_plain
from monitor.chunks import CHUNK_TYPES, Price, TextDelta, ToolCall, chunk_codec
from monitor.errors import RecordedError, TerminateReason
from monitor.events import EVENT_TYPES, event_codec
from monitor.messages import AssistantMessage, Reasoning, Text, UserMessage, message_codec
from monitor.models import Retries
from monitor.outcome import Outcome, Turn, outcome_codec, turn_codec
from monitor.verdicts import Detection, Evidence, Met, Stop, detection_codec, verdict_codec
from tests.examples import FEWER_EACH

CODECS: dict[str, tuple[Codec[Any], Any]] = {
    "chunk": (chunk_codec, chunks.Chunk),
    "message": (message_codec, messages.Message),
    "verdict": (verdict_codec, verdicts.Verdict),
    "detection": (detection_codec, Detection),
    "event": (event_codec, events.Event),
    "outcome": (outcome_codec, Outcome),
    "turn": (turn_codec, Turn),
}
"""Every codec, and the union that it is the JSON form of."""

ENCODED: list[Any] = [
    pytest.param(codec, cls, id=cls.__name__)
    for codec, union in CODECS.values()
    for cls in sorted(get_args(union) or [union], key=tag_of)
]


def defined_in(module: ModuleType) -> Iterator[type]:
    """The dataclasses of a module's own."""
    yield from (
        value
        for value in vars(module).values()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
    )


VOCABULARY = [cls for module in (chunks, messages, models, verdicts, outcome, events) for cls in defined_in(module)]

# --- values of a class, from its annotations

WORDS = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["", "\x00", "\ud800", "\udfff\ud800", "\u2028\r\n", "😀", '"\\', "type"]
)
UTF8_WORDS = st.text(max_size=12)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | UTF8_WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(UTF8_WORDS, inner, max_size=3),
    max_leaves=6,
)
INTEGERS = st.integers() | st.sampled_from([2**63, -(2**64), 10**300])
FINITE = st.floats(allow_nan=False, allow_infinity=False)

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: WORDS,
    int: INTEGERS,
    float: FINITE,
    bool: st.booleans(),
    Any: JSON,
    NoneType: st.none(),
    BaseException: st.builds(RecordedError, WORDS, WORDS),
}


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values that an annotation allows."""
    if hint in PLAIN:
        return PLAIN[hint]
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin is Union or origin is UnionType:
            return st.one_of(*map(of, arguments))
        case origin if origin is Literal:
            return st.sampled_from(arguments)
        case origin if origin is tuple:
            return st.lists(of(arguments[0]), max_size=3).map(tuple)
        case origin if origin is list:
            return st.lists(of(arguments[0]), max_size=3)
        case origin if origin in {dict, Mapping}:
            return st.dictionaries(UTF8_WORDS, of(arguments[1]), max_size=3)
    if isinstance(hint, TypeVar):  # whatever the caller has declared
        return PLAIN[Any]
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return st.deferred(lambda: built(hint))


CHECKED: dict[type, st.SearchStrategy[Any]] = {
    Retries: st.builds(Retries, attempts=st.integers(0), first_delay_s=st.floats(0, 9), max_delay_s=st.floats(10, 99)),
    Price: st.builds(Price, *[st.floats(0, 1e9)] * 2),
}
"""Classes that refuse values which their annotations allow."""


@cache
def built(cls: type) -> st.SearchStrategy[Any]:
    """Instances of a class of the vocabulary."""
    if cls in CHECKED:
        return CHECKED[cls]
    hints = get_type_hints(cls)
    return st.builds(cls, **{field.name: of(hints[field.name]) for field in fields(cls)})


def required(cls: type) -> list[str]:
    """Fields without a default."""
    return [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]


def strictly(line: str) -> Any:
    """JSON as every reader knows it: without NaN and Infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(line, parse_constant=refuse)


# --- the round trip


@pytest.mark.parametrize(("codec", "cls"), ENCODED)
@FEWER_EACH
@given(data=st.data())
def test_every_value_comes_back_from_its_json_and_gives_the_same_bytes_again(
    codec: Codec[Any], cls: type, data: st.DataObject
):
    value = data.draw(built(cls))
    line = codec.dumps(value)
    back = codec.loads(line)
    assert type(back) is cls
    assert back == value
    assert codec.dumps(back) == line
    backwards = dict(reversed(list(codec.to_dict(value).items())))
    assert codec.dumps(codec.from_dict(backwards)) == line
    assert line.isascii()
    assert "\n" not in line
    assert strictly(line) == codec.to_dict(value)
    assert codec.dumps(codec.from_dict(codec.to_brief(value))) == line  # a default that is left out comes back


WITH_ANYTHING = {
    "arguments": lambda anything: chunk_codec.loads(chunk_codec.dumps(ToolCall("c", "look", anything))).arguments,  # type: ignore[union-attr]
    "output": lambda anything: outcome_codec.loads(outcome_codec.dumps(ended(output=anything))).output,
    "emitted": lambda anything: outcome_codec.loads(outcome_codec.dumps(ended(emitted={"it": anything}))).emitted["it"],
}
"""The fields that hold any JSON: what a model wrote comes back from them."""


def ended(**given: Any) -> Outcome:
    return Outcome(ok=True, reason=TerminateReason.GOAL, detail="done", source="caller", **given)


@pytest.mark.parametrize("field", WITH_ANYTHING)
@pytest.mark.parametrize("text", ["\x00", "\ud800", "a\udfffb", "\udfff\ud800"], ids=ascii)
def test_what_a_model_writes_in_its_arguments_survives(field: str, text: str):
    r"""`json.loads('"\ud800"')` gives a lone surrogate, and models do write them: nothing may be
    lost, and no sink may fail by it.
    """
    assert WITH_ANYTHING[field]({text: [text]}) == {text: [text]}


@pytest.mark.parametrize("field", WITH_ANYTHING)
@pytest.mark.parametrize("depth", [100, 400])
def test_deeply_nested_arguments_survive(field: str, depth: int):
    """Python's own JSON reads and writes some 900 levels; so an SDK delivers them, and a sink must
    not fail by them.
    """
    nested = json.loads('{"a":' * depth + "1" + "}" * depth)
    assert WITH_ANYTHING[field](nested) == nested


def test_neighbours_with_the_same_fields_are_told_apart():
    """`Text("x")` and `Reasoning("x")` differ in JSON by one field that is null."""
    said = AssistantMessage(
        (Text("x"), Reasoning("x"), Reasoning("x", "sig"), Text(""), ToolCall("c", "look", {"text": "x"}))
    )
    back = message_codec.loads(message_codec.dumps(said))
    assert back == said
    assert isinstance(back, AssistantMessage)
    assert [type(part) for part in back.content] == [Text, Reasoning, Reasoning, Text, ToolCall]


def test_evidence_comes_back_as_what_it_was():
    tree = Met(
        "(a & b)",
        met=True,
        parts=(Met("a", met=True, value=5, limit=5), Met("~b", met=True, parts=(Met("b", met=False),))),
    )
    seen = Detection(
        "content", "chant", "text", "loop", 10, 10, 0, 500, Evidence("la ", "00" * 8, 3, (0, 3)), "it repeats"
    )
    for evidence in (tree, seen, None):
        stop = Stop(TerminateReason.CONDITION_MET, "why", "(a & b)", evidence=evidence)
        back = verdict_codec.loads(verdict_codec.dumps(stop))
        assert isinstance(back, Stop)
        assert back.evidence == evidence


def test_the_sdks_own_object_is_no_part_of_the_json():
    call = ToolCall("c", "look", {}, raw=object())
    assert chunk_codec.to_dict(call) == {"type": "tool_call", "id": "c", "name": "look", "arguments": {}}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("bad \ud800"), RecordedError("builtins.ValueError", "bad \ud800")),
        (KeyboardInterrupt(), RecordedError("builtins.KeyboardInterrupt", "")),
        (
            json.JSONDecodeError("no", "x", 0),
            RecordedError("json.decoder.JSONDecodeError", "no: line 1 column 1 (char 0)"),
        ),
        (RecordedError("other.Error", "m"), RecordedError("other.Error", "m")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_comes_back_as_its_record(error: BaseException, expected: RecordedError):
    assert outcome_codec.loads(outcome_codec.dumps(ended(error=error))).error == expected
    assert turn_codec.loads(turn_codec.dumps(Turn(number=1, error=error))).error == expected


def test_an_exception_that_cannot_say_what_it_is_has_a_record_all_the_same():
    """Else the last event of the run, the one that says how it ended, is the one that no sink can
    write.
    """

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    back = outcome_codec.loads(outcome_codec.dumps(ended(error=Mute()))).error
    assert isinstance(back, RecordedError)
    assert back.type_name.endswith("Mute")


# --- what is no value


@pytest.mark.parametrize(("codec", "cls"), ENCODED)
@settings(max_examples=5)
@given(data=st.data())
def test_a_missing_field_is_named(codec: Codec[Any], cls: type, data: st.DataObject):
    form = codec.to_dict(data.draw(built(cls)))
    for name in required(cls):
        with pytest.raises(ValueError, match=rf"^{tag_of(cls)}\.{name}\b"):
            codec.from_dict({key: value for key, value in form.items() if key != name})


@pytest.mark.parametrize(("codec", "cls"), ENCODED)
@settings(max_examples=5)
@given(data=st.data())
def test_a_field_of_a_wrong_type_is_named(codec: Codec[Any], cls: type, data: st.DataObject):
    form = codec.to_dict(data.draw(built(cls)))
    hints = get_type_hints(cls)
    free = {name for name, hint in hints.items() if hint is Any or isinstance(hint, TypeVar)}
    for name in (f.name for f in fields(cls) if f.name not in free and not str(hints[f.name]).startswith("dict")):
        with pytest.raises(ValueError, match=rf"^{tag_of(cls)}\.{name}\b"):
            codec.from_dict({**form, name: [["no such thing"]]})


def test_a_field_that_the_class_does_not_have_is_named():
    """A slip of the pen, or a file of a later version: either way a number would be lost without a
    word.
    """
    with pytest.raises(ValueError, match=r"^usage_report\.output_token\b"):
        chunk_codec.from_dict({"type": "usage_report", "input_tokens": 5, "output_token": 7})


def test_a_wrong_field_deep_inside_is_named_with_its_path():
    form = event_codec.to_dict(events.StopDecided(1.0, Stop(TerminateReason.TIMEOUT, "late", "timeout")))
    form["stop"]["reason"] = "boredom"
    with pytest.raises(ValueError, match=r"^stop_decided\.stop\.reason: "):
        event_codec.from_dict(form)


@pytest.mark.parametrize("codec", [codec for codec, _ in CODECS.values()], ids=list(CODECS))
@pytest.mark.parametrize("tag", ["nonsense", "", None, 5, ["stop"], {}, "TextDelta"])
def test_an_unknown_tag_is_named(codec: Codec[Any], tag: object):
    with pytest.raises(ValueError, match="unknown type") as refused:
        codec.from_dict({"type": tag})
    assert repr(tag) in str(refused.value)


@pytest.mark.parametrize("codec", [codec for codec, _ in CODECS.values()], ids=list(CODECS))
@pytest.mark.parametrize("data", [None, 5, "text_delta", [], [["type", "text_delta"]], math.inf])
def test_what_is_not_an_object_is_refused_by_its_type(codec: Codec[Any], data: Any):
    with pytest.raises(ValueError, match=f"expected a JSON object, not {type(data).__name__}"):
        codec.from_dict(data)


@pytest.mark.parametrize("line", ["", "{", '{"type":"text_delta","text":"x"} x', "\ud800"], ids=ascii)
def test_a_line_that_is_no_json_is_a_value_error(line: str):
    with pytest.raises(ValueError, match="line 1 column"):
        chunk_codec.loads(line)


def test_a_message_of_a_chunk_codec_is_not_a_message_codecs():
    with pytest.raises(ValueError, match="unknown type 'text_delta'; known: assistant_message, user_message"):
        message_codec.from_dict(chunk_codec.to_dict(TextDelta("x")))


# --- the table is closed


@pytest.mark.parametrize(("codec", "union"), CODECS.values(), ids=list(CODECS))
def test_a_codec_knows_every_class_of_its_union_and_no_other(codec: Codec[Any], union: Any):
    known = set(get_args(union) or [union])
    assert set(codec._tags) == known
    assert set(codec._classes) == {tag_of(cls) for cls in known}
    assert len(codec._classes) == len(known)


@pytest.mark.parametrize(
    ("module", "types", "union"), [(chunks, CHUNK_TYPES, chunks.Chunk), (events, EVENT_TYPES, events.Event)]
)
def test_every_class_of_the_module_is_in_the_table(module: ModuleType, types: tuple[type, ...], union: Any):
    others = {chunks.Media, events.Envelope, events.Limit, events.RunIdentity}  # parts of others; the event and its run
    others |= {chunks.AskCost, chunks.Price, chunks.Usage}  # what the pieces of a stream have used
    assert set(defined_in(module)) - others == set(types) == set(get_args(union))


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("TextDelta", "text_delta"),
        ("Stop", "stop"),
        ("ToolCall", "tool_call"),
        ("LastTurn", "last_turn"),
        ("AnyOf", "any_of"),
    ],
)
def test_a_tag_is_the_name_in_small_letters(name: str, tag: str):
    assert tag_of(type(name, (), {})) == tag


# --- values are values


NOT_FROZEN = {"TextDelta", "ReasoningDelta", "ToolCallDelta"}


@pytest.mark.parametrize("cls", VOCABULARY, ids=lambda cls: cls.__name__)
@settings(max_examples=5)
@given(data=st.data())
def test_every_value_can_be_pickled_and_is_frozen_unless_it_is_a_delta(cls: type, data: st.DataObject):
    value = data.draw(built(cls))
    back = pickle.loads(pickle.dumps(value))
    assert type(back) is cls
    assert back == value
    assert not hasattr(value, "__dict__")
    for field in fields(cls):
        if cls.__name__ in NOT_FROZEN:
            setattr(value, field.name, "changed")
        else:
            with pytest.raises(FrozenInstanceError):
                setattr(value, field.name, "changed")


def test_a_user_message_without_content_is_a_value():
    assert message_codec.loads(message_codec.dumps(UserMessage(()))) == UserMessage(())


def test_dates_paths_and_numbers_are_written_as_json_is_and_an_iterator_is_not_used_up():
    uuid = UUID("00000000-0000-0000-0000-000000000001")
    day = datetime(2026, 1, 1, 12, tzinfo=UTC)
    numbers = iter([1, 2])
    plain = to_plain(
        {"day": day, "path": Path("/x"), "uuid": uuid, "price": Decimal("1.50"), "bytes": b"\xff", "numbers": numbers}
    )
    assert plain == {
        "day": "2026-01-01T12:00:00Z",
        "path": "/x",
        "uuid": str(uuid),
        "price": "1.50",
        "bytes": repr(b"\xff"),
        "numbers": "<list_iterator object>",
    }
    assert list(numbers) == [1, 2]
