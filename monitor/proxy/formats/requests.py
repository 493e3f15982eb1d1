"""Reads requests of all formats: each is a JSON object with a history, a model, tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

from monitor.chunks import Chunk
from monitor.context.repairs.repair import repair, repair_behind
from monitor.errors import MonitorError
from monitor.messages import Message, RepairKind
from monitor.proxy.formats.base import Beginning, JudgedRequest, Span, Unjudged
from monitor.proxy.formats.request_body import HISTORY, MARK, RepeatedField, read_object, without
from monitor.wires.fields import objects_at, text
from monitor.wires.forms import Form
from monitor.wires.read import read_history
from monitor.wires.request import declarations_of


class CannotJudge(Exception):
    """The request cannot be judged; the message says why."""


@dataclass(slots=True)
class RequestFields:
    """The fields of a request. Its history may be known up to some record."""

    value: Mapping[str, Any]
    known: Beginning | None = None
    """The beginning that was left out of the history in `value`."""
    is_closed: bool = True
    """No later record can belong to a message of this history."""


def judged(
    form: Form,
    path: str,
    body: bytes,
    known: Beginning | None,
    read_request: Callable[[str, RequestFields], JudgedRequest],
) -> JudgedRequest | Unjudged:
    """Read the body by `read_request`. Whatever a client sends, nothing is raised."""
    if known is not None and (found := _behind(form, path, body, known, read_request)) is not None:
        return found
    try:
        request, records = read_object(body, HISTORY[form])
        if not isinstance(request, dict):
            raise CannotJudge(f"the request is {_kind(request)}, not a JSON object")
        fields = RequestFields(request)
        asked = read_request(path, fields)
        return replace(asked, records=records if fields.is_closed else None)
    except (CannotJudge, RepeatedField) as error:
        return Unjudged(str(error))
    except ValueError:  # JSON, UTF-8
        return Unjudged("the request is not JSON")
    except MonitorError as error:
        return Unjudged(f"the conversation of the request cannot be read: {error}")
    except Exception as error:  # noqa: BLE001 - data of any kind, which the service is to judge
        return Unjudged(f"the request cannot be read: {error!r}")


def _behind(
    form: Form,
    path: str,
    body: bytes,
    known: Beginning,
    read_request: Callable[[str, RequestFields], JudgedRequest],
) -> JudgedRequest | None:
    """The request without its known beginning. `None`: the whole body must be read."""
    field, short = HISTORY[form], without(body, known.records)
    try:
        if short is None:
            return None
        request, shown = read_object(short, field)
        records = request[field]
        if shown is None or records[0] != MARK:
            return None
        request[field] = records[1:]
        fields = RequestFields(request, known)
        asked = read_request(path, fields)
    except Exception:  # noqa: BLE001 - reading it as a whole says what is wrong
        return None
    read = Span(known.records.start, shown.end + len(body) - len(short))
    return replace(asked, records=read if fields.is_closed else None, goes_on=True)


def history(form: Form, records: Iterable[object], fields: RequestFields) -> tuple[tuple[Message, ...], str | None]:
    """The conversation in `fields`, repaired for `form`, and its system messages. Behind a known
    beginning: the messages that follow it. Raises `CannotJudge` if those change what stands
    before them.
    """
    known, raw = fields.known, tuple(read_history(form, records))
    fields.is_closed = not raw or raw[-1].role != "assistant"
    if known is None:
        messages, report = repair(raw, form=form)
        fields.is_closed &= all(one.kind is not RepairKind.RESULT_ORPHANED for one in report.repairs)
        return messages, report.instructions
    messages, report = repair_behind(raw, known.ids, form=form)
    if any(one.kind in _OF_EARLIER for one in report.repairs):
        raise CannotJudge("the new messages change earlier ones")
    return messages, known.instructions


_OF_EARLIER: Final = frozenset(
    {
        RepairKind.RESULT_MOVED,
        RepairKind.RESULT_REPLACED,
        RepairKind.RESULT_REPEATED,
        RepairKind.RESULT_ORPHANED,
    }
)
"""Repairs by which a new record may belong to an earlier turn."""


def records_at(request: Mapping[str, Any], name: str) -> list[Any]:
    """A list of messages. Raises `CannotJudge` if there is none."""
    records = request.get(name)
    if not isinstance(records, list):
        raise CannotJudge(f"`{name}` of the request is {_kind(records)}, not a list")
    return records


_MODEL_IN_PATH: Final = re.compile(r"/(?:deployments|engines|models?)/([^/:?]+)")
"""Where Azure, Vertex AI and Bedrock have the model."""


def model_at(request: Mapping[str, Any], path: str) -> str:
    """The model's name: of the request, or of its path. Raises `CannotJudge` if there is none."""
    model = request.get("model")
    if isinstance(model, str) and model:
        return model
    found = _MODEL_IN_PATH.search(unquote(path.partition("?")[0]))
    if model is not None or found is None:
        raise CannotJudge(f"`model` of the request is {_kind(model)}, not a name")
    return found[1]


