"""Loops of calls that no rule of equal calls sees, and good work of equal calls."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pytest

from monitor.chunks import Chunk, StreamRetried, ToolCall, ToolResult, TurnFinished
from monitor.detectors import StateNovelty, ToolPolicy
from monitor.detectors.calls.novelty.step_kind import StepKind
from monitor.errors import ConfigError, FinishReason
from monitor.verdicts import Detection
from tests.detectors.calls.novelty.steps import WORDS, Step, chunks_of, found, stopped

LONG = "The service is up. It has served all requests of the day, and no error was written to the log."


def test_a_guess_that_is_refused_with_its_own_words_is_the_same_refusal():
    guesses: list[Step] = [
        ("read", {"path": f"{word}/app.conf"}, f"no such file: {word}/app.conf", True) for word in WORDS[:12]
    ]
    assert stopped(guesses, "Open the configuration.")


def test_a_clock_a_request_id_and_a_duration_are_no_news():
    rng = random.Random(4)
    calls: list[Step] = [
        (
            "curl",
            {"url": "u"},
            f"bad gateway\ndate: Tue, 03 Nov 2026 09:{i:02}:{rng.randrange(10, 60)} GMT\nray: {rng.getrandbits(60):x}",
            True,
        )
        for i in range(9)
    ]
    assert stopped(calls)


def test_a_number_that_goes_to_its_end_is_work_and_one_that_does_not_is_a_loop_later():
    assert not stopped([("job", {"id": 1}, f"running, {i} of 30 parts") for i in range(30)])
    assert stopped(
        [("job", {"id": 1}, f"queued since {i} minutes, place unknown in the line of jobs") for i in range(30)]
    )


def test_a_walk_over_the_items_of_a_list_is_work_whatever_they_answer():
    listed: Step = ("ls", {"dir": "notes"}, "\n".join(f"{word}.md" for word in WORDS))
    assert not stopped([listed, *(("cat", {"file": f"notes/{word}.md"}, "") for word in WORDS)])
    assert not stopped([("lint", {"file": f"src/{i:03}.py"}, "All checks passed!") for i in range(40)])


@pytest.mark.parametrize(
    ("request_text", "stops"),
    [("Check that each of the hosts answers.", False), ("Which host is it?", False), ("Go.", True)],
)
def test_what_the_request_asks_for_is_tolerated(request_text: str, stops: bool):
    hosts: list[Step] = [("status", {"host": f"{word}.corp"}, LONG) for word in WORDS]
    assert stopped(hosts, request_text) is stops


def test_a_number_in_the_request_is_an_allowance_and_never_a_veto():
    def calls(times: int) -> list[Step]:
        return [("run", {"test": "net"}, f"ok, all assertions of the test held in {i} ms") for i in range(times)]

    assert not stopped(calls(20), "Run the test 20 times.")
    assert stopped(calls(40), "Run the test 20 times.")
    assert stopped(calls(20), "Run the test.")


@pytest.mark.parametrize("different", [2, 7, 16, 64])
def test_a_cycle_of_any_length_and_order_is_a_loop(different: int):
    rng = random.Random(different)
    steps: list[Step] = []
    for _ in range(6):
        order = list(range(different))
        rng.shuffle(order)
        steps += [
            ("view", {"panel": f"p{i}"}, f"{WORDS[i % 18]} graph {WORDS[(i * 5) % 18]} flat near {i * 37}")
            for i in order
        ]
    assert stopped(steps)


@pytest.mark.parametrize("calls", ["AABBAABBAAABBBAABAB", "ABACABCBCAACBBACBA", "1ABAABBAABAABBABABAB", "ABCDEF" * 4])
def test_few_calls_again_and_again_are_a_loop_also_where_no_request_is_known(calls: str):
    steps: list[Step] = [("read", {"path": one}, f"{LONG} {one} {WORDS[ord(one) % 18]}") for one in calls]
    assert stopped(steps, "")


def test_an_edit_between_two_checks_is_work_and_an_edit_that_is_undone_is_not():
    rng = random.Random(1)
    work: list[Step] = []
    for _ in range(14):
        new = " ".join(f"{rng.choice(WORDS)}{rng.choice(WORDS)}{rng.choice(WORDS)}" for _ in range(9))
        work += [("edit", {"path": "a.py", "new": new}, "ok"), ("test", {}, "1 failed: test_total")]
    assert not stopped(work)
    undone: list[Step] = []
    for i in range(10):
        undone += [("edit", {"path": "a.py", "new": "xy"[i % 2]}, "ok"), ("test", {}, "1 failed: test_total")]
    assert stopped(undone)


def test_calls_that_are_written_again_before_they_are_answered_count():
    detector = StateNovelty()
    calls = [ToolCall(f"c{i}", "read", {"path": "ab"[i % 2]}) for i in range(16)]
    assert any(one.level == "loop" for call in calls for one in detector.observe(call))


def test_what_was_written_again_counts_no_more_if_each_answer_is_news():
    rng = random.Random(2)
    turn: list[Step] = [
        ("draw", {}, f"{rng.choice(WORDS)} of {rng.choice(WORDS)} {rng.getrandbits(40)}") for _ in range(4)
    ]
    assert not stopped(
        [turn] * 1 + [[("draw", {}, f"card {rng.getrandbits(60):b}") for _ in range(4)] for _ in range(9)]
    )


def shuffled(chunks: Iterable[Chunk], rng: random.Random) -> list[Chunk]:
    """The chunks, with the results of each turn in any order."""
    out: list[Chunk] = []
    results: list[Chunk] = []
    for chunk in chunks:
        if isinstance(chunk, ToolResult):
            results.append(chunk)
            continue
        rng.shuffle(results)
        out += [*results, chunk]
        results = []
    return [*out, *results]


def test_results_of_one_turn_count_alike_in_whichever_order_they_come():
    rng = random.Random(5)
    turns = [
        [
            ("read", {"path": f"{rng.choice(WORDS[:6])}.md"}, rng.choice(WORDS) if turn < 4 else LONG)
            for _ in range(rng.randrange(1, 5))
        ]
        for turn in range(30)
    ]
    steps = list(chunks_of(turns))
    in_order, other = StateNovelty(), StateNovelty()
    expected = [one for chunk in steps for one in in_order.observe(chunk)]
    assert expected
    found: list[Detection] = []
    for chunk in shuffled(steps, rng):
        found += other.observe(chunk)
        saved = json.loads(json.dumps(other.snapshot()))
        other = StateNovelty()
        other.restore(saved)
    assert found == expected
    assert other.snapshot() == in_order.snapshot()


def test_a_result_waits_for_no_call_that_is_not_carried_out_or_never_answered():
    def seen(first: Chunk | None) -> StateNovelty:
        detector = StateNovelty()
        for chunk in (ToolCall("a", "read", {}), ToolCall("b", "look", {}), TurnFinished(FinishReason.DONE)):
            detector.observe(chunk)
        if first is not None:
            detector.observe(first)
        detector.observe(ToolResult("b", "look", LONG))
        return detector

    vetoed = seen(ToolResult("a", "read", "not allowed", is_error=True, vetoed=True)).snapshot()
    assert vetoed["novelty"]["steps"][0] == 1
    never = seen(None)
    assert never.snapshot()["novelty"]["steps"][0] == 0
    never.observe(ToolCall("c", "read", {}))
    assert never.snapshot()["novelty"]["steps"][0] == 1


def test_a_failed_attempt_leaves_no_evidence():
    detector, spared = StateNovelty(), StateNovelty()
    for i in range(4):
        detector.observe(ToolCall(f"c{i}", "read", {"path": "a"}))
    detector.observe(StreamRetried("lost"))
    steps: list[Step] = [("read", {"path": "a"}, LONG)] * 4
    assert [one for chunk in chunks_of(steps) for one in detector.observe(chunk)] == [
        one for chunk in chunks_of(steps) for one in spared.observe(chunk)
    ]


def test_each_further_step_is_reported_and_news_ends_the_loop():
    same: list[Step] = [("read", {"path": "a"}, f"{LONG} ({i} ms)") for i in range(10)]
    findings = found(same)
    assert {one.level for one in findings[1:]} == {"loop"}
    assert len(findings) >= 4
    assert [one.count for one in findings] == sorted({one.count for one in findings})
    assert len({one.evidence.xxhash for one in findings}) == 1, "one loop, one identity"
    news: list[Step] = [("read", {"path": f"b{i}"}, " ".join(WORDS[3 * i : 3 * i + 3])) for i in range(3)]
    assert found([*same, *news, ("read", {"path": "a"}, LONG)])[-1] == findings[-1]


def test_evidence_has_a_weight_in_nats_and_names_what_the_steps_were():
    rung: list[Step] = [("read", {"path": "a"}, f"{LONG} ({i} ms)") for i in range(10)]
    one = next(one for one in found(rung) if one.level == "loop")
    assert one.evidence.nats is not None
    assert one.evidence.nats >= 4.6
    assert one.evidence.tools == ("read",)
    assert one.message.endswith(f": {one.count} x {StepKind.BY_ITSELF.words}")


def test_a_tool_whose_latest_call_brought_news_adds_something():
    cycle: list[Step] = [("ab"[i % 2], {"path": "x"}, f"{LONG} {'ab'[i % 2]}") for i in range(11)]
    assert set(found(cycle)[-1].evidence.tools) == {"a", "b"}
    news: Step = ("a", {"path": "y"}, "amber birch")
    assert found([*cycle, news, *cycle])[-1].evidence.tools[:1] == ("b",)


def test_equal_calls_in_a_row_with_equal_results_are_left_to_the_counter_of_equal_calls():
    assert not found([("read", {"path": "a"}, LONG)] * 12)
    assert stopped([("read", {"path": "ab"[i % 2]}, f"{LONG} {'ab'[i % 2]}") for i in range(12)])


def test_what_the_caller_says_of_a_tool_counts():
    same: list[Step] = [("check", {}, f"{LONG} ({i} ms)") for i in range(12)]
    assert stopped(same)
    for policy in (ToolPolicy(exempt=True), ToolPolicy(no_op=True), ToolPolicy(polling=True)):
        assert not stopped(same, tools={"check": policy})
    numbered: list[Step] = [("check", {}, f"{LONG} ({i} ms) load: {WORDS[i]}") for i in range(12)]
    assert not stopped(numbered)
    assert stopped(numbered, tools={"check": ToolPolicy(volatile=("load",))})


def test_the_request_and_the_evidence_are_in_the_snapshot():
    steps = list(chunks_of([("read", {"path": "a"}, f"{LONG} ({i} ms)") for i in range(30)]))
    whole, cut = StateNovelty(), StateNovelty()
    for detector in (whole, cut):
        detector.request("Read it 20 times.")
    for chunk in steps[:45]:
        cut.observe(chunk)
    restored = StateNovelty()
    restored.restore(json.loads(json.dumps(cut.snapshot())))
    expected = [one for chunk in steps for one in whole.observe(chunk)]
    assert expected
    assert [one for chunk in steps[45:] for one in restored.observe(chunk)] == expected


def test_a_long_run_has_a_snapshot_of_bounded_size():
    detector = StateNovelty()
    rng = random.Random(3)
    for chunk in chunks_of(
        ("read", {"path": f"{rng.getrandbits(50):x}"}, " ".join(f"{rng.getrandbits(40):x}" for _ in range(60)))
        for _ in range(2_000)
    ):
        detector.observe(chunk)
    assert len(json.dumps(detector.snapshot())) < 128_000


@pytest.mark.parametrize("threshold", [0, -1, float("inf"), float("nan")])
def test_a_threshold_that_means_nothing_is_refused(threshold: float):
    with pytest.raises(ConfigError, match="threshold"):
        StateNovelty(threshold=threshold)


def alternating(rounds: int) -> list[Step]:
    """Two builds in turn, and a measurement after each, which is noise."""
    rng = random.Random(7)
    return [
        step
        for _ in range(rounds)
        for branch in ("main", "simd")
        for step in (
            ("bash", {"command": f"git checkout -q {branch}"}, ""),
            ("bash", {"command": "./bench"}, f'{{"ns_per_op": {rng.uniform(40, 43):.2f}, "iters": 2000000}}'),
        )
    ]


def test_a_number_of_times_holds_for_each_call_after_each_other_call():
    request = "Compare main and simd in turn, ten runs each."
    assert not stopped(alternating(10), request)
    assert stopped(alternating(10), "Compare main and simd.")
    assert stopped(alternating(18), request)


def test_so_many_things_may_each_be_done_by_the_same_calls():
    def drills(number: int) -> list[Step]:
        return [
            step
            for _ in range(number)
            for step in (
                ("bash", {"command": "kubectl delete pod -l role=leader"}, "deleted"),
                ("bash", {"command": "patronictl list"}, "there is a new leader and it runs"),
            )
        ]

    assert not stopped(drills(10), "Do ten failover drills in a row.")
    assert stopped(drills(10), "Do failover drills.")
    assert stopped(drills(20), "Do ten failover drills in a row.")


def test_an_item_that_the_request_allows_is_a_deed_though_its_receipt_is_long():
    receipt = "changed 1 package and audited 502 packages in 2s, and found 0 vulnerabilities in all of them today"
    steps: list[Step] = [
        step
        for word in WORDS[:14]
        for step in (
            ("bash", {"command": f"npm install {word}@latest"}, receipt),
            ("bash", {"command": "npm test"}, "Tests: 288 passed, 288 total, and no snapshot is obsolete at all"),
        )
    ]
    assert not stopped(steps, "Upgrade the packages one by one, and test after each of them.")


def test_a_wording_that_only_spaces_tell_apart_is_no_item_of_a_number_in_the_request():
    forms = ("10 * 1024", "10*1024", " 10 * 1024", "(10 * 1024)", "10  * 1024", "10 *1024", "\t10 * 1024", "10* 1024")
    edits: list[Step] = [
        (
            "edit",
            {"path": "a.py", "old": f"LIMIT = {form}"},
            f"String to replace not found in file. LIMIT = {form}",
            True,
        )
        for form in forms
    ]
    assert stopped(edits, "Raise the limit from 10 to 25 MB.")


def test_a_number_on_its_way_to_one_of_the_request_is_progress_up_to_there():
    def clicks(number: int) -> list[Step]:
        return [
            ("click", {"at": "+"}, f"Basket: green tea, {i} of them, {6.2 * i:.2f} in all") for i in range(1, number)
        ]

    assert not stopped(clicks(15), "Order 14 boxes of tea.")
    assert not stopped(clicks(13), "Order twelve boxes of tea.")
    assert stopped(clicks(15), "Order tea.")
    assert stopped(clicks(60), "Order 14 boxes of tea.")


def test_a_number_on_its_way_to_one_that_stays_beside_it_is_progress():
    def looks(end: int) -> list[Step]:
        return [("status", {}, f'{{"state": "printing", "layer": {9 + 6 * i}, "of": {end}}}') for i in range(30)]

    assert not stopped(looks(189))
    assert stopped(looks(8080))


def test_numbers_that_move_on_are_followed_though_another_state_stands_between_them():
    rows: list[Step] = []
    for row in range(12):
        side = 12 * (row % 2 == 0)
        rows += [
            ("drive", {"forward_m": 12}, f'{{"x": {side}, "y": {row * 0.5}, "battery": {96 - 3 * row}}}'),
            ("turn", {"deg": 90}, '{"ok": true}'),
        ]
    assert not stopped(rows, "Scan the field in rows 50 cm apart.")


def test_a_bare_number_says_how_many_items_there_are():
    def convert(first: str) -> list[Step]:
        return [
            ("bash", {"command": "ls *.heic | wc -l"}, first),
            *(("bash", {"command": f"heif-convert IMG_{3300 + i}.heic"}, "") for i in range(26)),
        ]

    assert not stopped(convert("26"), "Turn all photos into JPG.")
    assert stopped(convert("some"), "Turn all photos into JPG.")


def test_numbered_questions_with_one_answer_are_a_walk():
    asked = (
        *("any diabetes", "asthma", "high blood pressure", "allergies to a drug", "surgery before this year"),
        *("fever in this week", "a cough", "pain in the chest", "dizziness at times", "tobacco"),
    )
    steps: list[Step] = [
        ("ask", {"question": f"Question {i} of 10: have you had {what}?"}, "no") for i, what in enumerate(asked, 1)
    ]
    assert not stopped(steps, "Ask me the form and store it.")


def test_what_is_asked_anew_at_each_tick_is_answered():
    detector, numbers = StateNovelty(), (16.8, 16.8, 17, 17, 18, 19, 21, 22, 24, 25, 26.5, 27, 26, 25, 24, 22, 20, 18)
    levels: list[str] = []
    for at, value in enumerate(numbers):
        detector.request(f"tick {at}: read the sensors")
        steps: list[Step] = [("read", {}, f'{{"temp": {value}, "rh": 61}}')]
        for chunk in chunks_of(steps):
            one = ToolCall(f"c{at}", chunk.name, chunk.arguments) if isinstance(chunk, ToolCall) else chunk
            one = ToolResult(f"c{at}", one.name, one.text) if isinstance(one, ToolResult) else one
            levels += [seen.level for seen in detector.observe(one)]
    assert "loop" not in levels


def test_a_second_round_alone_is_no_loop():
    zones: list[Step] = [
        step
        for at, zone in enumerate((*range(1, 9), *range(1, 9)))
        for step in (
            ("valve", {"zone": zone, "state": "open"}, "OK"),
            ("wait", {"minutes": 5}, "OK"),
            ("valve", {"zone": zone, "state": "closed"}, f"OK, {49 + 46 * at} l today"),
        )
    ]
    assert not stopped(zones, "")
    assert not stopped(zones, "Water the eight zones, then all once more.")
