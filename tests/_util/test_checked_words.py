"""Every public record refuses a wrong word, in memory and from a file."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from enum import Enum, StrEnum
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

import monitor
from monitor import sessions
from monitor._util.checked_words import checked, words_of
from monitor._util.codec import Codec
from monitor.chunks import TurnFinished
from monitor.errors import ConfigError, FinishReason
from monitor.goal.plan import Step
from monitor.messages import ApprovalAnswer, ApprovalRequest
from monitor.sessions import SessionReader, SQLiteSession
from monitor.sessions.closed_runs import Changes

ROOMS = [one.name for one in pkgutil.iter_modules(monitor.__path__) if one.name not in {"_util", "__main__", "cli"}]


def public_records() -> Iterator[type]:
    """The frozen dataclasses that a room exports, with words among their fields."""
    seen: set[type] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        rooms = [monitor, *(importlib.import_module(f"monitor.{name}") for name in ROOMS)]
        names = [(room, name) for room in rooms for name in dir(room)]
        for room, name in names:
            try:
                found = getattr(room, name)
            except (AttributeError, ImportError):  # a part of an SDK that is not installed
                continue
            if isinstance(found, type) and found.__module__.startswith("monitor.") and found not in seen:
                seen.add(found)
                parameters = getattr(found, "__dataclass_params__", None)
                if parameters is not None and parameters.frozen:
                    yield found


def with_words(cls: type) -> bool:
    try:
        return bool(words_of(cls))
    except NameError:  # a type that only type checkers know
        return False


RECORDS = sorted(filter(with_words, {*public_records()} - {Step}), key=lambda cls: cls.__name__)
"""All but `Step`, for which a missing status is one that has not begun."""
WRONG: list[Any] = [
    "",
    "yes",
    "Approved",
    "approved ",
    "success\n",
    "deny",
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    b"stop",
    (),
    [],
    {},
]


def made(cls: type, **changes: Any) -> Any:
    """An object of `cls`, made by its own `__init__`; other fields hold whatever they hold."""
    given = {one.name: changes.get(one.name, _right(cls, one)) for one in dataclasses.fields(cls) if one.init}
    return cls(**{name: value for name, value in given.items() if value is not dataclasses.MISSING})


def _right(cls: type, field: dataclasses.Field[Any]) -> Any:
    for name, words, _ in words_of(cls):
        if name == field.name:
            return next(iter(words))
    if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING:
        return dataclasses.MISSING
    return "x" if "str" in str(field.type) else ()


def test_there_are_as_many_records_as_the_rooms_have():
    assert len(RECORDS) >= 45


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
@given(word=st.one_of(st.sampled_from(WRONG), st.text(max_size=12), st.integers()))
@settings(max_examples=60, deadline=None)
def test_a_record_with_a_wrong_word_is_not_made(cls: type, word: Any):
    for name, words, others in words_of(cls):
        if isinstance(word, others) or any(word == one and isinstance(word, str) for one in words):
            continue
        with pytest.raises(ConfigError):
            made(cls, **{name: word})


CODED = [cls for cls in RECORDS if cls.__module__ in {"monitor.events", "monitor.messages"}]


@pytest.mark.parametrize("cls", CODED, ids=lambda cls: cls.__name__)
def test_a_stored_record_with_a_wrong_word_is_not_read(cls: type):
    codec: Codec[Any] = Codec(cls)
    adapter: TypeAdapter[Any] = TypeAdapter(cls)
    for name, words, others in words_of(cls):
        for word in WRONG:
            if isinstance(word, others) or (isinstance(word, str) and word in words):
                continue
            data = {one.name: "x" for one in dataclasses.fields(cls) if one.default is dataclasses.MISSING}
            with pytest.raises(ValueError, match=r"\w"):
                codec.from_dict({"type": next(iter(codec.tags)), **data, name: word})
            with pytest.raises(ValidationError) as raised:
                adapter.validate_python({**data, name: word})
            assert name in {one["loc"][0] for one in raised.value.errors()}


def test_the_text_of_a_member_becomes_the_member():
    turn = TurnFinished("done")
    assert turn.finish_reason is FinishReason.DONE


class Answer(StrEnum):
    YES = "yes"


@dataclasses.dataclass(slots=True, frozen=True)
@checked
class Example:
    word: Literal["a", "b"] | int = "a"
    free: Literal["c"] | object = "c"
    answer: Answer | None = None


def test_other_types_that_a_field_takes_are_left_alone():
    assert Example(7, "d").free == "d"
    assert [Example(answer=None).answer, Example(answer="yes").answer] == [None, Answer.YES]  # type: ignore[arg-type]
    for wrong in ("c", None, ["a"]):
        with pytest.raises(ConfigError, match="word is one of 'a', 'b', not"):
            Example(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="answer is one of 'yes', not 'no'"):
        Example(answer="no")  # type: ignore[arg-type]


def test_a_subclass_of_a_text_is_no_other_word():
    class Other(Enum):
        A = "a"

    with pytest.raises(ConfigError):
        Example(Other.A)  # type: ignore[arg-type]


@pytest.mark.anyio
@pytest.mark.parametrize("word", ["deny", "rejected", "", None, True, "approved "])
async def test_a_wrong_word_to_a_question_of_a_session_is_refused_before_anything_is_written(word: Any, tmp_path: Any):
    path = tmp_path / "a.session"
    question = ApprovalRequest(
        id="q", run="r", call_id="c", tool="t", arguments={}, schema_hash="", bound_to="b", why=""
    )
    async with SQLiteSession(path) as session:
        await session.commit(Changes(requests=[question]))
    with pytest.raises(ConfigError, match="decision is one of"):
        await sessions.answer(path, "q", word)
    with SessionReader(path) as stored:
        assert [one.answer for one in stored.approvals()] == [None]
    said = await sessions.answer(path, "q", "denied")
    assert isinstance(said, ApprovalAnswer)
