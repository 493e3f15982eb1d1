"""The page: one HTML file with its style, its script and its data, which loads nothing.

What a transcript says is data. It stands in a script that no browser runs, as JSON, and the page's
own script writes it as text. A content security policy allows that one script by its hash, and
nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from monitor.report.data import as_data, as_script, in_two, key_of
from monitor.report.story import StoryRun, shown
from monitor.tools.secrets.masking import masked
from monitor.transcripts.analysis.card import Card
from monitor.transcripts.analysis.survey import SurveyedRun

QUIET_WITH_STEPS: Final = 20_000
"""Runs without a loop of which steps are shown; of later ones the page has the time line."""
RUNS_A_PIECE: Final = 200
"""The runs whose details are one piece. The page reads a piece when one of its runs is opened: to
read the details of 20,000 runs before the list is shown takes seconds.
"""


def _part(name: str) -> str:
    return files("monitor.report").joinpath(name).read_text("utf-8")


class ReportPage:
    """Collects runs, and writes the page. Of a run only what the page shows is kept, as JSON."""

    def __init__(self, *, title: str = "Agent runs", texts: bool = True) -> None:
        """`texts`: without it the page has numbers and names, and no word of a transcript."""
        self._title = title
        self._texts = texts
        self._runs: list[tuple[bool, float, str, str]] = []
        self._keys: dict[str, int] = {}
        self._begun: dict[tuple[str, str], str] = {}
        """The key of each run that goes on in no other file before, by its format and id."""
        self._quiet = 0
        self._card = Card()
        self._costliest = ""
        """The key of the run that the card is about."""

    def add(self, run: SurveyedRun) -> None:
        """Add a run to the page."""
        self._card.add(run)
        key = key_of(run)
        count = self._keys[key] = self._keys.get(key, 0) + 1
        key = key if count == 1 else f"{key}-{count}"
        if self._card.costliest is run:
            self._costliest = key
        data = as_data(run, key=key, texts=self._texts)
        if run.goes_on:
            data["of"] = self._begun[run.format, run.id]
        else:
            self._begun[run.format, run.id] = key
        if not run.loops and isinstance(run, StoryRun):
            self._quiet += 1
            if self._quiet > QUIET_WITH_STEPS:
                data.pop("steps", None)
        shown_first, details = in_two(data)
        self._runs.append((not run.loops, -(run.saved_tokens or 0), as_script(shown_first), as_script(details)))

    def pieces(self, *, facts: Mapping[str, Any] | None = None) -> Iterator[str]:
        """The page in pieces. `facts`: what is said of all runs: `made` (seconds since 1970),
        `bad`.
        """
        *about, stop = (masked(shown(line)) for line in self._card.about or ("",))
        card = {"headline": self._card.headline, "about": about, "stop": stop, "key": self._costliest}
        said = {**(facts or {}), "texts": self._texts, "title": self._title, "card": card, "piece": RUNS_A_PIECE}
        style, script = _part("page.css"), _part("page.js")
        head = _part("page.html")
        for name, value in (
            ("TITLE", _as_text(self._title)),
            ("POLICY", policy_of(style, script)),
            ("STYLE", style),
        ):
            head = head.replace(f"%{name}%", value)
        before, between, after = _split(head, "%DATA%", "%PIECES%")
        yield before
        yield f'{{"facts":{as_script(said)},"runs":['
        runs = sorted(self._runs, key=lambda one: one[:2])
        for number, (_, _, run, _) in enumerate(runs):
            yield f"{',' if number else ''}\n{run}"
        yield f"]}}{between.replace('%SCRIPT%', script)}"
        for start in range(0, len(runs), RUNS_A_PIECE):
            details = ",\n".join(run[3] for run in runs[start : start + RUNS_A_PIECE])
            yield f'<script type="application/json" id="piece-{start // RUNS_A_PIECE}">[{details}]</script>\n'
        yield after


def _split(page: str, *signs: str) -> Iterator[str]:
    """The parts of the page before, between and behind `signs`."""
    for sign in signs:
        before, page = page.split(sign)
        yield before
    yield page


def policy_of(style: str, script: str) -> str:
    """Runs this script, shows this style, and loads nothing from anywhere."""
    allowed = {"script-src": _hash(script), "style-src": _hash(style), "img-src": "data:"}
    sources = (f"{name} {value}" for name, value in allowed.items())
    return "; ".join(["default-src 'none'", *sources, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _as_text(text: str) -> str:
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("%", "&#37;")):
        text = text.replace(sign, name)
    return text
