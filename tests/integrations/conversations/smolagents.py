"""smolagents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from monitor.integrations.smolagents import GuardedModel
from tests.integrations.programs.smolagents import agent_of, model_of


async def batch(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    def answers() -> list[str]:
        model = model_of(url)
        try:
            agent = agent_of(GuardedModel(model, guard))
            return [str(agent.run(question)) for question in questions]
        finally:
            model.client.close()

    return await asyncio.to_thread(answers)


PROGRAMS: dict[str, Any] = {"batch": batch}
