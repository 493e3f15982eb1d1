"""Rows by which processes tell each other what they know."""
