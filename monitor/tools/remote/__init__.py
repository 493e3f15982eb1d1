"""Tools that somebody else carries out: MCP servers, a command that declares tools, the web."""
