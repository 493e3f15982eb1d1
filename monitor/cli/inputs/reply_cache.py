"""Keeps answers of models on disk, so that each question is paid for once: one file for each
question, named by the hash of model and request.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

from monitor._util.codec import to_plain
from monitor._util.hashing import canonical_json
from monitor.models import Model, ModelRequest


class ReplyCache:
    """The answers in `folder`, which is made with the first answer. An unreadable answer counts as
    missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def key(self, model: Model, request: ModelRequest) -> str:
        """Equal for the same question to the same model."""
        return hashlib.sha256(canonical_json({"model": model.name, "request": to_plain(request)}).encode()).hexdigest()

    def get(self, key: str) -> str | None:
        """The text of the answer that is kept under `key`."""
        try:
            reply = json.loads(self._path(key).read_text("utf-8"))["reply"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return reply if isinstance(reply, str) else None

    def put(self, key: str, model: Model, reply: str) -> None:
        """Keep a reply. Raises `OSError`. The file is written atomically."""
        path = self._path(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, half = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps({"model": model.name, "reply": reply}))
        Path(half).replace(path)

    def forget(self, key: str) -> None:
        """Drop the reply of `key`, which was unusable, so that the next run asks again."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
