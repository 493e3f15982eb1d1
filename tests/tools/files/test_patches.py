from __future__ import annotations

import difflib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolCall
from monitor.errors import ToolError, ToolErrorKind
from monitor.tools.approvals.judged_call import MISSING, deciding_files, judged
from monitor.tools.approvals.rules import Rules
from monitor.tools.base import CallingRun, ToolContext
from monitor.tools.files.file_tools import FileTools
from monitor.tools.files.patches import patched, read_patch
from monitor.tools.registry import Registry
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.workspace import Workspace
from tests.examples import FEWER_EACH

pytestmark = [pytest.mark.anyio, pytest.mark.feature("GT-01")]

PATCH = """*** Begin Patch
*** Update File: a.py
@@ def second():
-    return 2
+    return two
*** Add File: new/b.py
+x = 1
+
+y = 2
*** Delete File: old.py
*** Update File: c.py
*** Move to: moved/c.py
@@
 one
+and a half
 two
*** End Patch"""


class Desk:
    """File tools, and one run that has read every file."""

    def __init__(self, place: Path, **options: Any) -> None:
        self.place = place
        self.tools = FileTools(Workspace(place), patch=True, **options)
        self.run = CallingRun()

    async def use(self, name: str, **arguments: Any) -> ToolAnswer:
        (tool,) = [one for one in self.tools.tools() if one.spec.name == name]
        answer = await tool.call(arguments, ToolContext(ToolCall("1", name, arguments), self.run))
        assert isinstance(answer, ToolAnswer)
        return answer

    async def apply(self, patch: str) -> ToolAnswer:
        for path in self.files():
            await self.use("read_file", path=path)
        return await self.use("apply_patch", patch=patch)

    async def refused(self, patch: str) -> ToolError:
        before = self.files()
        with pytest.raises(ToolError) as caught:
            await self.apply(patch)
        assert self.files() == before
        return caught.value

    def files(self) -> dict[str, str]:
        found = {path for path in self.place.rglob("*") if path.is_file()}
        return {str(path.relative_to(self.place)): path.read_text() for path in found}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "a.py").write_text("def first():\n    return 2\n\ndef second():\n    return 2\n")
    (tmp_path / "old.py").write_text("gone\n")
    (tmp_path / "c.py").write_text("one\ntwo\n")
    return Desk(tmp_path)


async def test_one_patch_changes_makes_moves_and_removes_files(desk: Desk):
    answer = await desk.apply(PATCH)
    assert desk.files() == {
        "a.py": "def first():\n    return 2\n\ndef second():\n    return two\n",
        "new/b.py": "x = 1\n\ny = 2\n",
        "moved/c.py": "one\nand a half\ntwo\n",
    }
    assert answer.status == "changed a.py; made new/b.py; removed old.py; changed c.py to moved/c.py"
    assert set(answer.wrote) == {"a.py", "new/b.py", "moved/c.py"}
    assert "+    return two" in answer.text


async def test_nothing_is_changed_if_one_part_does_not_fit(desk: Desk):
    assert "no line 'def third():'" in str(await desk.refused(PATCH.replace("second", "third")))
    onto = PATCH.replace("moved/c.py", "x/../old.py").replace("*** Delete File: old.py\n", "")
    assert "is there already" in str(await desk.refused(onto))
    assert (await desk.refused(PATCH.replace("old.py", "no.py"))).kind is ToolErrorKind.NOT_FOUND
    assert (await desk.refused(PATCH.replace("new/b.py", "../b.py"))).kind is ToolErrorKind.OUTSIDE_WORKSPACE
    assert (await desk.refused(PATCH.replace("new/b.py", ".git/hooks/b"))).kind is ToolErrorKind.PERMISSION
    assert not (desk.place / "new").exists()


