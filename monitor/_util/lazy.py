"""Names of a package that are loaded at first use, so that `import monitor` loads only what every
program needs.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from monitor.errors import MissingExtra


def lazy_names(package: str, hidden: str = "") -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """The `__all__`, the `__getattr__` and the `__dir__` of the module `package`, whose names are
    loaded at first use: those that it imports for type checkers, in lines like `from a.b import C
    as D`. Names from `package` itself are its submodules, and `__all__` leaves them out. A name
    that was used is kept in `package`, so its second use costs nothing. `hidden`: names that have
    moved, separated by blanks. They warn, and neither `dir` nor `__all__` shows them.

    A name whose module needs an extra that is not installed is a stand-in, so a bare install can
    be looked through. Using the stand-in raises `MissingExtra`.

    The imports are read in the source of `package`, so a frozen program has to carry that source.
    """
    spec: Any = sys.modules[package].__spec__
    source: str = spec.loader.get_data(spec.origin).decode()
    imports = [line.split() for line in source.splitlines() if line.startswith("    from ") and " as " in line]
    origins = {alias: (module, name) for _, module, _, name, _, alias, *_ in imports}
    old = hidden.split()

    def get(name: str) -> Any:
        if name not in origins:
            right = _WORDS.get(name, name) if "." not in package else name
            hint = f"; write {package}.{right}" if right != name else did_you_mean(name, names())
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        module, original = origins[name]
        try:
            if module == package:  # an old one warns by itself
                return importlib.import_module(f"{package}.{name}")
            value = getattr(importlib.import_module(module), original)
        except Exception as error:
            from monitor.errors import MissingExtra  # noqa: PLC0415 - most programs have their extras

            if not isinstance(error, MissingExtra):
                raise
            return _stand_in(module, name, error)  # it is not kept: the package may be installed later
        if name in old:
            from monitor.moved import warn  # noqa: PLC0415 - only for such names

            warn(f"{package}.{name}", f"{module}.{original}")
            return value
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*origins, *getattr(sys.modules[package], "__all__", ())} - set(old))

    public = [name for name, (module, _) in origins.items() if module != package and name not in old]
    return sorted(public, key=lambda name: (not name.isupper(), name)), get, names


_WORDS: dict[str, str] = dict.fromkeys(("Agent", "Orchestrator", "Runner", "SubAgent", "Subagent"), "Supervisor")
"""What other libraries call a name of the package itself."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about the unknown `name`: the closest of the names that are known, if
    one is close.
    """
    if name.startswith("_"):  # such names are asked for by inspection, not by a person
        return ""
    from difflib import get_close_matches  # noqa: PLC0415 - only for a wrong name

    closest = get_close_matches(name, known, 1, 0.7)
    return f"; did you mean {closest[0]!r}?" if closest else ""


class _Missing(type):
    """The class of the stand-ins. What a program does with a stand-in raises `MissingExtra`; what
    `inspect` and `help` ask of it is answered.
    """

    _error: MissingExtra

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> _Missing:
        for base in bases:
            if isinstance(base, _Missing):
                raise base._reason()  # noqa: SLF001 - of the same class
        return super().__new__(cls, name, bases, members)

    def __call__(cls, *arguments: object, **options: object) -> Any:
        raise cls._reason()

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}: {cls._error}")
        raise cls._reason()

    def _reason(cls) -> MissingExtra:
        from monitor.errors import MissingExtra  # noqa: PLC0415 - see `lazy_names`

        return MissingExtra(cls._error.package, cls._error.extra)


def _stand_in(module: str, name: str, error: MissingExtra) -> _Missing:
    """A class that stands for `name` of `module`, which cannot be imported because of `error`."""
    return _Missing(name, (), {"__module__": module, "__doc__": f"Not available here: {error}", "_error": error})


class LazyModule:
    """Stands for the module `name` of a large library, which is imported when something of it is
    asked for.

    Type checkers are shown the import: `if TYPE_CHECKING: import pydantic`, `else: pydantic =
    LazyModule("pydantic")`.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value
