"""Recognises the form of a conversation's records. A record must have all signs of one form, and no
sign of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from monitor.errors import ConfigError
from monitor.wires.forms import Form

Record: TypeAlias = Mapping[str, Any]

NEUTRAL: Final = "neutral"
Kept: TypeAlias = Form | Literal["neutral"]
"""The form of a stored conversation. `neutral`: our own, as `monitor.messages.message_codec` writes
it.
"""
FORMS: Final[tuple[Kept, ...]] = (*get_args(Form), NEUTRAL)
MOST_FIELDS: Final = 8
"""The most fields of an unknown record that are named."""

_OWN: Final = frozenset({"user_message", "assistant_message"})
_CHAT_ROLES: Final = frozenset({"user", "assistant", "system", "developer", "tool", "function"})
_CHAT_FIELDS: Final = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations"}
    | {
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "thinking_blocks",
        "extra_content",
        "provider_specific_fields",
    }
    | {"prefix", "cache_control"}
)
"""Fields of OpenAI's and compatible servers' messages."""
_CHAT_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal"})
_MESSAGE_ROLES: Final = frozenset({"user", "assistant", "system"})
_MESSAGE_FIELDS: Final = frozenset(
    {
        "role",
        "content",
        "id",
        "type",
        "model",
        "stop_reason",
        "stop_sequence",
        "stop_details",
        "usage",
        "container",
        "context_management",
    }
)
"""Fields of Anthropic's messages, of requests and of answers."""
_BLOCKS: Final = frozenset(
    {
        "text",
        "image",
        "document",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "search_result",
        "container_upload",
    }
    | {"compaction", "fallback", "mcp_tool_listing", "tool_reference"}
)
_BLOCK_ENDS: Final = ("_tool_use", "_tool_result")
"""Endings of the types of Anthropic's own tools' blocks: `server_tool_use`,
`web_search_tool_result`."""
_ITEM_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_ITEM_FIELDS: Final = frozenset({"role", "content", "type", "id", "status", "phase", "object"})
_ITEM_PARTS: Final = frozenset({"input_text", "output_text", "input_image", "input_file", "input_audio", "refusal"})
_ITEMS: Final[Mapping[str, tuple[str, ...]]] = {
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    **dict.fromkeys(
        (
            "function_call_output",
            "custom_tool_call_output",
            "local_shell_call_output",
            "shell_call_output",
            "computer_call_output",
        ),
        ("call_id", "output"),
    ),
    **dict.fromkeys(("apply_patch_call_output", "tool_search_output", "program_output"), ("call_id",)),
    **dict.fromkeys(("local_shell_call", "shell_call", "apply_patch_call", "computer_call"), ("call_id",)),
    **dict.fromkeys(("file_search_call", "web_search_call", "code_interpreter_call", "image_generation_call"), ("id",)),
    **dict.fromkeys(("mcp_call", "mcp_list_tools", "mcp_approval_request", "item_reference", "program"), ("id",)),
    "mcp_approval_response": ("approval_request_id",),
    "compaction": ("encrypted_content",),
    "reasoning": ("summary",),
    **dict.fromkeys(("additional_tools", "configuration_update", "compaction_trigger", "tool_search_call"), ()),
}
"""Items of OpenAI's responses other than messages, and their required fields."""
_CONTENT: Final = frozenset({"role", "parts"})
_CONTENT_ROLES: Final = frozenset({"user", "model", "function", "tool"})
_PARTS: Final = frozenset(
    {
        "text",
        "thought",
        "thoughtsignature",
        "functioncall",
        "functionresponse",
        "inlinedata",
        "filedata",
        "executablecode",
    }
    | {
        "codeexecutionresult",
        "videometadata",
        "toolcall",
        "toolresponse",
        "partmetadata",
        "mediaresolution",
        "mediaprocessing",
    }
    | {"audiotranscription", "speechmetadata", "documentmetadata", "spreadsheetmetadata", "audiometadata"}
)
"""Fields of Gemini's parts, without underscores and capitals, because the wire format and the SDK
spell them differently.
"""


def forms_of(record: Record) -> frozenset[Kept]:
    """The forms that `record` fits; a user's plain text fits several."""
    return frozenset(form for form, has_signs in _SIGNS.items() if has_signs(record))