async def test_a_patch_whose_last_file_cannot_be_written_leaves_the_others_as_they_were(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    write = Workspace.write

    def fails(self: Workspace, path: str, content: bytes, **options: Any) -> object:
        if path == "moved/c.py":
            raise ToolError("the disk is full", kind=ToolErrorKind.WRITE_FAILED)
        return write(self, path, content, **options)

    monkeypatch.setattr(Workspace, "write", fails)
    assert "disk is full" in str(await desk.refused(PATCH))


async def test_a_file_that_was_not_read_is_not_patched(desk: Desk):
    with pytest.raises(ToolError) as caught:
        await desk.use("apply_patch", patch=PATCH)
    assert caught.value.kind is ToolErrorKind.STALE
    assert "old.py" in desk.files()


async def test_a_piece_that_is_there_twice_needs_a_line_above_it(desk: Desk):
    patch = PATCH.replace("@@ def second():", "@@")
    assert "more than once, at the lines 2 and 5" in str(await desk.refused(patch))


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("hello", "this is no patch"),
        ("", "this is no patch"),
        ("*** Begin Patch\n*** End Patch", "this is no patch"),
        ("*** Begin Patch\n+x\n*** End Patch", "before the first file"),
        ("*** Begin Patch\n*** Add File: x\nx\n*** End Patch", "does not begin with '+'"),
        ("*** Begin Patch\n*** Update File: x\n@@\nx\n*** End Patch", "does not begin with ' ', '-' or '+'"),
        ("*** Begin Patch\n*** Delete File: x\n+x\n*** End Patch", "line 3 of the patch"),
        ("*** Begin Patch\n*** Delete File: x\n*** Delete File: x\n*** End Patch", "'x' is there twice"),
        ("--- a/x\n+++ b/x\n@@ what @@\n", "cannot be read"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\nz\n", "line 6 of the patch: 'z' does not begin"),
    ],
)
def test_what_is_no_patch_is_said(patch: str, said: str):
    with pytest.raises(ToolError) as caught:
        read_patch(patch)
    assert said in str(caught.value)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
async def test_what_git_diff_writes_can_be_applied(tmp_path: Path):
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x@y", *words],
            cwd=tmp_path / "there",
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    (tmp_path / "there").mkdir()
    git("init", "-q")
    numbers = "".join(f"{n}\n" for n in range(60))
    before = {"a": numbers, "gone": "x\n", "moves": "one\ntwo\nthree\nfour\nfive\n", "end": "x"}
    after = {
        "a": before["a"].replace("7\n", "seven\n").replace("40\n", "").replace("59\n", "59\n--- last\n"),
        "sub/new": "n\n",
        "moved": "one\ntwo\nthree\nfour\n5\n",
        "end": "x\n",
    }
    (tmp_path / "here").mkdir()
    desk = Desk(tmp_path / "here")
    for name, text in before.items():
        (tmp_path / "there" / name).write_text(text)
        (tmp_path / "here" / name).write_text(text)
    git("add", "-A")
    git("commit", "-qm", "before")
    for name in before:
        (tmp_path / "there" / name).unlink()
    (tmp_path / "there" / "sub").mkdir()
    for name, text in after.items():
        (tmp_path / "there" / name).write_text(text)
    git("add", "-A")
    patch = git("diff", "--cached", "-M40%")
    assert "rename to moved" in patch
    await desk.apply(patch)
    assert desk.files() == after


LINES = st.lists(st.sampled_from(["a", "b", "", "-x", "+y", "@@", " z"]), max_size=12)


@given(LINES, LINES, st.booleans(), st.booleans())
@FEWER_EACH
def test_what_diff_writes_between_two_texts_makes_the_one_of_the_other(
    old: list[str], new: list[str], ended: bool, also: bool
):
    before = "".join(f"{line}\n" for line in old).removesuffix("" if ended else "\n")
    after = "".join(f"{line}\n" for line in new).removesuffix("" if also else "\n")
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), "a/x", "b/x")
    written = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    if not before or not after or not written:
        return
    (part,) = read_patch("".join(written))
    assert patched("x", before, part.hunks) == after


def test_a_hostile_patch_takes_little_time():
    text = "a\n" * 100_000
    patch = "*** Begin Patch\n*** Update File: x\n@@\n" + " a\n" * 50_000 + "-b\n*** End Patch"
    begun = time.process_time()
    with pytest.raises(ToolError, match="is not there"):
        patched("x", text, read_patch(patch)[0].hunks)
    assert time.process_time() - begun < 5


# --- approval


def ruling(place: Path, patch: str, rules: str) -> str:
    entry = Registry([FileTools(Workspace(place), patch=True)]).entry("apply_patch")
    found = Rules.parse(rules).ruling(judged(entry, {"patch": patch}))
    return found.decision if found is not None else "nothing"


