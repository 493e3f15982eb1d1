"""A server for tests, made with the SDK as most servers are: it speaks the newest protocol over
stdio, streamable HTTP or server-sent events.

    sdk.py stdio | http PORT | sse PORT
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

from mcp.server.mcpserver import Context, Image, MCPServer
from pydantic import Field

server = MCPServer("sdk")


@server.tool()
def add(a: int, b: Annotated[int, Field(description="added to a")] = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def slow(context: Context) -> str:
    """Report progress."""
    for step in (1, 2):
        await context.report_progress(step, 2, f"step {step}")
    return "done"


@server.tool()
def picture() -> Image:
    """Show a picture."""
    return Image(data=b"a picture", format="png")


@server.tool()
def fail() -> str:
    """Go wrong."""
    raise ValueError("it went wrong")


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
async def learn(name: str, context: Context) -> str:
    """Have one more tool."""
    server.add_tool(lambda: f"I am {name}", name=name, description="learnt")
    await context.notify_tools_changed()
    return "learnt"


match sys.argv[1:]:
    case ["stdio"]:
        server.run("stdio")
    case ["http", port]:
        server.run("streamable-http", port=int(port))
    case ["sse", port]:
        server.run("sse", port=int(port))
