"""A stream's text in other pieces, as another provider, or the same one on another day, would send
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from monitor.errors import ConfigError

_Delta = TextDelta | ReasoningDelta | ToolCallDelta


def cut(text: str, sizes: int | Sequence[int]) -> list[str]:
    """`text` in pieces of `sizes` code points, again from the first size when they are used up.

    0 makes an empty piece: providers send those too.
    """
    return list(_cut(text, _cycle(sizes)))


def rechunk(chunks: Iterable[Chunk], sizes: int | Sequence[int]) -> list[Chunk]:
    """A copy of the stream with its deltas cut at other places.

    Neighbouring deltas of one channel (for arguments: of one call) are joined and cut anew;
    everything else stays where it was. A call's name comes with its first piece, a signature with
    the last piece of the thinking that it signs.
    """
    next_sizes = _cycle(sizes)
    out: list[Chunk] = []
    group: list[Chunk] = []
    for chunk in chunks:
        if group and not _goes_on(group[-1], chunk):
            out += _recut(group, next_sizes)
            group = []
        group.append(chunk)
    return out + _recut(group, next_sizes) if group else out


def _cycle(sizes: int | Sequence[int]) -> Iterator[int]:
    wanted = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if any(size < 0 for size in wanted) or not any(wanted):
        raise ConfigError(f"sizes={sizes!r}: no size may be negative, and one at least must be above 0")
    return cycle(wanted)


def _cut(text: str, sizes: Iterator[int]) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + next(sizes)
        yield text[start:end]
        start = end


def _goes_on(left: Chunk, right: Chunk) -> bool:
    """Whether `right` is more of the same text as `left`."""
    match left, right:
        case (TextDelta(), TextDelta()) | (ReasoningDelta(_, None), ReasoningDelta()):
            return True
        case ToolCallDelta(id=id), ToolCallDelta(id=other, name=None):
            return id == other
    return False


def _recut(group: Sequence[Chunk], sizes: Iterator[int]) -> list[Chunk]:
    match group[0], group[-1]:
        case TextDelta(), TextDelta():
            return [TextDelta(piece) for piece in _cut_joined(group, sizes)]
        case ReasoningDelta(), ReasoningDelta(signature=signature, origin=origin):
            *head, last = _cut_joined(group, sizes)
            return [*(ReasoningDelta(piece, origin=origin) for piece in head), ReasoningDelta(last, signature, origin)]
        case ToolCallDelta(id=id, name=name), ToolCallDelta():
            first, *tail = _cut_joined(group, sizes)
            return [ToolCallDelta(id, name, first), *(ToolCallDelta(id, None, piece) for piece in tail)]
    return list(group)


def _cut_joined(group: Sequence[Chunk], sizes: Iterator[int]) -> list[str]:
    """An empty text stays one empty piece, because a name or a signature may come with it."""
    texts = (
        chunk.arguments_text if isinstance(chunk, ToolCallDelta) else chunk.text
        for chunk in group
        if isinstance(chunk, _Delta)
    )
    return list(_cut("".join(texts), sizes)) or [""]
