"""Gemini's rules for contents, in camel case or in snake case.

Its error messages state them:

- "contents.parts must not be empty";
- "function call turn comes immediately after a user turn or after a function response turn";
- "the number of function response parts is equal to the number of function call parts";
- "multiturn requests alternate between user and model";
- "required oneof field 'data' must have one initialized field".
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from monitor.wires.fields import objects, snake, text
from monitor.wires.forms import RULES
from monitor.wires.problem import WireProblem

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
            yield from _part(index, part, str(role))
        calls = [snake(part["function_call"]) for part in parts if isinstance(part.get("function_call"), Mapping)]
        answers = [
            snake(part["function_response"]) for part in parts if isinstance(part.get("function_response"), Mapping)
        ]
        yield from _pairs(index, waiting, answers)
        waiting, before = calls, str(role)
    last = len(contents) - 1
    yield from _pairs(last + 1, waiting, [])
    if before == "model":
        yield WireProblem(last, "order", "the last content is not the user's")


def _part(index: int, part: Mapping[str, Any], role: str) -> Iterator[WireProblem]:
    data = _DATA & part.keys()
    if len(data) != 1:
        yield WireProblem(index, "shape", f"a part has {', '.join(sorted(data)) or 'no data'}")
    signature = part.get("thought_signature")
    if part.get("text") == "" and signature is None:
        yield WireProblem(index, "empty", "a text is empty")
    if signature is not None and not _is_signature(signature):
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


def _is_signature(signature: object) -> bool:
    if isinstance(signature, bytes):
        return bool(signature)
    try:
        return isinstance(signature, str) and bool(b64decode(signature, validate=True))
    except ValueError:
        return False


def _pairs(
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
