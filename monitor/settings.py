"""Settings: the detectors and their numbers, tool policies, the policy, the compaction, and the
approval of calls. Failure answered: numbers that were tried with the command differ from those in
the program.

    detectors = ["ToolCallRepetition", "ContentRepetition"]    # without this line: the default ones

    [ToolCallRepetition]  # the options of the class, by its name
    loop_at = 7

    [tools.deploy_status]                                      # the fields of a ToolPolicy
    polling = true

    [policy]                                                   # or: policy = "observe"
    type = "ladder"
    max_nudges = 2

    [approval]                                                 # or: approval = "auto_edit"
    mode = "auto_edit"

    [[approval.rules]]                                         # or: rules = "rules.toml"
    tool = "shell"
    command = "git push"
    decision = "deny"
    match = ["git push origin main"]

Rules:

- The options are read from the signatures of the classes, so there is no second list of options or
  defaults.
- `false` switches an option off, if it can be off (`None` in Python). Values are not converted: a
  number must be a number, a list a list, a word a word.
- An unknown key is an error that names the known ones.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import pkgutil
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

import monitor.detectors
from monitor._util.argument_checks import is_whole
from monitor._util.explained_options import explains_options
from monitor.detectors import Detector, ToolPolicy, default_detectors
from monitor.errors import ConfigError
from monitor.policy import Ladder, ObserveOnly, Policy, StopAtFirstLoop

if TYPE_CHECKING:
    from monitor.runs.context.compaction import Compaction
    from monitor.tools.approvals.approval import Approval

__all__ = ["Settings", "load_settings"]
__dir__ = __all__.copy

T = TypeVar("T")
PathLike: TypeAlias = str | os.PathLike[str]

OWN_FILE = "agent-monitor.toml"
PROJECT_FILE = "pyproject.toml"
PROJECT_TABLE = ("tool", "agent-monitor")
POLICIES: Mapping[str, type[Policy]] = {"stop": StopAtFirstLoop, "observe": ObserveOnly, "ladder": Ladder}
"""The policies by their words in the file. The names of the classes are accepted too."""
OFF = "off"
PARALLEL = "max_parallel_tools"
KEYS = ("detectors", "tools", "policy", "compaction", "approval", PARALLEL)
WORDS: Mapping[str, str] = {"policy": "type", "compaction": "preset", "approval": "mode"}
"""Tables for which one word may stand, and the option that the word is then."""
COMPACTION_OPTIONS = (
    "headroom", "low_water", "summary_tokens", "window", "timeout_s",
    "background", "attempts", "continues", "on_live_prefix", "rules",
)  # fmt: skip
"""The options of a preset that are numbers or words. The other options are objects, which only a
program can give.
"""


def compactions() -> Sequence[str]:
    """The values of `compaction.preset` in the file."""
    from monitor.context.compaction.preset import PRESETS  # noqa: PLC0415 - as `_compaction`

    return *PRESETS, OFF


@cache
def detector_types() -> Mapping[str, type[Detector]]:
    """Every detector of the library by its name, the default ones first."""
    found: dict[str, type[Detector]] = {type(detector).__name__: type(detector) for detector in default_detectors()}
    for name in dir(monitor.detectors):
        thing = getattr(monitor.detectors, name)
        if inspect.isclass(thing) and hasattr(thing, "observe") and not getattr(thing, "_is_protocol", False):
            found.setdefault(name, cast("type[Detector]", thing))
    return found


class Settings:
    """Settings that were read and checked. Detectors and policies belong to one run, so each call
    makes new ones:

    monitor.Guard(detectors=config.detectors(), policy=config.policy())
    """

    __slots__ = (
        "_approval",
        "_compaction",
        "_detectors",
        "_policy",
        "max_parallel_tools",
        "settings",
        "source",
        "tools",
    )

    settings: Mapping[str, Any]
    """The settings that were given, detectors by the names of their classes."""
    source: Path | None
    """The file that was read. `None`: there is no file."""
    tools: Mapping[str, ToolPolicy]
    """The given tool policies, by the name of the tool."""
    max_parallel_tools: int | None
    """How many calls of a supervised run go on at once. `None`: the file does not say."""

    def __init__(self, settings: Mapping[str, Any] | None = None, *, source: PathLike | None = None) -> None:
        """`settings`: the tables of the file as a mapping. Raises `ConfigError` for an invalid
        setting.
        """
        self.settings = _spelled(settings or {})
        self.source = None if source is None else Path(source)
        self.tools = {
            name: _make(ToolPolicy, table, f"tools.{name}") for name, table in _table(self.settings, "tools").items()
        }
        made = {
            name: _prepared(cls, _table(self.settings, name), name, {"tools": self.tools} if self.tools else {})
            for name, cls in detector_types().items()
        }
        self._detectors = [made[name] for name in _chosen(self.settings)]
        self._policy = _policy(self.settings)
        self._compaction = _compaction(self.settings)
        self._approval = _approval(self.settings, self.source)
        self.max_parallel_tools = _parallel(self.settings)

    def detectors(self) -> list[Detector]:
        """New instances of the detectors, for one run."""
        return [make() for make in self._detectors]

    def policy(self) -> Policy | None:
        """A new policy for one run. `None`: the file names no policy, and the default applies."""
        return self._policy() if self._policy is not None else None

    def compaction(self) -> Compaction | None:
        """The compaction for a supervised run. `None`: it is off. Without a setting, it is the
        default preset.
        """
        if self._compaction is None and not self.settings.get("compaction"):
            from monitor.runs.context.compaction import DEFAULT  # noqa: PLC0415 - as `_compaction`

            return DEFAULT
        return self._compaction

    def approval(self) -> Approval | None:
        """The rules for calls of a run that need a yes. `None`: the file does not say."""
        return self._approval

    def updated(self, *settings: Mapping[str, Any]) -> Settings:
        """A copy to which `settings` are applied in order: tables are merged, other values are
        replaced. Another type of policy, or another preset of compaction, drops the options of the
        old one. Only the final result must be valid.
        """
        joined = dict(self.settings)
        for new in map(_spelled, settings):
            for table in ("policy", "compaction"):
                kind = WORDS[table]
                if kind in new.get(table, {}) and new[table][kind] != joined.get(table, {}).get(kind):
                    joined.pop(table, None)
            joined = joined_tables(joined, new)
        return Settings(joined, source=self.source)

    def __repr__(self) -> str:
        return f"Settings({dict(self.settings)!r}, source={None if self.source is None else str(self.source)!r})"


@explains_options(example="monitor.load_settings('agent-monitor.toml')")
def load_settings(path: PathLike | None = None) -> Settings:
    """The settings in a TOML file, or in the table `[tool.agent-monitor]` of a `pyproject.toml`.

    Without `path`, `agent-monitor.toml` in the current directory is read, else the table of
    `pyproject.toml` there. If there is neither, the defaults apply. Raises `ConfigError`, with the
    name of the file, if the file is unreadable or invalid.
    """
    if path is not None:
        settings = _read(Path(path))
        if settings is None:
            raise ConfigError(f"{path}: there is no table [{'.'.join(PROJECT_TABLE)}] in it")
        return _checked(settings, Path(path))
    for name in (OWN_FILE, PROJECT_FILE):
        if (file := Path(name)).is_file() and (settings := _read(file)) is not None:
            return _checked(settings, file)
    return Settings()


def parse_setting(text: str) -> dict[str, Any]:
    """`"ToolCallRepetition.loop_at=7"` as the mapping that the same line in a file gives. A word
    needs no quotation marks.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise ConfigError(f"{text!r} sets nothing; write KEY=VALUE, e.g. ToolCallRepetition.loop_at=7")
    for line in (text, f"{key} = {json.dumps(value.strip())}"):
        try:
            return tomllib.loads(line)
        except tomllib.TOMLDecodeError:
            continue
    raise ConfigError(
        f"{text!r}: {key.strip()!r} is not a key; a name with other signs than A-Z a-z 0-9 _ - needs quotation marks"
    )


