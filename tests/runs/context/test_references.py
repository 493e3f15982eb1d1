"""References of results outlive every summary: in the context, or in one list that can be read."""

from __future__ import annotations

import pytest

import monitor
from monitor.context import Extractive, KeepTokens
from monitor.messages import AssistantMessage, Text, UserMessage
from monitor.models import ModelRequest
from monitor.runs import Results
from monitor.sessions import InMemorySession
from monitor.testing import ScriptedModel, call
from monitor.tools import ToolAnswer
from monitor.tools.artifacts.artifact_store import InMemoryArtifacts, Reference

pytestmark = [pytest.mark.anyio, pytest.mark.feature("MA-06")]


def address(number: int) -> str:
    return f"https://docs.example/guide/{number}"


async def fetch(number: int) -> ToolAnswer:
    """Read a page."""
    page = Reference(kind="page", url=address(number), note=f"chapter {number}")
    return ToolAnswer(f"Chapter {number}. " + f"word{number} " * 1_500, reference=page)


def shown(request: ModelRequest) -> str:
    """All that the model reads."""
    texts = [part.text for one in request.messages for part in one.content if isinstance(part, Text)]
    results = [one.text for turn in request.messages if isinstance(turn, AssistantMessage) for one in turn.results]
    return "\n".join((*texts, *results))


async def read_list(request: ModelRequest, store: InMemoryArtifacts) -> str:
    """The text of the list that the context names."""
    first = next(one for one in request.messages if isinstance(one, UserMessage))
    text = "\n".join(part.text for part in first.content if isinstance(part, Text))
    ref = text.partition("Where all results came from")[2].partition('read_artifact(ref="')[2].partition('"')[0]
    return await store.read(ref) if ref else ""


@pytest.mark.parametrize(("window", "pages"), [(32_000, 15), (32_000, 60), (200_000, 200)])
async def test_each_page_that_was_read_is_named_after_any_number_of_compactions(window: int, pages: int):
    store, session = InMemoryArtifacts(), InMemorySession()

    def supervisor(model: ScriptedModel) -> monitor.Supervisor:
        return monitor.Supervisor(
            model,
            tools=[fetch],
            session=session,
            window=window,
            compaction=monitor.Compaction(steps=(), keep=KeepTokens(2_000), summarizer=Extractive()),
            results=Results(artifacts=store),
            stop_when=monitor.MaxTurns(pages + 2),
            detectors=[],
        )

    model = ScriptedModel(*(call("fetch", number=number) for number in range(pages)), "All is read.")
    outcome = await supervisor(model).run("read the guide")
    assert outcome.ok
    again = ScriptedModel("Yes.")
    await supervisor(again).run("do you know where it was?")
    for request in (model.requests[-1], again.requests[-1]):
        text = shown(request)
        assert "What came before this point" in text
        named = text + await read_list(request, store)
        covered = [number for number in range(pages) if f"Chapter {number}. " not in text]
        assert len(covered) > pages // 2
        assert [number for number in covered if f"{address(number)} " not in named] == []
        assert f"{address(covered[-1])} " in text


async def test_without_a_store_the_newest_are_named_and_the_others_counted():
    model = ScriptedModel(*(call("fetch", number=number) for number in range(200)), "All is read.")
    await monitor.Supervisor(
        model,
        tools=[fetch],
        window=32_000,
        compaction=monitor.Compaction(steps=(), keep=KeepTokens(2_000), summarizer=Extractive()),
        stop_when=monitor.MaxTurns(202),
        detectors=[],
    ).run("read the guide")
    text = shown(model.requests[-1])
    left_out = int(text.partition("the newest first: ")[2].partition("left out: ")[2].split()[0])
    assert left_out > 0
    assert text.count("page https://docs.example/") + left_out >= 190
