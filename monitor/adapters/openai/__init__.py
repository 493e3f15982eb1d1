"""The adapter of openai: its streams, its models, its errors."""
