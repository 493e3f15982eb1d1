"""The made kinds of texts and of runs that the benches share with the tests of the package."""

from __future__ import annotations

import json
from pathlib import Path

from monitor.testing.loops import Lists, read_kinds

MADE = Path(__file__).parents[1] / "fixtures" / "made"
LISTS: Lists = json.loads((MADE / "words.json").read_text("utf-8"))
TEXTS = read_kinds(MADE / "texts.jsonl")
FLOODS = read_kinds(MADE / "floods.jsonl")
RUNS = read_kinds(MADE / "runs.jsonl")
