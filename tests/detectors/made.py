"""The made kinds of texts and of runs that the tests of the detectors read: see
`monitor.testing.loops`.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from monitor.detectors import default_detectors
from monitor.detectors.detector import is_request_reader
from monitor.testing.loops import Kind, chunks_of, read_kinds, run_of
from monitor.verdicts import Detection

MADE = Path(__file__).parents[2] / "fixtures" / "made"
LISTS = json.loads((MADE / "words.json").read_text("utf-8"))
TEXTS = read_kinds(MADE / "texts.jsonl")
FLOODS = read_kinds(MADE / "floods.jsonl")
REWORDED = read_kinds(MADE / "reworded.jsonl")
RUNS = read_kinds(MADE / "runs.jsonl")
AGENTS = read_kinds(MADE / "agents.jsonl")
REPETITIVE: dict[str, str] = {
    one["kind"]: one["text"]
    for one in map(json.loads, gzip.decompress((MADE / "repetitive.jsonl.gz").read_bytes()).splitlines())
}
"""Texts that repeat and are no loops, of kinds that the recorded runs hardly hold: songs, drawings,
logs, tables, data, code, other scripts.
"""


def of_group(kinds: dict[str, Kind], group: str) -> list[str]:
    """The names of the kinds of one group."""
    return [name for name, kind in kinds.items() if kind["group"] == group]


def watched(kind: Kind, seed: str = "") -> list[Detection]:
    """What the default detectors find in a run of `kind`. Some kinds have a request."""
    detectors = default_detectors()
    for reader in filter(is_request_reader, detectors) if "request" in kind else ():
        reader.request(kind["request"])
    chunks = chunks_of(run_of(kind, random.Random(seed), LISTS))
    return [found for _, chunk in chunks for detector in detectors for found in detector.observe(chunk)]
