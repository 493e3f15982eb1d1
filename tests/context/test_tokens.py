"""How many tokens the next request will have."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.text import estimate_tokens, weigh
from monitor.chunks import ToolCall, ToolResult, Usage, UsageReport
from monitor.context.history import CommittedEdit, History, HistoryEdit
from monitor.context.tokens import (
    CALIBRATED,
    ERROR,
    ContextMeter,
    Size,
    TokenCount,
    size_of_media,
    size_of_message,
    size_of_result,
    size_of_text,
    size_of_tools,
    sizes_by_source,
    total_tokens,
)
from monitor.context.window import PI, Window
from monitor.messages import AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import ModelRequest, ToolSpec

COUNTED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "token_counts.json").read_text(encoding="utf-8"))
"""Texts of many kinds, with what four vocabularies make of them: cl100k, o200k, Claude's,
DeepSeek's.
"""
ASCII = [sample for sample in COUNTED if sample["text"].isascii()]

WORDS = "The report is late. " * 50
"""1,000 characters."""


def user(text: str = WORDS) -> UserMessage:
    return UserMessage((Text(text),))


def answer(text: str = WORDS, *results: str) -> AssistantMessage:
    calls = tuple(ToolCall(f"c{n}", "read", {"path": f"{n}.txt"}) for n in range(len(results)))
    return AssistantMessage(
        (Text(text), *calls), tuple(ToolResult(f"c{n}", "read", text) for n, text in enumerate(results))
    )


def report(prompt: int, output: int = 0, **more: int) -> UsageReport:
    return UsageReport(input_tokens=prompt, output_tokens=output, **more)


def call(meter: ContextMeter, history: History, said: UsageReport, message: Message | None = None) -> None:
    """One model call that ends well."""
    meter.sent()
    meter.reported(said)
    meter.answered()
    if message is not None:
        history.append(message)


def rewritten(history: History, start: int, stop: int, *messages: Message) -> None:
    assert isinstance(history.commit(HistoryEdit(history.version, start, stop, messages, "test")), CommittedEdit)


# --- texts


@pytest.mark.parametrize("sample", ASCII, ids=[sample["kind"] for sample in ASCII])
def test_prose_code_json_and_numbers_are_estimated_within_the_stated_error_of_four_vocabularies(sample: dict[str, Any]):
    estimate = size_of_text(sample["text"]).tokens
    for vocabulary, tokens in sample["tokens"].items():
        assert estimate * (1 - ERROR) <= tokens <= estimate * (1 + ERROR + 0.03), vocabulary


def test_the_error_bound_holds_19_times_in_20_in_all_scripts():
    inside = []
    for sample in COUNTED:
        count = ContextMeter(History(), instructions=sample["text"]).count()
        inside += [count.low <= tokens <= count.high for tokens in sample["tokens"].values()]
    assert len(inside) == 100
    assert sum(inside) >= 95


def test_a_quarter_of_a_token_per_character_would_be_off_by_far_more():
    def worst(estimate: Callable[[str], int]) -> float:
        return max(float(tokens) / estimate(sample["text"]) for sample in ASCII for tokens in sample["tokens"].values())

    assert worst(lambda text: size_of_text(text).tokens) < 1.4
    assert worst(estimate_tokens) > 2.8


def test_four_thousand_letters_are_a_thousand_tokens():
    """T17"""
    assert [size_of_text("a" * chars).tokens for chars in (4_000, 20_000, 0)] == [1_000, 5_000, 0]


@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60))
def test_a_text_costs_the_same_in_pieces_and_no_part_of_it_is_free(text: str, more: str):
    assert size_of_text(text) + size_of_text(more) == size_of_text(text + more)
    plain, beyond = weigh(text)
    assert plain >= sum(character.isascii() for character in text)
    assert beyond >= 5 * sum(not character.isascii() for character in text)


def test_the_text_of_a_json_result_costs_more_than_prose_of_its_length():
    rows = json.dumps([{"id": n, "sha": f"{n:08X}"} for n in range(100)])
    prose = (WORDS * 10)[: len(rows)]
    assert size_of_text(rows).tokens > 1.5 * size_of_text(prose).tokens


# --- media, tools, messages


@pytest.mark.parametrize(
    ("media", "least", "most"),
    [
        (Media("image/png", data="A" * 4_000_000), 1_500, 1_700),  # never by the length of its base64
        (Media("image/png", uri="https://x/y.png"), 1_500, 1_700),
        (Media("application/pdf", data=base64.b64encode(bytes(120_000)).decode()), 4_000, 8_000),
        (Media("application/pdf", uri="gs://b/x.pdf"), 25_000, 26_000),
        (Media("application/pdf", data="A" * 50_000_000), 25_000, 26_000),
        (Media("audio/mpeg", data=base64.b64encode(bytes(16_000 * 60)).decode()), 1_900, 2_000),
        (Media("video/mp4", uri="gs://b/x.mp4"), 19_000, 21_000),
        (Media("text/plain", data=base64.b64encode(b"word " * 800).decode()), 900, 1_100),
        (Media("application/octet-stream", data=""), 1_500, 1_700),
        (Media("", data=None), 1_500, 1_700),
    ],
    ids=lambda value: getattr(value, "mime_type", None),
)
def test_media_cost_what_the_providers_count_for_them(media: Media, least: int, most: int):
    assert least <= size_of_media(media).tokens <= most


def test_a_call_costs_its_name_and_its_arguments_and_a_result_its_text():
    silent, loud = answer(""), answer("", WORDS)
    assert size_of_message(loud).tokens > size_of_message(silent).tokens + 200
    raw = AssistantMessage((ToolCall("c", "write", '{"text": "' + WORDS),))
    assert size_of_message(raw).tokens > 200
    assert size_of_result(loud.results[0]).tokens > size_of_text(WORDS).tokens


def test_encrypted_thinking_costs_what_it_hides_and_a_signature_nothing():
    hidden = AssistantMessage((Reasoning("", "A" * 8_000),))
    assert 1_200 < size_of_message(hidden).tokens < 1_500
    assert size_of_message(AssistantMessage((Reasoning("short", "A" * 8_000),))).tokens < 20


def test_arguments_that_hold_themselves_are_counted_all_the_same():
    loop: dict[str, Any] = {}
    loop["self"] = loop
    assert size_of_message(AssistantMessage((ToolCall("c", "x", loop),))).tokens > 0


def test_a_request_is_told_by_its_sources_and_their_sum_is_the_whole():
    """T23: instructions and tools count."""
    tool = ToolSpec("read", "Reads a file. " * 20, {"type": "object", "properties": {"path": {"type": "string"}}})
    media = UserMessage((Text(WORDS), Media("image/png", uri="u")))
    messages = (media, answer(WORDS, WORDS), AssistantMessage((Reasoning(WORDS), Text(WORDS))))
    request = ModelRequest(messages, instructions=WORDS, tools=(tool,))
    sizes = sizes_by_source(request)
    assert list(sizes) == ["system", "tools", "user", "assistant", "reasoning", "calls", "results", "media"]
    assert all(size.tokens > 0 for size in sizes.values())
    meter = ContextMeter(History(messages), instructions=WORDS, tools=(tool,))
    assert meter.count().tokens == sum(sizes.values(), Size()).tokens
    bare = ContextMeter(History(messages)).count().tokens
    assert meter.count().tokens - bare == (size_of_text(WORDS) + size_of_tools((tool,))).tokens


# --- what the provider reports


@pytest.mark.feature("OC-17")
@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (UsageReport(input_tokens=1000, output_tokens=500, total_tokens=1800), 1800),
        (UsageReport(input_tokens=1000, output_tokens=500), 1500),
        # of 1,800: 1,000 fresh, 200 read from the cache, 100 written to it; the input has all three
        (UsageReport(input_tokens=1300, output_tokens=500, cached_tokens=200), 1800),
        (UsageReport(output_tokens=500), 500),
        (Usage(1000, 500, total_tokens=1800), 1800),
        (Usage(), None),
        (UsageReport(), None),
        (UsageReport(input_tokens=0, output_tokens=0, total_tokens=0), None),
    ],
)
def test_the_reported_total_counts_else_the_sum_of_its_parts(usage: Usage | UsageReport, tokens: int | None):
    """T10"""
    assert total_tokens(usage) == tokens


def test_before_the_first_report_everything_is_estimated_and_says_so():
    count = ContextMeter(History([user()])).count()
    assert count.reported == 0
    assert 150 < count.low < count.tokens < count.high < 400


def test_a_report_counts_for_what_was_sent_and_only_the_rest_is_estimated():
    history = History([user()])
    meter = ContextMeter(history)
    call(meter, history, report(5_000, 300), answer(WORDS, WORDS))
    count = meter.count()
    assert count.reported == 5_300
    assert count.tokens == 5_300 + size_of_result(ToolResult("c0", "read", WORDS)).tokens
    history.append(user())
    assert meter.count().tokens > count.tokens
    assert meter.count().reported == 5_300


def test_the_count_is_there_when_the_stream_has_finished_and_grows_by_what_waits_to_be_sent():
    history = History([user()])
    meter = ContextMeter(history)
    call(meter, history, report(300, 100))
    assert meter.count() == TokenCount(400, 400, 400, 400)
    said = answer("short", WORDS * 40)
    pending = meter.count([said])
    history.append(said)
    assert meter.count() == pending
    assert pending.tokens > 8_000


def test_a_huge_result_is_seen_before_the_next_call_although_the_report_was_small():
    history, window = History([user()]), Window(100_000)
    meter = ContextMeter(history)
    call(meter, history, report(300, 100), answer("", WORDS * 400))
    assert meter.count().tokens >= (PI.usable(window) or 0) > 0


def test_thinking_that_is_not_sent_again_does_not_count():
    history = History([user()])
    meter = ContextMeter(history)
    call(meter, history, report(300, 20_100, reasoning_tokens=20_000), answer("short"))
    assert meter.count().tokens == 400
    kept = History([user()])
    meter = ContextMeter(kept)
    call(
        meter,
        kept,
        report(300, 20_100, reasoning_tokens=20_000),
        AssistantMessage((Reasoning("...", "sig"), Text("short"))),
    )
    assert meter.count().tokens == 20_400


def test_an_answer_that_was_thrown_away_does_not_count():
    history = History([user()])
    meter = ContextMeter(history)
    call(meter, history, report(300, 5_000))
    history.append(user("try again"))
    assert meter.count().tokens < 350


def test_of_a_failed_call_nothing_counts_and_the_report_before_it_does():
    """T11, T13"""
    history = History([user()])
    meter = ContextMeter(history)
    call(meter, history, report(90_000, 100), answer("short"))
    history.append(user("next"))
    meter.sent()
    meter.reported(report(7, 3))  # aborted or failed: no `answered`
    assert meter.count().reported == 90_100
    meter.sent()
    assert meter.count().reported == 90_100


def test_an_error_before_any_report_leaves_the_estimate():
    """T14"""
    meter = ContextMeter(History([user()]))
    meter.sent()
    meter.answered()
    assert meter.count().reported == 0
    assert meter.count().tokens > 200


def test_of_several_attempts_the_last_one_counts():
    """T25"""
    history = History([user()])
    meter = ContextMeter(history)
    for _ in range(61):
        meter.sent()
        meter.reported(report(1_990, 10))
    meter.answered()
    assert meter.count().tokens == 2_000


def test_a_report_from_before_a_rewrite_is_not_believed():
    """T16"""
    history = History([user(), answer(), user(), answer()])
    meter = ContextMeter(history)
    call(meter, history, report(150_000, 100), answer("short"))
    rewritten(history, 0, 3, user("a summary"))
    count = meter.count()
    assert count.reported == 0
    assert count.tokens < 2_000
    call(meter, history, report(900, 50), answer("short"))
    assert meter.count().reported == 950


def test_nor_is_one_of_a_request_that_was_rewritten_while_it_was_answered():
    history = History([user(), answer(), user()])
    meter = ContextMeter(history)
    meter.sent()
    rewritten(history, 0, 2, user("a summary"))
    meter.reported(report(150_000, 100))
    meter.answered()
    assert meter.count().reported == 0


def test_a_rewrite_behind_what_was_reported_leaves_the_report_and_is_counted():
    history = History([user()])
    meter = ContextMeter(history)
    call(meter, history, report(300, 100), answer("short", WORDS * 100))
    before = meter.count()
    rewritten(history, 1, 2, answer("short", "[cut]"))
    assert meter.count().reported == before.reported == 400
    assert meter.count().tokens < 500


def test_tools_that_come_or_go_change_the_count_at_once():
    tool = ToolSpec("read", WORDS, {})
    history = History([user()])
    meter = ContextMeter(history, tools=[tool])
    call(meter, history, report(1_000, 100), answer("short"))
    meter.fixed(None)
    without = meter.count().tokens
    assert 1_100 - 2 * size_of_tools([tool]).tokens <= without < 1_100


@pytest.mark.parametrize(
    "said",
    [report(0, 0), UsageReport(), UsageReport(output_tokens=50), report(60, 50)],
    ids=["zeros", "nothing", "output", "too little"],
)
def test_a_report_that_cannot_be_of_this_prompt_is_not_believed(said: UsageReport):
    history = History([user(WORDS * 4)])
    meter = ContextMeter(history)
    call(meter, history, said, answer("short"))
    assert meter.count().reported == 0
    assert meter.scale == 1


def test_what_is_in_the_total_alone_is_prompt():
    meter = ContextMeter(History([user()]))
    call(meter, History(), UsageReport(input_tokens=300, output_tokens=100, total_tokens=700))
    assert meter.count().tokens == 700


def test_a_report_over_the_limit_counts_although_the_estimate_is_under_until_another_model_goes_on():
    """T22"""
    history = History([user()])
    meter = ContextMeter(history)
    call(meter, history, report(120_000, 0), answer("short"))
    assert meter.count().tokens >= 120_000
    meter.forget()
    assert meter.count().tokens < 1_000
    assert (meter.count().reported, meter.scale) == (0, 1)


# --- calibration


def test_estimates_follow_what_the_provider_counts_and_become_surer():
    history = History([user(WORDS * 10)])
    meter = ContextMeter(history)
    first = meter.count()
    call(meter, history, report(round(first.tokens * 1.4), 10), answer("short"))
    assert meter.scale == pytest.approx(1.4, abs=0.01)
    rewritten(history, 0, 1, user(WORDS * 10))  # the report is gone; what it taught stays
    second = meter.count()
    assert second.reported == 0
    assert second.tokens == pytest.approx(first.tokens * 1.4, rel=0.02)
    assert (second.high - second.tokens) / second.tokens == pytest.approx(ERROR * CALIBRATED, abs=0.01)
    assert (first.high - first.tokens) / first.tokens == pytest.approx(ERROR, abs=0.01)


@pytest.mark.parametrize(("factor", "scale"), [(0.3, 0.5), (50, 2.0)])
def test_a_strange_report_moves_estimates_only_so_far(factor: float, scale: float):
    history = History([user(WORDS * 10)])
    meter = ContextMeter(history)
    call(meter, history, report(round(meter.count().tokens * factor)))
    assert meter.scale == scale


def test_a_short_prompt_teaches_nothing():
    history = History([user("hi")])
    meter = ContextMeter(history)
    call(meter, history, report(40))
    assert meter.scale == 1
    assert meter.count().reported == 40


def test_calibrated_on_one_vocabulary_the_rest_of_the_same_conversation_is_within_its_error():
    kinds = {"prose", "python", "json compact", "tool arguments", "log", "traceback", "markdown", "javascript"}
    texts = [sample for sample in COUNTED if sample["kind"] in kinds]
    for vocabulary in texts[0]["tokens"]:
        history = History([user("\n".join(sample["text"] for sample in texts))])
        meter = ContextMeter(history)
        call(meter, history, report(sum(sample["tokens"][vocabulary] for sample in texts)))
        more = sum(sample["tokens"][vocabulary] for sample in texts[::2])
        before = meter.count()
        after = meter.count([user("\n".join(sample["text"] for sample in texts[::2]))])
        assert after.low - before.tokens <= more <= after.high - before.tokens


# --- incremental


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(user, st.text(max_size=30)),
    st.builds(answer, st.text(max_size=30)),
    st.builds(answer, st.just("x"), st.text(max_size=30)),
)


@given(st.data())
def test_brought_up_to_date_step_by_step_it_counts_what_counting_anew_does(data: st.DataObject):
    history = History(data.draw(st.lists(MESSAGES, max_size=4)))
    meter = ContextMeter(history, instructions=WORDS)
    for _ in range(data.draw(st.integers(1, 8))):
        match data.draw(st.sampled_from(["append", "edit", "look"])):
            case "append":
                history.append(data.draw(MESSAGES))
            case "edit":
                start = data.draw(st.integers(0, len(history)))
                stop = data.draw(st.integers(start, len(history)))
                rewritten(history, start, stop, *data.draw(st.lists(MESSAGES, max_size=2)))
            case _:
                assert meter.count() == ContextMeter(history, instructions=WORDS).count()
    assert meter.count() == ContextMeter(history, instructions=WORDS).count()


def test_a_turn_weighs_only_what_is_new(monkeypatch: pytest.MonkeyPatch):
    weighed: list[int] = []
    import monitor.context.tokens as module

    def counting(text: str) -> tuple[int, int]:
        weighed.append(len(text))
        return weigh(text)

    monkeypatch.setattr(module, "weigh", counting)
    history = History([user(WORDS) for _ in range(500)])
    meter = ContextMeter(history)
    meter.count()
    assert sum(weighed) >= 500_000
    weighed.clear()
    call(meter, history, report(120_000, 10), answer("short"))
    history.append(user("next"))
    meter.count()
    meter.count()
    assert sum(weighed) < 200
