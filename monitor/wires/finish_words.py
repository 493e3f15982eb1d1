"""The words with which services and frameworks say why an answer ended, and the class of each."""

from __future__ import annotations

from typing import Final

from monitor.reasons import REPETITION_WORDS, FinishReason

_WORDS: Final = {
    FinishReason.DONE: (
        *("stop", "tool_calls", "function_call", "completed"),  # OpenAI
        *("end_turn", "stop_sequence", "tool_use"),  # Anthropic, Bedrock
        *("eos", "eos_token", "complete", "tool_call", "function_calls"),  # Together, TGI, Cohere; frameworks
    ),
    FinishReason.LENGTH: (
        *("length", "max_output_tokens", "max_messages"),  # OpenAI
        *("max_tokens", "model_context_window_exceeded"),  # Anthropic, Gemini, Bedrock; z.ai
        "model_length",  # Mistral
    ),
    FinishReason.MALFORMED: (
        *("malformed_function_call", "malformed_response", "missing_thought_signature"),  # Gemini
        *("too_many_tool_calls", "unexpected_tool_call"),
        *("malformed_model_output", "malformed_tool_use"),  # Bedrock
        "error",  # Pydantic AI's word for Gemini's
    ),
    FinishReason.BLOCKED: (
        *("content_filter", "refusal"),  # OpenAI, Anthropic
        *("safety", "recitation", "language", "other", "blocklist", "prohibited_content", "spii"),  # Gemini
        *("image_safety", "image_prohibited_content", "image_other", "no_image", "image_recitation"),
        *("escalation", "pup_limited_disabled", "model_armor"),
        *("content_filtered", "guardrail_intervened"),  # Bedrock
        *("sensitive", "error_toxic"),  # z.ai, Cohere
    ),
    FinishReason.REPETITION: (*REPETITION_WORDS, "repetition_truncation"),  # vLLM and compatible servers
    FinishReason.INTERRUPTED: (
        *("incomplete", "cancelled", "steered"),  # OpenAI
        *("pause_turn", "compaction"),  # Anthropic
        "continuation",  # Gemini
        *("interrupt", "checkpoint"),  # Strands
    ),
}
"""The words in lower case. A test compares them with the types of the SDKs."""

PAUSED: Final = frozenset({"pause_turn", "compaction"})
"""Anthropic's words for an answer that its service goes on with once it gets the answer back."""

_CLASSES: Final = {word: finish_reason for finish_reason, words in _WORDS.items() for word in words}


def finish_reason_of(word: str) -> FinishReason:
    """The class of a word. Gemini's compatible endpoint puts a word of its own before Gemini's:
    `function_call_filter: MALFORMED_FUNCTION_CALL`.
    """
    word = word.lower().replace("-", "_")  # gateways write `tool-calls`
    return _CLASSES.get(word) or _CLASSES.get(word.rpartition(":")[2].strip(), FinishReason.UNKNOWN)
