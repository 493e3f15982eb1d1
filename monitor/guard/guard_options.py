"""The options of a `Guard` but `outputs`, for type checkers: both of its signatures take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from monitor.budget import Budget
from monitor.chunks import Price
from monitor.conditions import Condition
from monitor.context.window import Window
from monitor.detectors.detector import Detector
from monitor.guard.streams.wait import Clock
from monitor.judges.judge import Judge
from monitor.policy import Policy
from monitor.sinks.base import Sink


class GuardOptions(TypedDict, total=False):
    """`Guard` documents them."""

    agent: str
    stop_when: Condition | None
    detectors: Sequence[Detector] | None
    policy: Policy | None
    judge: Judge | Sequence[Judge] | None
    task: str | None
    max_nudges: int | None
    budget: Budget | None
    prices: Price | str | None
    window: Window | int | None
    sinks: Sequence[Sink]
    clock: Clock | None
    keep_text_chars: int | None
    close_grace_s: float | None
