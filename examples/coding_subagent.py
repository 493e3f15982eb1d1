"""A subagent that mends a small repository, offline: real files, a real shell, real tests.

It reads the code, edits it, and runs the tests, which needs a yes. With a key, put
`monitor.model("google:gemini-2.5-flash")` in the place of the script, and
`monitor.tools.TerminalApprover()` in the place of `approve`.

The same with the files of an MCP server, which gets the folder as its last argument:

    python examples/coding_subagent.py --mcp "npx -y @modelcontextprotocol/server-filesystem"
"""

import argparse
import asyncio
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import monitor
from monitor.messages import ApprovalRequest
from monitor.testing import ScriptedModel, call, capture_events
from monitor.tools import Approval, FileTools, McpServer, Rules, ShellTools, Workspace

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

SLIP, OLD = "    midle = len(numbers) // 2\n", "    middle = len(numbers) // 2\n"
SUMMARY = call("emit_value", name="summary", value="median sorts its numbers, and takes the mean of two in the middle.")


def coder() -> ScriptedModel:
    """The model, with the tools of this library. It makes a slip, and the answer says which."""
    return ScriptedModel(
        [call("glob", pattern="*.py"), call("read_file", path="stats.py")],
        [call("edit", path="stats.py", old=SLIP, new=EDITED)],
        [call("edit", path="stats.py", old=OLD, new=EDITED)],
        [call("shell", command=RUN_TESTS)],
        [SUMMARY],
    )


def coder_of_server(folder: Path) -> ScriptedModel:
    """The model, with the tools of an MCP server."""
    file = str(folder / "stats.py")
    return ScriptedModel(
        [call("files__list_directory", path=str(folder)), call("files__read_text_file", path=file)],
        [call("files__edit_file", path=file, edits=[{"oldText": SLIP, "newText": EDITED}])],
        [call("files__edit_file", path=file, edits=[{"oldText": OLD, "newText": EDITED}])],
        [call("shell", command=RUN_TESTS)],
        [SUMMARY],
    )


async def approve(request: ApprovalRequest) -> bool:
    """A person says yes; here nobody is asked."""
    print(f"? may {request.tool} be called with {request.arguments}: yes")
    return True


async def mend(folder: Path, server: Sequence[str]) -> monitor.Outcome:
    """Drive the subagent in `folder`. `server`: the command of an MCP server for its files."""
    workspace = Workspace(folder)
    files = McpServer([*server, str(folder)], name="files", trusted=True) if server else FileTools(workspace)
    supervisor = monitor.Supervisor(
        coder_of_server(folder) if server else coder(),
        instructions="Make the tests of this repository pass. Do not change the tests.",
        tools=[files, ShellTools(workspace, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})],  # which take a second
        # Reads and edits run, and a command needs a yes. A server cannot say that its tool edits.
        calls=monitor.runs.ToolCalls(
            approval=Approval(mode="auto_edit", rules=Rules([{"tool": "files__edit_file", "decision": "allow"}])),
            approver=approve,
        ),
        outputs={"summary": str},
        stop_when=monitor.MaxTurns(20) | monitor.Timeout(300),
    )
    with capture_events() as events:
        outcome = await supervisor.run("Mend median().")
    results = [event.result for event in events if isinstance(event, monitor.events.ToolFinished)]
    for result in results:
        print(f"- {result.name}: {'failed: ' if result.is_error else ''}{result.text.splitlines()[0]}")
    assert sum(result.is_error for result in results) == 1  # the slip
    assert sum(isinstance(event, monitor.events.ApprovalRequested) for event in events) == 1
    assert results[-1].progress == 0, results[-1].text  # the shell has read how many tests fail
    return outcome


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the repository, have it mended, and say how it ended."""
    parser = argparse.ArgumentParser(description="A subagent mends a small repository.")
    parser.add_argument("--mcp", metavar="COMMAND", default="", help="an MCP server for the files")
    server = shlex.split(parser.parse_args(arguments).mcp)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "stats.py").write_text(CODE)
        (folder / "test_stats.py").write_text(TESTS)
        outcome = asyncio.run(mend(folder, server))
        print(f"\n{outcome.reason}: {outcome.output['summary']}")
        assert outcome.reason is monitor.TerminateReason.GOAL


if __name__ == "__main__":
    main()
