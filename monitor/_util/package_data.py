"""Data files of the package, such as learned weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def data_beside(module_file: str, name: str) -> Any:
    """The JSON data of the file `name` beside the module whose `__file__` is `module_file`."""
    return json.loads(Path(module_file).with_name(name).read_text("utf-8"))
