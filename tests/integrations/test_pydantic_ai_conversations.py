"""Pydantic AI's `ConversationStore` on a session of ours: as Pydantic AI's own, and kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("pydantic_ai", reason="the framework is not installed: pydantic_ai")

from pydantic_ai import Agent, BinaryContent, DeferredToolRequests
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationStore, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolResults

from monitor.errors import ConfigError
from monitor.integrations.pydantic_ai_conversations import StoredConversations
from monitor.sessions import InMemorySession, SessionReader, SQLiteSession, exported, imported
from tests.examples import tries
from tests.sessions.making import says

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    opened = InMemorySession() if request.param == "memory" else SQLiteSession(tmp_path / "a.session")
    async with opened as store:
        yield store


def echo(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Says how many messages it was shown."""
    return ModelResponse(parts=[TextPart(f"I was shown {len(messages)} messages")])


async def test_an_agent_goes_on_with_its_conversation_in_another_process(tmp_path: Path):
    agent = Agent(FunctionModel(echo))
    for number in (1, 2, 3):
        async with SQLiteSession(tmp_path / "talks.session") as session:
            store = StoredConversations(session)
            conversation = await store.load("a") or Conversation(conversation_id="a")
            result = await agent.run(f"hello {number}", conversation=conversation)
            assert len(await store.save(result)) == 2
            assert result.output == f"I was shown {2 * number - 1} messages"
    async with SQLiteSession(tmp_path / "talks.session") as session:
        loaded = await StoredConversations(session).load("a")
        assert loaded is not None
        assert len(loaded.messages) == 6
        assert loaded.usage.requests == 3
        assert await session.verify() == ()


async def test_a_run_that_waits_for_an_approval_waits_in_the_file(tmp_path: Path):
    def calls_once(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("delete", {"name": "x"}, tool_call_id="c1")])
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(calls_once), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def delete(name: str) -> str:
        return f"deleted {name}"

    async with SQLiteSession(tmp_path / "talks.session") as session:
        result = await agent.run("go", conversation=Conversation(conversation_id="a"))
        await StoredConversations(session).save(result)
    async with SQLiteSession(tmp_path / "talks.session") as session:
        store = StoredConversations(session)
        loaded = await store.load("a")
        assert loaded is not None
        assert loaded.deferred_tool_requests is not None
        (asked,) = loaded.deferred_tool_requests.approvals
        results = DeferredToolResults(approvals={asked.tool_call_id: True})
        done = await agent.run(conversation=loaded, deferred_tool_results=results)
        assert done.output == "done"
        await store.save(done)
        record = await store.read_record("a")
        assert record is not None
        assert record.deferred_tool_requests is None


async def test_every_text_and_file_comes_back(session: Any):
    store = StoredConversations(session)
    odd: list[Any] = ["\ud800 \0 \u2028", BinaryContent(b"\xff\x00", media_type="image/png"), "x" * 100_000]
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(odd)])]
    await store.save(Conversation(messages=messages, conversation_id="a \ud800/\0"), scope="me \0")
    loaded = await store.load("a \ud800/\0", scope="me \0")
    assert loaded is not None
    (part,) = loaded.messages[0].parts
    assert isinstance(part, UserPromptPart)
    assert isinstance(part.content, list)
    assert (part.content[0], part.content[2]) == (odd[0], odd[2])
    assert isinstance(file := part.content[1], BinaryContent)
    assert file.data == b"\xff\x00"


async def test_a_save_that_would_lose_another_one_is_refused_and_leaves_nothing(session: Any):
    store = StoredConversations(session)
    await store.save(said("a", 1))
    one, other = await store.load("a"), await store.load("a")
    assert one is not None
    assert other is not None
    one.messages.append(request(2))
    other.messages.append(request(3))
    await store.save(one)
    nodes = len(await session.nodes())
    with pytest.raises(ConversationConflict):
        await store.save(other)
    assert len(await session.nodes()) == nodes


async def test_a_deleted_conversation_is_off_the_list_and_stays_in_the_file(session: Any):
    store = StoredConversations(session)
    await store.save(said("a", 2))
    await store.delete("a")
    assert (await store.load("a"), await store.list_conversations()) == (None, [])
    assert len(await session.nodes()) == 3
    await store.save(said("a", 1))  # a new one with the same id
    assert len((await store.load("a") or said("", 0)).messages) == 1


async def test_other_parts_of_a_session_and_other_conversations_do_not_mix(session: Any):
    store = StoredConversations(session)
    await session.append(says("of another part of the program"))
    await store.save(said("a", 2))
    await store.save(said("b", 3))
    assert [len((await store.load(name) or said("", 0)).messages) for name in "ab"] == [2, 3]
    assert len((await session.context()).messages) == 1


