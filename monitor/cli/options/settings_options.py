"""The options that `run`, `scan` and `doctor` share: which detectors, with which numbers, and which
policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from monitor.errors import ConfigError
from monitor.settings import Settings, compactions, known_name, load_settings, parse_setting

SETTINGS = "Settings"
"""The heading of these options in the help."""
setting_option = partial(typer.Option, rich_help_panel=SETTINGS)

ConfigOption: TypeAlias = Annotated[
    Path | None,
    setting_option(
        "--config",
        metavar="FILE",
        help=(
            "Settings (TOML). Otherwise agent-monitor.toml here is read, or \\[tool.agent-monitor] of pyproject.toml,"
            " if there is one."
        ),
    ),
]
DetectorsOption: TypeAlias = Annotated[
    str | None,
    setting_option(
        "--detectors", metavar="NAME,NAME", help="Only these, e.g. ToolCallRepetition or tool-call-repetition."
    ),
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    setting_option(
        "--set",
        metavar="KEY=VALUE",
        help="One setting, as in the file: ToolCallRepetition.loop_at=7. May be given again.",
    ),
]
PolicyOption: TypeAlias = Annotated[
    str | None,
    setting_option("--policy", metavar="NAME", help="What follows from a loop: stop (the default), observe or ladder."),
]


@dataclass(slots=True, frozen=True, kw_only=True)
class DetectorOptions:
    """The settings of a command that has a policy of its own."""

    detectors: DetectorsOption = None
    settings: SetOption = None
    config: ConfigOption = None

    def read(self) -> Settings:
        """The settings: those of the command line on top of those of the file."""
        return settings_of(self.config, self.detectors, self.settings)

    def written(self) -> list[str]:
        """The options as words of a command line."""
        config = ["--config", str(self.config.absolute())] if self.config is not None else []
        detectors = ["--detectors", self.detectors] if self.detectors is not None else []
        return [*config, *detectors, *(word for one in self.settings or () for word in ("--set", one))]


@dataclass(slots=True, frozen=True, kw_only=True)
class SettingsOptions:
    """The settings of a command that watches runs."""

    detectors: DetectorsOption = None
    policy: PolicyOption = None
    settings: SetOption = None
    config: ConfigOption = None

    def read(self) -> Settings:
        """The settings: those of the command line on top of those of the file."""
        return settings_of(self.config, self.detectors, self.settings, self.policy)


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
