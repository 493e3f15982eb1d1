"""What may be given as a judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from monitor.errors import ConfigError
from monitor.judging import Fact, Judge


def as_judges(given: object) -> tuple[Judge, ...]:
    """A judge, several, or none (`None`). `ConfigError` for anything else."""
    if given is None:
        return ()
    several: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for judge in several:
        if isinstance(judge, type) or not callable(getattr(judge, "review", None)):
            raise ConfigError(f"judge takes a judge such as monitor.LoopJudge(model), or a list of judges, not {judge!r}")
        missing = [name for name in _PARTS if not hasattr(judge, name)]
        if missing:
            raise ConfigError(f"judge: {judge!r} has no {', '.join(missing)}")
        if judge.fact not in get_args(Fact):
            raise ConfigError(f"judge: the fact of {judge.name} is 'loop' or 'done', not {judge.fact!r}")
    return tuple(several)


_PARTS = ("name", "fact", "threshold", "timeout_s", "counts", "schedule")
