"""A subagent that mends a small repository, offline: real files, a real shell, real tests.

It reads the code, edits it, and runs the tests, which needs a yes. With a key, put
`monitor.model("google:gemini-2.5-flash")` in the place of the script, and
`monitor.tools.TerminalApprover()` in the place of `approve`.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import monitor
from monitor.calls import ApprovalRequest
from monitor.testing import ScriptedModel, call, capture_events
from monitor.tools import FileTools, ShellTools, Workspace

CODE = '''\
def median(numbers):
    """The number in the middle, or the mean of the two there."""
    middle = len(numbers) // 2
    return numbers[middle]
'''
TESTS = """\
from stats import median

def test_odd():
    assert median([3, 1, 2]) == 2

def test_even():
    assert median([4, 1, 2, 3]) == 2.5
"""
EDITED = """\
    numbers = sorted(numbers)
    middle = len(numbers) // 2
    if len(numbers) % 2 == 0:
        return (numbers[middle - 1] + numbers[middle]) / 2
"""
RUN_TESTS = f"{sys.executable} -m pytest -q -p no:cacheprovider"

CODER = ScriptedModel(
    [call("glob", pattern="*.py"), call("read_file", path="stats.py")],
    [call("edit", path="stats.py", old="    midle = len(numbers) // 2\n", new=EDITED)],  # a slip: the model reads why
    [call("edit", path="stats.py", old="    middle = len(numbers) // 2\n", new=EDITED)],
    [call("shell", command=RUN_TESTS)],
    [call("emit_value", name="summary", value="median sorts its numbers, and takes the mean of two in the middle.")],
)


async def approve(request: ApprovalRequest) -> bool:
    """A person says yes; here nobody is asked."""
    print(f"? may {request.tool} be called with {request.arguments}: yes")
    return True


async def mend(folder: Path) -> monitor.Outcome:
    """Drive the subagent in `folder`."""
    workspace = Workspace(folder)
    coder = monitor.Supervisor(
        CODER,
        instructions="Make the tests of this repository pass. Do not change the tests.",
        tools=[FileTools(workspace), ShellTools(workspace)],
        approval="auto_edit",  # reads and edits run; a command needs a yes
        approver=approve,
        outputs={"summary": str},
        stop_when=monitor.MaxTurns(20) | monitor.Timeout(300),
    )
    with capture_events() as events:
        outcome = await coder.run("Mend median().")
    results = [event.result for event in events if isinstance(event, monitor.events.ToolFinished)]
    for result in results:
        print(f"- {result.name}: {result.text.splitlines()[0]}")
    assert sum(isinstance(event, monitor.events.ApprovalRequested) for event in events) == 1
    assert results[-1].progress == 0, results[-1].text  # the shell has read how many tests fail
    return outcome


def main() -> None:
    """Make the repository, have it mended, and say how it ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stats.py").write_text(CODE)
        (folder / "test_stats.py").write_text(TESTS)
        outcome = asyncio.run(mend(folder))
        print(f"\n{outcome.reason}: {outcome.output['summary']}")
        assert outcome.reason is monitor.TerminateReason.GOAL


if __name__ == "__main__":
    main()
