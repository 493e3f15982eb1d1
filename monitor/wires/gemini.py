"""Gemini's contents: how they are read, by what a record is known, and how they are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from monitor._util.codec import text_of
from monitor._util.part_options import origin
from monitor.chunks import ToolCall
from monitor.messages import Media, Reasoning, Text
from monitor.wires.fields import (
    RULES,
    RawMessage,
    RawPart,
    Unread,
    WireProblem,
    answer,
    are_objects,
    base64_of,
    is_base64,
    is_one_of,
    objects,
    objects_or_unread,
    role_of,
    snake,
    text,
)

# --------------------------------------------------------------------------------------------------
# Gemini's contents, in camel case as on the wire or in snake case as in the SDK.

ORIGIN: Final = origin("google", None)

ROLES: Final[Mapping[str | None, Literal["user", "assistant", "tool"]]] = {
    None: "user",
    "user": "user",
    "model": "assistant",
    "function": "tool",
    "tool": "tool",
}


def read(content: Mapping[str, Any]) -> RawMessage:
    """One content of a history, with all of its parts."""
    parts: list[RawPart] = []
    empty = False  # the last part was an empty text with a signature, which does not belong to the next part
    for part in objects_or_unread(content, "parts"):
        if isinstance(part, Unread):
            parts.append(part)
            continue
        fields = snake(part)
        if empty and "thought_signature" not in fields:
            parts.append(Reasoning("", "", ORIGIN))
        empty = fields.get("text") == "" and "thought_signature" in fields and fields.get("thought") is not True
        parts += _part(fields)
    role = role_of(content, ROLES)
    return RawMessage(role, tuple(parts), partial=role == "assistant")


def _part(part: Mapping[str, Any]) -> Iterator[RawPart]:
    """One part, and before it the part's signature as `Reasoning`, together with the thought if the
    part is one. The signature of an unread part is left out with the part.
    """
    signature = base64_of(part.get("thought_signature"))
    words = text(part, "text")
    if part.get("thought") is True and "text" in part:
        yield Reasoning(words, signature, ORIGIN)
        return
    if signature is not None and ("text" in part or "function_call" in part):
        yield Reasoning("", signature, ORIGIN)
    if "text" in part:
        if words or signature is None:
            yield Text(words)
    elif "function_call" in part:
        call = snake(part["function_call"])
        yield ToolCall(text(call, "id"), text(call, "name"), call.get("args", {}))  # the service omits empty ones
    elif "function_response" in part:
        yield from _result(snake(part["function_response"]))
    elif "inline_data" in part or "file_data" in part:
        yield _media(part)
    else:
        yield Unread(", ".join(sorted(part)) or "an empty part")


def _result(given: Mapping[str, Any]) -> Iterator[RawPart]:
    said = given.get("response")
    is_error = False
    if isinstance(said, Mapping):
        is_error = "output" not in said and said.get("error") not in (None, "", False)
    if isinstance(said, Mapping) and len(said) == 1:
        (key,) = said
        is_error = key == "error"
        said = said[key] if key in ("output", "error", "result") else said
    shown = [part if isinstance(part, Unread) else _media(snake(part)) for part in objects_or_unread(given, "parts")]
    yield from answer(
        text(given, "id"), text(given, "name"), text_of("" if said is None else said), shown, is_error=is_error
    )


def _media(part: Mapping[str, Any]) -> RawPart:
    inline, file = snake(part.get("inline_data")), snake(part.get("file_data"))
    one = inline or file
    mime_type, name = text(one, "mime_type"), text(one, "display_name") or None
    if not mime_type:
        return Unread("data without a type")
    return Media(mime_type, base64_of(inline.get("data")), text(file, "file_uri") or None, name)


_PARTS: Final = frozenset(
    [
        "text",
        "thought",
        "thoughtsignature",
        "functioncall",
        "functionresponse",
        "inlinedata",
        "filedata",
        "executablecode",
        "codeexecutionresult",
        "videometadata",
        "toolcall",
        "toolresponse",
        "partmetadata",
        "mediaresolution",
        "mediaprocessing",
        "audiotranscription",
        "speechmetadata",
        "documentmetadata",
        "spreadsheetmetadata",
        "audiometadata",
    ]
)
"""Fields of Gemini's parts, without underscores and capitals, because the wire format and the SDK
spell them differently.
"""


def is_content(record: Mapping[str, Any], *, strict: bool = True) -> bool:
    """Whether `record` is a content. `strict`: all of its fields and parts belong to this form, and
    a role may be missing. Otherwise a role and a list of parts are enough.
    """
    parts = record.get("parts")
    if not strict:
        return is_one_of(record.get("role"), {"user", "model"}) and isinstance(parts, list)
    if not record or not record.keys() <= {"role", "parts"} or not is_one_of(record.get("role", "user"), ROLES):
        return False
    return parts is None or are_objects(parts, lambda part: bool(part) and {_plain(name) for name in part} <= _PARTS)


def _plain(name: object) -> str:
    return str(name).replace("_", "").casefold()


# --------------------------------------------------------------------------------------------------
# Gemini's rules for contents, in camel case or in snake case.
#
# Its error messages state them:
#
# - "contents.parts must not be empty";
# - "function call turn comes immediately after a user turn or after a function response turn";
# - "the number of function response parts is equal to the number of function call parts";
# - "multiturn requests alternate between user and model";
# - "required oneof field 'data' must have one initialized field".

_DATA: Final = frozenset(
    {
        "text",
        "inline_data",
        "file_data",
        "function_call",
        "function_response",
        "executable_code",
        "code_execution_result",
    }
)


def problems(contents: Sequence[Mapping[str, Any]]) -> Iterator[WireProblem]:
    """The problems of `contents`, in their order."""
    before: str | None = None
    waiting: Sequence[Mapping[str, Any]] = ()
    for index, content in enumerate(contents):
        role = content.get("role")
        if role not in ("user", "model"):
            yield WireProblem(index, "role", f"the role is {role!r}, neither 'user' nor 'model'")
        elif role == before:
            yield WireProblem(index, "order", f"two contents of the {role} follow each other")
        elif before is None and role == "model":
            yield WireProblem(index, "order", "the first content is not the user's")
        given = objects(content.get("parts"))
        if not given:
            yield WireProblem(index, "empty", "it has no parts")
        parts = [snake(part) for part in given or ()]
        for part in parts:
            yield from _part_problems(index, part, str(role))
        calls = [snake(part["function_call"]) for part in parts if isinstance(part.get("function_call"), Mapping)]
        answers = [
            snake(part["function_response"]) for part in parts if isinstance(part.get("function_response"), Mapping)
        ]
        yield from _pairing_problems(index, waiting, answers)
        waiting, before = calls, str(role)
    last = len(contents) - 1
    yield from _pairing_problems(last + 1, waiting, [])
    if before == "model":
        yield WireProblem(last, "order", "the last content is not the user's")


def _part_problems(index: int, part: Mapping[str, Any], role: str) -> Iterator[WireProblem]:
    data = _DATA & part.keys()
    if len(data) != 1:
        yield WireProblem(index, "shape", f"a part has {', '.join(sorted(data)) or 'no data'}")
    signature = part.get("thought_signature")
    if part.get("text") == "" and signature is None:
        yield WireProblem(index, "empty", "a text is empty")
    if signature is not None and not is_base64(signature):
        yield WireProblem(index, "signature", "a signature is not base64")
    if signature is not None and role != "model":
        yield WireProblem(index, "signature", "a signature outside of the model's message")
    call, answer = part.get("function_call"), part.get("function_response")
    if call is not None and role != "model":
        yield WireProblem(index, "role", "a call outside of the model's message")
    if answer is not None and role != "user":
        yield WireProblem(index, "role", "a result in the model's message")
    for one, field in ((call, "args"), (answer, "response")):
        if one is None:
            continue
        fields = snake(one)
        if not RULES["gemini"].tool_name.fullmatch(text(fields, "name")):
            yield WireProblem(index, "name", f"{text(fields, 'name')!r} is not a valid name of a function")
        if not isinstance(fields.get(field, {}), Mapping):
            yield WireProblem(index, "arguments", f"{field} is not an object")


def _pairing_problems(
    index: int, calls: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]
) -> Iterator[WireProblem]:
    """Checks that there is one answer for each call, with the same name, and with the same id if
    both have one.
    """
    if Counter(text(one, "name") for one in calls) != Counter(text(one, "name") for one in answers):
        yield WireProblem(
            index,
            "pairing",
            f"{len(answers)} function responses follow {len(calls)} function calls, or others than these",
        )
        return
    ids = [Counter(text(one, "id") for one in some if text(one, "id")) for some in (calls, answers)]
    if all(ids) and ids[0] != ids[1]:
        yield WireProblem(index, "pairing", "function responses have other ids than the calls before them")
