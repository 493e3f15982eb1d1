"""Notebooks of Jupyter: read as their cells, and edited in the source of a cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from monitor.chunks import Media
from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind
from monitor.tools.files.edits import replaced
from monitor.tools.processes.screen_text import screen_text
from monitor.tools.results.tool_answer import is_base64, named

MEDIA_CHARS: Final = 5_000_000
"""The most characters of base64 that are shown of one notebook: the bound of one image."""
IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Outputs that are shown as media. Of the others their text is shown."""


@dataclass(slots=True)
class ShownNotebook:
    """The cells of a notebook, as lines."""

    lines: list[str] = field(default_factory=list)
    media: list[tuple[int, Media]] = field(default_factory=list)
    """The images of its outputs, each with the index of its line."""


def cells_of(text: str) -> list[dict[str, Any]] | None:
    """The cells in the text of a file. `None`: it is no notebook."""
    found = _notebook(text)
    return found[1] if found is not None else None


def shown(cells: Sequence[Mapping[str, Any]]) -> ShownNotebook:
    """The cells as a model reads them: the source of each, and its outputs."""
    made = ShownNotebook()
    for number, cell in enumerate(cells, 1):
        made.lines.append(f"<cell {number}: {cell.get('cell_type', 'unknown')}>")
        made.lines += _lines(_joined(cell.get("source")))
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(output, Mapping):
                _show_output(made, output)
    return made


def edited(text: str, old: str, new: str, *, every: bool) -> str:
    """The text of a notebook with `new` in the place of `old` in the source of a cell. The outputs
    of a changed cell are removed: they came from its old source.

    Raises `ToolError` as `replaced` does, over the sources of all cells.
    """
    found = _notebook(text)
    assert found is not None  # noqa: S101 - the caller has asked
    notebook, cells = found
    sources = [_joined(cell.get("source")) for cell in cells]
    holding = [number for number, source in enumerate(sources) if old and old in source]
    if len(holding) > 1 and not every:
        named = ", ".join(str(number + 1) for number in holding[:10])
        said = f"old is in the cells {named}. Give more of the lines around it, so that it is there once"
        raise ToolError(f"{said}; or set replace_all", kind=ToolErrorKind.INVALID_ARGUMENTS)
    if not holding:
        replaced("\n".join(sources), old, new, every=every)  # says why not
        said = "old is in no single cell of this notebook"
        raise ToolError(said, kind=ToolErrorKind.NOT_FOUND)
    for number in holding:
        cell = cells[number]
        cell["source"] = replaced(sources[number], old, new, every=every).splitlines(keepends=True)
        if "outputs" in cell:
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def _notebook(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    if not text.lstrip().startswith("{") or '"nbformat"' not in text:
        return None
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = read.get("cells") if isinstance(read, dict) and isinstance(read.get("nbformat"), int) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        return None
    return read, cells


def _show_output(made: ShownNotebook, output: Mapping[str, Any]) -> None:
    for line in _output_lines(output):
        made.lines.append(line)
    data = output.get("data")
    for mime_type in IMAGES:
        content = "".join(_joined(data.get(mime_type)).split()) if isinstance(data, Mapping) else ""
        if not is_base64(content):
            continue
        image = Media(mime_type, content)
        room = MEDIA_CHARS - sum(len(one.data or "") for _, one in made.media)
        if len(content) <= room:
            made.media.append((len(made.lines), image))
        made.lines.append(f"<output: {named(image)}{'' if len(content) <= room else ', too large to be shown'}>")


def _output_lines(output: Mapping[str, Any]) -> Iterator[str]:
    data = output.get("data")
    if "traceback" in output:
        said = _joined(output["traceback"], "\n")
    elif isinstance(data, Mapping):
        said = _joined(data.get("text/plain"))
    else:
        said = _joined(output.get("text"))
    if said:
        yield f"<output: {output.get('name') or output.get('output_type', 'unknown')}>"
        yield from _lines(screen_text(said))


def _joined(value: object, between: str = "") -> str:
    """A text, which notebooks hold in one piece or as a list of lines."""
    return between.join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []
