"""Who may say that a call is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError
from monitor.messages import ApprovalAnswer, ApprovalRequest, answer_codec
from monitor.testing import FakeClock
from monitor.tools import Approval, PendingApprovals, Rules, Scheduler, TerminalApprover, ToolContext, tool
from monitor.tools.approvals.approval import Approvals, approval_of, approver_of
from monitor.tools.base import NO_RUN, CallListener, CallPlace, ToolKind
from monitor.tools.registry import Registry

pytestmark = pytest.mark.anyio

KINDS: tuple[ToolKind, ...] = ("read", "edit", "execute", "other")


class Person:
    """Answers as it was told, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer(request) if callable(answer) else answer


class Told(CallListener):
    """The questions and answers that were told."""

    def __init__(self) -> None:
        self.requests: list[ApprovalRequest] = []
        self.answers: list[ApprovalAnswer] = []

    async def requested(self, request: ApprovalRequest) -> None:
        self.requests.append(request)

    async def answered(self, answer: ApprovalAnswer) -> None:
        self.answers.append(answer)


def answer(decision: Any, **fields: Any) -> Any:
    return lambda request: ApprovalAnswer(id=request.id, decision=decision, bound_to=request.bound_to, **fields)


class Desk:
    """Tools of every kind behind one gate."""

    def __init__(self, approver: Any = None, *tools: Any, run: Any = NO_RUN, **options: Any) -> None:
        self.clock = FakeClock()
        self.told = Told()
        self.ran: list[Any] = []
        made = [tool(name=kind, kind=kind)(self.note) for kind in KINDS]
        shell = tool(name="shell", kind="execute")(self.run_line)
        here = Path.cwd().resolve()
        shell.place = lambda _: CallPlace(here, here, boxed=True)
        self.gate = Approvals(
            Approval(**options),
            approver_of(approver),
            run=run,
            run_id="r",
            listener=self.told,
            clock=self.clock,
            wall=lambda: 1_000.0 + self.clock.now(),
        )
        self.scheduler = Scheduler(Registry([*made, shell, *tools]), gate=self.gate, clock=self.clock, run=run)

    def run_line(self, command: str) -> None:
        self.ran.append(command)

    def note(self, n: int = 0) -> str:
        self.ran.append(n)
        return f"ran {n}"

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        (result,) = await self.scheduler.carry_out([ToolCall("c", name, arguments)])
        return result

    async def kinds(self) -> list[str]:
        """Which kinds of tools ran."""
        results = await self.scheduler.carry_out([ToolCall(kind, kind, {}) for kind in KINDS])
        return [result.id for result in results if not result.is_error]


@pytest.mark.feature("GT-06")
@pytest.mark.parametrize(
    ("mode", "run", "asked"),
    [
        (None, ["read", "edit", "execute", "other"], []),
        ("default", ["read"], ["edit", "execute", "other"]),
        ("auto_edit", ["read", "edit"], ["execute", "other"]),
        ("yolo", ["read", "edit", "execute", "other"], []),
        ("plan", ["read"], []),
    ],
)
async def test_each_mode_asks_before_what_it_should(mode: Any, run: list[str], asked: list[str]):
    person = Person(*[False] * 4)
    assert await Desk(person, mode=mode).kinds() == run
    assert sorted(request.tool for request in person.asked) == sorted(asked)


async def test_in_the_mode_plan_no_rule_lets_a_tool_write_and_in_yolo_a_refusal_holds():
    allow, deny = Rules([{"tool": "edit", "decision": "allow"}]), Rules([{"tool": "edit", "decision": "deny"}])
    assert await Desk(mode="plan", rules=allow).kinds() == ["read"]
    assert await Desk(mode="yolo", rules=deny).kinds() == ["read", "execute", "other"]
    assert await Desk(mode="yolo", rules=Rules([{"decision": "ask"}])).kinds() == list(KINDS)


async def test_where_nobody_can_be_asked_a_call_is_refused_with_the_name_of_what_asked():
    desk = Desk(rules=Rules([{"name": "careful", "tool": "edit", "decision": "ask", "reason": "it writes"}]))
    result = await desk.call("edit")
    assert result.text == (
        "[agent-monitor] This call was not made: nobody can approve it here, and it has to be approved"
        " (rule 'careful': it writes)."
    )
    assert (result.vetoed, result.error_kind, desk.ran) == (True, "denied", [])


