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
    as C`. Names from `package` itself are its submodules, and `__all__` leaves them out. A name
    that was used is kept in `package`, so its second use costs nothing. `hidden`: names that are
    there and that `dir` does not show, separated by blanks.

    A name whose module needs an extra that is not installed is a stand-in, so a bare install can
    be looked through. Using the stand-in raises `MissingExtra`.

    The imports are read in the source of `package`, so a frozen program has to carry that source.
    """
    spec: Any = sys.modules[package].__spec__
    source: str = spec.loader.get_data(spec.origin).decode()
    words = [line.split() for line in source.splitlines() if line.startswith("    from ")]
    modules = {name: module for _, module, _, name, *_ in words}

    def get(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{did_you_mean(name, modules)}")
        try:
            if module == package:
                value: Any = importlib.import_module(f"{package}.{name}")
            else:
                value = getattr(importlib.import_module(module), name)
        except Exception as error:
            from monitor.errors import MissingExtra  # noqa: PLC0415 - most programs have their extras

            if not isinstance(error, MissingExtra):
                raise
            return _stand_in(module, name, error)  # it is not kept: the package may be installed later
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*modules, *getattr(sys.modules[package], "__all__", ())} - set(hidden.split()))

    public = [name for name, module in modules.items() if module != package]
    return sorted(public, key=lambda name: (not name.isupper(), name)), get, names


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
