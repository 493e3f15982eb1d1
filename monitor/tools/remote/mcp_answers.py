"""The texts of MCP servers as answers of tools: data, bounded and printable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from monitor._util.quoting import printable
from monitor.chunks import Media
from monitor.context.reduce.truncate import clip
from monitor.tools.results.tool_answer import ToolAnswer

DESCRIPTION_CHARS: Final = 4_000
"""A longer description is cut, because it stands in every request."""


def readable(text: str) -> str:
    """A description as data: printable lines, and no more than `DESCRIPTION_CHARS` characters."""
    return clip("\n".join(map(printable, text.strip().splitlines())), DESCRIPTION_CHARS)


def sendable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`arguments` as JSON in UTF-8: half a surrogate pair becomes a question mark."""
    text = json.dumps(dict(arguments), ensure_ascii=False, default=str)
    given: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
    return given


def answer_of(result: Any) -> ToolAnswer:
    """The answer that a result of a server is: its texts, its media and its data."""
    texts: list[str] = []
    media: list[Media] = []
    for block in result.content:
        resource: Any = getattr(block, "resource", None)
        if block.type == "text":
            texts.append(block.text)
        elif block.type in ("image", "audio"):
            media.append(Media(block.mime_type, data=block.data))
        elif block.type == "resource_link":
            texts.append(f"[{block.mime_type or 'resource'} {printable(block.name)}: {printable(str(block.uri))}]")
        elif hasattr(resource, "text"):
            texts.append(f"[{printable(str(resource.uri))}]\n{resource.text}")
        elif resource is not None:
            kind = resource.mime_type or "application/octet-stream"
            media.append(Media(kind, data=resource.blob, name=printable(str(resource.uri))))
    data = getattr(result, "structured_content", None)
    if not texts and not media and data is not None:
        texts.append(json.dumps(data, ensure_ascii=False))
    return ToolAnswer("\n".join(texts), bool(getattr(result, "is_error", False)), media=tuple(media), data=data)
