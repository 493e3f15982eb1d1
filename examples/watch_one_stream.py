"""Watch one stream of text: it loops, and is stopped while it does."""

import asyncio
from collections.abc import AsyncIterator

import monitor


async def model() -> AsyncIterator[str]:
    """A model that has lost its way."""
    yield "I will fix the test. "
    while True:
        yield "Let me look at the "
        yield "file once more. "


async def main() -> None:
    """Print what comes, then why it stopped."""
    async with monitor.watch(model(), stop_when=monitor.Timeout(300) | monitor.IdleTimeout(30)) as watched:
        async for piece in watched:
            print(piece, end="")
    outcome = watched.outcome
    print(f"\n\n{outcome.reason}: {outcome.detail}")
    if isinstance(outcome.evidence, monitor.Detection):
        found = outcome.evidence
        print(f"repeated {found.count} times from character {found.start_offset}: {found.evidence.excerpt!r}")


asyncio.run(main())
