"""Makes a history smaller without a model: several reducers give one edit, with its saving and its
cost.

Failure answered: a reduction that saves 5,000 tokens but changes an early message, so that the
provider reads 130,000 cached tokens anew. So all reducers of a pass make one edit, which breaks the
cached prefix once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from operator import is_
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from monitor._util.argument_checks import check_number, is_finite, is_whole
from monitor._util.text import cut_after, cut_before, estimate_tokens
from monitor.chunks import ToolCall, ToolResult
from monitor.context.history import History, HistoryEdit, head_of, newest_turns, unread_from, user_turns
from monitor.context.tokens import message_tokens, size_of_text
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Media, Message, Text, UserMessage

T = TypeVar("T")
Messages: TypeAlias = tuple[Message, ...]
MessageTokens: TypeAlias = Callable[[Message], int]
TextTokens: TypeAlias = Callable[[str], int]


class Reducer(Protocol):
    """One way of making a history smaller."""

    @property
    def name(self) -> str:
        """The kind of the edit in one word: `prune`."""
        ...

    def reduce(self, messages: Messages, /, *, head: int = 0) -> Messages:
        """`messages` made smaller, or the same object if there is nothing to do.

        An unchanged message stays the same object, and the first `head` messages stay unchanged.
        Calls keep their results, messages their order, and nothing gets larger.
        """
        ...


@dataclass(slots=True, frozen=True)
class Reduction:
    """An edit that makes the history smaller. Nothing is changed until the history commits it."""

    edit: HistoryEdit
    saved_tokens: int
    """Estimate: how much smaller every later request is."""
    reread_tokens: int
    """Estimate: the tokens after `breaks_at`, which are read once without the provider's cache."""
    changed: int
    """Number of messages that were shortened or removed."""

    @property
    def breaks_at(self) -> int:
        """Index of the first message that differs from what the provider has cached. A branch
        beside the originals begins there too.
        """
        return self.edit.start


def reduced(messages: Messages, *reducers: Reducer, head: int = 0) -> Messages:
    """`messages` after all `reducers`, in order; the same object if nothing was changed. For a
    request that is about to be sent.
    """
    for reducer in reducers:
        messages = reducer.reduce(messages, head=head)
    return messages


def propose_edit(
    history: History,
    *reducers: Reducer,
    head: int | None = None,
    at_least_tokens: int = 1,
    tokens: MessageTokens = message_tokens,
) -> Reduction | None:
    """The edit that applies all `reducers` to `history`. `None`: it would save less than
    `at_least_tokens`.

    `head`: how many messages at the beginning stay unchanged; by default those of the newest
    compaction. `tokens` measures a message. Linear in the number of messages, and in the size of
    those from the first changed one on. Raises `ConfigError` for a head that the history does not
    have.
    """
    return propose_for(
        history.messages,
        history.version,
        *reducers,
        head=head_of(history) if head is None else head,
        at_least_tokens=at_least_tokens,
        tokens=tokens,
    )


def propose_for(
    messages: Messages,
    version: int,
    *reducers: Reducer,
    head: int,
    at_least_tokens: int = 1,
    tokens: MessageTokens = message_tokens,
) -> Reduction | None:
    """Propose like `propose_edit`, for messages at a `version`; also in another thread."""
    if not is_whole(head) or not 0 <= head <= len(messages):
        raise ConfigError(f"head is {head!r}; the history has {len(messages)} messages")
    new, names = messages, []
    for reducer in reducers:
        less = reducer.reduce(new, head=head)
        if less is not new:
            names.append(reducer.name)
        new = less
    if new is messages:
        return None
    start, stop, replacement = difference(messages, new)
    size = once(tokens)
    saved = sum(map(size, messages[start:stop])) - sum(map(size, replacement))
    if saved < max(at_least_tokens, 1):
        return None
    kind = "+".join(dict.fromkeys(names))
    remaining = set(map(id, replacement))
    changed = sum(id(message) not in remaining for message in messages[start:stop])
    note = (
        f"{kind}: about {saved} tokens less in {changed} of {len(messages)} messages; the cached prefix ends before"
        f" message {start}"
    )
    return Reduction(
        HistoryEdit(version, start, stop, replacement, kind, note), saved, sum(map(size, new[start:])), changed
    )


