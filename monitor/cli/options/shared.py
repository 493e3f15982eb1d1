"""The options that several commands share, and how an option is declared.

An option is one field of a dataclass: its type, its sentence, and what its text becomes. The
parser, `--help` and the arguments of the part that it configures are made from that field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from monitor.errors import ConfigError
from monitor.judges.judge import FIRST_TURN
from monitor.settings import Settings, compactions, known_name, load_settings, parse_setting

SETTINGS = "Settings"
"""The heading of the options that change settings, in the help."""


def option(metavar: str, said: str, *flags: str, panel: str | None = None, **more: Any) -> Any:
    """An option with a value. Without `flags` it has the name of its field. `panel`: its heading in
    the help. `said`: its sentence. `more`: as `typer.Option` takes it.
    """
    return typer.Option(*flags, metavar=metavar, help=said, rich_help_panel=panel, **more)


def flag(name: str, said: str, *, panel: str | None = None) -> Any:
    """An option without a value, such as `--json`, or with its opposite: `--cache/--no-cache`."""
    return option("", said, *name.split(), panel=panel)


def argument(metavar: str, said: str, **more: Any) -> Any:
    """A word of the command line that no option introduces."""
    return typer.Argument(metavar=metavar, help=said, **more)


@dataclass(slots=True, frozen=True)
class Read:
    """Stands beside the declaration of an option, and makes the argument from its value."""

    make: Callable[[Any], Any]


def arguments_of(options: Any) -> dict[str, Any]:
    """The arguments that the fields of `options` name, each as its `Read` makes it.

    Raises `ConfigError` for a value that is wrong.
    """
    hints = get_type_hints(type(options), include_extras=True)
    made: dict[str, Any] = {}
    for one in fields(options):
        value = getattr(options, one.name)
        for reading in getattr(hints[one.name], "__metadata__", ()):
            value = reading.make(value) if isinstance(reading, Read) else value
        made[one.name] = value
    return made


setting_option = partial(option, panel=SETTINGS)

ConfigOption: TypeAlias = Annotated[
    Path | None,
    setting_option(
        "FILE",
        "Settings (TOML). Otherwise agent-monitor.toml here is read, or \\[tool.agent-monitor] of pyproject.toml,"
        " if there is one.",
        "--config",
    ),
]
DetectorsOption: TypeAlias = Annotated[
    str | None,
    setting_option("NAME,NAME", "Only these, e.g. ToolCallRepetition or tool-call-repetition.", "--detectors"),
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    setting_option(
        "KEY=VALUE", "One setting, as in the file: ToolCallRepetition.loop_at=7. May be given again.", "--set"
    ),
]
TranscriptsArgument: TypeAlias = Annotated[
    list[str] | None,
    argument(
        "PATH",
        "Transcripts: files, folders, patterns, archives; - is stdin. Without any, the known places are read.",
    ),
]
LimitOption: TypeAlias = Annotated[int | None, option("N", "Stop after N runs.", min=1)]
CardOption: TypeAlias = Annotated[
    Path | None, option("FILE", "Write the result as a picture: card.svg or card.png.", "--card")
]
CardTaskOption: TypeAlias = Annotated[
    bool, flag("--card-task", "With what was asked for in the costliest run. Else the card has no text.")
]
OneJsonOption: TypeAlias = Annotated[bool, flag("--json", "Print one JSON object.")]
JsonOption: TypeAlias = Annotated[bool, flag("--json", "Print JSON.")]
ConfirmOption: TypeAlias = Annotated[
    str | None, option("MODEL", "A second model, asked the same where the first is sure.", "--judge-confirm")
]
CacheOption: TypeAlias = Annotated[
    Path | None, option("DIR", "Where answers are kept, so that each is paid for once.", "--judge-cache")
]


@dataclass(slots=True, frozen=True, kw_only=True)
class DetectorOptions:
    """The settings of a command that has a policy of its own."""

    detectors: DetectorsOption = None
    settings: SetOption = None
    config: ConfigOption = None

    def read(self) -> Settings:
        """The settings: those of the command line on top of those of the file."""
        return settings_of(**arguments_of(self))

    def written(self) -> list[str]:
        """The options as words of a command line."""
        config = ["--config", str(self.config.absolute())] if self.config is not None else []
        detectors = ["--detectors", self.detectors] if self.detectors is not None else []
        return [*config, *detectors, *(word for one in self.settings or () for word in ("--set", one))]


@dataclass(slots=True, frozen=True, kw_only=True)
class SettingsOptions(DetectorOptions):
    """The settings of a command that watches runs."""

    policy: Annotated[
        str | None, setting_option("NAME", "What follows from a loop: stop (the default), observe or ladder.")
    ] = None


@dataclass(slots=True, frozen=True, kw_only=True)
class SelectionOptions:
    """The choice of recorded runs."""

    since: Annotated[str | None, option("WHEN", "Only runs of the last 7d (24h, 2w), or since 2026-01-31.")] = None
    only: Annotated[str | None, option("NAME", "Only transcripts of this format: claude-code, codex.", "--format")] = (
        None
    )
    project: Annotated[str | None, option("TEXT", "Only runs whose folder has this in its path.")] = None


@dataclass(slots=True, frozen=True, kw_only=True)
class JudgeOptions:
    """The judge that is asked beside the detectors. `offline_judge` makes it for recorded runs."""

    judge: Annotated[
        str | None,
        option("MODEL", "Also ask this model whether a run is stuck: google:NAME, openai:NAME, ..., or replay:FILE."),
    ] = None
    judge_confirm: ConfirmOption = None
    judge_cache: CacheOption = None
    judge_from: Annotated[int, option("TURN", "The turn at which the judge is asked first.", min=1)] = FIRST_TURN

    @property
    def asked(self) -> bool:
        """Whether a judge was named. Raises `ConfigError` if only its options were given."""
        idle = [f"--{one.name.replace('_', '-')}" for one in fields(self) if getattr(self, one.name) != one.default]
        if self.judge is None and idle:
            raise ConfigError(f"{' and '.join(idle)} without a judge to ask: add --judge google:NAME")
        return self.judge is not None


def settings_of(
    config: Path | None,
    detectors: str | None,
    settings: Sequence[str] | None,
    policy: str | None = None,
    compaction: str | None = None,
    *,
    base: Settings | None = None,
) -> Settings:
    """The settings: those of the command line on top of those of the file, or of `base`."""
    given: list[Mapping[str, Any]] = []
    if detectors is not None:
        names = [name.strip() for name in detectors.split(",") if name.strip()]
        if not names:
            raise ConfigError("--detectors names none; omit it for the default ones")
        given.append({"detectors": names})
    if policy is not None:
        given.append({"policy": policy})
    if compaction is not None:
        given.append({"compaction": known_name(compaction, compactions(), "preset", f"--compaction {compaction}")})
    given += map(parse_setting, settings or ())
    return (base or load_settings(config)).updated(*given)


def described(config: Settings) -> list[str]:
    """Each setting as it would be written with `--set`."""
    return [
        f"{key}={value if isinstance(value, str) else json.dumps(value, default=str)}"
        for key, value in _flat(config.settings, "")
    ]


def _flat(settings: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        key = name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else json.dumps(name)
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
