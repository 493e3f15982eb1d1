"""Tools: what a model may call, and carrying out what it called."""

from monitor.tools.base import Tool as Tool
from monitor.tools.base import ToolContext as ToolContext
from monitor.tools.base import carry_out as carry_out
from monitor.tools.base import carry_out_all as carry_out_all
from monitor.tools.functions import FunctionTool as FunctionTool
from monitor.tools.functions import as_tools as as_tools
from monitor.tools.functions import tool as tool

__all__ = ["FunctionTool", "Tool", "ToolContext", "as_tools", "carry_out", "carry_out_all", "tool"]
