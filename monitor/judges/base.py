"""What may be given as a judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monitor.errors import ConfigError
from monitor.judging import Judge


def as_judges(given: object) -> tuple[Judge, ...]:
    """A judge, several, or none (`None`). `ConfigError` for anything else."""
    if given is None:
        return ()
    several: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for judge in several:
        if isinstance(judge, type) or not callable(getattr(judge, "review", None)):
            raise ConfigError(f"judge takes a judge such as monitor.LoopJudge(model), or a list of judges, not {judge!r}")
    return tuple(several)