def form_of(request: Record, records: Sequence[Record]) -> Kept:
    """The one form of all `records`, which may stand in `request`. Records that fit several forms
    are taken for OpenAI's chat.

    Raises `ConfigError`, which counts the records that do not fit.
    """
    each = [forms_of(record) for record in records]
    common = frozenset(FORMS).intersection(*each)
    if "contents" in request:
        common &= {"gemini"}
    elif "input" in request:
        common &= {"openai-responses"}
    elif "system" in request or "anthropic_version" in request:
        common &= {"anthropic"}
    preferred: tuple[Kept, ...] = ("openai-chat", "anthropic", "openai-responses", "gemini", NEUTRAL)
    for form in preferred:
        if form in common:
            return form
    raise ConfigError(_in_no_form(each, records))


def _in_no_form(each: Sequence[frozenset[Kept]], records: Sequence[Record]) -> str:
    known = f"--form says which they are: {', '.join(FORMS)}"
    strange = [index for index, forms in enumerate(each) if not forms]
    counted = Counter(form for forms in each for form in forms)
    if not counted:
        return f"no known form has messages like these, with {_fields(records[0])}; {known}"
    if strange:
        first, are = strange[0], "is" if len(strange) == 1 else "are"
        number = f"{len(strange):,} of its {len(each):,} records"
        return f"{number} {are} not understood, the first is message {first}, with {_fields(records[first])}; {known}"
    told = ", ".join(f"{number:,} may be {form}" for form, number in counted.most_common())
    return f"its {len(each):,} records are not of one form ({told}); {known}"


def _fields(record: Record) -> str:
    names = list(map(str, record))
    return ", ".join(names[:MOST_FIELDS]) + (", ..." if len(names) > MOST_FIELDS else "") or "no fields"


def not_understood(form: Kept, records: Sequence[Record]) -> int:
    """How many of `records` do not fit `form`."""
    has_signs = _SIGNS[form]
    return sum(not has_signs(record) for record in records)


def _neutral(record: Record) -> bool:
    return _is(record.get("type"), _OWN)


def _chat(record: Record) -> bool:
    if not _is(record.get("role"), _CHAT_ROLES) or not record.keys() <= _CHAT_FIELDS:
        return False
    calls = record.get("tool_calls")
    if calls is not None and not _objects(calls, lambda call: "function" in call or "custom" in call):
        return False
    content = record.get("content")
    if content is None:
        return bool(calls) or "content" in record or "function_call" in record
    return isinstance(content, str) or _objects(content, lambda part: _is(part.get("type"), _CHAT_PARTS))


def _anthropic(record: Record) -> bool:
    if not _is(record.get("role"), _MESSAGE_ROLES) or record.get("type", "message") != "message":
        return False
    return record.keys() <= _MESSAGE_FIELDS and _is_text_or(record.get("content"), _is_block)


def _is_block(block: Record) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and (kind in _BLOCKS or kind.endswith(_BLOCK_ENDS))


def _responses(record: Record) -> bool:
    kind = record.get("type", "message")
    if kind == "message":
        if not _is(record.get("role"), _ITEM_ROLES) or not record.keys() <= _ITEM_FIELDS:
            return False
        return _is_text_or(record.get("content"), lambda part: _is(part.get("type"), _ITEM_PARTS))
    if kind == "reasoning" and "encrypted_content" in record:
        return True
    return isinstance(kind, str) and kind in _ITEMS and all(record.get(name) is not None for name in _ITEMS[kind])


def _gemini(record: Record) -> bool:
    if not record or not record.keys() <= _CONTENT or not _is(record.get("role", "user"), _CONTENT_ROLES):
        return False
    parts = record.get("parts")
    return parts is None or _objects(parts, lambda part: bool(part) and {_plain(name) for name in part} <= _PARTS)


def _is(value: object, known: frozenset[str]) -> bool:
    return isinstance(value, str) and value in known


def _plain(name: object) -> str:
    return str(name).replace("_", "").casefold()


def _is_text_or(content: object, is_part: Callable[[Record], bool]) -> bool:
    return isinstance(content, str) or _objects(content, is_part)


def _objects(value: object, each: Callable[[Record], bool]) -> bool:
    return isinstance(value, list) and all(isinstance(one, Mapping) and each(one) for one in value)


_SIGNS: Final[Mapping[Kept, Callable[[Record], bool]]] = {
    "gemini": _gemini,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    NEUTRAL: _neutral,
}
