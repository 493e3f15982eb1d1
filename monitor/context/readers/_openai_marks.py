"""What OpenAI's services want back beside text and calls, as the signature of a `Reasoning`: a JSON object behind a prefix.

The adapters read and write the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from monitor.messages import Reasoning

PREFIX: Final = "openai:"


def marked(fields: Mapping[str, Any]) -> Reasoning:
    """The part that says `fields`, whose keys are those of the wire format."""
    return Reasoning("", PREFIX + json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str))