@pytest.mark.feature("GT-06")
async def test_the_reason_of_a_refusal_is_for_the_model_and_cannot_pass_for_the_monitor():
    desk = Desk(Person(answer("denied", reason="use [agent-monitor] v2", by="Ada")), mode="default")
    result = await desk.call("edit")
    assert result.text == (
        "[agent-monitor] This call was not made: Ada refused it. The reason: use \\[agent-monitor] v2"
    )


async def test_a_person_may_change_the_arguments():
    desk = Desk(Person(answer("approved", arguments={"n": 7})), mode="default")
    assert (await desk.call("edit", n=1)).text == "ran 7"


@pytest.mark.feature("GT-06")
async def test_always_holds_for_the_tool_and_for_nothing_else():
    person = Person(answer("approved", always="edit"), False)
    desk = Desk(person, mode="default")
    assert (await desk.call("edit", n=1)).text == "ran 1"
    assert (await desk.call("edit", n=2)).text == "ran 2"
    assert (await desk.call("other")).is_error
    assert [request.tool for request in person.asked] == ["edit", "other"]


async def test_always_ends_when_the_tool_is_another_one():
    person = Person(answer("approved", always="edit"), False)
    desk = Desk(person, mode="default")
    await desk.call("edit")
    with pytest.warns(UserWarning, match="replaces"):
        desk.scheduler.tools.add(tool(name="edit", kind="edit", description="now it deletes")(lambda: 1))
    assert (await desk.call("edit")).is_error
    assert len(person.asked) == 2


@pytest.mark.parametrize(
    ("first", "chosen", "then", "asked"),
    [
        ("git push origin a", 0, "git push origin b", 2),
        ("git push origin a", 0, "git push  'origin' a", 1),
        ("git log --oneline", 0, "git log", 2),
        ("git log --oneline", 1, "git log -5 && git log", 1),
        ("git log --oneline", 1, "git log --output=x", 2),
        ("ls -l && git log -3", 1, "git log | ls", 1),
        ("ls && git log", 0, "git log && ls", 2),
        ("python x.py", 0, "python y.py", 2),
        ("npm run test", 0, "npm run test -- x", 2),
        # a word may hold anything: it never becomes two
        ("python -c 'x ; rm'", 0, "python -c x ; rm", 2),
        ("echo 'a ; rm' b", 1, "rm b", 2),
        ("shell x", 0, "rm x", 2),  # a command with the name of the tool
    ],
)
async def test_always_holds_for_the_line_that_was_shown(first: str, chosen: int, then: str, asked: int):
    person = Person(lambda request: answer("approved", always=request.scopes[chosen])(request), False)
    desk = Desk(person, mode="default")
    await desk.call("shell", command=first)
    await desk.call("shell", command=then)
    assert len(person.asked) == asked
    assert desk.ran == ([first, then] if asked == 1 else [first])


@pytest.mark.parametrize("command", ["ls > f", "$X", "if (", "git $X", "git pu{sh,}", "rm $X", "find . -name *.py"])
async def test_a_command_that_writes_or_cannot_be_read_has_no_always(command: str):
    person = Person(False)
    await Desk(person, mode="default").call("shell", command=command)
    assert person.asked[0].scopes == ()


async def test_a_scope_that_was_not_offered_is_this_once():
    person = Person(answer("approved", always="shell"), False)
    desk = Desk(person, mode="default")
    await desk.call("shell", command="git status")
    await desk.call("shell", command="git status")
    assert len(person.asked) == 2


def fails(given: Any, context: ToolContext) -> bool:
    raise LookupError


@pytest.mark.parametrize(("needs", "of_one"), [(True, True), (lambda given, _: given["n"] > 1, False), (fails, True)])
async def test_a_tool_says_itself_which_of_its_calls_ask(needs: Any, of_one: bool):
    asks = tool(name="pay", needs_approval=needs)(lambda n: n)
    assert (await Desk(None, asks).call("pay", n=5)).error_kind == "denied"
    assert (await Desk(None, asks).call("pay", n=1)).is_error is of_one
    allowed = Rules([{"tool": "pay", "decision": "allow"}])
    assert (await Desk(None, asks, rules=allowed).call("pay", n=5)).text == "5"


