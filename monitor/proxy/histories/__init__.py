"""A request as it came: read, and judged by its history."""
