"""Summaries: what is asked for, who writes them, and what an answer must have."""
