from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ConfigError, ToolError, ToolErrorKind
from monitor.tools.workspace import Workspace, WorkspacePath

pytestmark = pytest.mark.feature("GT-09")

OUTSIDE = {
    "up": "../secret",
    "up after down": "sub/../../secret",
    "absolute": "/etc/passwd",
    "a link to a file": "link-to-file",
    "a link to a folder": "link-to-folder/secret",
    "a link to what does not exist yet": "dangling",
    "what does not exist yet, through a link": "link-to-folder/new/deeper",
    "a link to a link": "link-to-link",
    "up through a link": "inner/../../secret",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret").write_text("secret")
    (root / "file").write_text("mine")
    (root / "link-to-file").symlink_to(tmp_path / "secret")
    (root / "link-to-folder").symlink_to(tmp_path / "other")
    (root / "link-to-link").symlink_to(root / "link-to-file")
    (root / "dangling").symlink_to(tmp_path / "not-there")
    (root / "inner").symlink_to(root / "sub")
    return Workspace(root)


@pytest.mark.parametrize("path", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_no_path_leads_out(workspace: Workspace, tmp_path: Path, path: str):
    for use in (
        lambda: workspace.read(path, 100),
        lambda: workspace.write(path, b"x"),
        lambda: workspace.directory(path),
        lambda: workspace.listed(path).__enter__(),
    ):
        with pytest.raises(ToolError) as caught:
            use()
        assert caught.value.kind is ToolErrorKind.OUTSIDE_WORKSPACE
    assert (tmp_path / "secret").read_text() == (tmp_path / "other" / "secret").read_text() == "secret"
    assert not (tmp_path / "not-there").exists()
    assert [*(tmp_path / "other").iterdir()] == [tmp_path / "other" / "secret"]


def test_links_within_the_workspace_are_followed(workspace: Workspace):
    workspace.write("inner/made", b"x")
    assert (workspace.root / "sub" / "made").read_bytes() == b"x"
    assert (workspace.root / "inner").is_symlink()
    assert str(workspace.place("inner/made")) == "sub/made"
    assert workspace.read(str(workspace.root / "file"), 100)[1] == b"mine"  # absolute, and inside


def test_a_workspace_may_be_given_by_a_link(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    workspace = Workspace(tmp_path / "link")
    workspace.write(str(tmp_path / "link" / "a"), b"x")
    assert (tmp_path / "real" / "a").read_bytes() == b"x"


@pytest.mark.parametrize("at", ["sub", "sub/deep"])
def test_a_folder_that_is_replaced_by_a_link_meanwhile_is_no_way_out(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
):
    """The swap happens between looking where the path leads, and opening it."""
    (workspace.root / "sub" / "deep").mkdir()
    (tmp_path / "other" / "deep").mkdir()
    (tmp_path / "other" / "deep" / "secret").write_text("secret")
    resolve = workspace.place

    def swap(path: str) -> WorkspacePath:
        place = resolve(path)
        (workspace.root / at).rename(workspace.root / "away")
        (workspace.root / at).symlink_to(tmp_path / "other" / at.removeprefix("sub").strip("/"))
        return place

    for use in (
        lambda: workspace.read("sub/deep/secret", 100),
        lambda: workspace.write("sub/deep/new", b"x"),
        lambda: workspace.directory("sub/deep"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(workspace, "place", swap)
            with pytest.raises(ToolError):
                use()
        (workspace.root / at).unlink()
        (workspace.root / "away").rename(workspace.root / at)
    assert [*(tmp_path / "other" / "deep").iterdir()] == [tmp_path / "other" / "deep" / "secret"]


def test_a_file_that_is_replaced_by_a_link_meanwhile_is_not_followed(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = workspace.place("file")
    (workspace.root / "file").unlink()
    (workspace.root / "file").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(workspace, "place", lambda _: place)
    with pytest.raises(ToolError):
        workspace.read("file", 100)
    with pytest.raises(ToolError):
        workspace.write("file", b"x")
    assert (tmp_path / "secret").read_text() == "secret"


def test_what_is_no_ordinary_file_is_refused_at_once(workspace: Workspace):
    os.mkfifo(workspace.root / "pipe")
    for path in ("pipe", "sub", "."):
        with pytest.raises(ToolError) as caught:
            workspace.read(path, 100)
        assert caught.value.kind is ToolErrorKind.INVALID_ARGUMENTS
        with pytest.raises(ToolError):
            workspace.write(path, b"x")


KINDS = {
    "nowhere": ToolErrorKind.NOT_FOUND,
    "nowhere/below": ToolErrorKind.NOT_FOUND,
    "file/below": ToolErrorKind.NOT_FOUND,
    "a\0b": ToolErrorKind.INVALID_ARGUMENTS,
    "a\ud800": ToolErrorKind.INVALID_ARGUMENTS,
    "x" * 300: ToolErrorKind.INVALID_ARGUMENTS,
    "loop": ToolErrorKind.OUTSIDE_WORKSPACE,
}


@pytest.mark.parametrize(("path", "kind"), KINDS.items(), ids=[repr(path)[:20] for path in KINDS])
def test_what_the_system_refuses_has_a_kind(workspace: Workspace, path: str, kind: ToolErrorKind):
    (workspace.root / "loop").symlink_to(workspace.root / "loop")
    with pytest.raises(ToolError) as caught:
        workspace.read(path, 100)
    assert caught.value.kind is kind


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_permission_error(workspace: Workspace):
    (workspace.root / "file").chmod(0)
    with pytest.raises(ToolError) as caught:
        workspace.read("file", 100)
    assert caught.value.kind is ToolErrorKind.PERMISSION


def test_an_error_of_permission_has_its_kind(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "read", refuse)
    with pytest.raises(ToolError) as caught:
        workspace.read("file", 100)
    assert caught.value.kind is ToolErrorKind.PERMISSION


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    before = sorted(path.name for path in workspace.root.iterdir())

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ToolError, match="No space left"):
        workspace.write("file", b"new")
    assert (workspace.root / "file").read_bytes() == b"mine"
    assert sorted(path.name for path in workspace.root.iterdir()) == before


def test_the_mode_of_a_file_stays_and_a_new_one_has_the_usual(workspace: Workspace):
    (workspace.root / "file").chmod(0o751)
    workspace.write("file", b"#!")
    workspace.write("new/deep/file", b"x")
    mask = os.umask(0)
    os.umask(mask)
    assert (workspace.root / "file").stat().st_mode & 0o777 == 0o751
    assert (workspace.root / "new" / "deep" / "file").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_file_that_nobody_may_write_is_not_replaced(workspace: Workspace):
    file = workspace.root / "file"
    file.chmod(0o444)
    with pytest.raises(ToolError, match="read-only") as caught:
        workspace.write("file", b"new")
    assert (caught.value.kind, file.read_text()) == (ToolErrorKind.PERMISSION, "mine")


def test_no_descriptor_is_left(workspace: Workspace):
    before = len([*Path("/proc/self/fd").iterdir()])
    for path in ("file", "nowhere", "file/below", "../secret", "sub"):
        for use in (lambda path=path: workspace.read(path, 10), lambda path=path: workspace.write(path, b"x")):
            with suppress(ToolError):
                use()
    assert len([*Path("/proc/self/fd").iterdir()]) == before


@given(
    parts=st.lists(st.sampled_from(["..", ".", "", "sub", "inner", "link-to-folder", "file", "new", "/"]), max_size=6)
)
def test_a_place_is_always_inside(tmp_path_factory: pytest.TempPathFactory, parts: list[str]):
    top = tmp_path_factory.getbasetemp() / "law"
    root = top / "root"
    if not root.exists():
        (root / "sub").mkdir(parents=True)
        (root / "file").write_text("x")
        (root / "inner").symlink_to(root / "sub")
        (root / "link-to-folder").symlink_to(top)
    workspace = Workspace(root)
    path = "/".join(parts)
    really = os.path.realpath(root / path)
    if f"{really}/".startswith(f"{workspace.root}/"):
        assert str(workspace.root.joinpath(*workspace.place(path).parts)) == really
    else:
        with pytest.raises(ToolError) as caught:
            workspace.place(path)
        assert caught.value.kind is ToolErrorKind.OUTSIDE_WORKSPACE


@pytest.mark.parametrize("path", ["nowhere", "file", "a\0b"])
def test_a_workspace_is_an_existing_folder(tmp_path: Path, path: str):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Workspace"):
        Workspace(tmp_path / path)


def test_a_system_that_cannot_hold_a_folder_open_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "supports_dir_fd", set())
    with pytest.raises(ConfigError, match="Linux or macOS"):
        Workspace(tmp_path)


@pytest.mark.feature("GT-09")
def test_a_disk_that_is_full_is_a_failure_of_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a.txt").write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="No space left on device") as caught:
        Workspace(tmp_path).write("a.txt", b"after")
    assert caught.value.kind is ToolErrorKind.WRITE_FAILED
    assert (tmp_path / "a.txt").read_text() == "before"


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="this system has no extended attributes in Python")
def test_extended_attributes_stay(tmp_path: Path):
    file = tmp_path / "a"
    file.write_text("old")
    try:
        os.setxattr(file, "user.origin", b"here")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    Workspace(tmp_path).write("a", b"new")
    assert file.read_text() == "new"
    assert os.getxattr(file, "user.origin") == b"here"