def changed_by(
    change: Callable[[Message], Message], messages: Messages, start: int = 0, stop: int | None = None
) -> Messages:
    """`messages` with a `change` of those from `start` to `stop` (exclusive); the same object if no
    message changes.
    """
    stop = len(messages) if stop is None else stop
    new = (*messages[:start], *map(change, messages[start:stop]), *messages[stop:])
    return messages if all(map(is_, new, messages)) else new


def with_texts(message: AssistantMessage, texts: Iterable[str]) -> AssistantMessage:
    """`message` with other texts of its results; the same object if they are the same objects."""
    results = tuple(
        result if text is result.text else replace(result, text=text)
        for result, text in zip(message.results, texts, strict=True)
    )
    return message if all(map(is_, results, message.results)) else replace(message, results=results)


def once(of: Callable[[Message], T]) -> Callable[[Message], T]:
    """`of`, called once for every object."""
    known: dict[int, tuple[Message, T]] = {}

    def remembered(message: Message) -> T:
        found = known.get(id(message))
        if found is None:  # the message is kept, so that its id stays its own
            found = known[id(message)] = (message, of(message))
        return found[1]

    return remembered


def difference(old: Messages, new: Messages) -> tuple[int, int, Messages]:
    """The range (end exclusive, in `old`) in which the two do not have the same objects, and what
    stands there in `new`.
    """
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] is new[start]:
        start += 1
    same = 0
    while same < shorter - start and old[-1 - same] is new[-1 - same]:
        same += 1
    return start, len(old) - same, new[start : len(new) - same]


# --- Shortens old tool results, and old large arguments of calls.

_CLEARED: Final = re.compile(r"\[Old tool result cleared: \d+ characters[;\]]")
_CLEARED_CHARS: Final = 80
"""The greatest length of the marker, without the reference in it."""


@dataclass(slots=True, frozen=True)
class PruneResults:
    """Each old tool result becomes a marker that says how long it was. If its full text is kept,
    the marker names the reference to read it again. The newest results stay. So do errors, which
    keep the model from trying again.

    The search goes backwards, past the newest turns and the results that the model has not answered
    yet. Behind them the newest `protect_tokens` of results stay, older ones go. It ends at the head
    and at results that were pruned before, so a second pass changes nothing. The defaults are those
    of opencode.
    """

    name = "prune"

    _: KW_ONLY
    protect_turns: int = 2
    """The number of the newest user turns that stay, the running one included."""
    protect_messages: int = 0
    """The number of the newest messages that stay, whatever their turn."""
    protect_tokens: int = 40_000
    """Tokens of results that stay; the result that exceeds them goes."""
    more_than_tokens: int = 20_000
    """The least saving for which results are pruned: each pass costs the provider's cache."""
    keep_chars: int = 0
    """How many characters of each pruned result stay, half from its beginning and half from its
    end.
    """
    protected_tools: frozenset[str] = frozenset({"skill"})
    tokens: TextTokens = field(default=estimate_tokens, repr=False)

    def __post_init__(self) -> None:
        for one in ("protect_turns", "protect_messages", "protect_tokens", "more_than_tokens", "keep_chars"):
            check_number(one, getattr(self, one), 0)
        object.__setattr__(self, "protected_tools", frozenset(self.protected_tools))

    @classmethod
    def gemini_cli(cls) -> PruneResults:
        """The masking of Gemini CLI: 50,000 tokens of results stay, at least 30,000 must go, and
        250 characters of both ends are shown.
        """
        return cls(protect_turns=0, protect_messages=1, protect_tokens=50_000, more_than_tokens=29_999, keep_chars=500)

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        seen = gone = 0
        markers: dict[int, dict[int, str]] = {}
        for index, place, result in self._old(messages, head):
            size = self.tokens(result.text)
            seen += size
            marker = self._marker(result)
            if seen > self.protect_tokens and len(marker) < len(result.text):
                gone += size
                markers.setdefault(index, {})[place] = marker
        if not markers or gone <= self.more_than_tokens:
            return messages
        return tuple(
            _with(message, markers[index]) if index in markers else message for index, message in enumerate(messages)
        )

    def _old(self, messages: Messages, head: int) -> Iterator[tuple[int, int, ToolResult]]:
        """The results that may go, newest first, with their message and their place in it."""
        newest = min(newest_turns(messages, self.protect_turns, head=head), len(messages) - self.protect_messages)
        if (unread := unread_from(messages, head=head)) is not None:
            newest = min(newest, unread)
        for index in range(newest - 1, head - 1, -1):
            message = messages[index]
            results = message.results if isinstance(message, AssistantMessage) else ()
            for place in range(len(results) - 1, -1, -1):
                result = results[place]
                if self._is_pruned(result):
                    return
                if not (result.is_error or result.name in self.protected_tools):
                    yield index, place, result

    def _marker(self, result: ToolResult) -> str:
        text = result.text
        kept = f"; kept as artifact {result.artifact}" if result.artifact else ""
        marker = f"[Old tool result cleared: {len(text)} characters{kept}]"
        half = self.keep_chars // 2
        return f"{text[:half]}\n{marker}\n{text[len(text) - half :]}" if half else marker

    def _is_pruned(self, result: ToolResult) -> bool:
        longest = self.keep_chars + _CLEARED_CHARS + len(result.artifact or "")
        return len(result.text) <= longest and _CLEARED.search(result.text) is not None


