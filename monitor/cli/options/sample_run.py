"""The sample of `run --demo`: a small recorded run with its task, tool and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from monitor.adapters.replay.model import ReplayModel

TASK = "Review the change of our dependencies: a summary in a sentence or two, and the risk from 0 to 1."
OUTPUTS: Final = ("summary:str", "risk:float")
TOOL = "monitor.cli.options.sample_run:read_file"

_FILES: Final[Mapping[str, str]] = {
    "requirements.txt": """\
-httpclient==2.3.0
+httpclient==2.4.1
-retryhelper==1.1.0
-yamlreader==6.0.1
+yamlreader==6.0.2
""",
}


def sample_model() -> ReplayModel:
    """The recorded run, a little slower than it is read."""
    model = ReplayModel(Path(str(files("monitor.cli").joinpath("data", "subagent_run.jsonl"))), pace=1)
    model.name = "a recorded model"
    return model


def read_file(path: str) -> str:
    """Read what has changed in a file.

    Args:
        path: Its path in the repository.

    """
    if path not in _FILES:
        raise FileNotFoundError(f"nothing has changed in {path}")
    return _FILES[path]
