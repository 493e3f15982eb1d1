"""The shell as a tool, and reports of tests."""
