"""What is known of a history changes no verdict: it only saves time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.adapters import to_form
from monitor.chunks import ToolCall, ToolResult
from monitor.core.counters import ErrorStreak
from monitor.detectors import default_detectors
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.proxy import histories as judging
from monitor.proxy.formats.base import HISTORY, Unjudged
from monitor.proxy.histories import HistoryReader, KnownHistories, LoopPolicy, RequestJudge, RequestReading
from monitor.wires.fields import Form
from tests.examples import FEWER_EACH
from tests.proxy.formats.streams import FORMS, PATHS, wire

pytestmark = pytest.mark.anyio
NO_ERRORS = ErrorStreak()
FIRST = UserMessage((Text("Read the file 3 times. ä"),))


def turn(number: int, *names: str, text: str = "", failed: bool = False) -> AssistantMessage:
    calls = tuple(ToolCall(f"c{number}_{at}", name, {"path": f"{name}.py"}) for at, name in enumerate(names))
    results = tuple(ToolResult(call.id, call.name, "no such file", failed) for call in calls)
    return AssistantMessage(((Text(text),) if text else ()) + calls, results)


STEPS: dict[str, Callable[[int], Message]] = {
    "the same call": lambda at: turn(at, "read"),
    "the same call fails": lambda at: turn(at, "read", failed=True),
    "another call": lambda at: turn(at, f"look{at}", text=f"I look at {at}."),
    "two calls": lambda at: turn(at, "read", "list"),
    "the same words": lambda at: turn(at, "read", text="I will read the file again. " * 12),
    "an answer": lambda at: AssistantMessage((Text(f"That is all, {at}."),)),
    "the user": lambda at: UserMessage((Text(f"Now do {at} of it."),)),
    "a reminder": lambda at: UserMessage((Text("Remember the rules."),)),
}
steps = st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=8)
harms = st.lists(st.tuples(st.sampled_from(["drop", "again", "swap", "system"]), st.integers(0, 40)), max_size=2)


def records_of(form: Form, kinds: list[str], harm: list[tuple[str, int]]) -> list[Any]:
    messages: list[Message] = [FIRST, *(STEPS[kind](at) for at, kind in enumerate(kinds))]
    records = list(to_form(form, messages))
    for what, where in harm:
        at = where % max(1, len(records) - 1)
        match what:
            case "drop":
                del records[at]
            case "again":
                records.insert(at, records[at])
            case "swap":
                records[at : at + 2] = reversed(records[at : at + 2])
            case _ if form.startswith("openai"):
                records.insert(at, {"role": "system", "content": f"Be brief, {at}."})
    return records


def body_of(form: Form, records: list[Any], *, last: bool) -> bytes:
    fields: dict[str, Any] = {"model": "m", HISTORY[form]: records, "stream": True}
    ordered = dict(reversed(fields.items())) if last else fields
    return json.dumps(ordered, ensure_ascii=False, indent=1 if last else None).encode()


def reader(most_bytes: int = 1 << 20) -> HistoryReader:
    return HistoryReader(KnownHistories(most_bytes), most_body=1 << 20, worth_bytes=0)


async def verdict(read: HistoryReader, form: Form, body: bytes) -> tuple[Mapping[str, Any] | str, bool]:
    """What is found, and whether a part of it was known."""
    asked = await read.read(wire(form), PATHS[form], body, coding="", key="alice")
    if isinstance(asked, Unjudged):
        return asked.why, False
    assert isinstance(asked, RequestReading)
    policy = LoopPolicy((), observe=False, patient=True)
    judge = RequestJudge(
        stop_when=None, detectors=default_detectors(), policy=policy, price=None, budgets=[], emit=lambda _: None
    )
    run, known = asked.run, asked.known is not None
    loop = await read.recall(judge, asked, 0.0)
    state = judge.state()
    assert state is not None
    found = {
        "loop": loop,
        "suspicion": policy.suspicion,
        "turns": judge.turns,
        "run": run,
        "tokens": asked.input_tokens,
        "state": replace(state, errors=NO_ERRORS),
        "errors": [getattr(state.errors, name) for name in ErrorStreak.__slots__],
    }
    return found, known


@pytest.mark.parametrize("form", FORMS)
@settings(FEWER_EACH, max_examples=max(1, FEWER_EACH.max_examples // 5))
@given(kinds=steps, harm=harms, last=st.booleans(), seen=st.sampled_from([(200, 100), (4, 3)]))
async def test_a_known_beginning_changes_no_verdict(
    form: Form, kinds: list[str], harm: list[tuple[str, int]], *, last: bool, seen: tuple[int, int]
) -> None:
    known = reader()
    records = records_of(form, kinds, harm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "SEEN_TURNS", seen[0])
        patch.setattr(judging, "_STEP", seen[1])
        for end in range(1, len(records) + 1):
            body = body_of(form, records[:end], last=last)
            assert (await verdict(known, form, body))[0] == (await verdict(reader(), form, body))[0]


@pytest.mark.parametrize("form", FORMS)
async def test_an_agent_that_goes_on_is_read_from_where_it_was(form: Form) -> None:
    known = reader()
    messages: list[Message] = [FIRST]
    went_on = []
    for at in range(12):
        went_on.append((await verdict(known, form, body_of(form, list(to_form(form, messages)), last=False)))[1])
        messages.append(turn(at, f"look{at}"))
    assert went_on == [False, *[True] * 11]


@pytest.mark.parametrize("form", FORMS)
async def test_a_history_that_was_changed_or_is_another_clients_is_read_as_a_whole(form: Form) -> None:
    known = reader()
    messages: list[Message] = [FIRST, *(turn(at, f"look{at}") for at in range(3))]
    await verdict(known, form, body_of(form, list(to_form(form, messages)), last=False))
    changed: list[Message] = [FIRST, turn(0, "other"), *messages[2:], turn(9, "more")]
    assert not (await verdict(known, form, body_of(form, list(to_form(form, changed)), last=False)))[1]
    body = body_of(form, list(to_form(form, [*messages, turn(9, "more")])), last=False)
    other = await known.read(wire(form), PATHS[form], body, coding="", key="bob")
    assert isinstance(other, RequestReading)
    assert other.known is None


async def test_what_is_kept_has_a_bound_in_bytes() -> None:
    histories = KnownHistories(50_000)
    read = HistoryReader(histories, most_body=1 << 20, worth_bytes=0)
    for number in range(40):
        task = UserMessage((Text(f"Task {number}"),))
        messages: list[Message] = [task, *(turn(at, f"look{at}") for at in range(number % 7 + 1))]
        await verdict(read, "openai-chat", body_of("openai-chat", list(to_form("openai-chat", messages)), last=False))
        assert histories.size <= 50_000
    assert 1 < len(histories) < 40
    assert histories.size == sum(kept.history.size for kept in histories._known.values())
    assert sum(len(group.ends) for group in histories._groups.values()) == len(histories)
