"""The output of the commands: tables, lines, pages, JSON."""
