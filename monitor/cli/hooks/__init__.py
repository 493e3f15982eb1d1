"""The hooks of coding agents: a program of the user that an agent asks before each tool call."""
