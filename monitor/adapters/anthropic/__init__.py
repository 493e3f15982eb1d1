"""The adapter of anthropic: its streams, its models, its errors."""
