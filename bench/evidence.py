"""Trains the model of `LearnedEvidence`, and says how well it does on runs of authors that it was
not trained on.

    python -m bench.evidence               train, write monitor/detectors/calls/evidence.json
    python -m bench.evidence --read FILE   only read a file of labelled runs with the present model

It learns from every labelled run in `fixtures/transcripts`, from the made runs of calls
(`fixtures/made/runs.jsonl`) and from games that are played here. Runs that are no loops, and the
steps before a loop, are good steps. Each run is learnt with its request, and once more without it.

The figures in the file are those of "leave one author out": each author's runs are scored by a
model that has not seen any of them. The lines are drawn on these scores. `--read` counts what the
default detectors do with each run: `sure` stops (by counting), `stop` (learned evidence), `doubt`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.table import Table

from bench.made import LISTS, RUNS
from monitor._util.lazy import LazyModule
from monitor.chunks import Chunk
from monitor.detectors import LearnedEvidence
from monitor.detectors.calls.learned_evidence import EvidenceModel
from monitor.policy import ObserveOnly
from monitor.testing.loops import MadeCall, chunks_of, run_of
from monitor.transcripts.analysis.scan import RunScanner
from monitor.transcripts.base import Chunker
from monitor.transcripts.corpus import Corpus

if TYPE_CHECKING:
    import lightgbm
    import numpy as np
    from numpy.typing import NDArray
else:  # only training needs them: `pip install -e bench[learn]`
    lightgbm, np = LazyModule("lightgbm"), LazyModule("numpy")

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures" / "transcripts"
SETS = ("dev", "composed", "composed_by_others", "composed_a")
HARD = ("composed", "composed_by_others", "composed_a")
"""The sets that were composed to be hard: the lines are drawn on their good runs."""
OWN_GROUP = ("intercode", "WorkBench")
"""Sources of recorded runs that are large enough to be left out alone."""
MODEL_FILE = ROOT / "monitor" / "detectors" / "calls" / "evidence.json"
BARE, MADE, RECORDED = 0.4, 1.0, 6.0
"""The weight of a run without its request, of a made run, and of a recorded one."""
BEFORE = 0.3
"""The weight of the steps of a run before its loop."""
SKIPPED = 3
"""The first steps of a loop, which are in no class: nobody can see a loop in them."""
SEEDS, GAMES = 3, 20
DOUBT, STOP = 0.2, 0.03
"""The shares of unseen hard good runs that may come to `doubt` and to `stop`."""
LINES = ("doubt", "stop", "unasked")
GATHERING: dict[str, Any] = {"base": 1.5, "keep": 0.65, "most": 4.0}
"""How evidence is gathered: chosen by the area under ROC of unseen authors, flat around it."""
TREES = 240
LEARNING: dict[str, Any] = {
    "objective": "binary",
    "max_depth": 6,
    "num_leaves": 16,
    "learning_rate": 0.07,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "min_data_in_leaf": 30,
    "min_sum_hessian_in_leaf": 0.5,
    "lambda_l2": 5.0,
    "seed": 0,
    "deterministic": True,
    "num_threads": 1,
    "verbose": -1,
}
AVERAGED_ONLY = "recent."
"""A feature that is also a running mean is used as it is only if `AS_IT_IS` names it."""
AS_IT_IS = ("call_gap", "result_words")

Row: TypeAlias = "NDArray[np.float32]"


@dataclass(slots=True)
class Sample:
    """A labelled run, as it is fed."""

    name: str
    group: str
    """The author or the source: what is left out together."""
    is_loop: bool
    events: Sequence[tuple[int, Chunk | str]]
    """Chunks, and requests as texts, each with the index of its message."""
    weight: float = 1.0
    begins: int = -1
    """The message in which the loop begins."""
    features: list[Row] = field(default_factory=list[Row])
    places: list[int] = field(default_factory=list[int])
    highest: float = 0.0
    """The evidence that a model comes to that has not seen the author."""

    @property
    def is_hard(self) -> bool:
        """Whether it was composed to be hard, and is fed as the product feeds it."""
        return self.group.partition(":")[0] in HARD and self.weight == 1.0

    def targets(self) -> tuple[list[float], list[float]]:
        """Whether each step is in a loop, and its weight: a run weighs the root of its length."""
        inside = [self.is_loop and place > self.begins for place in self.places]
        weights = [BEFORE if self.is_loop and not one else 1.0 for one in inside]
        first = inside.index(True) if any(inside) else 0
        if any(inside):
            weights[first : first + SKIPPED] = [0.0] * len(weights[first : first + SKIPPED])
        scale = self.weight * (RECORDED if self.group.startswith("dev:") else 1.0) / max(1.0, sum(weights)) ** 0.5
        return [float(one) for one in inside], [scale * one for one in weights]


class _Recorded(EvidenceModel):
    """A model that keeps the features of each step."""

    def log_odds(self, features: Any) -> float:
        _STEPS.append(features)
        return 0.0


class _Repeated(EvidenceModel):
    """A model that says what is known already."""

    def log_odds(self, features: Any) -> float:
        return float(_ODDS.pop(0))


_STEPS: list[Any] = []
_ODDS: list[float] = []
_PLAIN: dict[str, Any] = {"features": (), "trees": (), "about": {}, "doubt": 1e8, "stop": 1e9}


class Recorder(LearnedEvidence):
    """Describes the steps of a run."""

    __slots__ = ()


def fed(sample: Sample, model: EvidenceModel) -> LearnedEvidence:
    """The detector after the run, with this model."""
    Recorder.model = model
    detector = Recorder()
    for place, event in sample.events:
        known = len(_STEPS)
        if isinstance(event, str):
            detector.request(event)
        else:
            detector.observe(event)
        sample.places += [place] * (len(_STEPS) - known)
    return detector


def described(samples: Sequence[Sample]) -> list[Sample]:
    """The samples, with the features of their steps. Those without a step are left out."""
    model = _Recorded(**_PLAIN, **GATHERING)
    for sample in samples:
        _STEPS.clear()
        fed(sample, model)
        names = features_of(_STEPS)
        sample.features = [np.array([step[name] for name in names], dtype=np.float32) for step in _STEPS]
    return [sample for sample in samples if sample.features]


def features_of(steps: Sequence[Any]) -> list[str]:
    """The names of the features that are used."""
    names = [*steps[0]] if steps else []
    averaged = {name.removeprefix(AVERAGED_ONLY) for name in names if name.startswith(AVERAGED_ONLY)}
    return [name for name in names if name not in averaged or name in AS_IT_IS]


# ------------------------------------------------------------------ runs


def read(path: Path) -> Iterator[Sample]:
    """The labelled runs of calls of a file, each with its request and without it."""
    name = path.name.partition(".")[0].replace("-", "_")
    for run in Corpus(path):
        kind = run.loop.kind if run.loop else ""
        is_loop = {"loop": True, "clean": False, "hard_negative": False}.get(str(run.label))
        if is_loop is None or kind.startswith("text_") or not any(message.tool_calls for message in run.messages):
            continue
        part = run.id.split("/")[1] if "/" in run.id else ""
        if name == "dev":
            part = next((source for source in OWN_GROUP if source.lower() in run.id.lower()), "others")
        chunker, events = Chunker(), list[tuple[int, Chunk | str]]()
        for index, message in enumerate(run.messages):
            if message.role == "user" and message.text:
                events.append((index, message.text))
            events += ((index, chunk) for chunk in chunker.chunks(message))
        begins = run.loop.turn if run.loop and run.loop.turn is not None else -1
        sample = Sample(run.id, f"{name}:{part}", is_loop, events, begins=begins)
        yield sample
        bare = [(index, event) for index, event in events if not isinstance(event, str)]
        yield replace(sample, events=bare, weight=BARE, features=[], places=[])


def made() -> Iterator[Sample]:
    """The made runs of calls."""
    for kind, described_as in RUNS.items():
        for seed in range(SEEDS):
            chunks = chunks_of(run_of(described_as, random.Random(f"train {kind} {seed}"), LISTS))
            request = [(-1, described_as["request"])] if "request" in described_as else []
            is_loop = described_as["group"] == "loop"
            yield Sample(f"{kind} {seed}", "made:", is_loop, [*request, *chunks], MADE)


# ------------------------------------------------------------------ search with feedback


def _digits(rng: random.Random) -> Iterator[MadeCall]:
    """Digits that are guessed: how many are right, and how many stand elsewhere."""
    codes = ["".join(one) for one in permutations("0123456789", 4)]
    secret, shown = rng.choice(codes), rng.choice(["{}A{}B", "{} bulls, {} cows", '{{"exact": {}, "partial": {}}}'])

    def told(code: str, guess: str) -> tuple[int, int]:
        exact = sum(map(str.__eq__, code, guess))
        return exact, len(set(code) & set(guess)) - exact

    while codes:
        guess = rng.choice(codes)
        yield MadeCall("guess", {"code": guess}, shown.format(*told(secret, guess)))
        codes = [code for code in codes if code != guess and told(code, guess) == told(secret, guess)]


def _halves(rng: random.Random) -> Iterator[MadeCall]:
    """A number between two others: higher, or lower."""
    low, high = 1, 10 ** rng.choice((3, 4, 6))
    secret = rng.randrange(low, high)
    while low < high:
        guess = rng.randrange(low, high) if rng.random() < 0.4 else (low + high) // 2
        low, high = (guess + 1, high) if guess < secret else (low, guess)
        yield MadeCall("try_number", {"n": guess}, "too low" if guess < secret else "not too low")


def _letters(rng: random.Random) -> Iterator[MadeCall]:
    """Words that are guessed: which letters are in place."""
    words = [*{word for word in LISTS["noun"] if word.isalpha()}]
    secret = rng.choice(words)
    for word in rng.sample(words, min(len(words), 12)):
        marks = (
            "+" if one == other else "-" if one in secret else "." for one, other in zip(word, secret, strict=False)
        )
        yield MadeCall("play", {"word": word}, "".join(marks))


def _instrument(rng: random.Random) -> Iterator[MadeCall]:
    """An instrument that is set by what it shows, and measures a little noise."""
    best, at, step = rng.uniform(-50, 50), rng.uniform(-90, 90), rng.uniform(8, 30)
    unit = rng.choice(["sharpness", "signal_dbm", "loss", "pressure_mbar"])
    for _ in range(rng.randrange(9, 18)):
        shown = 100 - abs(at - best) + rng.gauss(0, 0.2)
        yield MadeCall("set_and_read", {"position": round(at, 2)}, json.dumps({unit: round(shown, 2)}))
        at, step = (at + step, step) if abs(at + step - best) < abs(at - best) else (at, -step / 2)


def _files(rng: random.Random) -> Iterator[MadeCall]:
    """Files of few different words, none like another."""
    words = rng.sample([*{*LISTS["noun"], *LISTS["verb"]}], 20)
    for at in range(30):
        arguments = {"path": f"src/{words[0]}_{at}.py", "line": rng.randrange(999)}
        yield MadeCall("read", arguments, f"{' '.join(rng.choices(words, k=20))}{at}")


def _form(rng: random.Random) -> Iterator[MadeCall]:
    """A form whose fields a person answers."""
    for field_name in rng.sample([*{*LISTS["noun"], *LISTS["kind"]}], 12):
        yield MadeCall(
            "ask_user", {"question": f"Is there a {field_name}?"}, rng.choice(["no", "yes", "no", "not yet"])
        )


PLAYS: Mapping[str, tuple[str, Callable[[random.Random], Iterator[MadeCall]]]] = {
    "digits": ("Find the secret code of four different digits. Each guess is answered.", _digits),
    "halves": ("Guess the number that I think of.", _halves),
    "letters": ("Let us play the game with the letters.", _letters),
    "instrument": ("Set the instrument as well as it can be.", _instrument),
    "files": ("Read the files and say what they are for.", _files),
    "form": ("Ask me the questions of the form and note what I say.", _form),
}


def games() -> Iterator[Sample]:
    """Games that are played, instruments that are set, forms that are asked for."""
    for name, (request, play) in PLAYS.items():
        for seed in range(GAMES):
            chunks = [*chunks_of([call] for call in play(random.Random(f"{name} {seed}")))]
            sample = Sample(f"{name} {seed}", "games:", is_loop=False, events=[(-1, request), *chunks])
            yield sample
            yield replace(sample, events=chunks, weight=BARE, features=[], places=[])


# ------------------------------------------------------------------ learning


def stacked(samples: Sequence[Sample]) -> tuple[Row, Row, Row]:
    """All steps: features, whether each is in a loop, and weights."""
    targets = [sample.targets() for sample in samples]
    rows = np.stack([row for sample in samples for row in sample.features])
    inside, weights = (np.concatenate([np.array(one[at], dtype=np.float32) for one in targets]) for at in (0, 1))
    return rows, inside, weights


def trained(samples: Sequence[Sample]) -> Any:
    """Trees that tell the steps of loops from others."""
    rows, inside, weights = stacked(samples)
    kept = weights > 0
    data = lightgbm.Dataset(rows[kept], inside[kept], weight=weights[kept] / weights[kept].mean())
    return lightgbm.train(LEARNING, data, TREES)


def score(samples: Sequence[Sample], trees: Any) -> None:
    """Note the highest evidence of each run."""
    model = _Repeated(**_PLAIN, **GATHERING)
    for sample in samples:
        _ODDS[:] = GATHERING["base"] + trees.predict(np.stack(sample.features), raw_score=True)
        sample.highest = fed(replace(sample, places=[]), model).highest


def left_out(samples: Sequence[Sample]) -> dict[str, Any]:
    """The figures of "leave one author out", and the lines that are drawn on its scores."""
    for group in sorted({sample.group for sample in samples}):
        score([one for one in samples if one.group == group], trained([one for one in samples if one.group != group]))
    hard = [sample for sample in samples if sample.is_hard]
    good = sorted((sample.highest for sample in hard if not sample.is_loop), reverse=True)
    loops = [sample.highest for sample in hard if sample.is_loop]
    lines = {name: round(good[int(share * len(good))], 2) for name, share in (("doubt", DOUBT), ("stop", STOP))}
    bare = [one for one in samples if one.group.partition(":")[0] in HARD and one.weight == BARE and not one.is_loop]
    unasked = sorted((one.highest for one in bare), reverse=True)[int(STOP * len(bare))]
    recorded = [one for one in samples if one.group.startswith("dev:") and not one.is_loop and one.weight == 1.0]
    pairs = sum((loop > one) + 0.5 * (loop == one) for loop in loops for one in good)
    reached = {
        name: {
            "loops": sum(one > at for one in loops),
            "hard_good": sum(one > at for one in good),
            "recorded_good": sum(one.highest > at for one in recorded),
            "games": sum(one.highest > at for one in samples if one.group == "games:" and one.weight == 1.0),
        }
        for name, at in lines.items()
    }
    totals = {"loops": len(loops), "hard_good": len(good), "recorded_good": len(recorded), "games": len(PLAYS) * GAMES}
    area = round(pairs / (len(loops) * len(good)), 3)
    lines["unasked"] = round(max(1.0, unasked / lines["stop"]), 2)
    return {**lines, "about": {"area_under_roc": area, "runs": totals, "reached_by_unseen_authors": reached}}


def exported(trees: Any) -> list[Any]:
    """The trees as `EvidenceModel` has them."""

    def node(of: Mapping[str, Any]) -> Any:
        if "leaf_value" in of:
            return round(of["leaf_value"], 4)
        threshold = float(f"{of['threshold']:.9g}")
        return [of["split_feature"], threshold, node(of["left_child"]), node(of["right_child"])]

    return [node(tree["tree_structure"]) for tree in trees.dump_model()["tree_info"]]


def learnt(sets: Sequence[str]) -> dict[str, Any]:
    """The model that is learnt from these sets, as JSON data."""
    files = [FIXTURES / f"{name}.jsonl.gz" for name in sets]
    samples = described([*(one for file in files for one in read(file)), *made(), *games()])
    found = left_out(samples)
    found["about"] |= {"date": dt.datetime.now(dt.UTC).date().isoformat(), "sets": [*sets, "made", "games"]}
    names = features_of(_STEPS)
    return {**found, **GATHERING, "features": names, "trees": exported(trained(samples))}


def write(model: Mapping[str, Any], file: Path) -> None:
    """One tree a line."""
    head = json.dumps({key: value for key, value in model.items() if key != "trees"}, indent=1)
    trees = ",\n".join(json.dumps(tree, separators=(",", ":")) for tree in model["trees"])
    file.write_text(f'{head[:-2]},\n "trees": [\n{trees}\n]}}\n', "utf-8")


# ------------------------------------------------------------------ reading a set


def answers(file: Path) -> dict[str, Counter[str]]:
    """What the default detectors do with the runs of a file, by class, with and without request."""
    found: dict[str, Counter[str]] = {}
    for sample in read(file):
        told = "" if sample.weight == 1.0 else ", no request"
        row = found.setdefault(f"{'loop' if sample.is_loop else 'good'}{told}", Counter())
        scanner = RunScanner(policy=ObserveOnly())
        for place, event in sample.events:
            if isinstance(event, str):
                scanner.request(event)
            else:
                scanner.take(place, event)
        seen = {(one.detection.detector == "learned_evidence", one.detection.level) for one in scanner.findings}
        sure, stop = (False, "loop") in seen, (True, "loop") in seen
        row.update(runs=1, sure=sure, stop=stop, any_stop=sure or stop, doubt=bool(seen))
    return found


def show(file: Path) -> None:
    """Print the answers as a table."""
    table = Table(
        "runs of", "runs", "sure", "stop by learned evidence", "any stop", "any stop or doubt", title=file.name
    )
    for name, row in answers(file).items():
        table.add_row(name, *(str(row[key]) for key in ("runs", "sure", "stop", "any_stop", "doubt")))
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and write, or read."""
    parser = argparse.ArgumentParser(prog="python -m bench.evidence", description="The model of LearnedEvidence.")
    parser.add_argument("--read", metavar="FILE", type=Path, help="count what the default detectors do with its runs")
    parser.add_argument("--sets", default=",".join(SETS), help="the sets to learn from, in fixtures/transcripts")
    options = parser.parse_args(arguments)
    if options.read is not None:
        show(options.read)
        return 0
    model = learnt(options.sets.split(","))
    write(model, MODEL_FILE)
    print(json.dumps({**model["about"], **{line: model[line] for line in LINES}}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
