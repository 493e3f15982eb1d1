"""The wire formats of the proxy: pure, without I/O and without a clock."""

from __future__ import annotations

import re
from typing import Final

from monitor.proxy.wires.anthropic import AnthropicWire
from monitor.proxy.wires.base import Wire
from monitor.proxy.wires.chat import ChatWire
from monitor.proxy.wires.gemini import GeminiWire
from monitor.proxy.wires.responses import ResponsesWire

_WIRES: Final[tuple[tuple[re.Pattern[str], Wire], ...]] = (
    (re.compile(r"/chat/completions\Z"), ChatWire()),
    (re.compile(r"/(?:v1|openai)/responses\Z"), ResponsesWire()),
    (re.compile(r"/v1/messages\Z"), AnthropicWire()),
    (re.compile(r"/models/[^/:]+:(?:generateContent|streamGenerateContent)\Z"), GeminiWire()),
)
"""The end of a path, and its wire. A path may have a prefix: `/openai/v1/chat/completions`."""


def wire_of(method: str, path: str) -> Wire | None:
    """The wire format of a request. `None`: unknown. Nothing is guessed: the proxy relays an
    unknown request untouched, and says so.
    """
    if method.upper() != "POST":
        return None
    where = path.partition("?")[0]
    return next((wire for end, wire in _WIRES if end.search(where)), None)
