"""Tools: what a model may call, and carrying out what it called."""

from monitor.tools.base import Tool as Tool
from monitor.tools.base import ToolContext as ToolContext
from monitor.tools.base import ToolTraits as ToolTraits
from monitor.tools.base import carry_out as carry_out
from monitor.tools.base import carry_out_all as carry_out_all
from monitor.tools.base import traits_of as traits_of
from monitor.tools.functions import FunctionTool as FunctionTool
from monitor.tools.functions import as_tools as as_tools
from monitor.tools.functions import tool as tool
from monitor.tools.ledger import InMemoryLedger as InMemoryLedger
from monitor.tools.registry import ToolGroup as ToolGroup
from monitor.tools.registry import Toolset as Toolset
from monitor.tools.returned import ToolAnswer as ToolAnswer

__all__ = [
    "FunctionTool",
    "InMemoryLedger",
    "Tool",
    "ToolAnswer",
    "ToolContext",
    "ToolGroup",
    "ToolTraits",
    "Toolset",
    "as_tools",
    "carry_out",
    "carry_out_all",
    "tool",
    "traits_of",
]
