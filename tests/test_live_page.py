"""The page of the live model counts what the defaults do with its recorded answers."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import monitor

ROOT = Path(__file__).parent.parent
ANSWERS = ROOT / "fixtures" / "live" / "answers.jsonl.gz"


def is_stopped(text: str) -> bool:
    """Whether the defaults stop `text`, written word by word."""

    def words() -> Iterator[str]:
        yield from re.findall(r"\s*\S+", text)

    with monitor.watch(words()) as watched:
        for _ in watched:
            pass
    return watched.outcome.reason == "loop_detected"


def test_the_page_of_the_live_model_counts_what_is_stopped():
    page = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| .* \| (\d+) \| (\d+) \|$", page.split("<!-- live -->")[1], re.MULTILINE)
    with gzip.open(ANSWERS, "rt", encoding="utf-8") as lines:
        answers = [json.loads(line) for line in lines]
    asked = Counter(answer["question"] for answer in answers)
    stopped = Counter(answer["question"] for answer in answers if is_stopped(answer["text"]))
    assert [(int(answers), int(stops)) for answers, stops in table] == [(asked[one], stopped[one]) for one in asked]
    assert f"{len(answers)} of the answers" in page
    assert f"stop {stopped.total()} of them" in page
