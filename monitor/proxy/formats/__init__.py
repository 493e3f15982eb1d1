"""Finds the wire format of a request, for the part of the proxy that receives requests. Each format
has a module here, which reads requests and answers, and writes the end of an answer. `wire.py` says
how a relay uses it.

| wire | legal end | error form | refusal |
| --- | --- | --- | --- |
| openai-chat | `finish_reason: "stop"`, `[DONE]` | `{"error"}`, no `[DONE]` | `{"error"}` |
| openai-responses | items closed, `response.completed` | event `error` | `{"error"}` |
| anthropic | blocks closed, `end_turn`, `message_stop` | event `error` | `{"type", "error"}` |
| gemini | `finishReason: "MAX_TOKENS"` | `{"error"}` | `{"error"}` |

`docs/proxy.md` says how an answer is cut. What only a reader of this code needs:

- Bedrock's answers are read and ended as those of anthropic, in binary messages. Its error form is
  an exception, and its refusal has `message`.
- The reason stands in a comment line, as a JSON string in ASCII. Gemini's SDK reads a comment as
  broken JSON, so there the reason is the `finishMessage`.
- An error after our stop has the type of a bad request (400), so that clients do not try again. An
  error after the upstream broke off has that of a bad gateway (502).
- A refusal below 500 has the header `x-should-retry: false`, which the SDKs of OpenAI and Anthropic
  obey.
- The error event of a response has the field `error` too, without which the SDK does not raise.
"""

from __future__ import annotations

import re
from typing import Final

from monitor.proxy.formats.anthropic import AnthropicWire
from monitor.proxy.formats.bedrock import BedrockWire, ConverseWire
from monitor.proxy.formats.chat import ChatWire
from monitor.proxy.formats.gemini import GeminiWire
from monitor.proxy.formats.responses import ResponsesWire
from monitor.proxy.formats.wire import Wire

_VERTEX: Final = re.compile(r"/publishers/anthropic/models/[^/:]+:(?:rawPredict|streamRawPredict)\Z", re.IGNORECASE)
_GEMINI: Final = re.compile(r"/models/[^/:]+:(?:generateContent|streamGenerateContent)\Z", re.IGNORECASE)
_WIRES: Final[tuple[tuple[re.Pattern[str], Wire], ...]] = (
    (re.compile(r"/chat/completions\Z", re.IGNORECASE), ChatWire()),  # OpenAI, Azure, OpenRouter, local servers
    (re.compile(r"/responses\Z", re.IGNORECASE), ResponsesWire()),  # OpenAI, Azure, Codex
    (re.compile(r"/v1/messages\Z", re.IGNORECASE), AnthropicWire()),
    (_VERTEX, AnthropicWire()),
    (re.compile(r"/invoke(?:-with-response-stream)?\Z", re.IGNORECASE), BedrockWire()),
    (re.compile(r"/converse(?:-stream)?\Z", re.IGNORECASE), ConverseWire()),
    (_GEMINI, GeminiWire()),  # the Gemini API, Vertex AI
)
"""The end of a path, and its wire. A path may have a prefix: `/openai/v1/chat/completions`. Some
services read `/v1/Chat/Completions` alike.
"""


def wire_of(method: str, path: str) -> Wire | None:
    """The wire format of a request. `None`: unknown. Nothing is guessed: the operator chooses what
    becomes of an unknown request.
    """
    if method.upper() != "POST":
        return None
    where = path.partition("?")[0]
    found = next((wire for end, wire in _WIRES if end.search(where)), None)
    return None if isinstance(found, BedrockWire) and "/model/" not in where.lower() else found
