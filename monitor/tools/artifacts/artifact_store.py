"""Texts that are kept outside the context, and the references that stand for them in it.

    store = FolderArtifacts("artifacts")
    supervisor = monitor.Supervisor(model, tools=[fn, ArtifactTools(store)], artifacts=store)

Failure answered: a page, a file or a log has left the context and cannot be had again, so the model
fetches it once more, or guesses. The SHA-256 of its text names an artifact, so the same text is
kept once. To mention an artifact, or to ask whether it is kept, does not load its text.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from monitor._util.checked_words import checked
from monitor._util.hashing import canonical_json
from monitor._util.text import cut_before, printable
from monitor.errors import ConfigError, StoreError, ToolError, ToolErrorKind, message_of
from monitor.tools.functions import FunctionTool
from monitor.tools.registry import ToolGroup

REF_CHARS: Final = 16
"""The number of hexadecimal digits of the digest that a model is shown: 64 bits."""
LEAST_REF_CHARS: Final = 12
"""A shorter reference is refused, because it could be a number that the model made up."""
MAX_BYTES: Final = 1_000_000_000
"""The most bytes that a store keeps by default."""
_NOTE_CHARS: Final = 300
"""The most characters of each part of a reference that a model is shown."""

ReferenceKind: TypeAlias = Literal["page", "document", "reply", "output"]


class ArtifactGone(StoreError):
    """No artifact has this reference: it was removed for its age, or never stored, or the reference
    is not unique. The message says which.
    """


class ArtifactsFull(StoreError):
    """The text is larger than the store, or everything in the store is pinned."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class Reference:
    """Says where a text came from, so that it can be had again. Each kind needs one part: `url` of
    a page, `path` of a document, `request` of a reply. Raises `ConfigError` if that is missing.
    """

    kind: ReferenceKind
    url: str | None = None
    path: str | None = None
    pages: str | None = None
    """The pages of a document, e.g. `3-7`."""
    position: str | None = None
    """The place in the document, e.g. `line 120` or a heading."""
    request: Mapping[str, Any] | None = None
    """The parameters of the request that a reply answers."""
    note: str = ""
    """The subject of the text, in a few words."""
    digest: str | None = None
    """The SHA-256 of the full text, where it is kept."""

    def __post_init__(self) -> None:
        needs = {"page": "url", "document": "path", "reply": "request"}.get(self.kind)
        if needs is not None and getattr(self, needs) is None:
            raise ConfigError(f"a reference to a {self.kind} needs {needs}=")

    @property
    def key(self) -> str:
        """The identity of the source. The note and the digest of the text are no part of it."""
        return canonical_json([self.kind, self.url, self.path, self.pages, self.position, self.request])

    def line(self) -> str:
        """One line for the model: kind, place, note."""
        where = self.url or self.path or (canonical_json(self.request) if self.request is not None else "")
        parts = [self.kind, where, f"pages {self.pages}" if self.pages else "", self.position or ""]
        words = " ".join(printable(part[:_NOTE_CHARS]) for part in parts if part)
        return f"{words} ({printable(self.note[:_NOTE_CHARS])})" if self.note else words

    def to_dict(self) -> dict[str, Any]:
        """The reference as JSON data. `from_dict` reads it back."""
        given: dict[str, Any] = _REFERENCES.dump_python(self, mode="json", exclude_defaults=True)
        return {"kind": self.kind, **given}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reference:
        """The reference in `data`. Raises `StoreError` if `data` is no reference."""
        try:
            return _REFERENCES.validate_python(data)
        except (ValidationError, ConfigError) as error:
            raise StoreError(f"this is no reference to an artifact: {message_of(error)}") from None


_REFERENCES: Final = TypeAdapter(Reference)


@dataclass(slots=True, frozen=True, kw_only=True)
class Artifact:
    """The facts about a kept text that are known without loading it."""

    digest: str
    """The SHA-256 of the text, as 64 hexadecimal digits."""
    chars: int
    lines: int
    references: tuple[Reference, ...] = ()
    """Where it came from, the newest last."""

    @property
    def ref(self) -> str:
        """The name that the model reads and writes: the beginning of the digest."""
        return self.digest[:REF_CHARS]

    def line(self) -> str:
        """One line that stands for the text: the reference, a space, where the text came from."""
        return " ".join([self.ref, *(one.line() for one in self.references[-1:])])


class ArtifactStore(Protocol):
    """Keeps texts by their digest. Each method may be called from any task.

    `StoreError`: the store cannot be read or written. A reference is a digest, or at least its
    first 12 digits.
    """

    async def put(self, text: str, /, *, reference: Reference | None = None, pin: str | None = None) -> Artifact:
        """Keep `text`. `pin`: the name of a run that needs it; it stays until `unpin(pin)`.

        Raises `ArtifactsFull` if there is no room; then no other text is removed.
        """
        ...

    async def pin(self, refs: Iterable[str], owner: str, /) -> None:
        """The artifacts `refs` stay until `unpin(owner)`. Raises `ArtifactGone`."""
        ...

    async def unpin(self, owner: str, /) -> None:
        """The run `owner` needs its artifacts no longer."""
        ...

    async def find(self, ref: str, /) -> Artifact | None:
        """The facts about the text under `ref`. Its content is not loaded, and this does not count
        as a use of it.
        """
        ...

    async def read(self, ref: str, /) -> str:
        """The whole text. Raises `ArtifactGone`."""
        ...

    async def artifacts(self) -> Sequence[Artifact]:
        """All artifacts, the least recently used first. Their texts are not loaded."""
        ...


