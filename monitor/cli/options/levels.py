"""Settings from strict to lenient: the numbers of each detector, times a factor."""

from __future__ import annotations

import inspect
import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from monitor.detectors import Detector, LearnedEvidence, default_detectors
from monitor.policy import Policy
from monitor.settings import Settings, detector_types
from monitor.transcripts.analysis.scan import RunScanner
from monitor.transcripts.analysis.traces import UNREACHED, Gauge, Level, TraceWatcher
from monitor.transcripts.base import Began

FACTORS: Final = (0.6, 0.8, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0)
"""From three equal calls in a row to thirty, where five is the default."""
MOST: Final = 64
"""Calls that are compared at most: a larger number is refused by a detector."""
SCALED: Final[Mapping[str, tuple[str, ...]]] = {
    "ToolCallRepetition": ("loop_at",),
    "ToolCallCycle": ("rounds", "unordered_at"),
    "LearnedEvidence": ("doubt", "stop"),
    "RepeatedError": ("loop_at",),
    "SimilarMessages": ("loop_at", "equal_loop_at"),
}
"""The numbers of repetitions from which on a detector is sure. The rules of texts have other ones,
and are on or off.
"""
WEIGHED: Final = "LearnedEvidence"
"""The detector whose evidence is weighed: its `stop` may lie between two levels."""
SUSPICIONS: Final = ("suspect_at",)


def levels_of(base: Settings) -> list[dict[str, Any]]:
    """The settings of each level, the strictest first, on top of `base`."""
    return [_at(base, factor) for factor in FACTORS]


def _at(base: Settings, factor: float) -> dict[str, Any]:
    settings: dict[str, Any] = {name: value for name, value in base.settings.items() if name != "compaction"}
    settings["detectors"] = names_of(base)
    for name in settings["detectors"]:
        if name in SCALED:
            options = {**_defaults(name), **base.settings.get(name, {})}
            settings[name] = {**base.settings.get(name, {}), **_scaled(name, options, factor)}
    return settings


def names_of(base: Settings) -> list[str]:
    """The names of the detectors that `base` has."""
    default = [type(detector).__name__ for detector in default_detectors()]
    return list(base.settings.get("detectors", default))


@cache
def _defaults(name: str) -> Mapping[str, Any]:
    parameters = inspect.signature(detector_types()[name]).parameters
    return {option: one.default for option, one in parameters.items() if isinstance(one.default, int | float)}


def _scaled(name: str, options: Mapping[str, Any], factor: float) -> dict[str, Any]:
    evidence = {option: options[option] for option in SCALED[name] if isinstance(options.get(option), float)}
    if evidence:
        return {option: round(value * factor, 3) for option, value in evidence.items()}
    found = {
        option: min(MOST, max(2, math.ceil(options[option] * factor)))
        for option in SCALED[name]
        if isinstance(options.get(option), int) and options[option] is not False
    }
    if "rounds" in found and "unordered_at" in found:
        found["unordered_at"] = max(found["unordered_at"], 2 * found["rounds"])
    sure = min(found.values(), default=2)
    for option in SUSPICIONS:
        if isinstance(options.get(option), int) and options[option] is not False and options[option] > sure:
            found[option] = sure
    return found


@dataclass(slots=True, frozen=True)
class Levels:
    """Levels that another process can be given."""

    settings: tuple[str, ...]
    """The settings of each level as JSON."""

    def watcher(self, began: Began, scanner: RunScanner) -> TraceWatcher:
        """Watches a run with all of them."""
        levels = [Level(partial(_detectors, text), partial(_policy, text)) for text in self.settings]
        thresholds = [_threshold(text) for text in self.settings]
        gauge = None
        if all(thresholds):
            gauge = Gauge(partial(_gauge, self.settings[0]), partial(_height, thresholds))
        return TraceWatcher(began, scanner, levels=levels, gauge=gauge)


def _threshold(text: str) -> float:
    """The `stop` of `LearnedEvidence` in these settings; 0: they have none."""
    for one in _detectors(text):
        if isinstance(one, LearnedEvidence):
            return float(one.options()["stop"])
    return 0.0


def _gauge(text: str) -> LearnedEvidence:
    """The detector of these settings, with a threshold that is not reached."""
    own = next(one for one in _detectors(text) if isinstance(one, LearnedEvidence))
    return LearnedEvidence(**{**own.options(), "stop": UNREACHED})


def _height(thresholds: Sequence[float], nats: float) -> float:
    """How many levels `nats` come to, also between two of them. -1: not to the strictest one."""
    at = bisect_right(thresholds, nats) - 1
    if at < 0:
        return -1.0
    low = thresholds[at]
    step = (thresholds[at + 1] if at + 1 < len(thresholds) else 2 * low) - low
    return at + (nats - low) / step


def threshold_above(height: float, levels: Sequence[Mapping[str, Any]]) -> float:
    """The least threshold that a run of this height does not come to. `levels`: the settings of
    each level.
    """
    thresholds = [float(level[WEIGHED]["stop"]) for level in levels]
    if height < 0:
        return thresholds[0]
    at = min(int(height), len(thresholds) - 1)
    low = thresholds[at]
    step = (thresholds[at + 1] if at + 1 < len(thresholds) else 2 * low) - low
    return math.ceil((low + (height - at) * step) * 1_000 + 1) / 1_000


@cache
def _settings(text: str) -> Settings:
    return Settings(json.loads(text))


def _detectors(text: str) -> Sequence[Detector]:
    return _settings(text).detectors()


def _policy(text: str) -> Policy | None:
    return _settings(text).policy()


def as_toml(settings: Mapping[str, Any]) -> str:
    """Settings as the lines of a file that `load_settings` reads."""
    return "\n".join(_tables(settings, ())) + "\n"


def _tables(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping) and not _has_tables(value)}
    if path and (plain or not table):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for name, value in plain.items():
        yield f"{_key(name)} = {_value(value)}"
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _tables(value, (*path, name))
        for one in value if _has_tables(value) else ():
            yield f"\n[[{'.'.join(map(_key, (*path, name)))}]]"
            yield from (f"{_key(key)} = {_value(inner)}" for key, inner in one.items())


def _has_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("-", "").replace("_", "").isalnum() else _value(name)


def _value(value: object) -> str:
    """The value as TOML writes it: as JSON, except for objects, and the sign U+007F, which it
    escapes.
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {_value(one)}' for key, one in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
