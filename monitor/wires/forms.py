"""The forms in which providers take a history, and the rules of each for ids and names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Form: TypeAlias = Literal["gemini", "openai-chat", "openai-responses", "anthropic"]
"""Gemini's contents, OpenAI's chat messages, its response items, Anthropic's messages."""


@dataclass(slots=True, frozen=True)
class FormRules:
    """The rules for ids and names that a service enforces by refusing the whole request."""

    call_id: re.Pattern[str]
    tool_name: re.Pattern[str]
    unique_ids: bool
    """No two calls of the history share an id."""


_ANY_ID: Final = r"[^\x00\ud800-\udfff]{1,%d}"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

RULES: Final[Mapping[Form, FormRules]] = {
    # Ids are optional. The reference of FunctionDeclaration allows 64 characters of a name.
    "gemini": FormRules(re.compile(_ANY_ID % 4096), re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}"), unique_ids=False),
    # "string too long. Expected a string with maximum length 40"
    "openai-chat": FormRules(re.compile(_ANY_ID % 40), _NAME, unique_ids=False),
    "openai-responses": FormRules(re.compile(_ANY_ID % 64), _NAME, unique_ids=True),
    # Its error messages state both patterns, and that ids of tool_use blocks must be unique.
    "anthropic": FormRules(re.compile(r"[A-Za-z0-9_-]{1,64}"), re.compile(r"[A-Za-z0-9_-]{1,128}"), unique_ids=True),
}

PORTABLE: Final = FormRules(
    re.compile(r"[A-Za-z0-9_-]{1,40}"), re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}"), unique_ids=True
)
"""The rules that satisfy all services."""


def rules_of(form: Form | None) -> FormRules:
    """The rules of `form`. `None`: rules that satisfy all forms. Raises `KeyError` for an unknown
    form.
    """
    return PORTABLE if form is None else RULES[form]
