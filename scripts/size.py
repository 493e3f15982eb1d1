"""Counts the package room by room: code lines, files and numbers at module level.

python scripts/size.py            lower the rows of tests/size.tsv to what the rooms are now, and
                                  write their sum into the last row of CONTRIBUTING's table
python scripts/size.py --show     print the rooms beside their rows, and change nothing

A code line holds code: blank lines, comments and docstrings do not count. A number counts where it
stands in an assignment at the level of a module, also inside a table. A room is a folder of the
package; the modules beside the folders are the room `.`.

The script never raises a row. A change that needs more room edits its row by hand, in the same
commit, and the message says why.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "monitor"
TABLE: Final = ROOT / "tests" / "size.tsv"
LANDINGS: Final = ROOT / "CONTRIBUTING.md"
HEAD: Final = "room\tcode_lines\tfiles\tnumbers"
NO_CODE: Final = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


class Size(NamedTuple):
    """The size of a file, of a room or of the package."""

    code_lines: int = 0
    files: int = 0
    numbers: int = 0

    def plus(self, other: Size) -> Size:
        return Size(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def least(self, other: Size) -> Size:
        """The smaller of each figure."""
        return Size(*map(min, self, other))


def docstring_lines(tree: ast.Module) -> Iterator[int]:
    """The lines of all strings that stand as a statement."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def numbers(tree: ast.Module) -> int:
    """The numbers in the assignments of a module."""
    assigned = (node.value for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value)
    return sum(
        isinstance(node, ast.Constant) and type(node.value) in (int, float)
        for value in assigned
        for node in ast.walk(value)
    )


def size_of(source: str) -> Size:
    """The size of one file, by its text."""
    tree = ast.parse(source)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return Size(len(lines.difference(docstring_lines(tree))), 1, numbers(tree))


def rooms(package: Path = PACKAGE) -> dict[str, Size]:
    """The size of each room of `package`, sorted by name."""
    sizes: dict[str, Size] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        room = parts[0] if len(parts) > 1 else "."
        sizes[room] = sizes.get(room, Size()).plus(size_of(path.read_text(encoding="utf-8")))
    return dict(sorted(sizes.items()))


def rows(text: str) -> dict[str, Size]:
    """The rows of the table `text`."""
    table = [line.split("\t") for line in text.splitlines()[1:]]
    return {room: Size(*map(int, figures)) for room, *figures in table}


def written(sizes: Mapping[str, Size]) -> str:
    """`sizes` as the table."""
    lines = ["\t".join((room, *map(str, size))) for room, size in sizes.items()]
    return "\n".join((HEAD, *lines)) + "\n"


def lowered(table: Mapping[str, Size], now: Mapping[str, Size]) -> dict[str, Size]:
    """The table after a change: no row is raised or added, and a room that is gone has none."""
    return {room: row.least(now[room]) for room, row in table.items() if room in now}


def grown(table: Mapping[str, Size], now: Mapping[str, Size]) -> list[str]:
    """A sentence for each room that is larger than its row, or has no row."""
    said = []
    for room, size in now.items():
        row = table.get(room, Size())
        said += [
            f"{room}: {figure} {name}, and its row allows {allowed}"
            for name, figure, allowed in zip(Size._fields, size, row, strict=True)
            if figure > allowed
        ]
    return said


def total(sizes: Mapping[str, Size]) -> Size:
    """The sum of all rooms."""
    whole = Size()
    for size in sizes.values():
        whole = whole.plus(size)
    return whole


def landing(page: str, size: Size) -> str:
    """`page` with `size` in the row `now` of its table."""
    figures = " | ".join(f"{figure:,}" for figure in size)
    return "\n".join(f"| now | {figures} |" if line.startswith("| now |") else line for line in page.split("\n"))


def main() -> None:
    """Lower the rows, or show them."""
    now = rooms()
    table = rows(TABLE.read_text(encoding="utf-8"))
    if "--show" in sys.argv[1:]:
        for room, size in {**now, "all": total(now)}.items():
            row = table.get(room, total(table) if room == "all" else Size())
            print(f"{room:14}", *(f"{figure:7} of {allowed:6}" for figure, allowed in zip(size, row, strict=True)))
        return
    lower = lowered(table, now)
    TABLE.write_text(written(lower), encoding="utf-8")
    LANDINGS.write_text(landing(LANDINGS.read_text(encoding="utf-8"), total(lower)), encoding="utf-8")
    for sentence in grown(table, now):
        print(f"not written: {sentence}")


if __name__ == "__main__":
    main()
