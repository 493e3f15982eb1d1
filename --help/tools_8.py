import monitor


@monitor.tool(kind="read", timeout_s=30, idempotent=True)
async def look(q: str) -> str:
    """Look something up."""
    return f"found {q}"


docs = monitor.tools.ToolGroup([look], prefix="docs_")
supervisor = monitor.Supervisor(monitor.testing.ScriptedModel(), tools=[look, docs])
print(*supervisor.tools)  # look docs_look
