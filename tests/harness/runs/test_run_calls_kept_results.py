"""A run whose results are bounded when they come, with their full text kept outside the context."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import monitor
from monitor.context.reduce.prune import PruneResults
from monitor.events import ToolFinished
from monitor.messages import AssistantMessage
from monitor.testing import call
from monitor.tools import InMemoryLedger, ToolAnswer
from monitor.tools.artifacts.artifact_store import ArtifactsFull, InMemoryArtifacts, Reference
from monitor.tools.artifacts.folder_artifacts import FolderArtifacts
from monitor.tools.results.truncation import Bound
from tests.harness.driving import Drive, drive, look
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

    run = await drive(call("build"), read, DONE, tools=[build], artifacts=store)
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
    run = await drive(call("build"), DONE, tools=[build], artifacts=store, ledger=ledger)
    (record,) = ledger._records.values()
    assert record.text == run.results(0)[0].text
    assert record.artifact == run.results(0)[0].artifact


async def test_a_short_result_is_neither_cut_nor_kept():
    store = InMemoryArtifacts()
    run = await drive(call("look", q="x"), DONE, tools=[look], artifacts=store)
    assert run.results(0)[0].text == "found x"
    assert run.results(0)[0].artifact is None
    assert await store.artifacts() == []


@pytest.mark.feature("AC-06")
async def test_a_result_of_some_size_is_kept_whole_in_both_places_so_that_it_can_be_pruned():
    store = InMemoryArtifacts()

    async def page(url: str) -> str:
        """Read a page."""
        return f"{url} " * 500

    run = await drive(call("page", url="https://a.b"), DONE, tools=[page], artifacts=store)
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

    run = await drive(call("page", url="https://a.b"), DONE, tools=[page], artifacts=store)
    (ref,) = [one.ref for one in await store.artifacts()]
    prune = PruneResults(protect_turns=0, protect_tokens=0, more_than_tokens=0)
    pruned = prune.reduce(run.run.history)
    (result,) = next(message.results for message in pruned if isinstance(message, AssistantMessage))
    assert result.text == (
        f"[Old tool result cleared: 3500 characters; kept as artifact {ref} page https://a.b (prices of May)]"
    )
    assert prune.reduce(pruned) == pruned


@pytest.mark.parametrize("options", [{}, {"artifacts": None}])
async def test_without_a_store_and_a_bound_a_result_is_as_long_as_its_tool_gave_it(options: dict[str, Any]):
    run = await drive(call("build"), DONE, tools=[build], **options)
    assert run.results(0)[0].text == f"exit code 1, 3.2 s\n{log(100_000, error_at=50_000)}".rstrip("\n")
    assert "read_artifact" not in run.offered(0)


async def test_with_a_bound_alone_the_result_says_that_the_rest_is_lost():
    run = await drive(call("build"), DONE, tools=[build], result_bound=Bound(5_000, 100))
    assert run.results(0)[0].text.endswith("[this result was cut when it came; the rest was not kept]")
    assert len(run.results(0)[0].text) < 5_500


async def test_a_store_that_is_full_costs_the_rest_and_not_the_run():
    class Full(InMemoryArtifacts):
        async def put(self, *_: Any, **__: Any) -> Any:
            raise ArtifactsFull("there is no room")

    run = await drive(call("build"), DONE, tools=[build], artifacts=Full())
    assert run.outcome.ok
    assert run.results(0)[0].text.endswith("; the rest was not kept: there is no room]")


async def test_what_a_run_needs_is_pinned_until_it_ends():
    store = InMemoryArtifacts()
    pins: list[dict[str, set[str]]] = []

    async def watch() -> None:
        """Look at the pins."""
        pins.append({owner: set(digests) for owner, digests in store._pins.items()})

    await drive(call("build"), call("watch"), DONE, tools=[build, watch], artifacts=store)
    assert list(pins[0]) == ["driven"]
    assert len(pins[0]["driven"]) == 1
    assert store._pins == {}


async def test_what_the_model_reads_of_an_artifact_is_not_kept_again():
    store = InMemoryArtifacts()
    kept = await store.put("x\n" * 3_000)
    run = await drive(call("read_artifact", ref=kept.ref), DONE, artifacts=store)
    assert run.results(0)[0].text.startswith("x\nx\n")
    assert len(await store.artifacts()) == 1


async def test_a_refused_call_is_never_cut_or_kept():
    store = InMemoryArtifacts()
    run = await drive(call("build"), DONE, tools=[build], artifacts=store, approval="plan")
    assert run.results(0)[0].vetoed
    assert await store.artifacts() == []


@pytest.mark.parametrize(
    "wrong", [{"artifacts": "folder"}, {"result_bound": 5_000}, {"guidance": "no"}, {"notes": [1]}]
)
async def test_what_is_no_store_bound_flag_or_note_is_refused(wrong: dict[str, Any]):
    with pytest.raises(monitor.ConfigError):
        Drive(DONE, **wrong)


async def test_the_fields_of_a_result_survive_its_json_form():
    run = await drive(call("build"), DONE, tools=[build], artifacts=InMemoryArtifacts())
    result = run.results(0)[0]
    assert dataclasses.replace(result, truncated=False) == result  # they are no part of its identity
