"""The rules of `ContentRepetition`, written down as plainly as possible: every window, unlimited
history, no sampling, no buffer.

Slow on purpose; the equivalence tests compare the real thing with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from monitor.detectors import CountedRule, InformationRule, RecurrenceRule, TailRule, WindowRule
from monitor.detectors.text.channel import SAME_CHARS
from monitor.detectors.text.counted import NUMBER, value
from monitor.detectors.text.structure import (
    CODE_SIGNS,
    RUNS,
    has_wide_letters,
    is_call,
    is_record,
    is_rows,
    kind_of,
    speaks,
)

SIGNS_BETWEEN = {".", ",", ":", "/", "-"}


def line_states(text: str) -> list[tuple[int, bool, int]]:
    """(start, inside a fence, end) of every line; a fence line itself counts as outside."""
    lines: list[tuple[int, bool, int]] = []
    start, marker = 0, ""
    while start <= len(text):
        end = text.find("\n", start)
        closed = end >= 0
        line = text[start : end if closed else len(text)]
        lines.append((start, bool(marker), end if closed else len(text)))
        body = line.lstrip(" ").rstrip()
        if closed and len(line) - len(line.lstrip(" ")) <= 3 and body.startswith(("```", "~~~")):
            run = len(body) - len(body.lstrip(body[0]))
            if not marker and "`" not in body[run:]:
                marker = body[:run]
            elif marker and body.startswith(marker) and set(body) == {marker[0]}:
                marker = ""
        if not closed:
            break
        start = end + 1
    return lines


def last_layout(text: str, first: int, end: int) -> int:
    """Start of the last layout line that begins inside `text[first:end]` behind a line break."""
    lines = line_states(text[:end])
    inside = lines[-1][1] if lines else False
    for start, _, _ in reversed(lines):
        if not first < start < end:
            continue
        letter = text[start]
        if inside or not (letter.isalpha() or letter in "\r\n"):
            return start
    return -1


def told(hits: Iterator[tuple[int, int, tuple[int, ...], str]]) -> Iterator[tuple[int, tuple[int, ...], str]]:
    """Of (start, end, places, level) what is reported: every loop, and a suspicion that is not the
    last finding going on.

    `again`: it is, by the same rule.
    """
    last = -SAME_CHARS - 1
    for start, end, places, level in hits:
        if level == "loop" or (level == "suspect" and start > last + SAME_CHARS):
            yield end, places, level
        last = end


def chants(text: str, rule: WindowRule) -> Iterator[tuple[int, int, tuple[int, ...], str]]:
    """(start, end, places, level) of every finding, evidence cleared after each."""
    width, needed, floor, skipped = rule.window_chars, rule.repeats, 0, 0
    last, rounds = 0, 0
    places: dict[str, list[int]] = defaultdict(list)
    for at in range(len(text) - width + 1):
        window = text[at : at + width]
        places[window].append(at)
        recent = [place for place in places[window] if place >= floor][-needed:]
        if at < max(floor, skipped) or len(recent) < needed:
            continue
        if any(window[shift:] == window[:-shift] for shift in range(1, rule.unit_chars)) or not any(
            c.isalnum() for c in window
        ):
            continue
        span = recent[-1] - recent[0]
        if span > rule.reach:
            continue
        layout = last_layout(text, recent[0], at + width)
        if layout >= 0:
            floor = layout
            continue
        between = [text[one:other] for one, other in pairwise(recent)]
        few = len(set(between)) <= rule.far_texts
        if span > rule.near_chars * (needed - 1) and not (
            few and rule.far_chars and span <= rule.far_chars * (needed - 1)
        ):
            skipped = at + width
            continue
        region = text[recent[0] : at + width]
        rows = all(one.count("\n") - one.count("\n\n") == 1 for one in between)
        counted = rows and len({no_digits(one) for one in between}) == 1
        if (not few and not counted and (rows or code(region))) or dense(region) or numbers(region):
            floor = at
            continue
        verse = "\n" in region and all(len(line.encode()) <= 64 for line in region.split("\n"))
        rounds = rounds + 1 if rounds and at + width - last <= rule.reach + width else 1
        last = floor = at + width
        enough = 1 if few and not rows and not verse else 4
        yield recent[0], last, tuple(recent), "loop" if rounds >= enough else "again" if rounds > 1 else "suspect"
        if rounds >= enough:
            rounds = 0


def code(text: str) -> bool:
    return 100 * sum(text.count(sign) for sign in CODE_SIGNS) > len(text)


def dense(text: str) -> bool:
    """Hardly a blank, and code or ASCII with signs."""
    most, joined = 0.04 * len(text), " ".join(text.split())
    signs = sum(1 for letter in joined if ord(letter) < 128 and not letter.isalpha() and letter != " ")
    signed = 100 - 100 * signs // max(len(joined), 1) < 90
    return text.count(" ") < most and (code(text) or (text.isascii() and text.count("\n") < most and signed))


def numbers(text: str) -> bool:
    return any(map(str.isdigit, text)) and all(
        one.isdecimal() or one.isspace() or one in ".,:;+-()[]{}" for one in text
    )


def no_digits(text: str) -> str:
    return "".join(character for character in text if character not in "0123456789")


def first_tail(text: str, rule: TailRule) -> tuple[int, int] | None:
    """(end, period) of the first strong tail; for texts in which nothing is weak."""
    lengths = [0] * (rule.max_period_chars + 1)
    for end in range(1, len(text) + 1):
        for period in range(1, min(rule.max_period_chars, end - 1) + 1):
            same = text[end - 1] == text[end - 1 - period]
            lengths[period] = lengths[period] + 1 if same else 0
            if same and lengths[period] + period >= rule.strong_chars(period):
                return end, period
    return None


def recurrences(text: str, rule: RecurrenceRule) -> Iterator[tuple[int, int, tuple[int, ...], str]]:
    """(start, end, places, level) of the findings, evidence cleared after loops and after what is
    no prose.
    """
    floor, stale, span, slept = 0, [False] * rule.samples, 64 * rule.samples, list[int]()
    last, rounds = 0, 0
    for end in range(128, len(text) + 1, 128):
        if end <= floor:
            continue
        slept.append(end)
        asleep = not any(stale) and rule.counting_samples >= 16
        if asleep and (end % 1024 or not is_stale(text, floor, end // 64 - 2, rule)):
            continue
        for block in (step // 64 - before for step in slept[-12:] for before in (2, 1)):
            alone = block % 2 == 1 and not any(stale[1:])
            stale = [*stale[1:], not alone and is_stale(text, floor, block, rule)]
        slept.clear()
        if sum(stale) < rule.counting_samples or not any(stale[-2:]):
            continue
        places = sample_places(text, floor, end // 64 - 1 if stale[-1] else end // 64 - 2, rule)
        sure = sum(stale) >= rule.stale_samples or only_counts(text, places)
        if not sure and sum(stale) < rule.doubtful_samples:
            continue
        region = text[max(end - span, floor) : end]
        if code(region) and not all(stale):
            continue
        lined = [line for line in region[-4 * rule.row_chars :].split("\n")[:-1] if line][-4:]
        counted = (
            len(lined) == 4
            and all(len(line) <= rule.row_chars for line in lined)
            and len({no_digits(line) for line in lined}) == 1
        )
        named = names_others(text, places, floor, rule)
        doubtful = code(region) or not sure or counted or named
        if doubtful and rounds and end < last + span:
            continue
        lines = region.encode("utf-8", "surrogatepass").split(b"\n")
        long = [line for line in map(bytes.strip, lines) if len(line) >= 32]
        prose = sum(map(len, long)) >= sum(len(line.strip()) for line in lines) / 2
        joined = " ".join(region.split())
        others = sum(1 for letter in joined if ord(letter) < 128 and not letter.isalpha() and letter != " ")
        if not prose or dense(region) or is_rows(region) or 100 - 100 * others // len(joined) < rule.words_percent:
            stale = [False] * rule.samples
            continue
        if doubtful:
            rounds = rounds + 1 if rounds and end <= last + 3 * span else 1
            last = end
        level = "loop" if not doubtful or rounds >= (6 if named else 3) else "again" if rounds > 1 else "suspect"
        shown = tuple(places[-rule.copies :])
        yield shown[0], end, shown, level
        if level == "loop":
            floor, stale, rounds = end, [False] * rule.samples, 0


def sample_places(text: str, floor: int, block: int, rule: RecurrenceRule) -> list[int]:
    """All places of the block's sample within reach, in the order of the text; its own is the
    last.
    """
    at = block * 64 + block**2 % 43
    sample = text[at : at + rule.sample_chars]
    first = max(at - rule.reach_chars, floor)
    return [place for place in range(first, at) if text[place : place + rule.sample_chars] == sample] + [at]


def only_counts(text: str, places: list[int]) -> bool:
    new, old = text[places[-2] : places[-1]], text[places[-3] : places[-2]]
    return [c for c in new if c not in "0123456789"] == [c for c in old if c not in "0123456789"]


def names_others(text: str, places: list[int], floor: int, rule: RecurrenceRule) -> bool:
    """Each two of the counted rounds have a word that stands nowhere before them."""
    counted, known = places[-rule.copies :], max(places[-1] - rule.reach_chars, floor)
    return all(
        any(word not in text[known:start] for word in re.findall(r"[^\W\d_]+", text[start:end]))
        for start, end in zip(counted, counted[2:], strict=False)
    )


def is_stale(text: str, floor: int, block: int, rule: RecurrenceRule) -> bool:
    places = sample_places(text, floor, block, rule)
    at = places[-1]
    if (
        at <= floor
        or len(places) < rule.copies
        or at - places[-2] > rule.reach_chars // (rule.copies - 1)
        or not any(speaks(letter) for letter in text[at : at + rule.sample_chars])
    ):
        return False
    between = text[places[-2] : at]
    if len(between) > rule.row_chars or between.count("\n") - between.count("\n\n") != 1:
        return True
    if text[places[-2] + between.rindex("\n") + 1].isalpha():
        return only_counts(text, places)
    return without_number(between) == without_number(text[places[-3] : places[-2]])


def without_number(between: str) -> str:
    head, _, line = between.rpartition("\n")
    return head + "\n" + line.lstrip("0123456789.)*-# ")


def counters(text: str, rule: CountedRule) -> Iterator[tuple[int, int, tuple[int, ...], str]]:
    """(first shown place, end, last places, level) of the findings, evidence cleared after loops.
    Text is never dropped here.
    """
    floor, end = 0, 0
    while end < len(text):
        end = (end // 384 + 1) * 384
        if end > len(text):
            return
        found = counted_places(text, floor, end, rule)
        if found is None:
            continue
        anchor, places, enough = found
        halfway, told = enough // 2 if enough <= rule.rounds else enough, False
        while places:
            rounds = len(places) - 1
            if rounds >= (enough if told else halfway):
                shown = tuple(places[-12:])
                loop = rounds >= enough
                yield shown[0], end, shown, "loop" if loop else "suspect"
                told = True
                if loop:
                    floor = end
                    break
            end += 128
            if end > len(text):
                return
            places = counted_on(text, anchor, places, end, rule)


def counted_places(text: str, floor: int, end: int, rule: CountedRule) -> tuple[str, list[int], int] | None:
    """The anchor, all places of its run in the order of the text, and the rounds that are
    enough.
    """
    stop = end - (end // 384) ** 2 % 43
    probe = stop - 8
    low = max(probe - rule.reach_chars, floor)
    if probe < low or all(text[at : at + 8] != text[probe:stop] for at in range(low, probe)):
        return None
    for start in (max(stop - 24, floor), probe):
        places = rounds_before(text, start, stop, floor, rule)
        if len(places) > 4:
            enough = enough_rounds(text, places, end, rule)
            return (text[start:stop], places, enough) if enough else None
    return None


def rounds_before(text: str, start: int, stop: int, floor: int, rule: CountedRule) -> list[int]:
    places = [start]
    for at in range(start - 1, max(start - rule.back_chars, floor) - 1, -1):
        if text[at : at + stop - start] != text[start:stop]:
            continue
        length = places[-1] - at
        if not 12 <= length <= rule.reach_chars or (len(places) > 1 and abs(length - places[-2] + places[-1]) > 8):
            break
        places.append(at)
        if len(places) > 2 and not are_counted(text, places[::-1]):
            places.pop()
            break
    return places[::-1]


def are_counted(text: str, places: list[int]) -> bool:
    """All rounds between the places are the same but for numbers that run."""
    rounds = [text[one:other] for one, other in pairwise(places)]
    if len({"\0".join(re.split(NUMBER, one)[::2]) for one in rounds}) > 1:
        return False
    numbers = [[value(number) for number in re.findall(NUMBER, one)] for one in rounds]
    steps = {tuple(b - a for a, b in zip(one, other, strict=True)) for one, other in pairwise(numbers)}
    if len(steps) > 1:
        return False
    (step,) = steps
    running = [place for place, by in enumerate(step) if by]
    if not running:
        return False
    around = re.split(NUMBER, rounds[0])[::2]
    inner = {place: around[place] for place in range(1, len(around) - 1)}
    return not any(
        inner.get(place, "") in SIGNS_BETWEEN or inner.get(place + 1, "") in SIGNS_BETWEEN - {"/"} for place in running
    )


def count_apart(text: str, places: list[int]) -> bool:
    """Whether the numbers that run are several ones."""
    older, newer = (
        [value(number) for number in re.findall(NUMBER, text[one:other])] for one, other in pairwise(places[-3:])
    )
    step = [b - a for a, b in zip(older, newer, strict=True)]
    running = [place for place, by in enumerate(step) if by]
    ahead = {newer[other] - newer[one] for one, other in pairwise(running)}
    if len({step[place] for place in running}) > 1:
        return True
    return bool(ahead - {0} or step[running[0]] < 0) and any(by * len(running) != step[running[0]] for by in ahead)


def counted_on(text: str, anchor: str, places: list[int], end: int, rule: CountedRule) -> list[int]:
    """The places up to `end`; empty when a round was another, or did not end."""
    for at in range(places[-1] + 1, end - len(anchor) + 1):
        if text.startswith(anchor, at):
            if not are_counted(text, [*places[-4:], at]):
                return []
            places = [*places, at]
    return places if end - places[-1] <= rule.reach_chars + 8 else []


def enough_rounds(text: str, places: list[int], end: int, rule: CountedRule) -> int:
    unit = text[places[-2] : places[-1]]
    head, _, rest = unit.partition("\n")
    lines = [line for line in (rest + head).split("\n") if line.strip()]
    words = max(
        len(re.findall(r"[^\W\d_]+", unit)),
        sum("\u0e00" <= c <= "\u0e7f" or "\u3040" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7a3" for c in unit) // 2,
    )
    if not words:
        return 0
    block = len(lines) > 1 and ("```" in unit or "~~~" in unit or is_call(unit))
    bare = "\n".join(line.lstrip("#>*- [0123456789]") for line in lines)
    signs = sum(bare.count(sign) for sign in CODE_SIGNS if sign not in ("|", "/"))
    joined = " ".join(unit.split())
    plain = sum(1 for c in joined if ord(c) >= 128 or c.isalpha() or c == " ")
    data = (
        line_states(text[:end])[-1][1]
        or RUNS.search(unit) is not None
        or any(line.rstrip().endswith((",", ";", "{", "}")) for line in lines)
        or all(is_record(line) for line in lines)
        or 100 * signs > len(bare)
        or 100 * (len(joined) - plain) // max(len(joined), 1) > 25
    )
    if words < 2 or (data and not block):
        enough = rule.data_rounds
    elif block or len(lines) >= 3 or len(unit) > 200:
        enough = rule.long_rounds
    else:
        enough = rule.rounds if words >= 4 else rule.short_rounds
    if count_apart(text, places):
        enough = max(enough, rule.data_rounds)
    while enough * len(unit) < rule.min_chars:
        enough += 1
    return enough


LENGTHS = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)


def informations(text: str, rule: InformationRule) -> Iterator[tuple[int, int, tuple[int, ...], str]]:
    """(start, end, places, level) of the findings."""
    known, measured, last, slept = list[int](), 0, 0, 0
    for end in range(first_look(rule), len(text) + 1, 256):
        newest = end // 64 - 2
        at = place_of(newest)
        near = text[at : at + 12] in text[max(at - 1024, 0) : at]
        if end < slept or not near or not known_before(text, newest, rule, lengths=(12,)):
            continue
        null = null_of(text[end - 512 : end], rule)
        length = known_before(text, newest, rule)
        if not null:
            slept = end + 1024
        if not null or 2 * (length + 1) * null < 100 * rule.reach_chars.bit_length():
            continue
        for block in range(max(measured, newest - rule.places) + 1, newest + 1):
            searched = min(place_of(block), rule.reach_chars)
            known.append(100 * searched.bit_length() // (known_before(text, block, rule) + 1))
        measured = newest
        rate = sum(known[-rule.places :]) // rule.places
        if rate >= null or len(known) < rule.places:
            last = 0
            continue
        if last and end < last + rule.window_chars:
            continue
        if rate >= null_of(text[end - rule.window_chars : end], rule):
            last = 0
            continue
        start = place_of(newest)
        places = [start]
        while len(places) <= rule.copies:
            before = [at for at in range(places[0]) if text[at : at + length] == text[start : start + length]]
            places.insert(0, before[-1])
        yield end - rule.window_chars, end, tuple(places), "again" if last else "suspect"
        last = end


def first_look(rule: InformationRule) -> int:
    return rule.window_chars // 256 * 256 + 256


def place_of(block: int) -> int:
    return block * 64 + block**2 % 43


def known_before(text: str, block: int, rule: InformationRule, lengths: tuple[int, ...] = LENGTHS) -> int:
    """The length of the longest piece at the block's place that stood often enough before it."""
    at = place_of(block)
    before = text[max(at - rule.reach_chars, 0) : at]
    return next((length for length in lengths if before.count(text[at : at + length]) >= rule.copies), 0)


def null_of(text: str, rule: InformationRule) -> int:
    return rule.null(kind_of(text), wide=has_wide_letters(text))
