"""The form of Anthropic's messages API."""
