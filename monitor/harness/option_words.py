"""The options of other libraries, in the words of this one: `max_turns=30` is
`stop_when=monitor.MaxTurns(30)` here.
"""

from __future__ import annotations

from typing import Final

from monitor import conditions
from monitor._util.codec import tag_of

WORDS: Final = {
    "system": "instructions",
    "system_prompt": "instructions",
    "system_message": "instructions",
    "system_instruction": "instructions",
    "prompt": "instructions",
    "output_type": "outputs",
    "output_schema": "outputs",
    "response_format": "outputs",
    "response_model": "outputs",
    "result_type": "outputs",
    "name": "agent",
    "functions": "tools",
    "toolsets": "tools",
    "messages": "history",
    "message_history": "history",
    "chat_history": "history",
    "callbacks": "sinks",
    "handlers": "sinks",
    "memory": "session",
    "checkpointer": "session",
    "llm": "model",
    "limits": "stop_when",
    "usage_limits": "stop_when",
    "termination_condition": "stop_when",
    "price": "prices",
    "condition": "stop_when",
    "dependencies": "deps",
}
"""The name of an option elsewhere, and here."""

CONDITION_WORDS: Final = {
    "max_iterations": "MaxTurns",
    "max_iters": "MaxTurns",
    "max_steps": "MaxTurns",
    "recursion_limit": "MaxTurns",
    "request_limit": "MaxModelCalls",
    "timeout_s": "Timeout",
    "timeout_seconds": "Timeout",
    "max_time": "Timeout",
    "max_execution_time": "Timeout",
    "idle_timeout_s": "IdleTimeout",
    "max_cost": "CostLimit",
    "max_usd": "CostLimit",
    "max_budget_usd": "CostLimit",
    "max_total_tokens": "TokenLimit",
    "total_tokens_limit": "TokenLimit",
}
"""The name of a limit elsewhere, and of the condition here."""

MODEL_SETTINGS: Final = frozenset(
    {
        *("frequency_penalty", "max_completion_tokens", "max_output_tokens", "max_tokens", "presence_penalty"),
        *(
            "reasoning",
            "reasoning_effort",
            "seed",
            "stop",
            "stop_sequences",
            "temperature",
            "thinking",
            "top_k",
            "top_p",
        ),
    }
)
"""Options that are the model's."""

OF_SUPERVISOR: Final = frozenset(
    {
        *("approval", "approver", "compaction", "history", "instructions", "model", "model_settings", "plan"),
        *("retries", "session", "tools"),
    }
)
"""Options of a `Supervisor` that a guard does not have, because the loop is the caller's."""


def line_for(owner: str, option: str, value: object) -> str | None:
    """The line to write in place of `option` of `owner`. `None`: the option is not known here."""
    if condition := CONDITION_WORDS.get(option) or _conditions().get(option):
        return f"write stop_when=monitor.{condition}({value!r})"
    if option in MODEL_SETTINGS:
        if owner == "Supervisor":
            return f"it is the model's; write model_settings={{{option!r}: {value!r}}}"
        return f"it is the model's; pass {option}={value!r} to your own call of the model"
    right = WORDS.get(option, option)
    if right in OF_SUPERVISOR:
        return f"the loop and its calls are yours; a loop that has it is monitor.Supervisor(model, {right}=...)"
    return None


def of_the_supervisor(_owner: str, option: str, value: object) -> str | None:
    """The line to write in place of `option` of a supervisor's method. `None`: it is not known."""
    _, found, right = (line_for("Supervisor", option, value) or "").rpartition("write ")
    if not found:
        word = WORDS.get(option, option)
        if word not in OF_SUPERVISOR and word not in WORDS.values():
            return None
        right = f"{word}=..."
    return f"it is an option of the supervisor; write monitor.Supervisor(model, {right})"


def _conditions() -> dict[str, str]:
    """The names of the public conditions, by their names as options."""
    kinds = [getattr(conditions, name) for name in dir(conditions)]
    return {tag_of(kind): kind.__name__ for kind in kinds if isinstance(kind, type)}
