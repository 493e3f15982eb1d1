"""The shell as a tool."""
