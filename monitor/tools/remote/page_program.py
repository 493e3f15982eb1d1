"""The text of a web page. Uses the standard library only, because it is run as a program: `python
-I -S _page.py FILE URL` prints the text of the page in FILE, whose address is URL.

Somebody may write a page that is slow to parse. So it is parsed in a process of its own, which is
killed when its time is over.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

HIDDEN = frozenset({"script", "style", "template", "svg", "noscript", "iframe", "object", "head", "select", "dialog"})
"""Elements that a reader does not see."""
BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "br", "dd", "div", "dl", "dt", "fieldset", "figcaption"),
        *("figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol"),
        *("p", "pre", "section", "table", "tr", "ul"),
    }
)
"""Elements that begin a new line."""
LINK_CHARS = 500
"""A longer address, such as an image in the address itself, is left out."""


class PageText(HTMLParser):
    """Collects the text: headings with `#`, items with `-`, links as `[text](address)`."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._address = address
        self._pieces: list[str] = []
        self._hidden: list[str] = []
        self._in_title = False
        self._pre = 0
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "title":
            self._in_title = True
        if tag == "body":  # a head that was never closed
            self._hidden.clear()
        if tag in HIDDEN:
            self._hidden.append(tag)
        if self._hidden:
            return
        if tag in BLOCKS:
            self._pieces.append("\n\n" if tag in {"p", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "table"} else "\n")
        if tag == "pre":
            self._pre += 1
        elif tag == "li":
            self._pieces.append("- ")
        elif tag in {"td", "th"}:
            self._pieces.append(" | ")
        elif tag in {"h1", "h2", "h3", "h4", "h5", "h6"}:
            self._pieces.append("#" * int(tag[1]) + " ")
        elif tag == "img" and given.get("alt"):
            self._pieces.append(f"[image: {given['alt']}]")
        elif tag == "a":
            self._links.append(self._absolute(given.get("href") or ""))
            if self._links[-1]:
                self._pieces.append("[")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
            return
        if tag == "pre":
            self._pre = max(0, self._pre - 1)
        if tag == "a" and self._links and (address := self._links.pop()):
            self._pieces.append(f"]({address})")
        if tag in BLOCKS:
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._hidden:
            self._pieces.append(data if self._pre else " ".join(data.split()).join(_ends(data)))

    def text(self) -> str:
        """All of it, with at most one empty line between two others."""
        lines = [line.rstrip() for line in "".join(self._pieces).split("\n")]
        kept = [line for at, line in enumerate(lines) if line or (at > 0 and lines[at - 1])]
        title = " ".join(self.title.split())
        return f"{title}\n\n{chr(10).join(kept).strip()}".strip()

    def _absolute(self, address: str) -> str:
        try:
            found = urljoin(self._address, address.strip())
        except ValueError:
            return ""
        return found if found.startswith(("http://", "https://")) and len(found) <= LINK_CHARS else ""


def _ends(data: str) -> tuple[str, str]:
    """The space before and after a piece of text, as far as it has to stay."""
    if not data.strip():
        return ("", " " if data else "")
    return (" " if data[0].isspace() else "", " " if data[-1].isspace() else "")


def text_of_page(page: str, address: str) -> str:
    """The text of `page`, which is HTML."""
    parser = PageText(address)
    parser.feed(page)
    parser.close()
    return parser.text()


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.stdout.write(text_of_page(Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace"), sys.argv[2]))
