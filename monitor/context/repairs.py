"""Makes a history valid for every provider. Failure answered: a 400 for a whole session, because of
one lost result.

A result answers the first open call with its id, in the newest turn before it that has one. A
result without an id is matched by the name of its tool. Texts are not judged, only moved to their
place.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import is_
from typing import Any, Final, TypeAlias, cast, get_args

from monitor._util.hashing import canonical_json, identity
from monitor._util.part_options import read_mark
from monitor.chunks import ToolCall, ToolResult, check
from monitor.errors import AdapterError, ConfigError, FinishReason
from monitor.messages import (
    CUT_OFF,
    NOT_CARRIED_OUT,
    AssistantMessage,
    Media,
    Message,
    Reasoning,
    Repair,
    RepairKind,
    RepairReport,
    Text,
    UserMessage,
)
from monitor.wires.fields import Form, FormRules, RawMessage, RawPart, Unread, rules_of

# --- Calls and their results, while a history is being repaired.


@dataclass(slots=True, eq=False)
class PairedCall:
    """A call, and the result that answers it."""

    call: ToolCall
    turn: PairedTurn
    result: ToolResult | None = None


Content: TypeAlias = "Text | Reasoning | PairedCall"


@dataclass(slots=True, eq=False)
class PairedTurn:
    """An assistant message that is being put together."""

    index: int
    content: list[Content] = field(default_factory=list)
    source: AssistantMessage | None = None
    finish_reason: FinishReason | None = None
    interrupted: bool = False
    partial: bool = False

    @property
    def open(self) -> bool:
        """Whether the next record may be part of this turn."""
        return self.partial and not self.interrupted


@dataclass(slots=True, eq=False)
class UserRecord:
    """A user message that is being put together."""

    index: int
    content: tuple[Text | Media, ...]
    source: UserMessage | None = None


class WaitingCalls:
    """Calls that wait for a result, found by a key of the result. Calls of the newest turn come
    first, in call order.
    """

    def __init__(self) -> None:
        self._groups: defaultdict[Hashable, list[deque[PairedCall]]] = defaultdict(list)

    def add(self, key: Hashable, slot: PairedCall) -> None:
        groups = self._groups[key]
        if not groups or groups[-1][-1].turn is not slot.turn:
            groups.append(deque())
        groups[-1].append(slot)

    def first(self, key: Hashable) -> PairedCall | None:
        """The call that a result with this key answers. A call that has its result is not found
        again.
        """
        groups = self._groups.get(key, [])
        while groups:
            group = groups[-1]
            while len(group) > 1 and group[0].result is not None:
                group.popleft()
            if group[0].result is None:
                return group[0]
            groups.pop()
        return None


BEGINNING: Final = "(What was said before is not part of this conversation.)"
"""User message that is put before a history that begins with the model, which no provider
accepts."""

NAMELESS: Final = "unnamed"
"""Name for a call without a name, in the message in which the model will read its error."""

_SYNTHETIC: Final = frozenset(f"{prefix}{text}" for prefix in ("", "Error: ") for text in (NOT_CARRIED_OUT, CUT_OFF))


def repair(
    history: Iterable[RawMessage | Message], *, form: Form | None = None, tools: Collection[str] | None = None
) -> tuple[tuple[Message, ...], RepairReport]:
    """`history` as messages that are valid for `form` (`None`: for all forms), and the list of
    repairs.

    A tuple of messages in which nothing is wrong comes back as the same object; so does every
    message that is not changed.

    - A result is moved to its call, wherever it stood. Repeated and orphaned ones are dropped.
    - A call without a result is answered by an error, which a real result replaces if it comes
      later. In an interrupted turn such a call is dropped, because it was not to be carried out;
      answered calls stay.
    - A call without a name, or without both arguments and result, is dropped. So is an unanswered
      call of a tool that is not among `tools`.
    - Ids and names that the provider does not accept are rewritten, in the same way each time, in
      the call and in its result.
    - Partial records of the assistant, one after another, are one turn; empty messages are dropped,
      and a history begins with the user.

    Linear in the size of the history. Raises `ConfigError` for anything that is not a message, and
    for an unknown form. Raises `AdapterError` for a part of an unknown or wrong type.
    """
    given = history if isinstance(history, tuple) else tuple(history)
    try:
        rules = rules_of(form)
    except KeyError:
        raise ConfigError(f"unknown form {form!r}; known: gemini, openai-chat, openai-responses, anthropic") from None
    work = _HistoryRepair(rules, None if tools is None else frozenset(tools))
    for index, message in enumerate(given):
        work.take(index, message)
    messages = work.messages()
    done = tuple(sorted(work.repairs, key=lambda one: one.index))
    report = RepairReport(done, "\n\n".join(work.instructions) or None)
    return cast("tuple[Message, ...]", given) if _all_are(messages, given) else messages, report


def repair_next(
    message: Message, index: int, ids: set[str], *, form: Form | None = None
) -> tuple[Message | None, tuple[Repair, ...]]:
    """Repair one more message, number `index`, after a valid history. `None`: no part of the
    message can be sent.

    The result is the same as `repair` of the whole history, at the cost of the new message. But a
    call without a name gets one, because the model must still read that the call failed. `ids`: the
    ids of earlier calls, to which the new ids are added.
    """
    work = _HistoryRepair(rules_of(form), None, ids, nameless=NAMELESS)
    work.take(index, message)
    (said,) = work.taken() or (None,)
    return said, tuple(work.repairs)


def repair_behind(
    records: Iterable[RawMessage], ids: Collection[str], *, form: Form | None = None
) -> tuple[tuple[Message, ...], RepairReport]:
    """The records that follow a valid history in which each call has its result, and whose calls
    have the `ids`. The result is the same as `repair` of the whole history, at the cost of
    `records`. A result of an earlier turn is an orphan here.
    """
    work = _HistoryRepair(rules_of(form), None, set(ids))
    work.take(0, UserMessage((Text(BEGINNING),)))  # what was said before
    for index, record in enumerate(records, 1):
        work.take(index, record)
    messages = work.taken()[1:]
    return tuple(messages), RepairReport(tuple(work.repairs), "\n\n".join(work.instructions) or None)


class _HistoryRepair:
    """The state of one repair. `ids`: the ids of earlier calls. `nameless`: the name for a call
    without a name; `None`: such a call is dropped.
    """

    def __init__(
        self, rules: FormRules, tools: frozenset[str] | None, ids: set[str] | None = None, *, nameless: str = ""
    ) -> None:
        self.repairs: list[Repair] = []
        self.instructions: list[str] = []
        self._rules = rules
        self._tools = tools
        self._nameless = nameless
        self._line: list[PairedTurn | UserRecord] = []
        self._open = WaitingCalls()
        self._made_up: defaultdict[str, list[PairedCall]] = defaultdict(list)
        """Calls whose present result is an error in the place of a missing one, by their ids."""
        self._known: set[str] = set()
        """The ids of all calls so far."""
        self._early: list[tuple[int, ToolResult]] = []
        """The results that came before their calls."""
        self._answering = False
        """The newest turn has a result, so that the assistant's next record begins another turn.
        """
        self._ids: set[str] = set() if ids is None else ids
        """The ids of calls: of the whole history if the provider requires unique ids, else of the
        turn.
        """
        self._copies: Counter[str] = Counter()

    # --- reading

    def take(self, index: int, message: object) -> None:
        """Add the next message of the history."""
        match message:
            case UserMessage(content=content):
                _check(index, content, (Text, Media))
                self._ask(index, content, message)
            case AssistantMessage():
                _check(index, message.content, (Text, Reasoning, ToolCall))
                _check(index, message.results, (ToolResult,))
                self._say(PairedTurn(index, source=message, finish_reason=message.finish_reason), message.content)
                for result in message.results:
                    self._answer(index, result)
            case RawMessage(role="assistant"):
                _check(index, message.parts, get_args(RawPart))
                self._take_assistant(index, message)
            case RawMessage(role="user" | "tool"):
                _check(index, message.parts, get_args(RawPart))
                results = [part for part in message.parts if isinstance(part, ToolResult)]
                for result in results:
                    self._answer(index, result)
                shown = tuple(part for part in message.parts if isinstance(part, Text | Media))
                self._drop_all(
                    index,
                    (part for part in message.parts if not isinstance(part, Text | Media | ToolResult)),
                    message.role,
                )
                if shown or not results:
                    self._ask(index, shown, None)
            case RawMessage(role="system"):
                _check(index, message.parts, get_args(RawPart))
                self._take_system(index, message)
            case _:
                raise ConfigError(
                    f"message {index} of the history is {type(message).__name__}, no RawMessage and no message; "
                    "monitor.context.read_history(form, history) reads a provider's"
                )

    def _take_assistant(self, index: int, message: RawMessage) -> None:
        content = [part for part in message.parts if isinstance(part, Text | Reasoning | ToolCall)]
        last = self._line[-1] if self._line else None
        if isinstance(last, PairedTurn) and last.open and not self._answering:
            last.finish_reason, last.interrupted, last.partial = (
                message.finish_reason,
                message.interrupted,
                message.partial,
            )
            self._extend(last, content)
        else:
            turn = PairedTurn(
                index, finish_reason=message.finish_reason, interrupted=message.interrupted, partial=message.partial
            )
            self._say(turn, content)
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._answer(index, part)
        self._drop_all(index, (part for part in message.parts if isinstance(part, Media | Unread)), message.role)

    def _take_system(self, index: int, message: RawMessage) -> None:
        texts = tuple(part for part in message.parts if isinstance(part, Text) and part.text)
        self._drop_all(index, (part for part in message.parts if not isinstance(part, Text)), message.role)
        if not self._line:
            self.instructions += [part.text for part in texts]
        elif texts:
            self._note(RepairKind.SYSTEM_MOVED, index, "a system message in the middle is said by the user")
            self._ask(index, texts, None)

    def _drop_all(self, index: int, parts: Iterable[RawPart], role: str) -> None:
        for part in parts:
            what = part.what if isinstance(part, Unread) else type(part).__name__
            self._note(RepairKind.PART_DROPPED, index, f"{what} of the {role}")

    def _ask(self, index: int, content: tuple[Text | Media, ...], source: UserMessage | None) -> None:
        self._line.append(UserRecord(index, content, source))
        self._answering = True

    def _say(self, turn: PairedTurn, content: Sequence[Text | Reasoning | ToolCall]) -> None:
        self._line.append(turn)
        self._answering = False
        self._extend(turn, content)

    def _extend(self, turn: PairedTurn, content: Sequence[Text | Reasoning | ToolCall]) -> None:
        for part in content:
            if not isinstance(part, ToolCall):
                turn.content.append(part)
                continue
            slot = PairedCall(part, turn)
            turn.content.append(slot)
            self._known.add(part.id)
            self._open.add(("id", part.id), slot)
            self._open.add(("name", part.name.strip()), slot)
            self._open.add("any", slot)
            if not part.id:
                self._open.add(("name of one without id", part.name.strip()), slot)

    def _answer(self, index: int, result: ToolResult) -> None:
        self._answering = True
        slot = self._waiting(result)
        if slot is None and result.id and result.id in self._known:
            self._again(index, result)
        elif slot is None:
            self._early.append((index, result))
        else:
            self._settle(index, slot, result)

    def _waiting(self, result: ToolResult) -> PairedCall | None:
        name = result.name.strip()
        if result.id:
            return self._open.first(("id", result.id)) or self._open.first(("name of one without id", name))
        return self._open.first(("name", name)) if name else self._open.first("any")

    def _settle(self, index: int, slot: PairedCall, result: ToolResult) -> None:
        slot.result = result
        if result.text in _SYNTHETIC:
            self._made_up[result.id].append(slot)
        if slot.turn is not self._newest():
            self._note(RepairKind.RESULT_MOVED, index, f"the result of {_named(slot.call)}")

    def _newest(self) -> PairedTurn | None:
        """The turn to which a result in this place belongs without a move."""
        last = self._line[-1] if self._line else None
        return last if isinstance(last, PairedTurn) else None

    def _again(self, index: int, result: ToolResult) -> None:
        made_up = self._made_up.get(result.id)
        if made_up and result.text not in _SYNTHETIC:
            slot = made_up.pop()
            slot.result = result
            self._note(RepairKind.RESULT_REPLACED, index, f"the result of {_named(slot.call)} came late")
        else:
            self._note(RepairKind.RESULT_REPEATED, index, f"another result of {result.name or 'a call'} {result.id}")

    # --- writing

    def messages(self) -> tuple[Message, ...]:
        """All messages, after the last one was added."""
        messages = list(self.taken())
        if messages and isinstance(messages[0], AssistantMessage):
            self._note(RepairKind.USER_ADDED, 0, "the history began with the model")
            messages.insert(0, UserMessage((Text(BEGINNING),)))
        return tuple(messages)

    def taken(self) -> list[Message]:
        """All messages, if others stand before them."""
        for index, result in self._early:
            slot = self._waiting(result) if result.id else None
            if slot is None:
                self._note(
                    RepairKind.RESULT_ORPHANED, index, f"a result of {result.name or 'a call'} {result.id}".rstrip()
                )
            else:
                slot.result = result
                self._note(RepairKind.RESULT_MOVED, index, f"the result of {_named(slot.call)} stood before it")
        messages: list[Message] = []
        for one in self._line:
            message = self._asked(one) if isinstance(one, UserRecord) else self._said(one)
            if message is None:
                self._note(RepairKind.MESSAGE_DROPPED, one.index, "an empty message")
            else:
                messages.append(message)
        return messages

    def _asked(self, one: UserRecord) -> UserMessage | None:
        content = tuple(self._sendable(one.index, part) for part in one.content)
        if all(isinstance(part, Text) and not part.text.strip() for part in content):
            return None
        if one.source is not None and _all_are(content, one.source.content):
            return one.source
        return replace(one.source, content=content) if one.source is not None else UserMessage(content)

    def _sendable(self, index: int, part: Text | Media) -> Text | Media:
        if (
            isinstance(part, Text)
            or (part.data is None and part.uri)
            or (part.data is not None and _is_base64(part.data))
        ):
            return part
        self._note(RepairKind.PART_DROPPED, index, f"{part.name or part.mime_type} without its data")
        return Text(f"({part.name or part.mime_type}: its data is missing)")

    def _said(self, turn: PairedTurn) -> AssistantMessage | None:
        content: list[Text | Reasoning | ToolCall] = []
        results: list[ToolResult] = []
        if not self._rules.unique_ids:
            self._ids, self._copies = set(), Counter()
        for part in turn.content:
            if isinstance(part, PairedCall):
                pair = self._paired(turn, part)
                if pair is not None:
                    content.append(pair[0])
                    results.append(pair[1])
                else:
                    while content and isinstance(content[-1], Reasoning) and _signs_a_call(content[-1]):
                        content.pop()  # the signature of the call
            else:
                content.append(part)
        if not any(map(_says_something, content)):
            return None
        source = turn.source
        if source is None:
            return AssistantMessage(tuple(content), tuple(results), turn.finish_reason)
        if _all_are(content, source.content) and _all_are(results, source.results):
            return source
        if sorted(map(id, results)) == sorted(map(id, source.results)) and not _all_are(results, source.results):
            self._note(RepairKind.RESULT_MOVED, turn.index, "the results of the turn are in the order of its calls")
        return replace(source, content=tuple(content), results=tuple(results))

    def _paired(self, turn: PairedTurn, slot: PairedCall) -> tuple[ToolCall, ToolResult] | None:
        given, result = slot.call, slot.result
        name = given.name.strip() or (result.name.strip() if result is not None else "") or self._nameless
        why = self._why_not(turn, slot, name)
        if why is not None:
            self._note(RepairKind.CALL_DROPPED, turn.index, f"{_named(given)}: {why}")
            return None
        arguments = self._read(turn, given)
        call_id, name = self._fresh_id(turn, given, name, arguments), self._fit_name(turn, given, name)
        same = call_id == given.id and name == given.name and arguments is given.arguments
        call = given if same else replace(given, id=call_id, name=name, arguments=arguments)
        if result is None:
            self._note(RepairKind.RESULT_ADDED, turn.index, f"for {_named(call)}")
            return call, ToolResult(
                call_id,
                name,
                NOT_CARRIED_OUT if isinstance(arguments, Mapping) else CUT_OFF,
                is_error=True,
                vetoed=True,
            )
        if result.id != call_id and call_id == given.id:
            self._note(RepairKind.ID_REWRITTEN, turn.index, f"{result.id!r} of the result of {name} is {call_id!r}")
        media = tuple(one for one in result.media if one.data is None or _is_base64(one.data))
        if len(media) < len(result.media):
            self._note(RepairKind.PART_DROPPED, turn.index, f"media without its data, of the result of {name}")
            result = replace(result, media=media)
        renamed = result.name if turn.source is not None and result.name != given.name else name
        same = result.id == call_id and result.name == renamed
        return call, result if same else replace(result, id=call_id, name=renamed)

    def _why_not(self, turn: PairedTurn, slot: PairedCall, name: str) -> str | None:
        if not name:
            return "it has no name"
        if slot.result is not None:
            return None
        if turn.interrupted:
            return "its turn was interrupted"
        if slot.call.arguments is None:
            return "it has no arguments"
        if self._tools is not None and name not in self._tools:
            return "there is no such tool"
        return None

    def _read(self, turn: PairedTurn, call: ToolCall) -> Any:
        """The arguments as an object, if they hold one."""
        if call.arguments is not None and not isinstance(call.arguments, str):
            return call.arguments
        try:
            read = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            return call.arguments
        if not isinstance(read, dict):
            return call.arguments
        self._note(RepairKind.ARGUMENTS_READ, turn.index, f"of {_named(call)}")
        return read

    def _fresh_id(self, turn: PairedTurn, call: ToolCall, name: str, arguments: Any) -> str:
        """An id made from the content of the call: the same for the same history, whatever follows
        the call.
        """
        wanted = call.id if call.id.strip() else f"call_{identity(canonical_json([name, arguments]))}"
        if not self._rules.call_id.fullmatch(wanted):
            wanted = f"call_{identity(wanted)}"
        fresh = wanted
        while fresh in self._ids:
            self._copies[wanted] += 1
            ending = f"_{self._copies[wanted] + 1}"
            fresh = f"{wanted[: 40 - len(ending)]}{ending}"
        self._ids.add(fresh)
        if fresh != call.id:
            self._note(RepairKind.ID_REWRITTEN, turn.index, f"{call.id!r} of {name} is {fresh!r}")
        return fresh

    def _fit_name(self, turn: PairedTurn, call: ToolCall, name: str) -> str:
        fit = name
        if not self._rules.tool_name.fullmatch(fit):
            fit = re.sub(r"[^A-Za-z0-9_-]", "_", fit)[:64]
            fit = fit if self._rules.tool_name.fullmatch(fit) else f"_{fit[:63]}"
        if fit != call.name:
            self._note(RepairKind.NAME_REWRITTEN, turn.index, f"{call.name!r} is {fit!r}")
        return fit

    def _note(self, kind: RepairKind, index: int, note: str) -> None:
        self.repairs.append(Repair(kind, index, note))


def _says_something(part: Text | Reasoning | ToolCall) -> bool:
    """Whether `part` alone makes a message worth sending. Thinking without a signature does not."""
    if isinstance(part, Reasoning):
        return part.signature is not None
    return isinstance(part, ToolCall) or bool(part.text.strip())


def _signs_a_call(part: Reasoning) -> bool:
    """Whether the signature may belong to the call behind it. A part of its own does not."""
    return not part.text and not (read_mark(part.signature) or {}).keys() & {"part", "block", "citations"}


def _all_are(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _check(index: int, parts: Iterable[object], kinds: tuple[type, ...]) -> None:
    for part in parts:
        if not isinstance(part, kinds):
            raise AdapterError(f"message {index} has a part that is {type(part).__name__}")
        if isinstance(part, ToolCall | ToolResult):
            check(part)
        elif isinstance(part, Text | Reasoning) and not isinstance(part.text, str):
            raise AdapterError(f"message {index}: {type(part).__name__}.text is {part.text!r}")


def _named(call: ToolCall) -> str:
    return f"{call.name.strip() or 'a call'} {call.id}".rstrip()


def _is_base64(data: str) -> bool:
    try:
        b64decode(data, validate=True)
    except ValueError:
        return False
    return True


# --- The records of a history that are sent, and those that are kept, by the rules of Gemini CLI.
# `repair` pairs calls and results.

SILENT: Final = "(The model said nothing.)"
"""Stands where the model said nothing, so that two messages of the user are not read as one.
"""


def curated(history: Iterable[RawMessage]) -> Iterator[RawMessage]:
    """The records to send: all of the user and of tools, and consecutive records of the model only
    if all of them are valid.

    A record is valid if it has parts, none of them empty or unread. Half of a failed answer is left
    out, because the model would continue it.
    """
    for of_the_model, run in groupby(history, lambda message: message.role == "assistant"):
        records = list(run)
        if not of_the_model or all(_is_valid(record) for record in records):
            yield from records


def _is_valid(record: RawMessage) -> bool:
    empty = any(isinstance(part, Unread) or (isinstance(part, Text) and not part.text) for part in record.parts)
    return bool(record.parts) and not empty


def recorded(history: Iterable[RawMessage]) -> list[RawMessage]:
    """The history to keep.

    A user message that was repeated after a failed call is kept once. Thoughts are dropped, unless
    they are signed and the provider needs them back. Text that came in pieces becomes one text.
    `SILENT` stands where the model said nothing, also between a result and the next user message.
    """
    turns: list[list[RawMessage]] = []
    for message in history:
        last = turns[-1][-1] if turns else None
        goes_on = last is not None and last.role == "assistant" and last.partial and not last.interrupted
        if message.role == "assistant" and goes_on:
            turns[-1].append(message)
        elif message.role == "assistant" or message != last:
            if last is not None and _is_result(last) and message.role == "user" and not _is_result(message):
                turns.append([RawMessage("assistant")])
            turns.append([message])
    return [_record(turn) for turn in turns]


def _is_result(message: RawMessage) -> bool:
    return message.role != "assistant" and any(isinstance(part, ToolResult) for part in message.parts)


def _record(turn: Sequence[RawMessage]) -> RawMessage:
    if turn[-1].role != "assistant":
        return turn[-1]
    parts = [
        part
        for message in turn
        for part in message.parts
        if not (isinstance(part, Reasoning) and part.signature is None)
    ]
    said: list[RawPart] = []
    for is_text, run in groupby(parts, lambda part: isinstance(part, Text)):
        if not is_text:
            said += run
        elif text := "".join(part.text for part in run if isinstance(part, Text)):
            said.append(Text(text))
    return replace(turn[-1], parts=tuple(said) or (Text(SILENT),))


# --- Prepares a stored history for a provider.


def prepare(
    history: Iterable[RawMessage | Message],
    *,
    form: Form | None = None,
    limit: Callable[[tuple[Message, ...]], Sequence[Message]] | None = None,
    tools: Collection[str] | None = None,
) -> tuple[tuple[Message, ...], RepairReport]:
    """Clean the history and bring it into the turns of `form`, then apply `limit`, then repair the
    rest.

    The order matters. A limit before the cleaning would count messages that are dropped anyway, and
    a limit may separate calls from their results. The report covers both repairs; in its second
    half, `index` counts messages after the limit. Raises what `repair` raises.
    """
    messages, report = repair(history, form=form, tools=tools)
    if limit is None:
        return messages, report
    messages, again = repair(tuple(limit(messages)), form=form)
    return messages, RepairReport(report.repairs + again.repairs, report.instructions)
