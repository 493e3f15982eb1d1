"""How large a message is, where nobody says it better: the estimate of its texts."""

from __future__ import annotations

from typing import Final

from monitor._codec import text_of
from monitor._tokens import estimate_tokens
from monitor.chunks import ToolCall
from monitor.messages import AssistantMessage, Media, Message

MEDIA_TOKENS: Final = 1_600
"""An image: between the 1,200 and 2,000 that pi and OpenClaw count, and what Anthropic states for one of 1.2 megapixels."""


def message_tokens(message: Message) -> int:
    """Estimated tokens of `message`, with the results of its calls. Linear in its size."""
    tokens = 0
    for part in message.content:
        match part:
            case Media():
                tokens += MEDIA_TOKENS
            case ToolCall(name=name, arguments=arguments):
                tokens += estimate_tokens(name) + estimate_tokens(text_of(arguments))
            case _:
                tokens += estimate_tokens(part.text)
    if isinstance(message, AssistantMessage):
        tokens += sum(estimate_tokens(result.text) for result in message.results)
    return tokens
