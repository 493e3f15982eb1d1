"""The page: one HTML file with its style, its script and its data, which loads nothing.

What a transcript says is data. It stands in a script that no browser runs, as JSON, and the page's
own script writes it as text. A content security policy allows that one script by its hash, and
nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from monitor._util.hashing import identity
from monitor.report.run_details import DetailedRun, DetailStep, RunDetails, cells_of, shown, stop_cell_of
from monitor.tools.masking import masked
from monitor.transcripts.analysis.scan import Finding
from monitor.transcripts.analysis.survey import (
    Card,
    SurveyedRun,
    avoided_in_words,
    kind_in_words,
    loop_in_words,
    stretch_in_words,
)
from monitor.transcripts.readers.registry import AGENTS

# --------------------------------------------------------------------------------------------------
# A run as the page gets it: JSON in which nothing can end the script around it.

KEY_CHARS: Final = 12
NAME_CHARS: Final = 200
MOST_FINDINGS: Final = 20
"""Findings that are listed of one run."""
_ESCAPED: Final = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
"""Within JSON these signs stand in strings only."""


def as_script(data: object) -> str:
    """`data` as JSON for a `<script>`: ASCII, and without the signs that HTML would read."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False).translate(_ESCAPED)


def key_of(run: SurveyedRun) -> str:
    """The name of a run in a link: the same on every page on which the run stands."""
    return identity(f"{run.format}\n{run.id}\n{run.began.project}\n{run.first_at}")[:KEY_CHARS]


_DETAILS: Final = frozenset(
    {
        *("steps", "strip", "per_cell", "marks", "stop", "tokens", "per_token_cell", "sources", "tools", "models"),
        *("findings", "all_findings"),
    }
)
"""The parts of a run that only its own view shows."""


def in_two(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run for the page, in two parts: what the list and the overview show, and the rest."""
    details = {name: value for name, value in data.items() if name in _DETAILS}
    return {name: value for name, value in data.items() if name not in details}, details


def as_data(run: SurveyedRun, *, key: str, texts: bool) -> dict[str, Any]:
    """The run for the page. `texts`: without it only names of tools and numbers are there."""
    found = run.finding
    data: dict[str, Any] = {
        "key": key,
        "id": _name(run.id),
        "file": _name(run.file) if texts else "",
        "agent": AGENTS.get(run.format, run.format),
        "project": _name(run.began.project.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]) if texts else "",
        "model": _name(run.began.model),
        "parent": _name(run.began.parent or ""),
        "title": _name(run.began.title or run.task) if texts else "",
        "state": run.ended.state,
        "why": _name(run.ended.detail) if texts else "",
        "from": run.first_at,
        "to": run.last_at,
        "turns": run.total.turns,
        "calls": run.total.tool_calls,
        "chars": run.total.chars,
        "errors": run.errors,
        "compactions": run.compactions,
        "usage": None if run.usage is None else _usage(run),
        "usd": run.cost_usd,
        "least": run.cost_partial,
        "listed": run.cost_listed,
        "loop": None if found is None else _finding(found, texts=texts, count=run.count),
        "whole": "; ".join(filter(None, (stretch_in_words(run), avoided_in_words(run)))),
        "result": shown(run.result) if texts else "",
        "stopped": run.ended_by is not None,
        "saved": [run.saved.turns, run.saved.tool_calls, run.saved_tokens, run.saved_usd],
        "findings": [_finding(finding, texts=texts) for finding in run.findings[:MOST_FINDINGS]],
        "all_findings": len(run.findings),
        "failed": shown(run.failed)[:NAME_CHARS],
    }
    if isinstance(run, DetailedRun):
        models = sorted(run.details.models, key=lambda one: -run.details.models[one])
        data |= {"model": data["model"] or next(iter(models), ""), "models": ", ".join(models)}
        data |= _details(run.details, texts=texts)
    data = masked(data)
    zeros = {"stop"}  # the first cell of the time line
    kept = {name: value for name, value in data.items() if value not in ("", None, [], {}, 0, False) or name in zeros}
    return kept if run.cost_usd is None else {**kept, "usd": run.cost_usd}  # a known 0 is not an unknown cost


def _name(text: str) -> str:
    return shown(text if len(text) <= NAME_CHARS else f"{text[:NAME_CHARS]}…")


def _usage(run: SurveyedRun) -> Mapping[str, int]:
    usage = run.usage
    if usage is None:
        return {}
    named = {
        "input": max(0, usage.input_tokens - usage.cached_tokens),
        "cached": usage.cached_tokens,
        "output": max(0, usage.output_tokens - usage.reasoning_tokens),
        "reasoning": usage.reasoning_tokens,
    }
    return {**named, "total": max(usage.total_tokens, sum(named.values()))}


def _finding(finding: Finding, *, texts: bool, count: int | None = None) -> dict[str, Any]:
    found = finding.detection
    return {
        "by": found.detector,
        "kind": found.kind,
        "sort": kind_in_words(found),
        "said": shown(loop_in_words(found, count)),
        "level": found.level,
        "count": count or found.count,
        "limit": found.threshold,
        "turn": finding.turn,
        "did": finding.rung,
        "channel": found.channel,
        "hash": found.evidence.xxhash,
        "length": found.evidence.length,
        **({"because": shown(found.message), "what": shown(found.evidence.excerpt)} if texts else {}),
    }


def _details(given: RunDetails, *, texts: bool) -> dict[str, Any]:
    return {
        "steps": [_step(step, texts=texts) for step in given.steps],
        "all_steps": given.number_of_steps,
        "strip": "".join(given.events.cells),
        "per_cell": given.events.width,
        "marks": cells_of(given),
        "stop": stop_cell_of(given),
        "tokens": given.tokens.cells,
        "per_token_cell": given.tokens.width,
        "sources": given.sources,
        "tools": [
            [name, tool.calls, tool.errors, tool.chars]
            for name, tool in sorted(given.tools.items(), key=lambda one: -one[1].chars)
        ],
    }


def _step(step: DetailStep, *, texts: bool) -> list[Any]:
    """Number, kind, text, tool, time, length, flags (1 repeated, 2 the loop was seen), passage."""
    flags = step.repeated + 2 * step.loop
    passage = [_units(step.text[:at]) for at in step.passage] if step.passage and texts else None
    whole = [step.number, step.kind, step.text if texts else "", step.name, step.at, step.chars, flags, passage]
    while whole[-1] in (None, 0, ""):
        whole.pop()
    return whole


def _units(text: str) -> int:
    """The length of `text` as JavaScript counts it."""
    return len(text) + sum(char > "\uffff" for char in text)


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
        if not run.loops and isinstance(run, DetailedRun):
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
