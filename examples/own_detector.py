"""A detector of your own: a function of the text, or of a call and its result. This one finds
apologies that come too often.
"""

import asyncio
from collections.abc import AsyncIterator

import monitor


@monitor.detectors.as_detector(times=3)
def apologies(text: str) -> bool:
    """Whether a sentence is an apology. The third one ends the run."""
    return "i apologise" in text.lower()


async def model() -> AsyncIterator[str]:
    """A model that apologises in different words."""
    for reason in ("the typo", "the missing import", "the wrong file", "the noise"):
        yield f"I apologise for {reason}. Let me correct that. "


async def main() -> None:
    """Watch with the default detectors and one more."""
    async with monitor.watch(model(), detectors=[*monitor.default_detectors(), apologies]) as watched:
        async for piece in watched:
            print(piece, end="")
    print(f"\n{watched.outcome.reason}: {watched.outcome.detail} (said by {watched.outcome.source})")


asyncio.run(main())
