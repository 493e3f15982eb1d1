"""Bounds a tool's result before it is stored, and keeps its full text outside the context."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final, TypeAlias

import anyio

from monitor.chunks import ToolResult
from monitor.errors import StoreError, describe, message_of
from monitor.tools.artifacts.artifact_store import READ, SEARCH, ArtifactStore, Reference, restored_by
from monitor.tools.base import Bound, Keep
from monitor.tools.results.truncation import shown, summarised

Summarise: TypeAlias = Callable[[ToolResult], str | Awaitable[str]]
"""Writes a summary of a result that is too long for the context."""

LEAST_CHARS: Final = 2_000
"""A shorter result is not kept outside the history, because it costs little to get it again."""
UNPIN_S: Final = 5.0
"""How long the end of a run waits for its store."""
UNCHANGED: Final = "not changed since it was shown above"
"""Stands in the place of a text that the model is shown already."""
_OF_ARTIFACTS: Final = frozenset({READ, SEARCH})
"""The answers of these tools are parts of texts that are kept already."""


@dataclass(slots=True, frozen=True)
class ResultStore:
    """Bounds the results of one run, and keeps their full texts in `store`.

    A result above `bound` is cut, and says how to read the rest. A result above 2,000 characters is
    kept whole, so that it can be read again when it has left the context. A text of a known source
    that the model is still shown is not shown twice.

    - `bound`: `None` cuts nothing.
    - `summary`: makes a summary of a result above `bound`, which stands in its place. If it fails,
      the result is cut, and says why.
    - `run`: the id of the run. Its artifacts stay until `close`.
    - `shows`: whether the history has a result with this artifact and this text.
    """

    store: ArtifactStore | None
    bound: Bound | None
    _: KW_ONLY
    summary: Summarise | None = None
    run: str = ""
    shows: Callable[[str, str], bool] = lambda _artifact, _text: False

    def cut(self, result: ToolResult, *, keep: Keep, status: str | None = None, more: str | None = None) -> ToolResult:
        """`result`, cut where it exceeds the bound."""
        if self.bound is None or self.bound.holds(result.text):
            return result
        cut = shown(_without(status, result.text), keep=keep, bound=self.bound, status=status, more=more)
        return replace(result, text=cut.text, truncated=True, full_chars=_chars(result)) if cut.truncated else result

    async def kept(
        self, result: ToolResult, *, keep: Keep, status: str | None = None, reference: Reference | None = None
    ) -> ToolResult:
        """`result` within the bound, after its full text was kept. `reference`: its source."""
        if len(result.text) <= LEAST_CHARS or result.name in _OF_ARTIFACTS:
            return self.cut(result, keep=keep, status=status)
        if self.store is None:
            return await self._short(result, keep, status, None)
        try:
            artifact = await self.store.put(_without(status, result.text), reference=reference, pin=self.run or None)
        except StoreError as error:
            more = f"the rest was not kept: {message_of(error)}"
            return await self._short(result, keep, status, more)
        line = artifact.line()
        whole = restored_by(line)
        cut = replace(await self._short(result, keep, status, whole), artifact=line)
        if reference is None or result.is_error or result.media or not self.shows(line, cut.text):
            return cut
        text = f"[{UNCHANGED}; {whole}]"
        text = f"{status}\n{text}" if status else text
        return replace(cut, text=text, truncated=True, full_chars=_chars(result))

    async def _short(self, result: ToolResult, keep: Keep, status: str | None, more: str | None) -> ToolResult:
        """`result` within the bound: its summary, if there is one, else a part of it."""
        if self.summary is None or self.bound is None or self.bound.holds(result.text):
            return self.cut(result, keep=keep, status=status, more=more)
        text = _without(status, result.text)
        try:
            summary = self.summary(replace(result, text=text))
            said = await summary if inspect.isawaitable(summary) else summary
            text = summarised(text, said, bound=self.bound, status=status, more=more)
        except Exception as error:  # noqa: BLE001 - a model or a function of the caller's; the result is there
            why = f"it could not be summarised: {describe(error)}"
            return self.cut(result, keep=keep, status=status, more=f"{more}; {why}" if more else why)
        return replace(result, text=text, truncated=True, full_chars=_chars(result))

    async def kept_text(self, text: str) -> str | None:
        """Keep `text`, and say how the model reads it; `None`: there is no store, or it failed."""
        if self.store is None:
            return None
        try:
            artifact = await self.store.put(text, pin=self.run or None)
        except StoreError:
            return None
        return restored_by(artifact.line())

    async def close(self) -> None:
        """The run has ended. Its artifacts may be removed when the store needs room."""
        if self.store is not None and self.run:
            with anyio.move_on_after(UNPIN_S, shield=True):
                try:
                    await self.store.unpin(self.run)
                except StoreError:
                    return  # it cannot be reached, and nothing is lost


def _chars(result: ToolResult) -> int:
    """The length of a whole answer."""
    return len(result.text) if result.full_chars is None else result.full_chars


def _without(status: str | None, text: str) -> str:
    """`text` without the line of `status`, so that its lines have the numbers that a cut names."""
    return text.removeprefix(f"{status}\n") if status else text
