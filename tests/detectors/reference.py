"""The rules of `ContentRepetition`, written down as plainly as possible: every window, unlimited history, no sampling, no buffer.

Slow on purpose; the equivalence tests compare the real thing with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from monitor.detectors import TailRule, WindowRule


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


def chants(text: str, rule: WindowRule) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(end, places) of every finding, evidence cleared after each."""
    width, needed, floor = rule.window_chars, rule.repeats, 0
    places: dict[str, list[int]] = defaultdict(list)
    for at in range(len(text) - width + 1):
        window = text[at : at + width]
        places[window].append(at)
        recent = [place for place in places[window] if place >= floor][-needed:]
        if at < floor or len(recent) < needed:
            continue
        if any(window[shift:] == window[:-shift] for shift in range(1, rule.unit_chars)) or not any(c.isalnum() for c in window):
            continue
        span = recent[-1] - recent[0]
        between = {text[one:other] for one, other in pairwise(recent)}
        far = rule.far_chars is not None and span <= rule.far_chars * (needed - 1) and len(between) <= rule.far_texts
        if span > rule.near_chars * (needed - 1) and not far:
            continue
        layout = last_layout(text, recent[0], at + width)
        if layout >= 0:
            floor = layout
            continue
        yield at + width, tuple(recent)
        floor = at + width


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