def _with(message: Message, texts: Mapping[int, str]) -> Message:
    """`message` with other texts of some results, by their place."""
    if not isinstance(message, AssistantMessage):
        return message
    results = (
        replace(result, text=texts[place], media=()) if place in texts else result
        for place, result in enumerate(message.results)
    )
    return replace(message, results=tuple(results))


@dataclass(slots=True, frozen=True)
class PruneArguments:
    """Long texts in the arguments of old, answered calls become their beginning and a marker. The
    model can read a written file again.

    Only direct arguments are shortened, not nested texts. The defaults are those of deepagents.
    """

    name = "prune_arguments"

    _: KW_ONLY
    tools: frozenset[str] | None = frozenset({"write_file", "edit_file"})
    """The tools whose arguments are shortened. `None`: all tools."""
    max_chars: int = 2_000
    """Texts longer than this many characters are shortened."""
    keep_chars: int = 20
    """How many characters of their beginning stay."""
    protect_messages: int = 20
    """The number of the newest messages that stay as they are."""

    def __post_init__(self) -> None:
        check_number("keep_chars", self.keep_chars, 0)
        check_number("protect_messages", self.protect_messages, 0)
        check_number("max_chars", self.max_chars, self.keep_chars + _CLEARED_CHARS)
        if self.tools is not None:
            object.__setattr__(self, "tools", frozenset(self.tools))

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        return changed_by(self._pruned, messages, head, max(head, len(messages) - self.protect_messages))

    def _pruned(self, message: Message) -> Message:
        if not isinstance(message, AssistantMessage) or not message.results:
            return message
        answered = {result.id for result in message.results}
        content = tuple(
            self._shortened(part) if isinstance(part, ToolCall) and part.id in answered else part
            for part in message.content
        )
        return message if all(map(is_, content, message.content)) else replace(message, content=content)

    def _shortened(self, call: ToolCall) -> ToolCall:
        if (self.tools is not None and call.name not in self.tools) or not isinstance(call.arguments, Mapping):
            return call
        if not any(self._is_long(value) for value in call.arguments.values()):
            return call
        arguments = {
            name: self._beginning(value) if self._is_long(value) else value for name, value in call.arguments.items()
        }
        return replace(call, arguments=arguments, raw=None)

    def _is_long(self, value: Any) -> bool:
        return isinstance(value, str) and len(value) > self.max_chars

    def _beginning(self, text: str) -> str:
        return f"{text[: self.keep_chars]}... [{len(text)} characters cleared]"


# --- Tool results that are too long, cut to a length that the model can read. Failure answered: one
# result that fills the window.

SUMMARY_RESULT_CHARS: Final = 2_000
"""How much of a result a summariser reads. Source: opencode, pi."""
MIN_KEPT_CHARS: Final = 2_000
"""How much of a result is kept at least. Source: OpenClaw."""
MAX_RESULT_CHARS: Final = 400_000
"""No result is longer, whatever the window. Source: OpenClaw."""
WINDOW_SHARE: Final = 0.3
"""The share of the window that one result may fill. Source: OpenClaw."""
CHARS_PER_TOKEN: Final = 4
"""Converts the window to characters. Source: OpenClaw."""
NEWLINE_SHARE: Final = 0.2
"""A cut is moved back to the end of a line within this last part of what is kept. Source:
OpenClaw.
"""
ENDING_SHARE: Final = 0.3
ENDING_CHARS: Final = 4_000
"""How much of the end is kept at most, if the end reports an outcome. Source: OpenClaw."""
ADVICE: Final = "ask for a smaller part if you need more"
"""For a model that can call the tool again."""

_NOTE_CHARS: Final = 60
"""Room for a note without advice. A text that exceeds the limit by no more than the note is not
cut, because that would save nothing.
"""

_TELLS: Final = re.compile(
    r"\b(?:errors?|exception|traceback|fail(?:ed|ure)?|fatal|panic|exit code|exited|passed|summary|total)\b",
    re.IGNORECASE,
)
"""Words of an ending that reports an outcome."""


def oversized_chars(window_tokens: int | None = None) -> int:
    """How long one tool result may be, in characters: 30 % of the window at 4 characters a token,
    at most 400,000. For an unknown window (`None`): 400,000.
    """
    if window_tokens is None:
        return MAX_RESULT_CHARS
    check_number("window_tokens", window_tokens, 1)
    return min(int(window_tokens * WINDOW_SHARE) * CHARS_PER_TOKEN, MAX_RESULT_CHARS)


def clip(text: str, max_chars: int, *, ending: float | None = None, advice: str = "") -> str:
    """`text` with about `max_chars` of its characters, and a note that says how many were left out;
    `text` itself if that saves nothing.

    `ending`: the share of the characters that is taken from the end. `None`: nothing, unless the
    end reports an outcome (an error, a summary); then up to 30 %, at most 4,000. The beginning
    stops at the end of a line within its last fifth, but not before its 2,000th character. No cut
    parts a surrogate pair or an escape sequence. `advice` is part of the note. A second clipping
    changes nothing.
    """
    if len(text) <= max_chars + _NOTE_CHARS + len(advice):
        return text
    end = _telling(text, max_chars) if ending is None else int(max_chars * ending)
    begin = max_chars - end
    newline = text.rfind("\n", max(int(begin * (1 - NEWLINE_SHARE)), min(MIN_KEPT_CHARS, begin)), begin)
    if newline >= 0:
        begin = newline
    begin, rest = cut_before(text, begin), cut_after(text, len(text) - end)
    left_out = rest - begin
    note = f"[{left_out} of {len(text)} characters left out{advice and '; '}{advice}]"
    return f"{text[:begin]}\n{note}\n{text[rest:]}" if end else f"{text[:begin]}\n{note}"


def _telling(text: str, max_chars: int) -> int:
    """How much of the end to keep, because it reports an outcome."""
    if max_chars < 2 * MIN_KEPT_CHARS:
        return 0
    end = min(int(max_chars * ENDING_SHARE), ENDING_CHARS)
    return end if _TELLS.search(text, len(text) - end) else 0


@dataclass(slots=True, frozen=True)
class ClipResults:
    """Tool results longer than `max_chars` are clipped (see `clip`). Each result for itself.

    `ClipResults(2_000)` is what a summariser reads, `ClipResults.oversized(window_tokens)` what may
    stand in a history.
    """

    name = "truncate"

    max_chars: int = SUMMARY_RESULT_CHARS
    _: KW_ONLY
    ending: float | None = 0.0
    """The share that is taken from the end. `None`: as in `clip`."""
    advice: str = ""
    """Advice to the model, which the note gives."""

    def __post_init__(self) -> None:
        check_number("max_chars", self.max_chars, 1)
        if self.ending is not None and not (is_finite(self.ending) and 0 <= self.ending <= 1):
            raise ConfigError(f"ending is {self.ending!r}; it must be a share between 0 and 1, or None")

    @classmethod
    def oversized(cls, window_tokens: int | None = None) -> ClipResults:
        """Results longer than `oversized_chars` of the window, note included; they keep 2,000
        characters at least.
        """
        return cls(
            max(oversized_chars(window_tokens) - _NOTE_CHARS - len(ADVICE), MIN_KEPT_CHARS), ending=None, advice=ADVICE
        )

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        return changed_by(self._clipped, messages, head)

    def _clipped(self, message: Message) -> Message:
        if not isinstance(message, AssistantMessage):
            return message
        texts = (
            clip(result.text, self.max_chars, ending=self.ending, advice=self.advice) for result in message.results
        )
        return with_texts(message, texts)


