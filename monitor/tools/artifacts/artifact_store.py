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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from monitor._util.hashing import canonical_json
from monitor._util.quoting import printable
from monitor.errors import ConfigError, StoreError, message_of

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