@pytest.mark.parametrize("word", ["deny", "rejected", "Approved", "yes", "", None, True, 1, "withdrawn"])
async def test_a_yes_is_one_word(word: Any):
    """Any other word is an error where the answer is made, and no call is made."""
    if word != "withdrawn":
        with pytest.raises(ConfigError, match="decision is one of 'approved', 'denied', 'expired', 'withdrawn'"):
            ApprovalAnswer(id="q", decision=word)
        with pytest.raises(ValueError, match="decision"):
            answer_codec.from_dict({"type": "approval_answer", "id": "q", "decision": word})
    desk = Desk(Person(answer(word)), mode="default")
    await desk.call("edit")
    assert desk.ran == []


async def test_an_approver_that_fails_is_a_refusal_and_no_crash():
    desk = Desk(Person(RuntimeError("no terminal"), "yes, sure"), mode="default")
    assert "approver_failed: RuntimeError: no terminal" in (await desk.call("edit")).text
    assert "approver_failed: ConfigError" in (await desk.call("edit")).text
    assert [one.by for one in desk.told.answers] == ["approver_failed"] * 2
    assert desk.ran == []


async def test_an_answer_holds_for_what_was_shown_and_for_nothing_else():
    other: list[ApprovalRequest] = []
    stale = lambda request: ApprovalAnswer(id=request.id, decision="approved", bound_to=other[0].bound_to)  # noqa: E731
    person = Person(False, stale)
    desk = Desk(person, mode="default")
    await desk.call("edit", n=1)
    other.append(person.asked[0])
    result = await desk.call("edit", n=2)
    assert result.error_kind == "denied"
    assert "for another call, or for other arguments" in result.text


async def test_an_answer_to_another_question_is_no_answer():
    desk = Desk(Person(ApprovalAnswer(id="another", decision="approved")), mode="default")
    assert "for another call" in (await desk.call("edit")).text
    assert desk.ran == []


async def test_a_rule_that_refuses_holds_for_the_arguments_of_a_person_too():
    rules = Rules([{"tool": "edit", "arguments": {"n": "7"}, "decision": "deny", "name": "no sevens"}])
    desk = Desk(Person(answer("approved", arguments={"n": 7})), mode="default", rules=rules)
    assert "no sevens" in (await desk.call("edit", n=1)).text
    assert desk.ran == []


async def test_a_secret_that_a_person_has_not_seen_stays_when_the_rest_is_changed():
    got: list[Any] = []

    @tool(kind="edit")
    async def login(user: str, password: str, more: dict[str, Any]) -> None:
        got.append((user, password, more))

    def edited(request: ApprovalRequest) -> ApprovalAnswer:
        assert "hunter2" not in repr(request)
        return ApprovalAnswer(id=request.id, decision="approved", arguments={**request.arguments, "user": "Bea"})

    desk = Desk(Person(edited), login, mode="default")
    await desk.call("login", user="Ada", password="hunter2", more={"token": "hunter2", "n": 1})
    assert got == [("Bea", "hunter2", {"token": "hunter2", "n": 1})]


@pytest.mark.parametrize("command", ["git $X", "bash <<< 'git push'", "git pu{sh,}", "$X", "env -S 'git push'"])
async def test_a_command_that_may_be_a_refused_one_is_asked_for_in_every_mode(command: str):
    rules = Rules([{"tool": "shell", "command": "git push", "decision": "deny"}])
    for mode in ("yolo", "auto_edit", None):
        desk = Desk(None, mode=mode, rules=rules)
        assert (await desk.call("shell", command=command)).error_kind == "denied"
        assert desk.ran == []


async def test_what_is_shown_has_no_secrets_and_the_tool_gets_them():
    got: list[str] = []

    @tool(needs_approval=True)
    def login(user: str, password: str) -> None:
        got.append(password)

    person = Person(True)
    await Desk(person, login).call("login", user="me", password="hunter2")
    assert person.asked[0].arguments == {"user": "me", "password": "<secret of 7 characters>"}
    assert got == ["hunter2"]


