"""Names of a package that are loaded at first use, so that `import monitor` loads only what every
program needs.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, origins: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """The `__all__`, the `__getattr__` and the `__dir__` of the module `package`, whose names are
    loaded at first use.

    `origins`: a module, and the names that are taken from it, separated by blanks. Names from
    `package` itself are its submodules, and `__all__` leaves them out. A name that was used is kept
    in `package`, so its second use costs nothing.
    """
    modules = {name: module for module, names in origins.items() for name in names.split()}

    def get(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module == package:
            value: Any = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    public = [name for name, module in modules.items() if module != package]
    return sorted(public, key=lambda name: (not name.isupper(), name)), get, names


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
