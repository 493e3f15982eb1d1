"""Where measurements are written: `bench/results/<name>.json`, with what a reader must know of the
machine and nothing more.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
CPU_INFO = Path("/proc/cpuinfo")


def write(name: str, data: Mapping[str, Any]) -> Path:
    """Write `data` as the results of benchmark `name`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **data}, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


def machine() -> dict[str, Any]:
    """No host name, no path, no user."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
    }


def _cpu() -> str:
    if CPU_INFO.exists():
        for line in CPU_INFO.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
