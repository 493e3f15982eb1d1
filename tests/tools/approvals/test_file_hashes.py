"""An answer holds for the content of the files that decide what a call does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.chunks import ToolCall
from monitor.messages import ApprovalAnswer, ApprovalRequest
from monitor.testing import FakeClock
from monitor.tools import Approval, FileTools, PendingApprovals, Scheduler, ShellTools, Workspace
from monitor.tools.approvals.approval import Approvals, approver_of
from monitor.tools.approvals.judged_call import MISSING, deciding_files, hash_of, judged
from monitor.tools.base import NO_RUN
from monitor.tools.registry import Registry
from tests.tools.approvals.test_approval import Told

pytestmark = pytest.mark.anyio


class Desk:
    """Files and a shell behind one gate, and a person who does something before the answer."""

    def __init__(
        self,
        place: Path,
        *meanwhile: Callable[[], object],
        approver: Any = None,
        always: bool = True,
        **options: Any,
    ) -> None:
        self.always = always
        self.asked: list[ApprovalRequest] = []
        self.meanwhile = list(meanwhile)
        workspace = Workspace(place)
        clock = FakeClock()
        gate = Approvals(
            Approval(mode="default", **options),
            approver_of(approver or self.ask),
            run=NO_RUN,
            run_id="r",
            listener=Told(),
            clock=clock,
        )
        registry = Registry([FileTools(workspace), ShellTools(workspace)])
        self.registry = registry
        self.scheduler = Scheduler(registry, gate=gate, clock=clock)

    async def ask(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        if self.meanwhile:
            self.meanwhile.pop(0)()
        always = request.scopes[0] if self.always and request.scopes else None
        return ApprovalAnswer(id=request.id, decision="approved", bound_to=request.bound_to, always=always)

    async def calls(self, *calls: tuple[str, dict[str, Any]]) -> list[str]:
        made = [ToolCall(f"c{at}", name, arguments) for at, (name, arguments) in enumerate(calls)]
        return [result.text for result in await self.scheduler.carry_out(made)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "x.sh").write_text("echo one\n")
    (tmp_path / "a.txt").write_text("a\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "arguments", "files"),
    [
        ("shell", {"command": "bash x.sh"}, {"x.sh"}),
        ("shell", {"command": "./x.sh a.txt"}, {"x.sh", "a.txt"}),
        ("shell", {"command": "cat a.txt"}, set[str]()),
        ("shell", {"command": "ls > a.txt"}, {"a.txt"}),
        ("shell", {"command": "ls > new"}, {"new"}),
        ("shell", {"command": "for x in 1; do bash x.sh; done"}, {"x.sh"}),
        ("shell", {"command": "cd sub && bash ../x.sh"}, {"x.sh"}),
        ("shell", {"command": "python --config=a.txt"}, {"a.txt"}),
        ("shell", {"command": "bash *.sh"}, {"x.sh"}),
        ("write_file", {"path": "a.txt", "content": "b"}, {"a.txt"}),
        ("edit", {"path": "link", "old": "a", "new": "b"}, {"a.txt"}),
        ("read_file", {"path": "a.txt"}, set[str]()),
    ],
)  # fmt: skip
async def test_the_question_names_the_files_that_decide(
    name: str, arguments: dict[str, Any], files: set[str], place: Path
):
    (place / "link").symlink_to("a.txt")
    (place / "sub").mkdir()
    entry = Registry([FileTools(Workspace(place)), ShellTools(Workspace(place))]).entry(name)
    found = deciding_files(judged(entry, arguments))
    assert {one for one, digest in found.items() if digest != MISSING or one in files} == files


async def test_what_changed_between_question_and_answer_is_asked_again(place: Path):
    desk = Desk(place, lambda: (place / "x.sh").write_text("echo two\n"))
    assert "two" in (await desk.calls(("shell", {"command": "bash x.sh"})))[0]
    first, second = desk.asked
    assert first.files != second.files
    assert second.why.startswith("x.sh has changed since it was asked")
    assert first.id != second.id


async def test_a_file_that_appears_is_asked_about_before_it_is_replaced(place: Path):
    desk = Desk(place, lambda: (place / "new.txt").write_text("mine\n"))
    await desk.calls(("write_file", {"path": "new.txt", "content": "theirs\n"}))
    assert len(desk.asked) == 2
    assert "mine" in desk.asked[1].preview


async def test_a_call_is_asked_about_when_those_before_it_have_ended(place: Path):
    """So what is shown is what is there, and each call is asked about once."""
    desk = Desk(place, always=False)
    edits = [("edit", {"path": "a.txt", "old": "a", "new": new}) for new in ("ab", "ac")]
    await desk.calls(("read_file", {"path": "a.txt"}))
    await desk.calls(*edits)
    assert [request.arguments["new"] for request in desk.asked] == ["ab", "ac"]
    desk = Desk(place, always=False)
    await desk.calls(
        ("shell", {"command": "echo 'echo three' > x.sh; true > a.txt"}), ("shell", {"command": "bash x.sh"})
    )
    assert [request.files.get("x.sh") for request in desk.asked][1] == hash_of(place / "x.sh")


async def test_calls_that_waited_are_not_asked_again_if_nothing_changed(place: Path):
    desk = Desk(place)
    await desk.calls(
        ("shell", {"command": "touch q"}), ("shell", {"command": "bash x.sh"}), ("shell", {"command": "make"})
    )
    assert len(desk.asked) == 3


async def test_an_answer_that_comes_later_holds_for_the_old_content_only(place: Path):
    pending = PendingApprovals()
    first = Desk(place, approver=pending)
    await first.calls(("shell", {"command": "bash x.sh"}))
    (request,) = pending.requests.values()
    pending.answer(ApprovalAnswer(id=request.id, decision="approved"))
    (place / "x.sh").write_text("echo two\n")
    assert "waits" in (await Desk(place, approver=pending).calls(("shell", {"command": "bash x.sh"})))[0]
    (place / "x.sh").write_text("echo one\n")
    assert "one" in (await Desk(place, approver=pending).calls(("shell", {"command": "bash x.sh"})))[0]
