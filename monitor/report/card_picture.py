"""The card of a scan as a picture: one SVG file that loads nothing, light and dark.

It has numbers, and the name of the tool that was repeated. What a person asked for is added only
where the caller wants it.
"""

from __future__ import annotations

import textwrap
import unicodedata
from datetime import UTC, datetime
from html import escape
from typing import Final

from monitor.report.run_details import shown
from monitor.tools.masking import masked
from monitor.transcripts.analysis.survey import Card, SurveyedRun

WIDTH: Final = 1200
HEIGHT: Final = 630
"""The size of the pictures that other sites show beside a link."""
EDGE: Final = 72
LINE_CHARS: Final = 58
"""The characters of a line of 32 units height that fit between the edges."""
_NO_CHARACTERS: Final = {0xFFFE: None, 0xFFFF: None}
"""Code points that no XML may have, not even as a reference."""
_STYLE: Final = """
.ground{fill:#ffffff}.text{fill:#16191d}.quiet{fill:#4d5561}.work{fill:#0b57b7}.loop{fill:#b3121d}.stop{stroke:#b3121d}
.rule{stroke:#d5d9e0}text{font-family:system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
@media(prefers-color-scheme:dark){.ground{fill:#14171c}.text{fill:#eceff3}.quiet{fill:#b3bbc7}.work{fill:#86b7ff}
.loop{fill:#ff9a9f}.stop{stroke:#ff9a9f}.rule{stroke:#353c47}}
"""


def card_svg(card: Card, *, task: bool = False) -> str:
    """The picture of `card`. `task`: with the beginning of what was asked for in the run whose loop
    cost the most.
    """
    title, run = card.headline, card.costliest
    parts = [_text(EDGE, 150, 60, title, "text", bold=True)]
    if run is not None and card.about is not None:
        parts += _about(card.about, run, task=task)
    parts += _facts(card)
    parts.append(_text(EDGE, HEIGHT - 36, 22, "agent-monitor scan", "quiet"))
    parts.append(_text(WIDTH - EDGE, HEIGHT - 36, 22, _days(card), "quiet", anchor="end"))
    said = _safe(f"{card.said()}.")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' role="img" aria-labelledby="said"><title id="said">{said}</title><style>{_STYLE}</style>'
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>\n{chr(10).join(parts)}\n</svg>\n'
    )


def _about(about: tuple[str, str, str], run: SurveyedRun, *, task: bool) -> list[str]:
    """The costliest run: what it did, and its time line."""
    lines = list(about[:2])
    if task and run.task:
        lines.append(f"“{run.task}”")
    wrapped = [part for line in lines for part in _wrapped(line)]
    looks = ["text", *["quiet"] * 3]
    parts = [
        _text(EDGE, 218 + 44 * at, 32, line, look) for at, (line, look) in enumerate(zip(wrapped, looks, strict=False))
    ]
    return [*parts, *_time_line(run)]


def _wrapped(line: str) -> list[str]:
    """At most two lines that fit between the edges. Characters of East Asia are twice as wide."""
    wide = any(unicodedata.east_asian_width(char) in {"W", "F"} for char in line)
    return textwrap.wrap(line, LINE_CHARS // 2 if wide else LINE_CHARS, max_lines=2, placeholder=" …")


def _time_line(run: SurveyedRun) -> list[str]:
    """The steps of a run, with the band of the loop that a stop would have saved."""
    if run.finding is None or not run.total.turns:
        return []
    top, tall, room = 400, 36, WIDTH - 2 * EDGE
    stop = min(run.finding.turn, run.total.turns)
    at = EDGE + room * stop / run.total.turns
    anchor = "start" if at < WIDTH / 2 else "end"
    place = at + (10 if anchor == "start" else -10)
    words = f"a stop would have come at step {stop:,} of {run.total.turns:,}"
    return [
        f'<rect class="work" x="{EDGE}" y="{top}" width="{at - EDGE:.1f}" height="{tall}"/>',
        f'<rect class="loop" x="{at:.1f}" y="{top}" width="{EDGE + room - at:.1f}" height="{tall}"/>',
        f'<line class="stop" x1="{at:.1f}" x2="{at:.1f}" y1="{top - 34}" y2="{top + tall + 10}" stroke-width="4"/>',
        _text(place, top - 14, 24, words, "loop", anchor=anchor),
    ]


def _facts(card: Card) -> list[str]:
    """The sums of all runs, side by side."""
    columns = [(f"{card.runs:,}", "run" if card.runs == 1 else "runs"), (f"{card.loops:,}", "with a loop")]
    columns.append((card.sum_in_words(card.usd), "in all"))
    if card.loops:
        saved = card.sum_in_words(card.saved_usd)
        columns.append((saved, "avoidable") if card.saved_usd is not None else _tokens(card))
    step = (WIDTH - 2 * EDGE) / len(columns)
    line = f'<line class="rule" x1="{EDGE}" x2="{WIDTH - EDGE}" y1="466" y2="466" stroke-width="2"/>'
    parts = [line]
    for at, (value, name) in enumerate(columns):
        parts.append(_text(EDGE + step * at, 516, 36, value, "text", bold=True))
        parts.append(_text(EDGE + step * at, 548, 20, name, "quiet"))
    return parts


def _tokens(card: Card) -> tuple[str, str]:
    """The tokens after the place of a stop."""
    return ("unknown" if card.saved_tokens is None else f"{card.saved_tokens:,}"), "avoidable tokens"


def _days(card: Card) -> str:
    """The days from the first message of the runs to the last."""
    if card.first_at is None or card.last_at is None:
        return ""
    try:
        first, last = (datetime.fromtimestamp(at, UTC).date().isoformat() for at in (card.first_at, card.last_at))
    except (OverflowError, OSError, ValueError):
        return ""
    return first if first == last else f"{first} to {last}"


def _text(x: float, y: float, size: int, text: str, look: str, *, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="700"' if bold else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text class="{look}" x="{x:g}" y="{y:g}" font-size="{size}"{weight}{side}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    """`text` without secrets, on one line, as XML."""
    return escape(shown(masked(" ".join(text.split()))).translate(_NO_CHARACTERS))