# ------------------------------------------------------------------ reading


def _read(file: Path) -> Mapping[str, Any] | None:
    """The settings of a file. `None`: a `pyproject.toml` without the table."""
    try:
        data: Any = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(f"{file} is not TOML: {error}") from None
    if file.name == PROJECT_FILE:
        for name in PROJECT_TABLE:
            data = data.get(name) if isinstance(data, Mapping) else None
            if data is None:
                return None
    return cast("Mapping[str, Any]", data)


def _checked(settings: Mapping[str, Any], file: Path) -> Settings:
    try:
        return Settings(settings, source=file)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


# ------------------------------------------------------------------ names


def known_name(name: str, known: Iterable[str], what: str, where: str = "") -> str:
    """The name in `known` that `name` spells: `tool-call-repetition`, `tool_call_repetition` and
    `ToolCallRepetition` are one name.

    `what`: the noun for the error. `where`: the table in which the name stands.
    """
    plain = {_plain(candidate): candidate for candidate in known}
    if _plain(name) in plain:
        return plain[_plain(name)]
    close = difflib.get_close_matches(_plain(name), plain, n=1)
    hint = f"; did you mean {plain[close[0]]}?" if close else ""
    place = f"{where}: " if where else ""
    raise ConfigError(
        f"{place}there is no {what} {name!r}{hint} (there {'is' if len(plain) == 1 else 'are'}:"
        f" {', '.join(plain.values())})"
    )


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").casefold()


