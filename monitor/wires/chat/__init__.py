"""OpenAI's chat completions, and the servers that are compatible with them."""
