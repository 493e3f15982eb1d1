"""A run as its core inputs: written down, and decided again."""
