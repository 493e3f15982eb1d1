"""The options of the judge that is asked beside the detectors. Apart from the judge itself, which
takes long to import.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from monitor.errors import ConfigError
from monitor.judges.judge import FIRST_TURN

if TYPE_CHECKING:
    from monitor.cli.inputs.offline_judge import OfflineJudge

ConfirmOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--judge-confirm", metavar="MODEL", help="A second model, asked the same where the first is sure."),
]
CacheOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--judge-cache", metavar="DIR", help="Where answers are kept, so that each is paid for once."),
]


@dataclass(slots=True, frozen=True, kw_only=True)
class JudgeOptions:
    """The judge that is asked beside the detectors."""

    judge: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Also ask this model whether a run is stuck: google:NAME, openai:NAME, ..., or replay:FILE.",
        ),
    ] = None
    judge_confirm: ConfirmOption = None
    judge_cache: CacheOption = None
    judge_from: Annotated[
        int, typer.Option(min=1, metavar="TURN", help="The turn at which the judge is asked first.")
    ] = FIRST_TURN

    def opened(self) -> AbstractContextManager[OfflineJudge | None]:
        """The judge, if one was named. Raises `ConfigError` if only its options were given."""
        if self.judge is not None:
            from monitor.cli.inputs.offline_judge import offline_judge  # noqa: PLC0415 - see the module

            return offline_judge(self.judge, self.judge_confirm, self.judge_cache, first_turn=self.judge_from)
        idle = [f"--{one.name.replace('_', '-')}" for one in fields(self) if getattr(self, one.name) != one.default]
        if idle:
            raise ConfigError(f"{' and '.join(idle)} without a judge to ask: add --judge google:NAME")
        return nullcontext()
