"""Loads the user's objects by name: `module:function`, `module:Model`."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from typing import Any

from monitor.errors import ConfigError, describe


def load(spec: str, option: str) -> Any:
    """The object that `module:name` names, also in modules of the current directory. Raises
    `ConfigError`, with `option`, if there is none.
    """
    name, colon, path = spec.partition(":")
    if not colon or not name or not path:
        raise ConfigError(f"{option} {spec}: write module:name, e.g. {option} my_tools:search")
    if name.endswith(".py") or "/" in name:
        meant = name.removeprefix("./").removesuffix(".py").replace("/", ".")
        raise ConfigError(f"{option} {spec}: write the module, not its file: {meant}:{path}")
    thing = _module(name, spec, option)
    for part in path.split("."):
        if not hasattr(thing, part):
            public = [one for one in vars(thing) if not one.startswith("_")] if hasattr(thing, "__dict__") else []
            close = difflib.get_close_matches(part, public, n=1)
            raise ConfigError(
                f"{option} {spec}: {name} has no {part!r}{f'; did you mean {close[0]!r}?' if close else ''}"
            )
        thing = getattr(thing, part)
    return thing


def _module(name: str, spec: str, option: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ConfigError(f"{option} {spec}: there is no module {name!r}, neither here nor installed") from None
        raise ConfigError(f"{option} {spec}: {name} needs a module that is not installed: {missing}") from None
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(f"{option} {spec}: importing {name} raised {describe(error)}") from error