async def test_a_question_that_nobody_answers_expires_and_that_is_no_refusal():
    async def never(request: ApprovalRequest) -> None:
        await anyio.sleep_forever()

    desk = Desk(never, mode="default", expires_s=60)
    results: list[ToolResult] = []

    async def give() -> None:
        results.append(await desk.call("edit"))

    async with anyio.create_task_group() as group:
        group.start_soon(give)
        await anyio.wait_all_tasks_blocked()
        desk.clock.advance(60)
    assert "That is no refusal" in results[0].text
    assert desk.told.requests[0].expires_at == 1_060.0
    assert [one.decision for one in desk.told.answers] == ["expired"]
    assert desk.clock.pending == 0


async def test_the_run_stands_still_while_a_person_is_asked():
    class Run:
        paused_now = 0

        def paused(self) -> Any:
            return self

        def __enter__(self) -> None:
            self.paused_now += 1

        def __exit__(self, *_: object) -> None:
            self.paused_now -= 1

    run = Run()
    seen: list[int] = []

    async def approver(request: ApprovalRequest) -> bool:
        seen.append(run.paused_now)
        return True

    assert (await Desk(approver, run=run, mode="default").call("edit")).text == "ran 0"
    assert (seen, run.paused_now) == ([1], 0)


# --- later


async def test_without_an_answer_the_call_stays_open_and_the_answer_is_used_once():
    pending = PendingApprovals()
    first = Desk(pending, mode="default")
    result = await first.call("edit", n=1)
    assert result.vetoed
    assert "waits for an approval" in result.text
    (request,) = first.gate.pending
    pending.answer(ApprovalAnswer(id=request.id, decision="approved", bound_to=request.bound_to))
    assert pending.answered_calls == {"c"}
    second = Desk(pending, mode="default")
    assert "waits" in (await second.call("edit", n=2)).text
    assert (await second.call("edit", n=1)).text == "ran 1"
    assert "waits" in (await second.call("edit", n=1)).text


async def test_an_answer_that_comes_too_late_is_refused_clearly():
    now = 100.0
    pending = PendingApprovals(wall=lambda: now)
    request = ApprovalRequest(
        id="q", run="r", call_id="c", tool="t", arguments={}, schema_hash="", bound_to="b", why="", expires_at=150.0
    )
    pending.requests["q"] = request
    with pytest.raises(ConfigError, match="no open question"):
        pending.answer(ApprovalAnswer(id="x", decision="approved"))
    with pytest.raises(ConfigError, match="for another call"):
        pending.answer(ApprovalAnswer(id="q", decision="approved", bound_to="other"))
    now = 150.0
    with pytest.raises(ConfigError, match="has expired"):
        pending.answer(ApprovalAnswer(id="q", decision="approved"))
    assert pending.answered_calls == frozenset()
    pending.requests["q"] = replace(request, expires_at=None)
    pending.answer(ApprovalAnswer(id="q", decision="denied"))
    with pytest.raises(ConfigError, match="it is answered"):
        pending.answer(ApprovalAnswer(id="q", decision="approved"))


# --- on the terminal


def typed(*lines: str) -> tuple[TerminalApprover, list[str], list[str]]:
    said: list[str] = []
    prompts: list[str] = []
    left = list(lines)

    def read(prompt: str) -> str:
        prompts.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    return TerminalApprover(read=read, write=said.append, now=count().__next__), said, prompts


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("y", "ran 1"),
        ("YES ", "ran 1"),
        ("a", "ran 1"),
        ("n", "the person at the terminal refused it."),
        ("", "the person at the terminal refused it."),
        ("not on a Friday", "refused it. The reason: not on a Friday"),
    ],
)
async def test_a_person_at_the_terminal_answers_in_one_line(line: str, text: str):
    approver, said, prompts = typed(line)
    result = await Desk(approver, mode="default").call("edit", n=1)
    assert text in result.text
    assert said == ["May edit be called? (the mode 'default' asks before a tool of the kind 'edit')", "  n: 1"]
    assert prompts == ["[y]es, [a]lways edit, [n]o, or why not: "]


async def test_the_end_of_the_input_is_a_refusal():
    approver, _, _ = typed()
    assert "nobody is at the terminal" in (await Desk(approver, mode="default").call("edit")).text


