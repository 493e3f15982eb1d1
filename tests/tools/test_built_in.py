from __future__ import annotations

from pathlib import Path

import pytest

import monitor
from monitor.testing import ScriptedModel
from monitor.tools import FileTools, ShellTools, ToolGroup, Workspace
from monitor.tools.files.file_memory import FileMemory
from monitor.tools.registry import Toolset
from monitor.tools.remote.web import SearchResult, WebTools


class NoHits:
    async def search(self, query: str, limit: int) -> list[SearchResult]:
        return []


def toolsets(folder: Path) -> list[Toolset]:
    workspace = Workspace(folder)
    return [
        FileTools(workspace),
        ShellTools(workspace),
        WebTools(search=NoHits()),
        FileMemory(folder / "memory"),
    ]


FILES = ["ls", "read_file", "write_file", "edit", "glob", "grep"]
OTHERS = ["shell", "shell_wait", "shell_write", "shell_kill", "web_fetch", "web_search", "remember", "recall", "forget"]


@pytest.mark.feature("GT-01")
def test_the_built_in_tools_stand_beside_the_users_and_each_can_be_off(tmp_path: Path):
    def mine() -> str:
        """One of the user's."""
        return ""

    all_of_them = monitor.Supervisor(ScriptedModel(), tools=[mine, *toolsets(tmp_path)])
    assert [*all_of_them.tools] == ["mine", *FILES, *OTHERS]
    for off in (*FILES, *OTHERS):
        kept = {*FILES, *OTHERS} - {off}
        groups = [
            ToolGroup(group.tools(), filter=kept & {tool.spec.name for tool in group.tools()})
            for group in toolsets(tmp_path)
        ]
        left = monitor.Supervisor(ScriptedModel(), tools=[mine, *groups])
        assert [*left.tools] == ["mine", *(name for name in (*FILES, *OTHERS) if name != off)]
