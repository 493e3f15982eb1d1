import monitor
from monitor.tools import FileTools, ShellTools, Workspace

workspace = Workspace(".")
supervisor = monitor.Supervisor(
    monitor.testing.ScriptedModel(),
    tools=[FileTools(workspace), ShellTools(workspace, idle_s=60, timeout_s=300, grace_s=2)],
    calls=monitor.runs.ToolCalls(
        approval="auto_edit",  # reads and edits run, commands are asked for
        approver=monitor.tools.TerminalApprover(),
    ),
)
print(", ".join(supervisor.tools))  # ls, read_file, write_file, edit, glob, grep, shell, ...
