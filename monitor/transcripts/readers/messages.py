"""Messages as the providers have them, which programs store: bare messages of OpenAI and Anthropic,
items of OpenAI's Responses API, and the histories of Cline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from monitor.transcripts.base import (
    Began,
    EndState,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    Role,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import HeldResponse, LineReader, OpenRun, RecentIds, TranscriptReader, whole_run
from monitor.transcripts.readers.chat import (
    ROLES,
    are_messages,
    is_message,
    message_of,
    messages_of,
    usage_of,
    with_model,
)
from monitor.transcripts.readers.values import (
    answer_of,
    are_objects,
    call_of,
    in_tier,
    parsed,
    result_of,
    rows,
    table,
    tables,
    text,
    words,
)
from monitor.transcripts.source import Source
from monitor.wires.responses import CALL_OF, is_item, is_own_item

# --------------------------------------------------------------------------------------------------
# Bare messages: a list of them, one a line, a request with its answer (LiteLLM's logs), or the
# messages of an interface (`parts`). No run has an id here, and most have no times.


class MessagesReader(LineReader):
    """Reads messages of OpenAI and Anthropic, and of interfaces. Cursor CLI writes one a line, with
    the content one level deeper.
    """

    format = "messages"
    agent = "OpenAI or Anthropic messages"

    def fits(self, source: Source) -> bool:
        """Everything in it is a message with a role."""
        document = source.document
        if isinstance(document, dict) and not _is_line(document):
            return are_messages(document.get("messages"))
        if isinstance(document, list):
            return are_messages(document) or _are_ui(document) or _are_langchain(document)
        return bool(source.first_records) and all(map(_is_line, source.first_records))

    def reading_of(self, source: Source) -> LineReader | None:
        """A reading of messages on lines."""
        document = source.document
        is_lines = document is None or (isinstance(document, dict) and _is_line(document))
        return super().reading_of(source) if is_lines else None

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from self.begin()
        one = {**record, **table(record.get("message"))}
        if is_message(one):
            yield from map(self.run.said, message_of(one))
        else:
            report.does_not_know(record.get("role", record.get("type")))

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from self.begin()
        yield from super().end(report)

    def read_document(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        document = source.document
        if isinstance(document, dict):
            yield from _request(source.stem, document, report)
            return
        if _are_langchain(document):
            document = [{**table(one["data"]), "role": one["type"]} for one in document]
        is_ui = _are_ui(document)
        found = (m for one in document for m in _ui(table(one))) if is_ui else messages_of(rows(document), report)
        yield from whole_run(Began(run=source.stem), found)


def _is_line(record: Mapping[str, Any]) -> bool:
    return is_message(record) or is_message({"role": record.get("role"), **table(record.get("message"))})


def _request(stem: str, request: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
    """A request, and the answer that its log has."""
    response = table(request.get("response"))
    model = in_tier(text(request.get("model")) or text(response.get("model")), response)
    answers = [table(table(choice).get("message")) for choice in rows(response.get("choices"))][:1]
    usage = response.get("usage")
    everything = [*rows(request.get("messages")), *({**answer, "usage": usage} for answer in answers if answer)]
    if "content" in response and "role" in response:
        everything.append(response)
    began = Began(run=text(response.get("id")) or stem, model=model)
    yield from whole_run(began, with_model(messages_of(everything, report), model))


def _are_langchain(document: object) -> bool:
    """Messages as `messages_to_dict` writes them."""
    kinds = {"human", "ai", "system", "tool", "function"}
    return are_objects(document, lambda one: text(one.get("type")) in kinds and "content" in table(one.get("data")))


def _are_ui(document: object) -> bool:
    return are_objects(document, lambda one: text(one.get("role")) in _UI_ROLES and _are_parts(one.get("parts")))


def _are_parts(parts: object) -> bool:
    return isinstance(parts, list) and all("type" in table(part) for part in parts)


_UI_ROLES: Final = frozenset({"user", "assistant", "system"})


def _ui(message: Mapping[str, Any]) -> Iterator[RecordedMessage]:
    """A message of an interface: a call and its result are one part."""
    held = HeldResponse(id="")
    for part in tables(message.get("parts")):
        kind = text(part.get("type"))
        if kind == "text":
            held.text.append(text(part.get("text")))
        elif kind == "reasoning":
            held.reasoning.append(text(part.get("text")) or text(part.get("reasoning")))
        elif kind == "dynamic-tool" or kind.startswith("tool-"):
            inside = table(part.get("toolInvocation")) or part
            name = text(inside.get("toolName")) or kind.removeprefix("tool-")
            call = call_of(name, inside.get("input", inside.get("args")), inside.get("toolCallId"))
            held.calls.append(call)
            if text(inside.get("state")) in {"output-available", "output-error", "result"}:
                failed = inside["state"] == "output-error"
                output = inside.get("errorText" if failed else "output", inside.get("result"))
                held.answers.append(result_of(name, _shown(output), is_error=failed, call_id=call.id))
    if message.get("role") == "assistant":
        yield from held.messages()
    else:
        yield RecordedMessage("user" if message.get("role") == "user" else "system", "\n".join(held.text))


def _shown(output: object) -> str:
    return output if isinstance(output, str) else words(output) or repr(output)


# --------------------------------------------------------------------------------------------------
# Items of OpenAI's Responses API: a list, one a line, a request with its `input` and `output`, or a
# saved state of openai-agents. A history that is sent again repeats its items: each counts once.

_ARGUMENTS: Final = ("arguments", "input", "action", "operation", "queries", "code")


class ResponseItemsReader(TranscriptReader):
    """Reads items of the Responses API."""

    format = "responses"
    agent = "OpenAI Responses items"

    def fits(self, source: Source) -> bool:
        """Items, and at least one that only this API has."""
        document = source.document
        if isinstance(document, dict):
            if "$schemaVersion" in document and "generated_items" in document:
                return True
            return _are_items(rows(document.get("input")) + rows(document.get("output")))
        return _are_items(document if isinstance(document, list) else source.first_records)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        document = source.document
        if isinstance(document, dict) and "$schemaVersion" in document:
            yield from _saved_state(source.stem, document, report)
            return
        run = ItemRun(source.stem, report)
        yield Began(run=run.id, model=text(table(document).get("model")))
        if isinstance(document, dict):
            yield from run.items([*rows(document.get("input")), *rows(document.get("output"))])
            run.held.usage = usage_of(table(document.get("usage")))
        else:
            yield from run.items(document if isinstance(document, list) else source.records(report))
        yield from run.finish()


def _are_items(items: Iterable[Any]) -> bool:
    found = [table(item) for item in [*items][:20]]
    return any(map(is_own_item, found)) and all(is_item(one, strict=False) for one in found)


def _saved_state(stem: str, document: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
    """`generated_items` has the items; the responses of the model have them again."""
    run = ItemRun(stem, report)
    agent = text(table(document.get("current_agent")).get("name"))
    yield Began(run=stem, project=agent)
    given = document.get("original_input")
    yield from run.items([{"role": "user", "content": given}] if isinstance(given, str) else rows(given))
    yield from run.items(
        table(item).get("raw_item", item)
        for item in rows(document.get("generated_items"))
        if table(item).get("type") != "tool_approval_item"
    )
    waits = text(table(document.get("current_step")).get("type"))
    yield from run.finish(("unfinished", "waits for an approval") if waits == "next_step_interruption" else None)


class ItemRun(OpenRun):
    """A run whose items are joined to responses of the model, and their results."""

    def __init__(self, id: str, report: ReadReport) -> None:
        super().__init__(id)
        self._report = report
        self._seen = RecentIds()

    def items(self, items: Iterable[Any]) -> Iterator[TranscriptEntry]:
        for item in map(table, items):
            kind = text(item.get("type")) or "message"
            id = text(item.get("call_id")) or text(item.get("id"))
            role: Role = ROLES.get(text(item.get("role")), "assistant")
            said = words(item.get("content"))
            if not self._seen.is_new(f"{kind}/{id}" if id else None):
                self._report.repeated += 1
            elif kind == "message" and role != "assistant":
                yield from self.flush()
                yield self.said(RecordedMessage(role, said))
            elif kind in CALL_OF:
                failed, answer = item.get("status") == "failed", words(item.get("output"))
                self.held.answers.append(result_of("", answer, is_error=failed, call_id=item.get("call_id")))
            elif kind in {"message", "reasoning"} or kind.endswith("_call"):
                if self.held.answers:
                    yield from self.flush()
                if kind == "message":
                    self.held.text.append(said)
                elif kind == "reasoning":
                    self.held.reasoning.append(words(item.get("summary")) or said)
                else:
                    arguments: object = next((item[name] for name in _ARGUMENTS if name in item), {})
                    name = item.get("name") or kind.removesuffix("_call")
                    self.held.calls.append(call_of(name, parsed(arguments), id))
            else:
                self._report.does_not_know(kind)

    def finish(self, ended: tuple[EndState, str] | None = None) -> Iterator[TranscriptEntry]:
        """The last response, and the end of the run."""
        yield from self.flush()
        self.ended = ended
        yield self.end()


# --------------------------------------------------------------------------------------------------
# Cline, Roo and Kilo: `api_conversation_history.json`, Anthropic's messages. Older versions call
# tools by XML in the text, and answer `[execute_command for ...] Result:` as the user.

_TOOLS: Final = (
    "execute_command read_file write_to_file replace_in_file apply_diff search_files list_files"
    " list_code_definition_names browser_action use_mcp_tool access_mcp_resource ask_followup_question"
    " attempt_completion new_task switch_mode insert_content search_and_replace update_todo_list plan_mode_respond"
)
_NAMES: Final = frozenset(_TOOLS.split())
_OPENED: Final = re.compile(r"<([a-z_]{1,40})>")
_RESULT: Final = re.compile(r"^\[([a-z_]{1,40})(?: for [^\n]{0,2000})?\] Result:")
_ENVIRONMENT: Final = "<environment_details>"


class ClineReader(TranscriptReader):
    """Reads conversation histories of Cline, Roo and Kilo."""

    format = "cline"
    agent = "Cline, Roo, Kilo"
    places = tuple(
        f"{root}/{extension}/tasks/*/api_conversation_history.json"
        for root in (
            ".config/Code/User/globalStorage",
            "Library/Application Support/Code/User/globalStorage",
            "AppData/Roaming/Code/User/globalStorage",
            ".vscode-server/data/User/globalStorage",
        )
        for extension in ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline", "kilocode.kilo-code")
    )

    def fits(self, source: Source) -> bool:
        """Messages of which one of the user's has the details of the environment."""
        document = source.document
        return are_messages(document) and any(
            one["role"] == "user" and _ENVIRONMENT in words(one.get("content")) for one in document[:20]
        )

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from whole_run(Began(run=source.stem), _with_calls(messages_of(rows(source.document), report)))


