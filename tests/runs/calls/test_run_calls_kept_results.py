"""A run whose results are bounded when they come, with their full text kept outside the context."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

import monitor
from monitor.chunks import ToolResult
from monitor.context.reduce import PruneResults
from monitor.events import ToolFinished, event_codec
from monitor.messages import AssistantMessage
from monitor.sessions import InMemorySession
from monitor.sinks.log import line_of
from monitor.testing import ScriptedModel, call
from monitor.tools import InMemoryLedger, ToolAnswer
from monitor.tools.artifacts.artifact_store import ArtifactsFull, InMemoryArtifacts, Reference
from monitor.tools.artifacts.folder_artifacts import FolderArtifacts
from monitor.tools.base import Bound
from tests.runs.driving import Drive, drive, look, text_of_user
from tests.tools.results.test_truncation import log

pytestmark = pytest.mark.anyio

DONE = call("terminate", status="success")


@monitor.tool(keep="ends")
async def build() -> ToolAnswer:
    """Run the build."""
    return ToolAnswer(log(100_000, error_at=50_000), is_error=True, status="exit code 1, 3.2 s")


@pytest.mark.feature("GT-13", "AC-06", "CL-11")
async def test_the_only_error_in_line_50000_reaches_the_model_and_the_rest_can_be_read(tmp_path: Path):
    store = FolderArtifacts(tmp_path / "artifacts")

    def read(request: Any) -> Any:
        (result,) = request.messages[-1].results
        ref = result.artifact.split()[0]
        assert f'read_artifact(ref="{ref}")' in result.text
        return call("read_artifact", ref=ref, offset=77_777, limit=1)

    run = await drive(call("build"), read, DONE, tools=[build], results=monitor.runs.Results(artifacts=store))
    cut = run.results(0)[0]
    assert cut.text.startswith("[exit code 1, 3.2 s; 100,000 lines, ")
    assert "\nline 50000: ValueError: the one and only\n" in cut.text
    assert cut.text.rpartition("\n")[2].startswith("[this result was cut when it came; read_artifact")
    assert (cut.truncated, cut.is_error) == (True, True)
    assert len(cut.text) < 41_000
    assert run.results(1)[0].text.startswith("step 77777 went well\n")
    # what is stored anywhere is the cut text
    assert run.of(ToolFinished)[0].result.text == cut.text


@pytest.mark.feature("CL-11")
async def test_the_ledger_has_the_cut_text_and_the_reference():
    ledger, store = InMemoryLedger(), InMemoryArtifacts()
    run = await drive(
        call("build"),
        DONE,
        tools=[build],
        results=monitor.runs.Results(artifacts=store),
        calls=monitor.runs.ToolCalls(ledger=ledger),
    )
    (record,) = ledger._records.values()
    assert record.text == run.results(0)[0].text
    assert record.artifact == run.results(0)[0].artifact


async def test_a_short_result_is_neither_cut_nor_kept():
    store = InMemoryArtifacts()
    run = await drive(call("look", q="x"), DONE, tools=[look], results=monitor.runs.Results(artifacts=store))
    assert run.results(0)[0].text == "found x"
    assert run.results(0)[0].artifact is None
    assert await store.artifacts() == []


@pytest.mark.feature("AC-06")
async def test_a_result_of_some_size_is_kept_whole_in_both_places_so_that_it_can_be_pruned():
    store = InMemoryArtifacts()

    async def page(url: str) -> str:
        """Read a page."""
        return f"{url} " * 500

    run = await drive(
        call("page", url="https://a.b"), DONE, tools=[page], results=monitor.runs.Results(artifacts=store)
    )
    kept = run.results(0)[0]
    assert not kept.truncated
    assert kept.artifact is not None
    assert await store.read(kept.artifact.split()[0]) == kept.text


@pytest.mark.feature("MA-01")
async def test_a_pruned_result_says_where_it_came_from_and_by_which_reference_it_can_be_had():
    store = InMemoryArtifacts()

    async def page(url: str, context: monitor.tools.ToolContext) -> str:
        """Read a page."""
        text = "prices " * 500
        await context.artifacts.put(text, reference=Reference(kind="page", url=url, note="prices of May"))
        return text

    run = await drive(
        call("page", url="https://a.b"), DONE, tools=[page], results=monitor.runs.Results(artifacts=store)
    )
    (ref,) = [one.ref for one in await store.artifacts()]
    prune = PruneResults(protect_turns=0, protect_tokens=0, more_than_tokens=0)
    pruned = prune.reduce(run.run.history)
    (result,) = next(message.results for message in pruned if isinstance(message, AssistantMessage))
    assert result.text == (
        f"[Old tool result cleared: 3500 characters; kept as artifact {ref} page https://a.b (prices of May)]"
    )
    assert prune.reduce(pruned) == pruned


@pytest.mark.feature("GT-13", "CL-11")
@pytest.mark.parametrize("session", [False, True])
async def test_a_result_is_bounded_when_it_is_first_stored_though_nobody_asked_for_it(session: bool):
    store = InMemorySession() if session else None
    run = await drive(call("build"), DONE, tools=[build], session=store)
    text = run.results(0)[0].text
    assert text.startswith("[exit code 1, 3.2 s; 100,000 lines, ")
    assert text.endswith("[this result was cut when it came; the rest was not kept]")
    assert "ValueError: the one and only" in text
    assert len(text) < 41_000
    assert "read_artifact" not in run.offered(0)
    if store is not None:
        messages = [message for message in (await store.context()).messages if isinstance(message, AssistantMessage)]
        assert messages[0].results[0].text == text
        assert (await store.calls())[0].text == text


@pytest.mark.feature("AC-06")
async def test_a_large_result_becomes_a_summary_of_a_model_with_a_reference_and_its_tokens_count():
    store = InMemoryArtifacts()
    writer = ScriptedModel("100,000 steps; line 50000 failed: ValueError.")
    options: dict[str, Any] = {"tools": [build, look], "results": monitor.runs.Results(artifacts=store, summary=writer)}
    run = await drive(call("build"), call("look", q="x"), DONE, **options)
    (kept,) = await store.artifacts()
    result = run.results(0)[0]
    assert result.text.splitlines()[1] == "100,000 steps; line 50000 failed: ValueError."
    assert result.text.startswith("[exit code 1, 3.2 s; 100,000 lines, ")
    assert result.text.endswith(f'[this is a summary of the result; read_artifact(ref="{kept.ref}") has all of it]')
    assert (result.truncated, result.is_error) == (True, True)
    assert await store.read(kept.ref) == log(100_000, error_at=50_000).rstrip("\n")
    assert run.results(1)[0].text == "found x"
    asked = text_of_user(writer.requests[0].messages[0])
    assert "The result of the tool build" in asked
    assert "ValueError: the one and only" in asked
    assert len(writer.requests) == 1
    assert len(asked) < 110_000  # of 2,000,000 characters, what an unknown model's window surely holds
    assert run.outcome.usage.total_tokens > len(asked) // 10


@pytest.mark.feature("AC-06")
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_may_write_the_summary_and_gets_the_whole_result(is_async: bool):
    seen: list[ToolResult] = []

    def plain(result: ToolResult) -> str:
        seen.append(result)
        return f"{result.text.count('step')} steps"

    async def later(result: ToolResult) -> str:
        await anyio.lowlevel.checkpoint()
        return plain(result)

    run = await drive(
        call("build"), DONE, tools=[build], results=monitor.runs.Results(summary=later if is_async else plain)
    )
    assert run.results(0)[0].text.splitlines()[1:] == [
        "99999 steps",
        "[this is a summary of the result; the rest was not kept]",
    ]
    assert seen[0].text == log(100_000, error_at=50_000).rstrip("\n")


class Broken(Exception):
    """What a summary may raise."""


def _raises(_: ToolResult) -> str:
    raise Broken("no words")


SILENT: dict[str, Any] = {
    "a function that raises": (_raises, "no words"),
    "a function that says nothing": (lambda _: " \n", "the summary is empty"),
    "a function that returns no text": (lambda _: None, "it is no text"),
    "a model that fails": (ScriptedModel(RuntimeError("it broke")), "it broke"),
    "a model that says nothing": (ScriptedModel(""), "it could not be summarised"),
}


@pytest.mark.parametrize(("summary", "why"), SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("keeps", [True, False])
async def test_without_a_summary_the_beginning_and_the_end_stand_there_and_the_reason(
    summary: Any, why: str, keeps: bool
):
    store = InMemoryArtifacts() if keeps else None
    run = await drive(
        call("build"),
        DONE,
        tools=[build],
        results=monitor.runs.Results(summary=copy.deepcopy(summary), artifacts=store),
    )
    text = run.results(0)[0].text
    assert "line 50000: ValueError: the one and only" in text
    last = text.splitlines()[-1]
    assert "it could not be summarised" in last
    assert why in last
    assert ("read_artifact" in last) is keeps
    assert run.outcome.ok


async def test_a_long_summary_is_cut_as_well():
    run = await drive(call("build"), DONE, tools=[build], results=monitor.runs.Results(summary=lambda _: "x" * 500_000))
    assert len(run.results(0)[0].text) < 41_000


@pytest.mark.parametrize("store", [None, InMemoryArtifacts()])
async def test_without_a_bound_a_result_is_as_long_as_its_tool_gave_it(store: InMemoryArtifacts | None):
    results = monitor.runs.Results(bound=None, artifacts=store)
    run = await drive(call("build"), DONE, tools=[build], results=results)
    assert run.results(0)[0].text == f"exit code 1, 3.2 s\n{log(100_000, error_at=50_000)}".rstrip("\n")
    assert ("read_artifact" in run.offered(0)) is (store is not None)


async def test_with_a_bound_alone_the_result_says_that_the_rest_is_lost():
    run = await drive(call("build"), DONE, tools=[build], results=monitor.runs.Results(bound=Bound(5_000, 100)))
    assert run.results(0)[0].text.endswith("[this result was cut when it came; the rest was not kept]")
    assert len(run.results(0)[0].text) < 5_500


async def test_a_store_that_is_full_costs_the_rest_and_not_the_run():
    class Full(InMemoryArtifacts):
        async def put(self, *_: Any, **__: Any) -> Any:
            raise ArtifactsFull("there is no room")

    run = await drive(call("build"), DONE, tools=[build], results=monitor.runs.Results(artifacts=Full()))
    assert run.outcome.ok
    assert run.results(0)[0].text.endswith("; the rest was not kept: there is no room]")


async def test_what_a_run_needs_is_pinned_until_it_ends():
    store = InMemoryArtifacts()
    pins: list[dict[str, set[str]]] = []

    async def watch() -> None:
        """Look at the pins."""
        pins.append({owner: set(digests) for owner, digests in store._pins.items()})

    await drive(call("build"), call("watch"), DONE, tools=[build, watch], results=monitor.runs.Results(artifacts=store))
    assert list(pins[0]) == ["driven"]
    assert len(pins[0]["driven"]) == 1
    assert store._pins == {}


async def test_what_the_model_reads_of_an_artifact_is_not_kept_again():
    store = InMemoryArtifacts()
    kept = await store.put("x\n" * 3_000)
    run = await drive(call("read_artifact", ref=kept.ref), DONE, results=monitor.runs.Results(artifacts=store))
    assert run.results(0)[0].text.startswith("x\nx\n")
    assert len(await store.artifacts()) == 1


async def test_a_refused_call_is_never_cut_or_kept():
    store = InMemoryArtifacts()
    run = await drive(
        call("build"),
        DONE,
        tools=[build],
        results=monitor.runs.Results(artifacts=store),
        calls=monitor.runs.ToolCalls(approval="plan"),
    )
    assert run.results(0)[0].vetoed
    assert await store.artifacts() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"result_summary": "google:gemini-2.5-flash"},
        {"result_summary": 5},
        {"result_summary": len, "result_bound": None},
        {"artifacts": "folder"},
        {"result_bound": 5_000},
        {"guidance": "no"},
        {"notes": [1]},
    ],
)
async def test_what_is_no_store_bound_flag_or_note_is_refused(wrong: dict[str, Any]):
    with pytest.raises(monitor.ConfigError):
        Drive(DONE, **wrong)


async def test_the_fields_of_a_result_survive_its_json_form():
    run = await drive(call("build"), DONE, tools=[build], results=monitor.runs.Results(artifacts=InMemoryArtifacts()))
    result = run.results(0)[0]
    assert dataclasses.replace(result, truncated=False) == result  # they are no part of its identity


# --- a text for people


@pytest.mark.feature("GT-13")
async def test_a_tool_may_have_a_text_for_people_beside_the_one_for_the_model_with_its_length():
    async def plot() -> ToolAnswer:
        """Plot it."""
        return ToolAnswer("point\n" * 20_000, display="a chart of 20,000 points")

    run = await drive(call("plot"), DONE, tools=[plot])
    (event,) = [event for event in run.of(ToolFinished) if event.result.name == "plot"]
    assert event.result.display == "a chart of 20,000 points"
    assert event.result.full_chars == 120_000
    assert len(event.result.text) < 41_000
    assert line_of(event) == "result of plot: a chart of 20,000 points (120,000 characters for the model)"
    again = event_codec.loads(event_codec.dumps(event))
    assert isinstance(again, ToolFinished)
    assert (again.result.display, again.result.full_chars) == ("a chart of 20,000 points", 120_000)
    sent = run.requests[1].messages[-1]
    assert "chart" not in sent.results[0].text  # type: ignore[union-attr]
