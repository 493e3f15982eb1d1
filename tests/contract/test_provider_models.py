"""What holds for the model of every provider: the history and the request as they are sent, one
model call through the real SDK, and the client of the environment.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from asyncio import selector_events
from typing import Any

import pytest

import monitor
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError, MissingExtra
from monitor.messages import CUT_OFF, NOT_CARRIED_OUT, AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import ErrorKind
from monitor.testing import FakeClock
from monitor.testing.openai_steps import Cut, Repeat, Reply, Stall
from tests.adapters.histories import ask, user
from tests.adapters.provider import Provider, called, watched
from tests.adapters.providers import PROVIDERS, each_provider, each_transport, sdk_test, warnings

pytestmark = warnings

Reason = monitor.TerminateReason


def each_of(table: str) -> pytest.MarkDecorator:
    """The rows of one of the tables of all providers."""
    rows = [pytest.param(one, *row, id=f"{one.id}-{row[1]}") for one in PROVIDERS for row in getattr(one, table)]
    return pytest.mark.parametrize(("provider", "given", "said"), rows)


# --- the history


@each_provider
def test_a_call_without_a_result_is_answered_by_an_error_because_no_history_may_leave_it_open(provider: Provider):
    open_call, done = ToolCall("a", "look", {"q": 1}), ToolCall("b", "look", {"q": 2})
    said = provider.history([AssistantMessage((open_call, done), (ToolResult("b", "look", "found"),))])
    assert provider.answers(said) == [("a", provider.error.format(NOT_CARRIED_OUT)), ("b", "found")]


@each_provider
def test_a_call_that_was_cut_off_has_no_arguments_and_says_so(provider: Provider):
    cut_off = ToolCall("a", "look", '{"q": "hal')
    said = provider.history([AssistantMessage((cut_off,))])
    assert provider.answers(said) == [("a", provider.error.format(CUT_OFF))]
    empty = provider.history([AssistantMessage((ToolCall("a", "look", {}),))])
    assert str(said) == str(empty).replace(NOT_CARRIED_OUT, CUT_OFF)
    refused = provider.history([AssistantMessage((cut_off,), (ToolResult("a", "look", "no JSON", is_error=True),))])
    assert provider.answers(refused) == [("a", provider.error.format("no JSON"))]


@each_provider
def test_calls_of_one_id_are_answered_one_by_one_and_a_result_of_no_call_is_left_away(provider: Provider):
    twice = (ToolCall("a", "look", {"q": 1}), ToolCall("a", "look", {"q": 2}))
    results = (ToolResult("a", "look", "first"), ToolResult("z", "look", "whose?"), ToolResult("a", "look", "second"))
    said = provider.history([AssistantMessage(twice, results)])
    assert [text for _, text in provider.answers(said)] == ["first", "second"]
    assert [id_ for id_, _ in provider.answers(said)] == provider.calls(said)


@each_provider
def test_half_a_surrogate_pair_is_replaced_wherever_it_stands(provider: Provider):
    odd = "a\ud800b"
    made = ToolCall("a", "look", {odd: [odd, {"x": odd}]})
    said = provider.history(
        [user(odd), AssistantMessage((Text(odd), Reasoning(odd), made), (ToolResult("a", "look", odd),))]
    )
    written = json.dumps(said, ensure_ascii=False)
    written.encode()
    thoughts_go_back = provider.name == "google"
    assert written.count("a\ufffdb") == 6 + thoughts_go_back


@each_provider
@pytest.mark.parametrize(
    ("media", "said"),
    [(Media("image/png", "%%%", name="a.png"), "a.png is not base64"), (Media("image/png"), "image/png has neither")],
)
def test_media_that_cannot_be_sent_are_refused_by_name(provider: Provider, media: Media, said: str):
    with pytest.raises(ConfigError, match=said):
        provider.history([UserMessage((media,))])


# --- the request


@each_of("contradictions")
def test_a_request_that_contradicts_itself_is_refused(provider: Provider, given: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        provider.request(ask(**given))


@sdk_test
@each_of("wrong_settings")
async def test_a_setting_that_the_sdk_does_not_take_is_named_before_anything_is_sent(
    provider: Provider, given: dict[str, Any], said: str
):
    async with provider.modelled(provider.turn("fine")) as (model, server):
        with pytest.raises(ConfigError, match=said):
            model.stream(ask(settings=given))
        assert server.requests == []


# --- a model call


@sdk_test
@each_transport
@each_provider
async def test_a_call_that_fails_while_it_is_opened_is_classed(provider: Provider, transport: str):
    steps = provider.steps
    failing: list[tuple[Reply, Reason, ErrorKind]] = [
        (steps.rate_limited(7), Reason.RATE_LIMITED, ErrorKind.RATE_LIMITED),
        (steps.overflow(), Reason.PROMPT_TOO_LONG, ErrorKind.OVERFLOW),
        (provider.overloaded, Reason.ERROR, ErrorKind.SERVER),
        (steps.error_reply(401), Reason.ERROR, ErrorKind.AUTH),
        (steps.error_reply(400), Reason.ERROR, ErrorKind.REQUEST),
    ]
    async with provider.modelled(*([reply] for reply, *_ in failing), transport=transport) as (model, server):
        for number, (reply, reason, kind) in enumerate(failing, 1):
            watch = await called(model, ask())
            assert watch.outcome.reason is reason, reply
            assert watch.turn.model_error is not None
            assert watch.turn.model_error.kind is kind, reply
            assert watch.turn.model_error.retry_after_s == (7 if kind is ErrorKind.RATE_LIMITED else None)
            assert len(server.requests) == number, "who supervises decides about another attempt"


@sdk_test
@each_provider
async def test_a_stream_of_a_model_is_watched_and_closed_like_any_other(provider: Provider):
    begun = [*provider.begin, provider.text("a")]
    chant = Repeat(provider.text("again and again. "), delay_s=0.001)
    clock = FakeClock()
    async with provider.modelled([Stall()], [*begun, Stall()], [*begun, chant]) as (model, server):
        for number, answered in enumerate([False, True]):
            idle = monitor.watch(lambda: model.stream(ask()), stop_when=monitor.IdleTimeout(10), clock=clock)
            await provider.read(idle, server, number, lambda: clock.advance(10), answered=answered)
            await server.wait_closed_async(number)
            assert (idle.outcome.reason, idle.outcome.closed) == (Reason.IDLE_TIMEOUT, True)
        watch = await called(model, ask())
        await server.wait_closed_async(2)
        assert (watch.outcome.reason, watch.outcome.closed) == (Reason.LOOP_DETECTED, True)


@sdk_test
@each_provider
async def test_nothing_is_sent_before_the_stream_is_opened_and_each_opening_is_a_call(provider: Provider):
    async with provider.modelled(provider.turn("one"), provider.turn("two")) as (model, server):
        model.stream(ask())  # no coroutine that somebody must await
        stream = model.stream(ask())
        assert server.requests == []
        assert [(await watched(stream)).turn.text for _ in range(2)] == ["one", "two"]


@sdk_test
@each_provider
@pytest.mark.parametrize("instructions", [None, "x"])
@pytest.mark.parametrize("messages", [[user("")], [AssistantMessage((Text(""),))]], ids=["user", "assistant"])
async def test_a_request_that_says_nothing_is_refused_also_under_a_watch(
    provider: Provider, messages: list[Message], instructions: str | None
):
    async with provider.modelled(provider.turn("fine")) as (model, server):
        with pytest.raises(ConfigError, match="no messages, or only empty ones"):
            await called(model, ask(*messages, instructions=instructions))
        assert server.requests == []


# --- the client


@each_provider
def test_what_is_no_client_is_refused(provider: Provider):
    for client in (object(), "key", provider.module):
        with pytest.raises(ConfigError, match=provider.client_type):
            provider.model("m", client=client)


@each_provider
def test_a_model_is_found_by_its_name_and_has_one(provider: Provider):
    with pytest.raises(ConfigError, match="has no name"):
        provider.model("")
    found = monitor.model(f"{provider.name}:org/some:model")
    assert type(found) is provider.model
    assert found.name == f"{provider.name}:org/some:model"


@each_provider
def test_a_missing_sdk_is_named_with_its_extra(provider: Provider, monkeypatch: pytest.MonkeyPatch):
    for module in ("google.genai", "google.genai.types", "anthropic.resources.messages", "openai"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'agent-monitor\[{provider.extra}\]'"):
        monitor.model(f"{provider.name}:some-model")


@pytest.fixture
def environment(provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> pytest.MonkeyPatch:
    """Without a key, an address, or a file that might hold either."""
    for name in (*provider.keys, provider.address, *provider.cleared):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


@sdk_test
@each_provider
async def test_without_a_key_the_call_says_which_variables_to_set(provider: Provider, environment: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match=provider.key_hint):
        await called(provider.model("m"), ask())


@each_provider
def test_making_a_model_makes_no_client(provider: Provider, environment: pytest.MonkeyPatch):
    """There is no key here, and nobody asks for one before the call."""
    made: list[str] = []
    environment.setattr(provider.model, "_client_from_environment", lambda _: made.append("a client"))
    provider.model("m").stream(ask())
    assert made == []


@pytest.mark.parametrize(
    ("provider", "key"),
    [pytest.param(one, key, id=f"{one.id}-{key}") for one in PROVIDERS for key in one.keys],
)
def test_one_client_is_made_in_each_event_loop_from_the_environment(
    provider: Provider, key: str, environment: pytest.MonkeyPatch
):
    async def calls(model: Any) -> list[str]:
        texts = [(await called(model, ask())).turn.text for _ in range(2)]
        await model.aclose()
        await model.aclose()
        return texts

    with provider.server([provider.turn("fine")]) as server:
        environment.setenv(key, "the-key")
        environment.setenv(provider.address, server.base_url)
        model = provider.model("m")
        assert asyncio.run(calls(model)) == ["fine", "fine"]
        assert asyncio.run(calls(model)) == ["fine", "fine"]
        assert [request.connection for request in server.requests] == [0, 0, 1, 1]
        header, value = provider.key_header
        assert {request.headers[header] for request in server.requests} == {value}


@sdk_test
@each_provider
async def test_a_client_that_the_model_made_is_closed_by_it_and_the_callers_own_is_not(
    provider: Provider, environment: pytest.MonkeyPatch
):
    with provider.server([provider.turn("fine")]) as server:
        environment.setenv(provider.keys[0], "x")
        environment.setenv(provider.address, server.base_url)
        made = provider.model("m")
        await called(made, ask())
        await made.aclose()
        await server.wait_closed_async(0)
        async with provider.sdk(server) as client:
            given = provider.model("m", client=client)
            await called(given, ask())
            await given.aclose()
            await called(given, ask())
            assert server.requests[1].connection == server.requests[2].connection


@sdk_test
@each_provider
async def test_a_client_made_here_tries_nothing_again_behind_the_runs_back(
    provider: Provider, environment: pytest.MonkeyPatch
):
    with provider.server([[provider.overloaded], [Cut()]]) as server:
        environment.setenv(provider.keys[0], "x")
        environment.setenv(provider.address, server.base_url)
        model = provider.model("m")
        for number, kind in enumerate((ErrorKind.SERVER, ErrorKind.NETWORK), 1):
            watch = await called(model, ask())
            assert watch.turn.model_error is not None
            assert watch.turn.model_error.kind is kind
            assert len(server.requests) == number
        await model.aclose()


@sdk_test
@each_provider
async def test_a_connection_that_is_refused_is_tried_once(provider: Provider, environment: pytest.MonkeyPatch):
    """One SDK alone sleeps one to ten seconds and tries again."""
    tried: list[Any] = []
    connect = selector_events.BaseSelectorEventLoop.sock_connect

    async def counted(loop: Any, sock: socket.socket, address: Any) -> None:
        tried.append(address)
        await connect(loop, sock, address)

    environment.setattr(selector_events.BaseSelectorEventLoop, "sock_connect", counted)
    with socket.socket() as taken:  # nobody listens at this address, and nobody else can
        taken.bind(("127.0.0.1", 0))
        environment.setenv(provider.keys[0], "x")
        environment.setenv(provider.address, f"http://127.0.0.1:{taken.getsockname()[1]}")
        model = provider.model("m")
        watch = await called(model, ask())
        await model.aclose()
    assert watch.turn.model_error is not None
    assert watch.turn.model_error.kind is ErrorKind.NETWORK
    assert len(tried) == 1