def _with_calls(messages: Iterator[RecordedMessage]) -> Iterator[RecordedMessage]:
    for message in messages:
        if message.role == "assistant" and not message.tool_calls and (found := _call(message.text)) is not None:
            said, call = found
            yield replace(message, text=said, tool_calls=(call,), model="")
        elif message.role == "user" and (answered := _RESULT.match(message.text)) is not None:
            said = message.text[answered.end() :].split(_ENVIRONMENT, 1)[0].strip()
            yield answer_of(answered[1], said, at=message.at)
        else:
            yield message


def _call(said: str) -> tuple[str, RecordedCall] | None:
    """The text before the first call that is written as XML, and that call."""
    for opened in _OPENED.finditer(said):
        name = opened[1]
        if name not in _NAMES:
            continue
        end = said.find(f"</{name}>", opened.end())
        if end < 0:
            continue
        arguments: dict[str, str] = {}
        inside, at = said[opened.end() : end], 0
        while (inner := _OPENED.search(inside, at)) is not None:
            closed = inside.find(f"</{inner[1]}>", inner.end())
            if closed < 0:
                break
            arguments[inner[1]] = inside[inner.end() : closed].strip()
            at = closed + len(inner[1]) + 3
        return said[: opened.start()].strip(), RecordedCall(name, arguments)
    return None
