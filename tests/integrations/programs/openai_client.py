"""The client of a local OpenAI server."""

from __future__ import annotations

import openai


def client_of(base_url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0)
