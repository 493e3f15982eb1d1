"""Tools that a model may call, and the parts that carry out its calls."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.tools.approvals.approval import Approval as Approval
    from monitor.tools.approvals.approval import Approver as Approver
    from monitor.tools.approvals.approvers import PendingApprovals as PendingApprovals
    from monitor.tools.approvals.approvers import TerminalApprover as TerminalApprover
    from monitor.tools.approvals.rules import Rules as Rules
    from monitor.tools.artifacts.artifact_store import Artifact as Artifact
    from monitor.tools.artifacts.artifact_store import ArtifactGone as ArtifactGone
    from monitor.tools.artifacts.artifact_store import ArtifactsFull as ArtifactsFull
    from monitor.tools.artifacts.artifact_store import ArtifactStore as ArtifactStore
    from monitor.tools.artifacts.artifact_store import InMemoryArtifacts as InMemoryArtifacts
    from monitor.tools.artifacts.artifact_store import Reference as Reference
    from monitor.tools.artifacts.artifact_tools import Fetched as Fetched
    from monitor.tools.artifacts.artifact_tools import Recent as Recent
    from monitor.tools.artifacts.folder_artifacts import FolderArtifacts as FolderArtifacts
    from monitor.tools.base import Tool as Tool
    from monitor.tools.base import ToolContext as ToolContext
    from monitor.tools.base import ToolTraits as ToolTraits
    from monitor.tools.calls.ledger import InMemoryLedger as InMemoryLedger
    from monitor.tools.calls.scheduler import Scheduler as Scheduler
    from monitor.tools.calls.scheduler import carry_out as carry_out
    from monitor.tools.calls.special_tools import checkpoint_tool as checkpoint_tool
    from monitor.tools.calls.special_tools import pause_tool as pause_tool
    from monitor.tools.files.file_memory import FileMemory as FileMemory
    from monitor.tools.files.file_memory import NotesFile as NotesFile
    from monitor.tools.files.file_tools import FileTools as FileTools
    from monitor.tools.functions import FunctionTool as FunctionTool
    from monitor.tools.functions import tool as tool
    from monitor.tools.processes.process_table import end_leftovers as end_leftovers
    from monitor.tools.registry import Registry as Registry
    from monitor.tools.registry import ToolGroup as ToolGroup
    from monitor.tools.registry import Toolset as Toolset
    from monitor.tools.registry import ToolWarning as ToolWarning
    from monitor.tools.remote.discovery import DiscoveredTools as DiscoveredTools
    from monitor.tools.remote.mcp_server import McpServer as McpServer
    from monitor.tools.results.tool_answer import ToolAnswer as ToolAnswer
    from monitor.tools.results.truncation import Bound as Bound
    from monitor.tools.shell.failing_tests import failing_tests as failing_tests
    from monitor.tools.shell.shell_tools import ShellTools as ShellTools
    from monitor.tools.workspace.workspace import Workspace as Workspace

__all__ = [
    "Approval",
    "Approver",
    "Artifact",
    "ArtifactGone",
    "ArtifactStore",
    "ArtifactsFull",
    "Bound",
    "DiscoveredTools",
    "Fetched",
    "FileMemory",
    "FileTools",
    "FolderArtifacts",
    "FunctionTool",
    "InMemoryArtifacts",
    "InMemoryLedger",
    "McpServer",
    "NotesFile",
    "PendingApprovals",
    "Recent",
    "Reference",
    "Registry",
    "Rules",
    "Scheduler",
    "ShellTools",
    "TerminalApprover",
    "Tool",
    "ToolAnswer",
    "ToolContext",
    "ToolGroup",
    "ToolTraits",
    "ToolWarning",
    "Toolset",
    "Workspace",
    "carry_out",
    "checkpoint_tool",
    "end_leftovers",
    "failing_tests",
    "pause_tool",
    "tool",
]

if not TYPE_CHECKING:  # a type checker would believe that every name is there
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Approval": "monitor.tools.approvals.approval",
            "Approver": "monitor.tools.approvals.approval",
            "Artifact": "monitor.tools.artifacts.artifact_store",
            "ArtifactGone": "monitor.tools.artifacts.artifact_store",
            "ArtifactStore": "monitor.tools.artifacts.artifact_store",
            "ArtifactsFull": "monitor.tools.artifacts.artifact_store",
            "Bound": "monitor.tools.results.truncation",
            "DiscoveredTools": "monitor.tools.remote.discovery",
            "Fetched": "monitor.tools.artifacts.artifact_tools",
            "FileMemory": "monitor.tools.files.file_memory",
            "FileTools": "monitor.tools.files.file_tools",
            "FolderArtifacts": "monitor.tools.artifacts.folder_artifacts",
            "FunctionTool": "monitor.tools.functions",
            "InMemoryArtifacts": "monitor.tools.artifacts.artifact_store",
            "InMemoryLedger": "monitor.tools.calls.ledger",
            "McpServer": "monitor.tools.remote.mcp_server",
            "NotesFile": "monitor.tools.files.file_memory",
            "PendingApprovals": "monitor.tools.approvals.approvers",
            "Recent": "monitor.tools.artifacts.artifact_tools",
            "Reference": "monitor.tools.artifacts.artifact_store",
            "Registry": "monitor.tools.registry",
            "Rules": "monitor.tools.approvals.rules",
            "Scheduler": "monitor.tools.calls.scheduler",
            "ShellTools": "monitor.tools.shell.shell_tools",
            "TerminalApprover": "monitor.tools.approvals.approvers",
            "Tool": "monitor.tools.base",
            "ToolAnswer": "monitor.tools.results.tool_answer",
            "ToolContext": "monitor.tools.base",
            "ToolGroup": "monitor.tools.registry",
            "ToolTraits": "monitor.tools.base",
            "ToolWarning": "monitor.tools.registry",
            "Toolset": "monitor.tools.registry",
            "Workspace": "monitor.tools.workspace.workspace",
            "carry_out": "monitor.tools.calls.scheduler",
            "checkpoint_tool": "monitor.tools.calls.special_tools",
            "end_leftovers": "monitor.tools.processes.process_table",
            "failing_tests": "monitor.tools.shell.failing_tests",
            "pause_tool": "monitor.tools.calls.special_tools",
            "tool": "monitor.tools.functions",
        },
    )
