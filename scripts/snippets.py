"""The Python of README and docs, taken out of the pages, so that checkers can read it.

python scripts/snippets.py FOLDER    write each snippet to a file: FOLDER/judge_12.py is line 12
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(r"(?:<!-- needs (a key|[\w.]+) -->\n)?```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """One Python block of a page."""

    page: Path
    line: int
    """The line of the page on which its first line stands."""
    code: str
    needs_key: bool
    """Whether the page says that it talks to a real service; then no test runs it."""
    module: str | None = None
    """What the page says must be installed, if that is not part of every environment of the tests.
    """

    @property
    def name(self) -> str:
        """The page and the line, as the name of a module."""
        return f"{self.page.stem.lower().replace('-', '_')}_{self.line}"


def snippets(page: Path) -> list[Snippet]:
    """The Python blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Snippet(
            page,
            text.count("\n", 0, match.start(2)) + 1,
            match.group(2),
            needs_key=match.group(1) == "a key",
            module=match.group(1) if match.group(1) != "a key" else None,
        )
        for match in _BLOCK.finditer(text)
    ]


def main(arguments: Sequence[str]) -> int:
    """Write the snippets of all pages into a folder that has no others."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for page in PAGES:
        for one in snippets(page):
            (folder / f"{one.name}.py").write_text(one.code, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
