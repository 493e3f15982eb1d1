"""The adapter of google-genai: its streams, its models, its errors."""
