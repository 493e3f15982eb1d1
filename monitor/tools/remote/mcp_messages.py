"""The messages of an MCP server, without parts for which the SDK would refuse all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self, cast

import anyio

from monitor._util.quoting import printable
from monitor.errors import message_of

SAID_CHARS: Final = 600
"""The most characters of an error that are read."""
MOST_DEPTH: Final = 150
"""The SDK reads no JSON that is nested deeper than 200, the limit of pydantic's parser."""
_SIGNS: Final = re.compile(r'["\\\[\]{}]')
"""What begins or ends a text, a list or an object, and the backslash."""


class CheckedMessages:
    """Checks the messages of one connection. `sdk`: the names of the SDK. `malformed` gets the
    reason for each tool that is declared wrongly, by its name.
    """

    def __init__(self, sdk: Any, version: Callable[[], str], malformed: dict[str, str]) -> None:
        self._sdk = sdk
        self._version = version
        self._malformed = malformed

    def checked(self, message: Any) -> Any:
        """The message, or what can be read of it."""
        if isinstance(message, ValueError):
            message = self._read_again(message)
        result = getattr(getattr(message, "message", None), "result", None)
        if not isinstance(result, dict) or "content" in result or not isinstance(listed := result.get("tools"), list):
            return message
        if not self._is_list(result, listed):
            result["tools"] = [one for one in listed if self._is_list(result, [one])]
        return message

    def _read_again(self, error: Any) -> Any:
        """The message that the SDK could not read for its depth, or for half a surrogate pair."""
        with suppress(ValueError, AttributeError, LookupError):
            fault = error.errors()[0]
            data = json.loads(shallow(fault["input"] if fault["type"] == "json_invalid" else ""))
            line = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
            read = self._sdk.types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            return self._sdk.SessionMessage(read)
        return error

    def _is_list(self, result: Mapping[str, Any], tools: list[Any]) -> bool:
        """Whether the SDK takes `tools` as a list of tools. A refused single one is noted."""
        data = {**result, "tools": tools}
        try:
            with suppress(KeyError):  # a version without a check of its own
                self._sdk.validate("tools/list", self._version(), data)
            self._sdk.types.ListToolsResult.model_validate(data, by_name=False)
        except ValueError as error:
            if len(tools) == 1:
                name = tools[0].get("name") if isinstance(tools[0], dict) else tools[0]
                self._malformed[str(name)[:100]] = said(error)
            return False
        return True


class WatchedStream:
    """A stream of messages that passes on what `check` makes of each, and says when it ended."""

    def __init__(self, stream: Any, ended: anyio.Event, check: Callable[[Any], Any]) -> None:
        self._stream = stream
        self._ended = ended
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.EndOfStream):
            self._ended.set()
            raise
        return self._check(message)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return cast("bool | None", await self._stream.__aexit__(*error))


def shallow(line: str) -> str:
    """A line of JSON, where what is nested deeper than `MOST_DEPTH` is a text that says so."""
    parts: list[str] = []
    depth = taken = 0
    in_text, escaped = False, -1
    for found in _SIGNS.finditer(line):
        sign, at = found[0], found.start()
        if at == escaped:
            continue
        if sign == "\\":
            escaped = at + 1
        elif sign == '"':
            in_text = not in_text
        elif in_text:
            continue
        elif sign in "[{":
            depth += 1
            if depth == MOST_DEPTH + 1:
                parts.append(line[taken:at])
        else:
            if depth == MOST_DEPTH + 1:
                parts.append('"(nested too deeply)"')
                taken = at + 1
            depth -= 1
    return "".join((*parts, line[taken:]))


def said(error: BaseException) -> str:
    """An error in one printable line."""
    text = message_of(error).partition("\n    For further information")[0]
    return printable(" ".join(text[:SAID_CHARS].split()))