def test_a_rule_about_a_path_means_the_files_of_a_patch(desk: Desk):
    deny = '[[rules]]\nname = "no"\ntool = "apply_patch"\narguments = { path = "c.py" }\ndecision = "deny"\n'
    assert ruling(desk.place, PATCH, deny) == "deny"
    assert ruling(desk.place, PATCH.replace("c.py", "./x/../c.py"), deny) == "deny"
    assert ruling(desk.place, PATCH.replace("c.py", "d.py"), deny) == "nothing"
    allow = '[[rules]]\nname = "yes"\ntool = "apply_patch"\narguments = { path = "*.py" }\ndecision = "allow"\n'
    assert ruling(desk.place, PATCH, allow) == "allow"
    assert ruling(desk.place, PATCH.replace("new/b.py", "b.sh"), allow) == "nothing"


def test_the_question_about_a_patch_names_its_files_and_shows_what_it_changes(desk: Desk):
    entry = Registry([desk.tools]).entry("apply_patch")
    files = deciding_files(judged(entry, {"patch": PATCH}))
    assert set(files) >= {"a.py", "old.py", "c.py"}
    assert MISSING not in {files[name] for name in ("a.py", "old.py", "c.py")}
    preview = entry.tool.preview({"patch": PATCH})  # type: ignore[union-attr]
    assert "+    return two" in preview
    assert "-gone" in preview


@pytest.mark.parametrize("mode", ["new file mode 120000", "new mode 120000", "new file mode 160000"])
def test_a_patch_makes_no_link_and_no_submodule(mode: str):
    with pytest.raises(ToolError, match="makes a link or a submodule"):
        read_patch(f"diff --git a/l b/l\n{mode}\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n")
    (made,) = read_patch("diff --git a/l b/l\nnew file mode 100755\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x 120000\n")
    assert made.path == "l"


KILLED = """
import os, sys, asyncio
from monitor.chunks import ToolCall
from monitor.tools import FileTools, ToolContext, Workspace
place, kill_at = sys.argv[1], int(sys.argv[2])
made = 0
for name in ("write", "remove"):
    def dies(self, *given, real=getattr(Workspace, name), **options):
        global made
        if made == kill_at:
            os.kill(os.getpid(), 9)
        made += 1
        return real(self, *given, **options)
    setattr(Workspace, name, dies)
tools = FileTools(Workspace(place), patch=True)
tool = [one for one in tools.tools() if one.spec.name == "apply_patch"][0]
read = [one for one in tools.tools() if one.spec.name == "read_file"][0]
async def main():
    from monitor.tools.base import CallingRun
    run = CallingRun()
    for path in ("a.py", "old.py", "c.py"):
        await read.call({"path": path}, ToolContext(ToolCall("1", "read_file", {}), run))
    await tool.call({"patch": sys.argv[3]}, ToolContext(ToolCall("1", "apply_patch", {}), run))
asyncio.run(main())
"""


def killed(place: Path, kill_at: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", KILLED, str(place), str(kill_at), PATCH], check=False)


@pytest.mark.parametrize("kill_at", range(7))
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_patch_whose_program_is_killed_is_all_or_none_at_the_next_start(desk: Desk, kill_at: int):
    before = desk.files()
    done = killed(desk.place, kill_at)
    assert done.returncode in (-9, 0)
    FileTools(Workspace(desk.place), patch=True)
    now = desk.files()
    assert now == before if done.returncode else "moved/c.py" in now
    assert not [name for name in now if name.startswith(".agent-monitor")]


async def test_what_changed_after_the_program_died_is_not_taken_back(desk: Desk):
    killed(desk.place, 2)
    (desk.place / "a.py").write_text("edited by a person")
    FileTools(Workspace(desk.place), patch=True)
    assert desk.files()["a.py"] == "edited by a person"


async def test_a_journal_that_somebody_else_has_written_reaches_nothing_protected(desk: Desk):
    (desk.place / ".git").mkdir()
    for path in ("../out", ".git/hooks", "/etc/zz"):
        entry = {"path": path, "before": "eA==", "after": None}
        (desk.place / ".agent-monitor-patch-x").write_text(json.dumps([entry]))
        FileTools(Workspace(desk.place), patch=True)
        assert not (desk.place / path).exists()
    (desk.place / ".agent-monitor-patch-y").symlink_to("/dev/zero")
    FileTools(Workspace(desk.place), patch=True)
