"""Tools that a model may call, and the parts that carry out its calls."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.errors import ToolRetry as ToolRetry
    from monitor.tools.approvals.approval import Approval as Approval
    from monitor.tools.approvals.approval import Approver as Approver
    from monitor.tools.approvals.approvers import PendingApprovals as PendingApprovals
    from monitor.tools.approvals.approvers import TerminalApprover as TerminalApprover
    from monitor.tools.approvals.rules import Rules as Rules
    from monitor.tools.artifacts.artifact_store import Artifact as Artifact
    from monitor.tools.artifacts.artifact_store import ArtifactGone as ArtifactGone
    from monitor.tools.artifacts.artifact_store import ArtifactsFull as ArtifactsFull
    from monitor.tools.artifacts.artifact_store import ArtifactStore as ArtifactStore
    from monitor.tools.artifacts.artifact_store import Fetched as Fetched
    from monitor.tools.artifacts.artifact_store import InMemoryArtifacts as InMemoryArtifacts
    from monitor.tools.artifacts.artifact_store import Recent as Recent
    from monitor.tools.artifacts.artifact_store import Reference as Reference
    from monitor.tools.artifacts.folder_artifacts import FolderArtifacts as FolderArtifacts
    from monitor.tools.base import Bound as Bound
    from monitor.tools.base import GuidanceContext as GuidanceContext
    from monitor.tools.base import Tool as Tool
    from monitor.tools.base import ToolContext as ToolContext
    from monitor.tools.base import ToolTraits as ToolTraits
    from monitor.tools.calls.call import InMemoryLedger as InMemoryLedger
    from monitor.tools.calls.scheduler import Scheduler as Scheduler
    from monitor.tools.calls.scheduler import carry_out as carry_out
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
    from monitor.tools.registry import checkpoint_tool as checkpoint_tool
    from monitor.tools.registry import pause_tool as pause_tool
    from monitor.tools.remote.discovery import DiscoveredTools as DiscoveredTools
    from monitor.tools.remote.mcp_server import McpServer as McpServer
    from monitor.tools.results.call_results import ToolAnswer as ToolAnswer
    from monitor.tools.results.call_results import deferred as deferred
    from monitor.tools.results.call_results import finish as finish
    from monitor.tools.sandbox.confinement import SandboxFound as SandboxFound
    from monitor.tools.sandbox.confinement import find_sandbox as find_sandbox
    from monitor.tools.sandbox.sandbox_places import Sandbox as Sandbox
    from monitor.tools.shell.shell_jobs import failing_tests as failing_tests
    from monitor.tools.shell.shell_tools import ShellTools as ShellTools
    from monitor.tools.workspace import Workspace as Workspace
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)
