"""Files as tools: read, written, edited, searched."""
