"""The wire formats of the proxy: pure, without I/O and without a clock. `base.py` shows how a relay
uses them.

| wire | legal end | error form | refusal |
| --- | --- | --- | --- |
| openai-chat | `finish_reason: "stop"`, `[DONE]` | `{"error"}`, no `[DONE]` | `{"error"}` |
| openai-responses | items closed, `response.incomplete` | event `error` | `{"error"}` |
| anthropic | blocks closed, `end_turn`, `message_stop` | event `error` | `{"type", "error"}` |
| gemini | `finishReason: "STOP"` | `{"error"}` | `{"error"}` |

- The reason stands in a comment line, as a JSON string in ASCII. Gemini's SDK reads a comment as
  broken JSON, so there the reason is the `finishMessage`. The SDK shows it for Vertex AI only.
- An answer with a call ends by its error form, unless the model has ended the answer. The legal end
  of such an answer asks the client to carry the calls out.
- An error after our stop has the type of a bad request (400), so that clients do not try again. An
  error after the upstream broke off has that of a bad gateway (502).
- A refusal has the header `x-should-retry: false`, which the SDKs of OpenAI and Anthropic obey.
  google-genai does not try again by default.
- A chat ends with its usage, if the client asked for it. In an array of Gemini, `]` follows.
- A response is incomplete because of `max_output_tokens`, which is the nearer of its two words. The
  error event has the field `error` too, without which the SDK does not raise.
- Anthropic's service refuses a thought without its signature. A client that sends back a thought
  which was ended by us has to leave the thought out.
"""

from __future__ import annotations

import re
from typing import Final

from monitor.proxy.formats.anthropic import AnthropicWire
from monitor.proxy.formats.base import Wire
from monitor.proxy.formats.chat import ChatWire
from monitor.proxy.formats.gemini import GeminiWire
from monitor.proxy.formats.responses import ResponsesWire

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
