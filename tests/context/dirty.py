"""Histories as they lie around: with everything wrong that can be wrong with one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from monitor import AssistantMessage, UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.context import RawMessage
from monitor.messages import Media, Message, Reasoning, Text
from monitor.wires.fields import Unread

IDS = st.sampled_from(["", " ", "a", "b", "call_0", "call_1", "toolu_01", "fc|x", "é", "x" * 41, "y" * 70])
NAMES = st.sampled_from(["look", "look", "write", "", " ", " look ", "fs.read", "web search!", "9lives", "n" * 80])
TEXTS = st.sampled_from(["", " ", "\n", "Hello", "done.", "\ud800", "NUL \x00", "ש", "the end "])
ARGUMENTS: st.SearchStrategy[Any] = st.sampled_from(
    [
        {},
        {"path": "a.py"},
        {"n": 1, "deep": [{"x": None}]},
        None,
        "",
        '{"path": "a.py"}',
        '{"path": "a',
        "[1]",
        "no json",
        [1],
        3,
        {"\ud800": "\ud800"},
    ]
)
SIGNATURES = st.sampled_from([None, None, "c2lnbmVk"])

media = st.builds(
    Media,
    st.just("image/png"),
    st.sampled_from([None, "iVBORw0KGgo=", "no base64"]),
    st.sampled_from([None, "https://example.com/a.png"]),
    st.none(),
)
calls = st.builds(ToolCall, IDS, NAMES, ARGUMENTS)


def histories_of(words: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[RawMessage | Message, ...]]:
    """Raw messages and messages, of such texts."""
    texts = st.builds(Text, words)
    thoughts = st.builds(Reasoning, words, SIGNATURES)
    results = st.builds(ToolResult, IDS, NAMES, words, st.booleans())
    raw = st.builds(
        RawMessage,
        st.sampled_from(["user", "assistant", "assistant", "tool", "system"]),
        st.lists(
            st.one_of(texts, thoughts, media, calls, calls, results, results, st.just(Unread("a thing"))), max_size=4
        ).map(tuple),
        st.booleans(),
        st.none(),
        st.booleans(),
    )
    user = st.builds(UserMessage, st.lists(texts | media, max_size=3).map(tuple))
    assistant = st.builds(
        AssistantMessage,
        st.lists(texts | thoughts | calls, max_size=4).map(tuple),
        st.lists(results, max_size=3).map(tuple),
    )
    return st.lists(st.one_of(raw, raw, user, assistant), max_size=12).map(tuple)


histories = histories_of(TEXTS)
worded = histories_of(TEXTS.filter(str.strip))
"""The same without blank texts, which one provider takes and another does not."""
