"""CrewAI. Each question is a crew of its own, as in a queue of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.integrations.transparent.crewai import crew_of, llm_of


async def batch(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    llm = llm_of(url, guard)
    return [str((await crew_of(llm).akickoff({"number": question})).raw) for question in questions]


PROGRAMS: dict[str, Any] = {"batch": batch}
