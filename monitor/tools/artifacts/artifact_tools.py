"""Tools by which a model reads texts that are kept outside its context, and a cache of fetched
texts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Final

from pydantic import Field

from monitor._util.cuts import cut_before
from monitor.errors import ConfigError, StoreError, ToolError, message_of
from monitor.reasons import ToolErrorKind
from monitor.tools.artifacts.artifact_store import Artifact, ArtifactGone, ArtifactStore, Reference
from monitor.tools.functions import FunctionTool
from monitor.tools.registry import ToolGroup

READ: Final = "read_artifact"
SEARCH: Final = "search_artifact"
PAGE_LINES: Final = 400
"""The number of lines that are read if the model names no number."""
PAGE_CHARS: Final = 20_000
"""The most characters of one answer: half of what a result may have, so it is never cut again."""
MOST_FOUND: Final = 50
"""The most lines that a search shows."""
_AROUND: Final = 100
"""The characters that are shown on each side of a match in a long line."""


def restored_by(artifact: str) -> str:
    """Says how the model gets the text of `artifact`, which is a text of `Artifact.line()`."""
    ref, _, about = artifact.partition(" ")
    return f'{READ}(ref="{ref}") has all of it' + (f": {about}" if about else "")


@dataclass(slots=True, frozen=True)
class ArtifactPage:
    """A part of a text, and where the next part begins: line and character, both from 1."""

    text: str
    next: tuple[int, int] | None


def page(
    text: str, line: int = 1, char: int = 1, *, lines: int = PAGE_LINES, max_chars: int = PAGE_CHARS
) -> ArtifactPage:
    """The part of `text` from the `char`-th character of the `line`-th line on.

    Parts that each begin where the one before ends make up the whole text, whatever the bounds.
    """
    start = 0
    for _ in range(line - 1):
        newline = text.find("\n", start)
        if newline < 0:
            return ArtifactPage("", None)
        start = newline + 1
    start = min(start + char - 1, len(text))
    end, number = start, line
    for _ in range(lines):
        newline = text.find("\n", end, start + max_chars)
        if newline < 0:
            break
        end, number = newline + 1, number + 1
    else:
        return ArtifactPage(text[start:end], (number, 1) if end < len(text) else None)
    if len(text) - start <= max_chars:
        return ArtifactPage(text[start:], None)
    if end > start:  # whole lines
        return ArtifactPage(text[start:end], (number, 1))
    end = cut_before(text, start + max_chars)
    end = end if end > start else start + max_chars
    return ArtifactPage(text[start:end], (line, char + end - start))


class ArtifactTools(ToolGroup):
    """The tools `read_artifact` and `search_artifact` for the texts of `store`. A toolset: give it
    among `tools=`.
    """

    def __init__(self, store: ArtifactStore, *, prefix: str = "") -> None:
        self._store = store
        super().__init__(
            [FunctionTool(self._read, name=READ, kind="read"), FunctionTool(self._search, name=SEARCH, kind="read")],
            prefix=prefix,
        )

    async def _read(
        self,
        ref: Annotated[str, Field(description="The reference, as a result or a note gives it.")],
        offset: Annotated[int, Field(ge=1, description="The line to begin at.")] = 1,
        limit: Annotated[int, Field(ge=1, le=2_000, description="How many lines.")] = PAGE_LINES,
        char: Annotated[int, Field(ge=1, description="In one very long line: the character to begin at.")] = 1,
    ) -> str:
        """Read a text that is kept outside the conversation: the full text of a long result, a page
        or a document, whole or in part.
        """
        known, text = await self._loaded(ref)
        if offset > max(known.lines, 1):
            raise ToolError(
                f"the text has {known.lines:,} lines; there is no line {offset:,}", kind=ToolErrorKind.NOT_FOUND
            )
        part = page(text, offset, char, lines=limit)
        if part.next is None:
            return part.text or "(the text is empty)"
        line, at = part.next
        where = f"offset={line}" + (f", char={at}" if at > 1 else "")
        return f"{part.text.removesuffix(chr(10))}\n[{known.lines:,} lines in all; continue with {where}]"

    async def _search(
        self,
        ref: Annotated[str, Field(description="The reference, as a result or a note gives it.")],
        text: Annotated[str, Field(min_length=1, description="What to look for, as it stands; case does not matter.")],
    ) -> str:
        """Search a text that is kept outside the conversation: the lines that contain the words,
        with their numbers.
        """
        known, whole = await self._loaded(ref)
        wanted = text.casefold()
        found: list[str] = []
        count = 0
        for number, line in enumerate(whole.split("\n"), 1):
            at = line.casefold().find(wanted)
            if at >= 0:
                count += 1
                if count <= MOST_FOUND:
                    found.append(f"{number}: {_excerpt(line, at, len(text))}")
        if not count:
            return f"none of {known.lines:,} lines contains it"
        more = [f"[{count - MOST_FOUND:,} more lines]"] if count > MOST_FOUND else []
        return "\n".join([*found, *more])

    async def _loaded(self, ref: str) -> tuple[Artifact, str]:
        try:
            known = await self._store.find(ref)
            text = await self._store.read(ref)
        except ArtifactGone as error:
            raise ToolError(
                f"{message_of(error)}; get the content where it came from", kind=ToolErrorKind.NOT_FOUND
            ) from None
        except StoreError as error:
            raise ToolError(message_of(error)) from error
        if known is None:
            raise ToolError("it was removed just now; get the content where it came from", kind=ToolErrorKind.NOT_FOUND)
        return known, text


def _excerpt(line: str, at: int, chars: int) -> str:
    start, end = max(at - _AROUND, 0), min(at + chars + _AROUND, len(line))
    return f"{'... ' if start else ''}{line[start:end].rstrip(chr(13))}{' ...' if end < len(line) else ''}"


@dataclass(slots=True, frozen=True)
class Fetched:
    """A text from outside. `validator`: an ETag or the time of the last change, to ask whether the
    text has changed since. `None`: the source has neither.
    """

    text: str
    validator: str | None = None


@dataclass(slots=True)
class Recent:
    """The newest fetched text of each source: content that has not changed is not fetched twice.

    The texts are kept in `store`. This object holds only their digests, at most `most` of them. If
    the store has removed a text meanwhile, its source is fetched again.
    """

    store: ArtifactStore
    _: KW_ONLY
    most: int = 256
    _known: OrderedDict[str, tuple[str, Reference, str | None]] = field(
        default_factory=OrderedDict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ConfigError(f"most is {self.most!r}; it is a whole number, at least 1")

    async def fetch(
        self,
        reference: Reference,
        fetch: Callable[[str | None], Awaitable[Fetched | None]],
        *,
        pin: str | None = None,
    ) -> tuple[Artifact, str]:
        """The text of the source `reference`, as an artifact and as text.

        `fetch` is called with the validator of the text that is known, or with `None`. It returns
        `None` if that text has not changed. Raises `ConfigError` if `fetch(None)` returns `None`.
        """
        earlier = await self.earlier(reference)
        fetched = await fetch(earlier[1].validator if earlier is not None else None)
        if fetched is None:
            if earlier is None:
                raise ConfigError(f"fetch says {reference.line()} has not changed, but no earlier text is known")
            fetched = earlier[1]
        return await self.keep(reference, fetched, pin=pin), fetched.text

    async def keep(self, reference: Reference, fetched: Fetched, *, pin: str | None = None) -> Artifact:
        """Remember `fetched` as the newest text of the source `reference`."""
        artifact = await self.store.put(fetched.text, reference=reference, pin=pin)
        self._known[reference.key] = (artifact.digest, reference, fetched.validator)
        self._known.move_to_end(reference.key)
        while len(self._known) > self.most:
            self._known.popitem(last=False)
        return artifact

    async def earlier(self, reference: Reference) -> tuple[Reference, Fetched] | None:
        """The newest text of the source, with the reference under which it was kept. `None`: no
        text is known, the source gave no validator for it, or it is kept no longer.
        """
        digest, known, validator = self._known.get(reference.key, ("", reference, None))
        if validator is None:
            return None
        try:
            return known, Fetched(await self.store.read(digest), validator)
        except StoreError:  # it is gone or damaged, and its source has it
            return None