async def test_what_is_no_session_is_refused():
    with pytest.raises(ConfigError, match="a SessionStore is needed, not str"):
        StoredConversations("a.session")  # type: ignore[arg-type]


# ---------------------------------------------------------------------- beside Pydantic AI's own


def request(number: int) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(f"message {number}")])


def said(id: str, messages: int) -> Conversation:
    return Conversation(messages=[request(number) for number in range(messages)], conversation_id=id)


class Script:
    """A random use of a store. Ids differ from store to store, so places stand for them."""

    def __init__(self, store: ConversationStore, chance: Random) -> None:
        self.store = store
        self.chance = chance
        self.held: dict[str, Conversation] = {}

    async def run(self, steps: int) -> list[Any]:
        return [await self.step(number) for number in range(steps)]

    async def step(self, number: int) -> Any:
        chance, id = self.chance, self.chance.choice("abc")
        what = chance.choice(["save", "save", "save", "stale", "rewrite", "branch", "back", "fork", "delete", "window"])
        try:
            await self.perform(what, id, number, chance.randint(0, 4))
        except (UserError, LookupError) as error:
            what = f"{what}: {type(error).__name__}"
        return what, await self.seen()

    async def perform(self, what: str, id: str, number: int, place: int) -> None:
        store, limit = self.store, self.chance.choice([None, 0, 2])
        scope = self.chance.choice([None, None, "me"])
        conversation = await store.load(id)
        match what:
            case "save" | "window":
                loaded = await store.load(id, limit=limit if what == "window" else None)
                fresh = loaded or Conversation(conversation_id=id)
                self.held.setdefault(id, fresh)
                fresh.messages.extend([request(number), ModelResponse(parts=[TextPart(f"answer {number}")])])
                await store.save(fresh, scope=scope)
            case "stale" if id in self.held:
                self.held[id].messages.append(request(number))
                await store.save(self.held.pop(id))
            case "rewrite" if conversation is not None and conversation.messages:
                kept = conversation.messages[:place]
                rewritten = Conversation(
                    messages=[*kept, request(-number)], conversation_id=id, revision=conversation.revision
                )
                await store.save(rewritten)
            case "branch" if conversation is not None:
                await store.branch(id, at=place, expected_revision=conversation.revision or "")
            case "back" if conversation is not None:
                record = await store.read_record(id)
                assert record is not None
                tip = record.branches[place % len(record.branches)] if record.branches else "none"
                await store.branch(id, from_entry=tip, expected_revision=conversation.revision or "")
            case "fork":
                await store.fork(id, at=self.chance.choice([None, place]), new_conversation_id=f"{id}{number}")
            case "delete":
                await store.delete(id, scope=scope)

    async def seen(self) -> Any:
        """All that a user can see of the store."""
        found: dict[str, Any] = {}
        for record in await self.store.list_conversations():
            loaded = await self.store.load(record.conversation_id)
            entries = await self.store.load_entries(record.conversation_id, limit=2)
            assert loaded is not None
            assert entries is not None
            assert [entry.message for entry in entries] == loaded.messages[-2:]
            tips = [[texts(one.message) for one in await self.store.read_history(tip)] for tip in record.branches]
            found[record.conversation_id] = (
                [texts(one) for one in loaded.messages], record.scope, record.forked_from, tips,
            )  # fmt: skip
        return found


def texts(message: ModelMessage) -> list[Any]:
    return [getattr(part, "content", None) for part in message.parts]


@pytest.mark.parametrize("seed", range(tries(12)))
async def test_it_does_what_the_store_of_pydantic_ai_does(seed: int, session: Any):
    own = await Script(InMemoryConversationStore(), Random(seed)).run(25)
    ours = await Script(StoredConversations(session), Random(seed)).run(25)
    assert ours == own
    again = await Script(StoredConversations(session), Random(seed)).seen()  # as another process sees it
    assert again == own[-1][1]
    assert await session.verify() == ()


async def test_conversations_survive_an_export(tmp_path: Path):
    async with SQLiteSession(tmp_path / "a.session") as session:
        before = (await Script(StoredConversations(session), Random(3)).run(25))[-1][1]
    with SessionReader(tmp_path / "a.session") as reader:
        imported(exported(reader), tmp_path / "b.session")
    async with SQLiteSession(tmp_path / "b.session") as session:
        assert await Script(StoredConversations(session), Random(3)).seen() == before
