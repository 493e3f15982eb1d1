"""Watch one stream of text, which is stopped while it loops."""

import asyncio
from collections.abc import AsyncIterator

import monitor


async def model() -> AsyncIterator[str]:
    """A model that repeats itself."""
    yield "I will fix the test. "
    while True:
        yield "Let me look at the "
        yield "file once more. "


async def main() -> None:
    """Print the text, then the reason of the stop."""
    async with monitor.watch(model(), stop_when=monitor.Timeout(300) | monitor.IdleTimeout(30)) as watched:
        async for piece in watched:
            print(piece, end="")
    outcome = watched.outcome
    print(f"\n\n{outcome.reason}: {outcome.detail}")
    if isinstance(outcome.evidence, monitor.verdicts.Detection):
        found = outcome.evidence
        print(f"repeated {found.count} times from character {found.start_offset}: {found.evidence.excerpt!r}")


asyncio.run(main())
