"""Tools: what a model may call, and carrying out what it called."""

from monitor.tools.approval import Approval as Approval
from monitor.tools.approval import Approver as Approver
from monitor.tools.approvers import PendingApprovals as PendingApprovals
from monitor.tools.approvers import TerminalApprover as TerminalApprover
from monitor.tools.base import Tool as Tool
from monitor.tools.base import ToolContext as ToolContext
from monitor.tools.base import ToolTraits as ToolTraits
from monitor.tools.base import traits_of as traits_of
from monitor.tools.functions import FunctionTool as FunctionTool
from monitor.tools.functions import as_tools as as_tools
from monitor.tools.functions import tool as tool
from monitor.tools.ledger import InMemoryLedger as InMemoryLedger
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
from monitor.tools.special import checkpoint_tool as checkpoint_tool
from monitor.tools.special import pause_tool as pause_tool

__all__ = [
    "Approval",
    "Approver",
    "FunctionTool",
    "InMemoryLedger",
    "PendingApprovals",
    "Registry",
    "Rule",
    "Rules",
    "Scheduler",
    "TerminalApprover",
    "Tool",
    "ToolAnswer",
    "ToolContext",
    "ToolGroup",
    "ToolTraits",
    "ToolWarning",
    "Toolset",
    "as_tools",
    "carry_out",
    "carry_out_all",
    "checkpoint_tool",
    "pause_tool",
    "tool",
    "traits_of",
]