def encoded(text: str) -> bytes:
    """`text` as bytes; lone surrogates survive."""
    return text.encode("utf-8", "surrogatepass")


def digest_of(data: bytes) -> str:
    """The digest that is the identity of the text."""
    return hashlib.sha256(data).hexdigest()


def described(text: str, digest: str, references: tuple[Reference, ...]) -> Artifact:
    """The artifact that describes `text`."""
    lines = text.count("\n") + (not text.endswith("\n")) if text else 0
    return Artifact(digest=digest, chars=len(text), lines=lines, references=references)


MOST_REFERENCES: Final = 20
"""The number of sources of one text that are remembered."""


def with_reference(known: tuple[Reference, ...], new: Reference | None) -> tuple[Reference, ...]:
    """`known` with `new` as the newest, each source once."""
    if new is None:
        return known
    return (*(one for one in known if one.key != new.key), new)[-MOST_REFERENCES:]


def resolved(ref: str, digests: Collection[str]) -> str:
    """The one digest that `ref` means. Raises `ArtifactGone`."""
    wanted = ref.strip().lower()
    if wanted in digests:
        return wanted
    if len(wanted) < LEAST_REF_CHARS:
        raise ArtifactGone(f"{printable(ref[:100])!r} is no reference: it has at least {LEAST_REF_CHARS} digits")
    found = [digest for digest in digests if digest.startswith(wanted)]
    if not found:
        raise ArtifactGone(f"no artifact {printable(ref[:100])!r} is kept (any longer)")
    if len(found) > 1:
        raise ArtifactGone(f"{printable(ref[:100])!r} begins {len(found)} references; give more of it")
    return found[0]


def to_remove(sizes: Mapping[str, int], *, pinned: Collection[str], new: int, most: int) -> list[str]:
    """The digests to remove, so that with `new` bytes more the store has at most `most`. `sizes`:
    bytes by digest, the least recently used first. Raises `ArtifactsFull`.
    """
    excess = sum(sizes.values()) + new - most
    gone: list[str] = []
    for digest, size in sizes.items():
        if excess <= 0:
            break
        if digest not in pinned:
            gone.append(digest)
            excess -= size
    if excess > 0:
        raise ArtifactsFull(
            f"a text of {new:,} bytes has no room: the store keeps {most:,}, and running sessions need what is there"
        )
    return gone


@dataclass(slots=True)
class _Kept:
    text: str
    size: int
    artifact: Artifact


@dataclass(slots=True)
class InMemoryArtifacts:
    """Keeps texts in memory, for tests and for runs whose texts are not needed after their end."""

    _: KW_ONLY
    max_bytes: int = 100_000_000
    loads: int = field(default=0, init=False)
    """The number of texts that were loaded."""
    _kept: OrderedDict[str, _Kept] = field(default_factory=OrderedDict, init=False, repr=False)
    _pins: dict[str, set[str]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_max_bytes(self.max_bytes)

    async def put(self, text: str, *, reference: Reference | None = None, pin: str | None = None) -> Artifact:
        data = encoded(text)
        digest = digest_of(data)
        known = self._kept.pop(digest, None)
        if known is None:
            sizes = {one: kept.size for one, kept in self._kept.items()}
            pinned = set().union(*self._pins.values())
            for gone in to_remove(sizes, pinned=pinned, new=len(data), most=self.max_bytes):
                del self._kept[gone]
        references = with_reference(known.artifact.references if known else (), reference)
        kept = self._kept[digest] = _Kept(text, len(data), described(text, digest, references))
        if pin is not None:
            self._pins.setdefault(pin, set()).add(digest)
        return kept.artifact

    async def pin(self, refs: Iterable[str], owner: str) -> None:
        digests = {resolved(ref, self._kept) for ref in refs}
        self._pins.setdefault(owner, set()).update(digests)

    async def unpin(self, owner: str) -> None:
        self._pins.pop(owner, None)

    async def find(self, ref: str) -> Artifact | None:
        try:
            return self._kept[resolved(ref, self._kept)].artifact
        except ArtifactGone:
            return None

    async def read(self, ref: str) -> str:
        digest = resolved(ref, self._kept)
        self._kept.move_to_end(digest)
        self.loads += 1
        return self._kept[digest].text

    async def artifacts(self) -> Sequence[Artifact]:
        return [kept.artifact for kept in self._kept.values()]


def check_max_bytes(given: object) -> None:
    """Raise `ConfigError` if `given` is no number of bytes."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ConfigError(f"max_bytes is {given!r}; it is a whole number, at least 1")


# --------------------------------------------------------------------------------------------------
# Tools by which a model reads texts that are kept outside its context, and a cache of fetched
# texts.

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
