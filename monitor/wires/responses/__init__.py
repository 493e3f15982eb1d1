"""The form of OpenAI's responses API."""