def truth_at(request: Mapping[str, Any], name: str) -> bool:
    """A switch that is off by default. Raises `CannotJudge` for anything else."""
    value = request.get(name)
    if value is not None and not isinstance(value, bool):
        raise CannotJudge(f"`{name}` of the request is {_kind(value)}, not true or false")
    return value is True


def count_at(request: Mapping[str, Any], *names: str) -> int | None:
    """The first of these fields that is a whole number above 0."""
    return next((value for name in names if type(value := request.get(name)) is int and value > 0), None)


def check_choices(request: Mapping[str, Any], name: str) -> None:
    """Raises `CannotJudge` for what is no number of answers."""
    asked = request.get(name)
    if asked is not None and (type(asked) is not int or not 1 <= asked <= _MOST_CHOICES):
        raise CannotJudge(f"`{name}` of the request is {_kind(asked)}, not from 1 to {_MOST_CHOICES}")


def first_choice(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The answer with its first choice alone."""
    choices = answer.get(name)
    if not isinstance(choices, list) or not any(isinstance(one, dict) and whole_at(one, "index") for one in choices):
        return answer
    return {**answer, name: [one for one in choices if not (isinstance(one, dict) and whole_at(one, "index"))]}


def further_choices(
    answer: Mapping[str, Any], name: str, read: Callable[[int, Mapping[str, Any]], Sequence[Chunk]]
) -> Mapping[int, Sequence[Chunk]]:
    """The chunks of all choices but the first, by their index. `read` reads a piece of one of them
    as if it were the first.
    """
    heard: dict[int, list[Chunk]] = {}
    for choice in objects_at(answer, name):
        if index := whole_at(choice, "index"):
            heard.setdefault(index, []).extend(read(index, {**answer, name: [{**choice, "index": 0}]}))
    return heard


_MOST_CHOICES: Final = 128
"""OpenAI's bound."""


def whole_at(record: Mapping[str, Any], name: str) -> int:
    """A place in a list. 0 if there is none."""
    value = record.get(name)
    return value if type(value) is int else 0


def is_structured(kind: object, choice: object) -> bool:
    """Whether the answer must be JSON of a schema (`kind`), or a call (`choice` of tools)."""
    forced = choice if isinstance(choice, str) else choice.get("type") if isinstance(choice, dict) else None
    return kind in ("json_object", "json_schema") or forced in _FORCED


_FORCED: Final = frozenset({"required", "any", "tool", "function", "custom"})
"""The words by which a request demands a call."""


def behind(sentence: str, *, begun: bool) -> str:
    """The sentence as it stands behind a text that has begun, or alone."""
    return f"\n\n{sentence}" if begun else sentence


def tools_at(request: Mapping[str, Any], field: str = "tools") -> frozenset[str]:
    """The names of the tools that a request declares."""
    return frozenset(filter(None, (text(tool, "name") for tool in declarations_of(request.get(field)))))


_KINDS: Final[Mapping[type, str]] = {
    type(None): "missing",
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number")
