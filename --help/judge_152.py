import asyncio
from collections.abc import AsyncIterator

import monitor
from monitor.judges import Ask, JudgeInput, JudgeSchedule


class ManyAnswersAreOne:
    name, fact, threshold, timeout_s, counts = "same_page", "loop", 0.9, 10.0, False

    def schedule(self) -> JudgeSchedule:
        return JudgeSchedule(first_turn=3)

    async def review(self, run: JudgeInput, ask: Ask) -> monitor.verdicts.Judgement:
        stuck = " 1 different answers" in run.digest
        return monitor.verdicts.Judgement(
            "one page for all requests", 0.95 if stuck else 0.0, found=stuck, judged_by=self.name
        )


async def main() -> None:
    async with monitor.Guard(judge=ManyAnswersAreOne(), detectors=None) as guard:
        for number in range(10):
            wanted = monitor.chunks.ToolCall(f"c{number}", "search", {"q": f"words {number}"})

            async def turn(wanted: monitor.chunks.ToolCall = wanted) -> AsyncIterator[monitor.chunks.Chunk]:
                yield wanted
                await asyncio.sleep(0.01)
                yield monitor.chunks.TurnFinished(monitor.FinishReason.DONE)

            async with guard.watch(turn()) as watched:
                async for _ in watched:
                    pass
            if watched.turn.stopped:
                break
            guard.tool_result(wanted, "No results.")
    print(guard.outcome.turns, guard.outcome.reason, guard.outcome.source)


asyncio.run(main())
