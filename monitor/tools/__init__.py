"""Tools that a model may call, and the parts that carry out its calls."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.tools.approval import Approval as Approval
    from monitor.tools.approval import Approver as Approver
    from monitor.tools.approvers import PendingApprovals as PendingApprovals
    from monitor.tools.approvers import TerminalApprover as TerminalApprover
    from monitor.tools.artifact_folder import FolderArtifacts as FolderArtifacts
    from monitor.tools.artifact_tools import ArtifactTools as ArtifactTools
    from monitor.tools.artifact_tools import Fetched as Fetched
    from monitor.tools.artifact_tools import Recent as Recent
    from monitor.tools.artifacts import Artifact as Artifact
    from monitor.tools.artifacts import ArtifactGone as ArtifactGone
    from monitor.tools.artifacts import ArtifactsFull as ArtifactsFull
    from monitor.tools.artifacts import ArtifactStore as ArtifactStore
    from monitor.tools.artifacts import InMemoryArtifacts as InMemoryArtifacts
    from monitor.tools.artifacts import Reference as Reference
    from monitor.tools.base import Tool as Tool
    from monitor.tools.base import ToolContext as ToolContext
    from monitor.tools.base import ToolTraits as ToolTraits
    from monitor.tools.base import traits_of as traits_of
    from monitor.tools.discovery import DiscoveredTools as DiscoveredTools
    from monitor.tools.files import FileTools as FileTools
    from monitor.tools.functions import FunctionTool as FunctionTool
    from monitor.tools.functions import as_tools as as_tools
    from monitor.tools.functions import tool as tool
    from monitor.tools.ledger import InMemoryLedger as InMemoryLedger
    from monitor.tools.mcp import McpServer as McpServer
    from monitor.tools.memory import FileMemory as FileMemory
    from monitor.tools.memory import NotesFile as NotesFile
    from monitor.tools.proctable import end_leftovers as end_leftovers
    from monitor.tools.progress import failing_tests as failing_tests
    from monitor.tools.registry import Registry as Registry
    from monitor.tools.registry import ToolGroup as ToolGroup
    from monitor.tools.registry import Toolset as Toolset
    from monitor.tools.registry import ToolWarning as ToolWarning
    from monitor.tools.returned import ToolAnswer as ToolAnswer
    from monitor.tools.rules import Rule as Rule
    from monitor.tools.rules import Rules as Rules
    from monitor.tools.scheduler import Scheduler as Scheduler
    from monitor.tools.scheduler import carry_out as carry_out
    from monitor.tools.scheduler import carry_out_all as carry_out_all
    from monitor.tools.shell import ShellTools as ShellTools
    from monitor.tools.special import checkpoint_tool as checkpoint_tool
    from monitor.tools.special import pause_tool as pause_tool
    from monitor.tools.truncation import Bound as Bound
    from monitor.tools.workspace import Workspace as Workspace

__all__ = [
    "Approval",
    "Approver",
    "Artifact",
    "ArtifactGone",
    "ArtifactStore",
    "ArtifactTools",
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
    "Rule",
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
    "as_tools",
    "carry_out",
    "carry_out_all",
    "checkpoint_tool",
    "end_leftovers",
    "failing_tests",
    "pause_tool",
    "tool",
    "traits_of",
]

if not TYPE_CHECKING:  # a type checker would believe that every name is there
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Approval": "monitor.tools.approval",
            "Approver": "monitor.tools.approval",
            "Artifact": "monitor.tools.artifacts",
            "ArtifactGone": "monitor.tools.artifacts",
            "ArtifactStore": "monitor.tools.artifacts",
            "ArtifactTools": "monitor.tools.artifact_tools",
            "ArtifactsFull": "monitor.tools.artifacts",
            "Bound": "monitor.tools.truncation",
            "DiscoveredTools": "monitor.tools.discovery",
            "Fetched": "monitor.tools.artifact_tools",
            "FileMemory": "monitor.tools.memory",
            "FileTools": "monitor.tools.files",
            "FolderArtifacts": "monitor.tools.artifact_folder",
            "FunctionTool": "monitor.tools.functions",
            "InMemoryArtifacts": "monitor.tools.artifacts",
            "InMemoryLedger": "monitor.tools.ledger",
            "McpServer": "monitor.tools.mcp",
            "NotesFile": "monitor.tools.memory",
            "PendingApprovals": "monitor.tools.approvers",
            "Recent": "monitor.tools.artifact_tools",
            "Reference": "monitor.tools.artifacts",
            "Registry": "monitor.tools.registry",
            "Rule": "monitor.tools.rules",
            "Rules": "monitor.tools.rules",
            "Scheduler": "monitor.tools.scheduler",
            "ShellTools": "monitor.tools.shell",
            "TerminalApprover": "monitor.tools.approvers",
            "Tool": "monitor.tools.base",
            "ToolAnswer": "monitor.tools.returned",
            "ToolContext": "monitor.tools.base",
            "ToolGroup": "monitor.tools.registry",
            "ToolTraits": "monitor.tools.base",
            "ToolWarning": "monitor.tools.registry",
            "Toolset": "monitor.tools.registry",
            "Workspace": "monitor.tools.workspace",
            "as_tools": "monitor.tools.functions",
            "carry_out": "monitor.tools.scheduler",
            "carry_out_all": "monitor.tools.scheduler",
            "checkpoint_tool": "monitor.tools.special",
            "end_leftovers": "monitor.tools.proctable",
            "failing_tests": "monitor.tools.progress",
            "pause_tool": "monitor.tools.special",
            "tool": "monitor.tools.functions",
            "traits_of": "monitor.tools.base",
        },
    )
