"""Names of a package that are loaded at first use, so that `import monitor` loads only what every
program needs.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, origins: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of the module `package`: each name in `origins` is taken
    from its module at first use.

    `origins`: name -> module. A module whose last part is the name itself is a submodule, and is
    the value. The value is kept in `package`, so the second use costs nothing.
    """

    def get(name: str) -> Any:
        origin = origins.get(name)
        if origin is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(origin)
        value = module if origin == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *origins})

    return get, names


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
