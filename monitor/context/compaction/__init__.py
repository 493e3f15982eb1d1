"""A history that stays inside the window: what a compaction keeps and what it sums up."""
