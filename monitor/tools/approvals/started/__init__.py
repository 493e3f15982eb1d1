"""The commands that a line starts, directly and through others."""
