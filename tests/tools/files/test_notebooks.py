from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from monitor.chunks import ToolCall
from monitor.errors import ToolError, ToolErrorKind
from monitor.tools.files.file_tools import MEDIA_BYTES, FileTools
from monitor.tools.files.patches import cells_of, shown
from monitor.tools.results.call_results import result_of
from monitor.tools.workspace import Workspace
from tests.processes import ask

pytestmark = [pytest.mark.anyio, pytest.mark.feature("GT-01")]

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
IMAGE = base64.b64encode(PNG).decode()
NOTEBOOK: dict[str, Any] = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "execution_count": 1,
            "metadata": {},
            "source": "x = 1\nplot(x)",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["\x1b[31mred\x1b[0m\n"]},
                {"output_type": "display_data", "data": {"image/png": IMAGE + "\n", "text/plain": "<Figure>"}},
                {"output_type": "error", "ename": "E", "evalue": "no", "traceback": ["one", "two"]},
            ],
        },
        {"cell_type": "code", "execution_count": 2, "metadata": {}, "source": "x = 2", "outputs": []},
    ],
}


def tools(path: Path, **options: Any) -> Any:
    return FileTools(Workspace(path), **options).tools()


@pytest.mark.parametrize(
    ("content", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89arest", "image/gif"),
        (b"RIFF\0\0\0\0WEBPrest", "image/webp"),
        (b"%PDF-1.7\nrest", "application/pdf"),
    ],
)
async def test_images_and_pdf_are_read_as_media_whatever_their_name(tmp_path: Path, content: bytes, mime_type: str):
    (tmp_path / "a.txt").write_bytes(content)
    answer = await ask(tools(tmp_path), "read_file", path="a.txt")
    result = result_of(ToolCall("1", "read_file", {}), answer)
    (media,) = result.media
    assert (media.mime_type, media.name) == (mime_type, "a.txt")
    assert base64.b64decode(media.data or "") == content
    assert f"{len(content)} bytes" in result.text
    (tmp_path / "a.txt").write_bytes(content + b"x")
    assert (await ask(tools(tmp_path), "read_file", path="a.txt")).text != answer.text


async def test_an_image_that_is_too_large_is_not_shown(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(PNG + b"\0" * MEDIA_BYTES)
    with pytest.raises(ToolError, match="make a smaller copy"):
        await ask(tools(tmp_path), "read_file", path="a.png")
    (tmp_path / "b.png").write_bytes(PNG)
    with pytest.raises(ToolError, match="make a smaller copy"):
        await ask(tools(tmp_path, file_bytes=10), "read_file", path="b.png")


async def test_a_notebook_is_read_as_cells_with_their_outputs(tmp_path: Path):
    (tmp_path / "a.ipynb").write_text(json.dumps(NOTEBOOK))
    answer = await ask(tools(tmp_path), "read_file", path="a.ipynb")
    lines = answer.text.split("\n")
    image = lines.pop(10)
    assert lines == [
        *("<cell 1: markdown>", "# Title", "words"),
        *("<cell 2: code>", "x = 1", "plot(x)", "<output: stdout>", "red", "<output: display_data>", "<Figure>"),
        *("<output: error>", "one", "two", "<cell 3: code>", "x = 2"),
    ]
    assert image.startswith("<output: [image/png: 48 bytes, xxh3 ")
    assert [media.data for media in answer.media] == [IMAGE]
    assert "a notebook of 3 cells" in (answer.status or "")
    page = await ask(tools(tmp_path), "read_file", path="a.ipynb", limit=3)
    assert (page.text, page.media) == ("<cell 1: markdown>\n# Title\nwords", ())


async def test_an_edit_of_a_notebook_changes_one_cell_and_removes_its_outputs(tmp_path: Path):
    (tmp_path / "a.ipynb").write_text(json.dumps(NOTEBOOK))
    group = tools(tmp_path)
    await ask(group, "read_file", path="a.ipynb")
    await ask(group, "edit", path="a.ipynb", old="x = 1\nplot(x)", new="y = 1\nplot(y)")
    read = json.loads((tmp_path / "a.ipynb").read_text())
    assert read["cells"][1] == {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "source": ["y = 1\n", "plot(y)"],
        "outputs": [],
    }
    assert [read["cells"][0], read["cells"][2]] == [NOTEBOOK["cells"][0], NOTEBOOK["cells"][2]]


async def test_an_edit_of_a_notebook_that_is_in_several_cells_or_in_none_says_so(tmp_path: Path):
    (tmp_path / "a.ipynb").write_text(json.dumps({**NOTEBOOK, "cells": NOTEBOOK["cells"][1:] * 2}, indent=1))
    group = tools(tmp_path, read_first=False)
    with pytest.raises(ToolError, match="in the cells 1, 3"):
        await ask(group, "edit", path="a.ipynb", old="x = 1\nplot", new="y")
    with pytest.raises(ToolError) as caught:
        await ask(group, "edit", path="a.ipynb", old="1\nnot there", new="y")
    assert caught.value.kind is ToolErrorKind.NOT_FOUND
    await ask(group, "edit", path="a.ipynb", old="x = 1\nplot", new="y", replace_all=True)
    assert (tmp_path / "a.ipynb").read_text().count('"y(x)"') == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"nbformat": 4}',
        '{"nbformat": 4, "cells": [1]}',
        '{"nbformat": "x", "cells": []}',
        '{"nbformat": ' + "[" * 100_000,
        "x = '\"nbformat\"'",
    ],
)
def test_what_is_no_notebook_is_read_as_text(text: str):
    assert cells_of(text) is None


def test_a_notebook_of_nonsense_is_shown_as_far_as_it_goes():
    cells: list[dict[str, Any]] = [
        {},
        {"cell_type": 5, "source": 7, "outputs": 3},
        {"source": [1, None], "outputs": [None, {}, {"data": 5}, {"data": {"image/png": "no base64!"}}]},
        {"outputs": [{"traceback": 5, "text": "x"}]},
    ]
    found = shown(cells)
    assert found.media == []
    assert found.lines[:2] == ["<cell 1: unknown>", "<cell 2: 5>"]
