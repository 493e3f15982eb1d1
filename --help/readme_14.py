import asyncio
from collections.abc import AsyncIterator

import monitor


async def model() -> AsyncIterator[str]:  # any async iterator: an SDK's stream, or this
    while True:
        yield "Let me check the file again. "


async def main() -> None:
    async with monitor.watch(model(), stop_when=monitor.Timeout(300) | monitor.IdleTimeout(30)) as watched:
        async for chunk in watched:
            print(chunk, end="")
    outcome = watched.outcome  # a run that ends is an outcome, never an exception: so look whether it is ok
    if not outcome.ok:
        print("\n->", outcome.reason, "-", outcome.detail)
    try:
        outcome.raise_for_reason()  # or let it raise; `from` the SDK's own exception, where there was one
    except monitor.outcome.RunFailed as error:
        print("->", repr(error))


asyncio.run(main())
