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
MOST_WORDS = 25
"""A longer sentence is two."""

RIDDLES = re.compile(
    r"\b(so many(?! as)|so much of|none that|no good|is told|are told|was told|been told|lets? (?:it )?go|let go|deaf"
    r"|seen out|manieth|of one's own|whoever|by halves|besides(?=[.,;]))\b",
    re.IGNORECASE,
)
"""Words of riddles: each has a plain form that names its subject."""

PARTS = re.compile(r"(?:(?<=[.!?:;])|(?<=[.!?:;][*\")]{1})|(?<=[.!?:;]\*\*))\s+|\n\s*\n|\n\s*(?=[-*|] )|\n\s*(?=\d+\. )")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, without code, tables and headings."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^(?: {4,}|\t|\||#).*$", "\n", text, flags=re.MULTILINE)
    for part in PARTS.split(text):
        words = " ".join(part.split())
        if words:
            yield words


def hard(text: str) -> Iterator[str]:
    """What is wrong with the sentences of a text."""
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
    """A docstring without its indentation, so that only code is indented."""
    return "\n".join([doc.split("\n", 1)[0], *textwrap.dedent("\n".join(doc.split("\n")[1:])).split("\n")])


def files_in(folder: Path) -> list[Path]:
    """The Python files and pages of a folder."""
    return sorted([*folder.rglob("*.py"), *folder.rglob("*.md")])


def main(paths: list[str]) -> int:
    """List what is found below `paths`, or in the package and the pages."""
    roots = [Path(path) for path in paths] or [ROOT / name for name in ("monitor", "docs", "examples", "README.md")]
    files = [
        path
        for root in roots
        for path in ([root] if root.is_file() else sorted([*root.rglob("*.py"), *root.rglob("*.md")]))
    ]
    found = [f"{path}:{line} {what}" for path in files for line, text in texts(path) for what in hard(text)]
    print(*found, sep="\n")
    print(f"{len(found)} sentences to look at in {len(files)} files")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
