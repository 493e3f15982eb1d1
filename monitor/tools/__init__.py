"""Tools: what a model may call, and carrying out what it called."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.tools.base import Tool as Tool
    from monitor.tools.base import ToolContext as ToolContext
    from monitor.tools.base import carry_out as carry_out
    from monitor.tools.base import carry_out_all as carry_out_all
    from monitor.tools.functions import FunctionTool as FunctionTool
    from monitor.tools.functions import as_tools as as_tools
    from monitor.tools.functions import tool as tool

__all__ = [
    "FunctionTool",
    "Tool",
    "ToolContext",
    "as_tools",
    "carry_out",
    "carry_out_all",
    "tool",
]

if not TYPE_CHECKING:  # a type checker would believe that every name is there
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "FunctionTool": "monitor.tools.functions",
            "Tool": "monitor.tools.base",
            "ToolContext": "monitor.tools.base",
            "as_tools": "monitor.tools.functions",
            "carry_out": "monitor.tools.base",
            "carry_out_all": "monitor.tools.base",
            "tool": "monitor.tools.functions",
        },
    )
