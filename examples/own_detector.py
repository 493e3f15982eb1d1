"""A detector of your own: one class, passed in a list. This one finds apologies that come too
often.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import monitor


class Apologies:
    """Fires when the model has apologised `limit` times."""

    name = "apologies"

    def __init__(self, *, limit: int = 3) -> None:
        self._limit = limit
        self._text, self._offset, self._fired = "", 0, False

    def observe(self, chunk: monitor.chunks.Chunk) -> Sequence[monitor.Detection]:
        """Count apologies in the whole text so far, so that the provider's cutting makes no
        difference.
        """
        if not isinstance(chunk, monitor.chunks.TextDelta):
            return ()
        self._text = (self._text + chunk.text.lower())[-1_000:]
        self._offset += len(chunk.text)
        count = self._text.count("i apologise")
        if count < self._limit or self._fired:
            return ()
        self._fired = True
        evidence = monitor.verdicts.Evidence("I apologise", "0" * 16, len("I apologise"))
        message = f"the model has apologised {count} times"
        start = max(0, self._offset - 1_000)
        return [
            monitor.Detection(
                self.name, "apology", "text", "loop", count, self._limit, start, self._offset, evidence, message
            )
        ]

    def reset(self) -> None:
        """Forget everything, for a new run."""
        self._text, self._offset, self._fired = "", 0, False

    def snapshot(self) -> dict[str, Any]:
        """Small JSON data."""
        return {"version": 1, "text": self._text, "offset": self._offset, "fired": self._fired}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        self._text, self._offset, self._fired = state["text"], state["offset"], state["fired"]


async def model() -> AsyncIterator[str]:
    """A model that apologises in different words."""
    for reason in ("the typo", "the missing import", "the wrong file", "the noise"):
        yield f"I apologise for {reason}. Let me correct that. "


async def main() -> None:
    """Watch with the default detectors and one more."""
    async with monitor.watch(model(), detectors=[*monitor.default_detectors(), Apologies()]) as watched:
        async for piece in watched:
            print(piece, end="")
    print(f"\n{watched.outcome.reason}: {watched.outcome.detail} (said by {watched.outcome.source})")


asyncio.run(main())
