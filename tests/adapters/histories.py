"""Histories and requests in nobody's dialect, for the models of all providers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from monitor.chunks import ToolCall, ToolResult
from monitor.messages import AssistantMessage, Message, Reasoning, Text, UserMessage
from monitor.models import ModelRequest, ToolSpec

LOOK = ToolSpec("look", "Look it up.", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})
NOW = ToolSpec("now", "The time.", {"type": "object", "properties": {}})


def user(*words: str) -> UserMessage:
    return UserMessage(tuple(Text(one) for one in words))


def ask(*messages: Message, **options: Any) -> ModelRequest:
    return ModelRequest(messages or (user("hello"),), **options)


def histories(signatures: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Message]]:
    """Any history, valid or not: half arguments, results of no call, ids that stand twice."""
    words = st.text(st.characters(), max_size=3)
    calls = st.builds(
        ToolCall,
        st.sampled_from(["a", "b", "c:1"]),
        st.sampled_from(["look", "now"]) | words,
        st.dictionaries(st.text(), st.integers() | words, max_size=2) | st.text(),
    )
    pieces = st.one_of(st.builds(Text, words), st.builds(Reasoning, words, signatures), calls)
    results = st.builds(ToolResult, st.sampled_from(["a", "b", "c:1", "d"]), words, words, st.booleans())
    return st.lists(
        st.one_of(
            st.lists(words, max_size=2).map(lambda texts: user(*texts)),
            st.builds(
                AssistantMessage, st.lists(pieces, max_size=4).map(tuple), st.lists(results, max_size=4).map(tuple)
            ),
        ),
        max_size=6,
    )
