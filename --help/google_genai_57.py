import asyncio

import monitor
from monitor.testing import ScriptedStream

attempts = iter([ScriptedStream("Par", ConnectionResetError("gone")), ScriptedStream("Paris.")])


async def main() -> None:
    async with monitor.Guard(stop_when=monitor.MaxModelCalls(5)) as guard:
        while True:
            async with guard.watch(next(attempts)) as watched:
                async for piece in watched:
                    print(piece, end=" ")
            failed = watched.turn.model_error  # kind, message, and retry_after_s where the service asks for a delay
            if failed is None:
                break
            await asyncio.sleep(failed.retry_after_s or 0)
        print("->", guard.check())
    print(guard.outcome.reason, guard.outcome.turns)


asyncio.run(main())
