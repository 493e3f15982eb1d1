"""An extension of griffe for the site: the public names of a module are those of its `__all__`.

The public modules make `__all__` when they are imported, so griffe cannot read it from the source.
"""

from __future__ import annotations

import importlib
from typing import Any

import griffe


class PublicNames(griffe.Extension):
    """Gives `monitor` and each of its public modules their public names."""

    def on_module(self, *, mod: griffe.Module, **_: Any) -> None:
        """Import `mod` if it stands directly below `monitor`, and take its `__all__`."""
        if mod.path.count(".") <= 1 and not mod.name.startswith("_"):
            mod.exports = getattr(importlib.import_module(mod.path), "__all__", None)