def _spelled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in one spelling: names of detectors and policies as in the library,
    `policy = "x"` as a table.
    """
    if not isinstance(settings, Mapping):
        raise ConfigError(f"settings are a table, not {settings!r}")
    spelled: dict[str, Any] = {}
    for key, value in settings.items():
        name = known_name(key, (*KEYS, *detector_types()), "setting")
        if name in spelled:
            raise ConfigError(f"{name} is there twice, the second time as {key!r}")
        spelled[name] = value
    if "detectors" in spelled:
        spelled["detectors"] = _names(spelled["detectors"])
    for name, kind in WORDS.items():
        if isinstance(word := spelled.get(name), str):
            spelled[name] = {kind: word}
    for name, spell in (("policy", _policy_name), ("compaction", _preset_name)):
        if (kind := WORDS[name]) in (table := _table(spelled, name)):
            spelled[name] = {**table, kind: spell(table[kind])}
    return spelled


def _names(value: object) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise ConfigError(
            f"detectors = {value!r}: give a list of names, e.g. detectors = ['ToolCallRepetition']; "
            "what a detector's numbers are stands in a table of its name, e.g. [ToolCallRepetition]"
        )
    names = [known_name(name, detector_types(), "detector") for name in value]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"detectors: {', '.join(twice)} is named twice")
    return names


def _policy_name(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"policy.type = {value!r}: give one of {', '.join(POLICIES)}")
    for name, cls in POLICIES.items():
        if _plain(value) == _plain(cls.__name__):
            return name
    return known_name(value, POLICIES, "policy")


def _preset_name(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"compaction.preset = {value!r}: give one of {', '.join(compactions())}")
    return known_name(value, compactions(), "preset", "compaction")


def _table(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = settings.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} = {value!r}: give a {'word or a ' if key in WORDS else ''}table, [{key}]")
    return value


def joined_tables(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """`old` with the values of `new` in their places. A table in a table is joined in the same
    way.
    """
    joined = dict(old)
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(before := old.get(key), Mapping):
            value = joined_tables(before, value)  # noqa: PLW2901 - the value in its place
        joined[key] = value
    return joined


# ------------------------------------------------------------------ from tables to objects


def _chosen(settings: Mapping[str, Any]) -> list[str]:
    chosen: list[str] = settings.get("detectors", [type(detector).__name__ for detector in default_detectors()])
    return chosen


def _policy(settings: Mapping[str, Any]) -> Callable[[], Policy] | None:
    options = dict(_table(settings, "policy"))
    if not options:
        return None
    if "type" not in options:
        raise ConfigError(f"policy: say which one, type = one of {', '.join(map(repr, POLICIES))}")
    return _prepared(POLICIES[options.pop("type")], options, "policy", {})


def _compaction(settings: Mapping[str, Any]) -> Compaction | None:
    """`None`: it is off, or the settings do not say. Its modules take longer to import than all
    others together, and most programs that read settings watch runs.
    """
    table = dict(_table(settings, "compaction"))
    if not table:
        return None
    from monitor.context.compaction.preset import PRESETS, Preset  # noqa: PLC0415 - see above
    from monitor.runs.context.compaction import Compaction  # noqa: PLC0415 - see above

    preset = table.pop("preset", PRESETS[0])
    if preset == OFF:
        if table:
            raise ConfigError(f"compaction: it is off, so it has no option {next(iter(table))!r}")
        return None
    names = {key: known_name(key, COMPACTION_OPTIONS, "option", "compaction") for key in table}
    options = _options(Preset, {names[key]: value for key, value in table.items()}, "compaction")
    return _made(lambda: cast("Compaction", getattr(Compaction, preset)(**options)), "compaction")


def _approval(settings: Mapping[str, Any], source: Path | None) -> Approval | None:
    table = dict(_table(settings, "approval"))
    if not table:
        return None
    from monitor.tools.approvals.approval import Approval  # noqa: PLC0415 - as `_compaction`
    from monitor.tools.approvals.rules import Rules  # noqa: PLC0415 - as `_compaction`

    rules = table.pop("rules", None)
    options = _options(Approval, table, "approval")
    if isinstance(rules, str):  # a path is relative to the file that names it
        path = Path(rules) if source is None else source.parent / rules
        options["rules"] = _made(lambda: Rules.load(path), "approval")
    elif isinstance(rules, list):
        options["rules"] = _made(lambda: Rules(rules), "approval")
    elif rules is not None:
        raise ConfigError(f"approval.rules = {rules!r}: write [[approval.rules]], or the path of a file with rules")
    return _made(lambda: Approval(**options), "approval")


def _parallel(settings: Mapping[str, Any]) -> int | None:
    given = settings.get(PARALLEL)
    if given is not None and (not is_whole(given) or given < 1):
        raise ConfigError(f"{PARALLEL} = {given!r}: give a whole number, 1 or more")
    return given


def _prepared(
    cls: Callable[..., T], table: Mapping[str, Any], where: str, shared: Mapping[str, Any]
) -> Callable[[], T]:
    """A function that makes a new `cls`, called once to see that it works. `shared`: options for
    everything that has them.
    """
    options = _options(cls, table, where)
    for name, value in shared.items():
        if name in _hints(cls):
            options[name] = {**value, **options.get(name, {})}

    def make() -> T:
        return cls(**options)

    _made(make, where)
    return make


def _make(cls: Callable[..., T], table: object, where: str) -> T:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} = {table!r}: give a table, [{where}]")
    options = _options(cls, table, where)
    return _made(lambda: cls(**options), where)


def _made(make: Callable[[], T], where: str) -> T:
    try:
        return make()
    except ConfigError as error:
        hint = " (in a file, None is written false)" if "None" in str(error) else ""
        place = "" if str(error).startswith(f"{where}(") else f"{where}: "
        raise ConfigError(f"{place}{error}{hint}") from None


def _options(cls: Callable[..., Any], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    hints = _hints(cls)
    if table and not hints:
        raise ConfigError(
            f"{where}: there is no option {next(iter(table))!r}; {getattr(cls, '__name__', where)} has none"
        )
    options: dict[str, Any] = {}
    for key, value in table.items():
        name = known_name(key, hints, "option", where)
        if name in options:
            raise ConfigError(f"{where}.{name} is there twice, the second time as {key!r}")
        options[name] = _value(hints[name], value, f"{where}.{name}")
    return options


@cache
def _hints(cls: Callable[..., Any]) -> Mapping[str, Any]:
    """The options of a class and their types."""
    parameters = inspect.signature(cls, eval_str=True).parameters.values()
    return {parameter.name: parameter.annotation for parameter in parameters}


def _value(hint: Any, value: Any, where: str) -> Any:
    """`value` as its type requires. Raises `ConfigError`, with the place, if it does not fit."""
    kinds = _kinds(hint)
    if value is False and NoneType in kinds and bool not in kinds:
        return None
    for kind in kinds:
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Callable:
            return _function(value, where)
        if isinstance(value, Mapping) and _has_fields(kind):
            return _make(kind, value, where)
        if isinstance(value, Mapping) and origin is Mapping and _has_fields(inner[1]):
            return {name: _make(inner[1], table, f"{where}.{name}") for name, table in value.items()}
    try:
        return _adapter(hint).validate_json(json.dumps(value), strict=True)
    except (ValidationError, TypeError) as error:  # TypeError: a date, which JSON has not
        says = "give a number, a word, true, false or a list"
        if isinstance(error, ValidationError):
            says = error.errors()[0]["msg"].replace("Input", "it")
        off = "; false turns it off" if NoneType in kinds else ""
        raise ConfigError(f"{where} = {value!r}: {says}{off}") from None


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    """The validator of a type. JSON has only lists, so a `Collection` is checked as a list."""
    lists: dict[Any, Any] = {
        kind: GenericAlias(Sequence, get_args(kind)) for kind in _kinds(hint) if get_origin(kind) is Collection
    }
    return TypeAdapter(reduce(or_, (lists.get(kind, kind) for kind in _kinds(hint))))


def _has_fields(kind: Any) -> bool:
    return is_dataclass(kind)


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The members of a union; else the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _function(value: object, where: str) -> Callable[..., Any]:
    if isinstance(value, str) and ":" in value:
        try:
            function = pkgutil.resolve_name(value)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"{where} = {value!r}: {error}") from None
        if callable(function):
            return cast("Callable[..., Any]", function)
    raise ConfigError(f"{where} = {value!r}: give a function by its name, 'module:function'")
