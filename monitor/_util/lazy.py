"""Names of a package that are loaded at first use, so that `import monitor` loads only what every
program needs.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, origins: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of the module `package`: each name in `origins` is taken from its module at
    first use.

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

    return get
