"""What the commands show: tables, lines, pages, JSON."""