async def test_what_a_model_wrote_does_nothing_to_the_terminal():
    approver, said, _ = typed("n")
    await Desk(approver, mode="default").call("shell", command="ls \x1b[2K\u202e\r\nrm x")
    named = "U+000D CONTROL CHARACTER, U+001B CONTROL CHARACTER, U+202E RIGHT-TO-LEFT OVERRIDE"
    assert said[1:] == ["  command: ls \\u001b[2K\\u202e\\r", "  command: rm x", f"  take care, it has {named}"]


async def test_one_question_is_asked_after_the_other():
    approver, said, _ = typed("y", "n")
    desk = Desk(approver, mode="default")
    results = await desk.scheduler.carry_out([ToolCall("a", "other", {"n": 1}), ToolCall("b", "other", {"n": 2})])
    assert sorted(result.is_error for result in results) == [False, True]
    assert [line for line in said if line.startswith("May")] == [said[0]] * 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mode": "auto"}, "approval is one of"),
        ({"expires_s": 0}, "expires_s=0"),
        ({"rules": "none.toml"}, "cannot be"),
    ],
)
def test_an_approval_that_makes_no_sense_is_refused(given: Mapping[str, Any], says: str):
    with pytest.raises(ConfigError, match=says):
        Approval(**given)


def test_an_approver_is_an_object_or_a_function():
    with pytest.raises(ConfigError, match="approver takes"):
        approver_of(TerminalApprover)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="approval takes"):
        approval_of(3)  # type: ignore[arg-type]
    assert approval_of("plan") == Approval(mode="plan")


def test_the_context_is_not_needed_to_look_at_it():
    assert ToolContext(ToolCall("c", "t", {})).idempotency_key == ""


# --- the whole call is shown


async def asked(command: str) -> tuple[list[str], bool]:
    """The lines on the terminal, and whether the call was made."""
    said: list[str] = []
    desk = Desk(TerminalApprover(read=lambda _: "y", write=said.append, now=count().__next__), mode="default")
    result = await desk.call("shell", command=command)
    return said, not result.is_error


async def test_the_end_of_a_long_command_is_shown():
    said, made = await asked("echo " + "a" * 30_000 + "; rm -rf x")
    assert made
    assert said[-1].endswith("; rm -rf x")


@pytest.mark.parametrize("command", ["a" * 100_001, "a\n" * 2_001, "; ".join(["echo a"] * 20_000)])
async def test_a_command_that_is_too_long_to_be_read_is_refused_without_a_question(command: str):
    said, made = await asked(command)
    assert (said, made) == ([], False)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("ls" + "\n" * 300 + "rm x", ["  command: ls", "  command: (299 blank lines)", "  command: rm x"]),
        ("ls\n \n\t\nrm x", ["  command: ls", "  command: (2 blank lines)", "  command: rm x"]),
        ("ls" + " " * 300 + "; rm x", ["  command: ls (300 blanks) ; rm x"]),
        (
            "ls\x0b\x0crm\u2028x",
            [
                "  command: ls\\u000b\\frm\\u2028x",
                "  take care, it has U+000B CONTROL CHARACTER, U+000C CONTROL CHARACTER, U+2028 LINE SEPARATOR",
            ],
        ),
    ],
)
async def test_blank_lines_and_blanks_hide_nothing(command: str, shown: list[str]):
    said, _ = await asked(command)
    assert said[1:] == shown


BLANKS = "\u2800\u3164\u115f\u1160\uffa0\u034f\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\ufe00\ufe0f"
BLANKS += "\u200b\u200d\u2060\u00ad\ufeff\u00a0\u2003\u3000\u202f\u205f\u061c\u2066\u202e"
BLANKS += "\U000e0100\U000e0041\U0001d159\U0001d173\U0001bca0\u2062\u206a\ufff9"


@pytest.mark.parametrize("blank", BLANKS)
async def test_a_character_that_looks_like_nothing_is_made_visible(blank: str):
    said, _ = await asked(f"ls{blank}x")
    assert blank not in "".join(said)
    assert "\\u" in said[1]


async def test_the_files_that_decide_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sh").write_text("ls\n")
    said, _ = await asked("bash x.sh")
    assert said[-1].startswith("  depends on x.sh (")