# --- Results that were not sent to the model yet, and their shares of the room if there is too
# little of it.
#
# Failure answered: four results of one turn that together fill the window. A summary that takes
# their place leaves the model without the answer to its own calls, so it calls again.

NAME: Final = "share"
"""The kind of an edit that makes unread results share the room."""
LEAST_CHARS: Final = 80
"""A shorter piece of a result is useless: a sentence then says that the result was left out."""
LONGEST_ARGUMENT_CHARS: Final = 200
"""Longest argument of a call in a turn that does not fit even without the text of its results."""
MOST_NAMED_CALLS: Final = 10
_SHARE_NOTE_CHARS: Final = 120
"""About the length of `clip`'s note."""


def left_out(chars: int) -> str:
    """The text in the place of a result for which there is no room."""
    return f"[all {chars} characters of this result were left out, because there is no room for them; {ADVICE}]"


def names_of_calls(message: Message) -> str:
    """The names of the tools whose results `message` has, for the model; of many the first ones."""
    names = [result.name for result in message.results] if isinstance(message, AssistantMessage) else []
    more = f" and {len(names) - MOST_NAMED_CALLS} more" if len(names) > MOST_NAMED_CALLS else ""
    return ", ".join(names[:MOST_NAMED_CALLS]) + more


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """How much of `room` each text gets: a short one its full size, the others equal shares."""
    given, left = [0] * len(sizes), max(0, room)
    smallest_first = sorted(range(len(sizes)), key=sizes.__getitem__)
    for rank, place in enumerate(smallest_first):
        given[place] = min(sizes[place], left // (len(sizes) - rank))
        left -= given[place]
    return given


def shared(message: AssistantMessage, tokens: int, *, original: Message | None = None) -> AssistantMessage:
    """`message` with its results clipped, so that the whole message has about `tokens`, estimated;
    the same object if it has no more.

    `original`: the original message, if its results were clipped before. A result for which there
    is no room becomes a sentence that says so. If that is still too much, long arguments of the
    calls are cut to their beginning.
    """
    if message_tokens(message) <= tokens:
        return message
    whole = {result.id: result.text for result in original.results} if isinstance(original, AssistantMessage) else {}
    texts = [whole.get(result.id, result.text) for result in message.results]
    sizes = [size_of_text(text).tokens for text in texts]
    rest = message_tokens(with_texts(message, [""] * len(texts)))
    given = shares(sizes, tokens - rest)
    less = with_texts(message, map(_fitted, texts, sizes, given))
    if message_tokens(less) <= tokens:
        return less
    (pruned,) = PruneArguments(tools=None, max_chars=LONGEST_ARGUMENT_CHARS, protect_messages=0).reduce((less,))
    return pruned if isinstance(pruned, AssistantMessage) else less


def _fitted(text: str, size: int, tokens: int) -> str:
    """The part of `text`, which has `size` tokens, that fits into `tokens`."""
    if size <= tokens:
        return text
    chars = len(text) * tokens // size - _SHARE_NOTE_CHARS
    while chars >= LEAST_CHARS:
        shown = clip(text, chars, ending=None, advice=ADVICE)
        have = size_of_text(shown).tokens
        if have <= tokens:
            return shown
        chars = min(chars * tokens // have, chars - LEAST_CHARS // 2)
    note = left_out(len(text))
    return note if len(note) < len(text) else text


@dataclass(slots=True, frozen=True)
class OnlySent:
    """A reducer that does not change messages that were not sent yet: the messages from `start` on.
    `None`: all messages may change.

    If there are no messages from `start` on any more, nothing is reduced.
    """

    reducer: Reducer
    start: int | None

    @property
    def name(self) -> str:
        """The name of the reducer inside."""
        return self.reducer.name

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        less = self.reducer.reduce(messages, head=head)
        if less is messages or self.start is None:
            return less
        unread = messages[self.start :]
        behind = less[len(less) - len(unread) :]
        if len(behind) < len(unread) or not all(map(_same_calls, behind, unread)):
            return messages
        less = (*less[: len(less) - len(unread)], *unread)
        return messages if len(less) == len(messages) and all(map(is_, less, messages)) else less


def _same_calls(one: Message, other: Message) -> bool:
    return type(one) is type(other) and _answered(one) == _answered(other)


def _answered(message: Message) -> list[str]:
    return [result.id for result in message.results] if isinstance(message, AssistantMessage) else []


# --- Replaces old images, documents and sounds by their names. Failure answered: ten screenshots
# that are sent with every request.


def placeholder(media: Media) -> Text:
    """The text in the place of media that is not shown, in the words of opencode:
    `[Attached image/png: chart.png]`.
    """
    return Text(f"[Attached {media.mime_type}: {media.name or 'file'}]")


def has_media(message: Message) -> bool:
    """Whether `message` has media, results of tools included."""
    if isinstance(message, UserMessage):
        return any(isinstance(part, Media) for part in message.content)
    return any(result.media for result in message.results)


def without_media(message: Message) -> Message:
    """`message` with its media replaced by their names; the same object if it has none. The text of
    a result already names the result's media.
    """
    if not has_media(message):
        return message
    if isinstance(message, AssistantMessage):
        return replace(
            message, results=tuple(replace(result, media=()) if result.media else result for result in message.results)
        )
    shown = (placeholder(part) if isinstance(part, Media) else part for part in message.content)
    return replace(message, content=tuple(shown))


@dataclass(slots=True, frozen=True)
class DropMedia:
    """Media of old user turns are named instead of shown. The newest turns stay as they are: the
    cached prefix breaks once a turn at most.

    `DropMedia(0)` leaves none, which is what a summariser reads.
    """

    name = "media"

    keep_turns: int = 4
    """The running turn, and three before it as in OpenClaw."""

    def __post_init__(self) -> None:
        check_number("keep_turns", self.keep_turns, 0)

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        return changed_by(without_media, messages, head, newest_turns(messages, self.keep_turns, head=head))


# --- How many turns of a conversation are sent, by the kind of session. For conversations without
# an end: a chat, a channel.

SessionKind: TypeAlias = Literal["direct", "channel", "group"]
"""The partners of a session. They decide how many turns are kept."""


@dataclass(slots=True, frozen=True)
class KeepTurns:
    """Keeps the newest user turns. Older turns are not sent; the history keeps them as originals.

    Turns are dropped in batches of half of `turns`, as soon as there are more than one and a half
    times `turns`. So the head of the request, and the provider's cache of it, stays the same for
    many turns. That holds for committed edits, and also if every request cuts the whole history
    anew. Source: OpenClaw.
    """

    name = "limit"

    turns: int

    def __post_init__(self) -> None:
        check_number("turns", self.turns, 1)

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        turns = user_turns(messages, head=head)
        if 2 * len(turns) <= 3 * self.turns:
            return messages
        batch = (self.turns + 1) // 2
        kept = self.turns + (len(turns) - self.turns) % batch
        return messages[:head] + messages[turns[-kept].start :]


@dataclass(slots=True, frozen=True)
class HistoryLimits:
    """The number of user turns that are sent, by the kind of session; `None`: all."""

    _: KW_ONLY
    direct: int | None = None
    channel: int | None = None
    group: int | None = None
    users: Mapping[str, int | None] = field(default_factory=dict)
    """Limits for direct sessions with single users, by their id; they replace `direct`."""

    def __post_init__(self) -> None:
        named = {"direct": self.direct, "channel": self.channel, "group": self.group}
        for name, turns in [*named.items(), *((f"users[{user!r}]", turns) for user, turns in self.users.items())]:
            if turns is not None:
                check_number(name, turns, 1)

    def of(self, kind: SessionKind, user: str | None = None) -> KeepTurns | None:
        """The reducer for a session of `kind`, with `user`; `None` where there is no limit."""
        limits = {"direct": self.direct, "channel": self.channel, "group": self.group}
        if kind not in limits:
            raise ConfigError(f"unknown kind of session {kind!r}; known: {', '.join(limits)}")
        turns = limits[kind]
        if kind == "direct" and user is not None:
            turns = self.users.get(user, turns)
        return None if turns is None else KeepTurns(turns)
