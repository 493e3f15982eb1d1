"""Sandboxes: the operating system keeps a command from everything that it has not been given."""
