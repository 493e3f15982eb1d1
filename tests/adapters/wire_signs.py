"""Which calls a wire says are complete, read from its raw events: what the adapters are held to,
found by other means than theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest.mock import ANY

Event: TypeAlias = dict[str, Any]
Calls: TypeAlias = dict[int, Any]
"""By their number, counted from 0 in the order in which they begin: the arguments of a complete
call.
"""

DONE_WORDS = {"end_turn", "stop_sequence", "tool_use", "stop", "tool_calls", "function_call", "STOP"}


@dataclass
class Written:
    """A call on the wire. `open`: more was announced."""

    text: str = ""
    given: Any = None
    ended: bool = False
    open: bool = False


def an_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def anthropic(events: Iterable[Event]) -> tuple[int, Calls]:
    """A block that stopped, with its whole object; or without any argument, where what follows says
    that nothing was cut off.
    """
    begun: list[Written] = []
    at: dict[int, Written] = {}
    for event in events:
        match event["type"]:
            case "content_block_start":
                for one in at.values():
                    one.given = {} if one.ended and one.given is None and not one.text else one.given
                if event["content_block"]["type"] == "tool_use":
                    at[event["index"]] = one = Written(given=event["content_block"].get("input") or None)
                    begun.append(one)
            case "content_block_delta" if event["index"] in at:
                at[event["index"]].text += event["delta"].get("partial_json", "")
            case "content_block_stop" if event["index"] in at:
                at[event["index"]].ended = True
            case "message_delta" if event["delta"].get("stop_reason") in DONE_WORDS:
                for one in at.values():
                    one.ended = True
                    one.given = one.given or {}
    return len(begun), {
        number: json.loads(one.text) if one.text else one.given
        for number, one in enumerate(begun)
        if one.ended and (an_object(one.text) if one.text else one.given is not None)
    }


def chat(events: Iterable[Event]) -> tuple[int, Calls]:
    """Every call of a turn that is done; else those before another one, with a whole object."""
    begun: dict[int | str, Written] = {}
    done = False
    for event in events:
        for choice in event.get("choices") or ():
            for piece in (choice.get("delta") or {}).get("tool_calls") or ():
                one = begun.setdefault(piece["index"] if "index" in piece else piece["id"], Written())
                one.text += (piece.get("function") or {}).get("arguments") or ""
            done = done or choice.get("finish_reason") in DONE_WORDS
    calls = list(begun.values())
    signed = calls if done else calls[:-1]
    texts = [one.text or ("{}" if done else "") for one in signed]
    return len(calls), {number: json.loads(text) for number, text in enumerate(texts) if an_object(text)}


def responses(events: Iterable[Event]) -> tuple[int, Calls]:
    """A function call whose item is done and not incomplete."""
    begun: dict[str, int] = {}
    signed: Calls = {}
    for event in events:
        if event["type"] == "response.completed":
            signed = {number: signed.get(number, {}) for number in begun.values()}
        item = event.get("item") or {}
        if item.get("type") not in ("function_call", "custom_tool_call"):
            continue
        number = begun.setdefault(item["call_id"], len(begun))
        if event["type"] == "response.output_item.done" and item.get("status") != "incomplete":
            signed[number] = (
                json.loads(item["arguments"] or "{}") if item["type"] == "function_call" else {"input": item["input"]}
            )
    return len(begun), signed


def gemini(events: Iterable[Event]) -> tuple[int, Calls]:
    """A call that came at once, or whose pieces came to an end; an end that is missing, where
    arguments came and the turn is done.
    """
    begun: list[Written] = []
    for event in events:
        candidate: Event = next(iter(event.get("candidates") or ()), {})
        for part in (candidate.get("content") or {}).get("parts") or ():
            function = part.get("functionCall")
            if function is not None:
                _gemini_piece(function, begun)
        if candidate.get("finishReason") == "STOP" and begun:
            _gemini_end(begun[-1])
    return len(begun), {number: ANY if one.text else one.given for number, one in enumerate(begun) if one.ended}


def _gemini_piece(function: Mapping[str, Any], begun: list[Written]) -> None:
    if function.get("name"):
        if begun:
            _gemini_end(begun[-1])
        begun.append(Written(given=function.get("args")))
        if not function.get("willContinue") and not function.get("partialArgs"):
            begun[-1].ended, begun[-1].given = True, function.get("args") or {}
            return
    for piece in function.get("partialArgs") or ():
        begun[-1].open = piece.get("willContinue") is True
        begun[-1].text += "."
    if not function.get("willContinue"):
        begun[-1].ended, begun[-1].given = not begun[-1].open, {}


def _gemini_end(one: Written) -> None:
    one.ended = one.ended or (bool(one.text) and not one.open)


@dataclass(frozen=True)
class Sign:
    """How one wire says that a call is complete, and how its streams end where it was not."""

    calls: Callable[[Iterable[Event]], tuple[int, Calls]]
    endings: Callable[[Sequence[Event]], list[list[Event]]]
    """What may come behind a stream that was cut: nothing, or an end for want of room."""


def _anthropic_endings(events: Sequence[Event]) -> list[list[Event]]:
    usage = {"output_tokens": 9}
    ends: list[list[Event]] = [
        [
            {"type": "message_delta", "delta": {"stop_reason": word, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        for word in ("max_tokens", "model_context_window_exceeded", "pause_turn", "refusal")
    ]
    index = max((event["index"] for event in events if "index" in event), default=0)
    return [[], *ends, *[[{"type": "content_block_stop", "index": index}, *end] for end in ends]]


def _chat_endings(_: Sequence[Event]) -> list[list[Event]]:
    return [[], *[[_chat_end(word)] for word in ("length", "content_filter", "max_tokens")]]


def _chat_end(word: str) -> Event:
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": word}],
    }


def _responses_endings(events: Sequence[Event]) -> list[list[Event]]:
    end = [
        {
            "type": "response.incomplete",
            "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        }
    ]
    done = {event["output_index"] for event in events if event["type"] == "response.output_item.done"}
    open_items: dict[int, Event] = {}
    for event in events:
        if event["type"] == "response.output_item.added" and event["output_index"] not in done:
            open_items[event["output_index"]] = dict(event["item"])
        elif event["type"] == "response.function_call_arguments.delta" and event["output_index"] in open_items:
            open_items[event["output_index"]]["arguments"] += event["delta"]
        elif event["type"] == "response.custom_tool_call_input.delta" and event["output_index"] in open_items:
            open_items[event["output_index"]]["input"] += event["delta"]
    closed = [
        {"type": "response.output_item.done", "output_index": at, "item": item | {"status": "incomplete"}}
        for at, item in open_items.items()
        if item["type"] in ("function_call", "custom_tool_call")
    ]
    return [[], end, [*closed, *end]]


def _gemini_endings(_: Sequence[Event]) -> list[list[Event]]:
    return [
        [],
        *[
            [{"candidates": [{"finishReason": word}]}]
            for word in ("MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL", "STOP")
        ],
    ]


ANTHROPIC = Sign(anthropic, _anthropic_endings)
CHAT = Sign(chat, _chat_endings)
RESPONSES = Sign(responses, _responses_endings)
GEMINI = Sign(gemini, _gemini_endings)
