"""The place of a history in the bytes of a request, and the bytes without it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.proxy.formats.base import RepeatedField, read_object, rewritten, without

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=3) | st.just("messages"), values, max_size=4)


@settings(max_examples=30)
@given(value=objects, records=st.none() | st.lists(values), indent=st.sampled_from([None, 0, 2]), ascii_=st.booleans())
def test_an_object_is_read_as_json_reads_it_and_its_records_are_found(
    value: dict[str, Any], records: list[Any] | None, indent: int | None, *, ascii_: bool
) -> None:
    if records is not None:
        value["messages"] = records
    body = json.dumps(value, ensure_ascii=ascii_, indent=indent).encode("utf-8", "surrogatepass")
    read, span = read_object(body, "messages")
    assert read == value
    found = value.get("messages")
    assert (span is not None) == (isinstance(found, list) and bool(found))
    if span is not None:
        assert json.loads(b"[" + body[span.start : span.end] + b"]") == found
        assert rewritten(body, span, lambda short: short) == body
        assert json.loads(rewritten(body, span, lambda short: json.dumps(json.loads(short)).encode())) == value


@given(text=st.text(alphabet='{}[]":,1e n\\x\x00ä') | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_whatever_json_refuses_is_refused(text: str) -> None:
    body = text.encode()
    try:
        wanted = json.loads(body)
    except ValueError:
        with pytest.raises(ValueError, match=r"\w"):
            read_object(body, "messages")
    else:
        assert read_object(body, "messages")[0] == wanted


@pytest.mark.parametrize("twice", ['{"a":1,"a":1}', '{"messages":[1],"messages":[2]}', '{"n":1,"\\u006e":5}'])
def test_a_field_that_stands_there_twice_is_refused(twice: str) -> None:
    with pytest.raises(RepeatedField):
        read_object(twice.encode(), "messages")


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_another_encoding_is_read_and_nothing_of_it_is_found_again(coding: str) -> None:
    assert read_object('{"messages":["ä"]}'.encode(coding), "messages") == ({"messages": ["ä"]}, None)


def test_a_request_that_has_the_mark_itself_is_not_shortened() -> None:
    body = b'{"messages":[1,2]}'
    _, span = read_object(body, "messages")
    assert span is not None
    short = without(body, span)
    assert short is not None
    again = short.replace(b"]}", b',3],"x":[1]}')
    _, other = read_object(again, "x")
    assert other is not None
    assert without(again, other) is None
