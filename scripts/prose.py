"""Looks for sentences that a tired reader must read twice: in docstrings, comments and pages.

python scripts/prose.py [PATH ...]     list them; exit code 1 if there are any
"""

from __future__ import annotations

import ast
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKED = ("monitor", "examples", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
"""What is checked without arguments."""
MOST_WORDS = 25
"""A longer sentence is two."""

RIDDLES = re.compile(
    # Idioms, metaphors and inverted forms: each has a plain form that names its subject.
    r"(?i:\b(?:so many(?! as)|so much of|none that|no good|(?:is|are|was|were|been|be) told|lets? (?:it )?go|let go"
    r"|deaf|seen out|manieth|of one's own|whoever|by halves|besides(?=[.,;])|left away|leaves? away|makes? no sense"
    r"|purse|wants? (?:it |them |both )?back|whose doing|as (?:he|it|they) likes?|(?:has|have) (?:its|a|no) say"
    r"|to speak of|but for(?! the)|heeds?|nobody knows|came to nothing|comes to nothing)\b)"
    # "What is X is Y", "Who does X": the subject comes first, as a noun. Questions and labels stay.
    r"|^(?:What|Who) (?:is|was|are|were|has|have|does|do|may|can|must|cannot|wants?)\b(?!.*[?:]$)"
)
"""Words of riddles."""

PARTS = re.compile(r"(?:(?<=[.!?:;])|(?<=[.!?:;][*\")])|(?<=[.!?:;]\*\*))\s+|\n\s*\n|\n\s*(?=[-*|] )|\n\s*(?=\d+\. )")

MARK = re.compile(r"^(?:[-*]|\d+\.) ")
"""The mark of an item of a list, which is not a word."""


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, without code, tables and headings."""
    text = re.sub(r"\x08\n(?:.*\S.*\n?)*", "\n", text)  # what typer prints line by line
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^(?:\||#).*$", "\n", text, flags=re.MULTILINE)
    # An indented block after a blank line is code; after another line it continues a list item.
    text = re.sub(r"(?<=\n)[ \t]*\n(?:(?: {4,}|\t).*(?:\n|$)(?:[ \t]*\n(?= {4,}|\t))*)+", "\n\n", f"\n{text}")
    for part in PARTS.split(text):
        words = MARK.sub("", " ".join(part.split()))
        if words:
            yield words


def cells(text: str) -> Iterator[str]:
    """The cells of the tables of a text."""
    for row in re.findall(r"^\|.*\|$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE):
        yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])


def hard(text: str) -> Iterator[str]:
    """The faults of a text: sentences that are too long, and riddles, also in tables."""
    for cell in cells(text):
        if riddle := RIDDLES.search(cell):
            yield f"{riddle[0]!r}: {cell[:100]}"
    for sentence in sentences(text):
        count = len(sentence.split())
        if count > MOST_WORDS:
            yield f"{count} words: {sentence[:100]}"
        if riddle := RIDDLES.search(sentence):
            yield f"{riddle[0]!r}: {sentence[:100]}"


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a file, with the line at which each piece begins."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, source
        return
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(doc))):
                    yield statement.lineno, cleaned(doc)
    comment: list[str] = []
    began = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if not comment:
                began = token.start[0]
            comment.append(token.string.lstrip("# "))
        elif token.type != tokenize.NL and comment:
            yield began, "\n".join(comment)
            comment = []


def cleaned(doc: str) -> str:
    """A docstring without its indentation, so that only code is indented. What is indented and does
    not continue a list is code, such as the examples of a command.
    """
    first, *others = doc.split("\n")
    lines, in_list, in_code = [first], False, False
    for line in textwrap.dedent("\n".join(others)).split("\n"):
        indented = line.startswith("  ")
        if indented and not in_list and not in_code:
            lines.append("")
        in_code = indented and not in_list
        in_list = in_list if indented or not line else line.startswith("- ") or line[:1].isdigit()
        lines.append(f"    {line}" if in_code else line)
    return "\n".join(lines)


def files_in(paths: list[str]) -> list[Path]:
    """The Python files and pages below `paths`; of a folder, all. Raises `FileNotFoundError`."""
    files: list[Path] = []
    for root in map(Path, paths):
        if not root.exists():
            raise FileNotFoundError(root)
        files += [root] if root.is_file() else sorted([*root.rglob("*.py"), *root.rglob("*.md")])
    return files


def main(paths: list[str]) -> int:
    """List what is found below `paths`, or in everything that is checked. Returns the exit code."""
    files = files_in(paths or [str(ROOT / name) for name in CHECKED])
    found = [f"{path}:{line} {what}" for path in files for line, text in texts(path) for what in hard(text)]
    if found:
        print(*found, sep="\n")
        print(f"{len(found)} sentences to look at in {len(files)} files")
    else:
        print("words: clean")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
