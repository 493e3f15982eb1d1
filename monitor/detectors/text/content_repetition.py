"""Repetition in what the model writes.

It answers a model that chants in its answer, its thinking or the arguments of a call, and is paid
for every word. The loop is seen while it is written, at the same character however the provider
cuts the text.

The rules are the chant (`chant`), the exact tail (`tail`), the inexact recurrence (`recurrence`),
the counter (`counted`) and the rate of information (`information`). Each has its numbers. To the
tail belong long copies (`copies`), to the recurrence few words (`vocabulary`). `markdown` says what
is layout and what is prose, `structure` what is a block, `text_kind` what kind a text is. What
people repeat on purpose as well is a suspicion first, and a loop when it goes on.

The channels know nothing of one another. Arguments are data (JSON, code, files), where similar
pieces are usual: only the exact tail counts there, by numbers of its own. A loop clears the
evidence, and watching goes on. A finished turn or a complete tool call ends a text. A retried
stream takes back the text of its turn, offsets included. Otherwise offsets go on through the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from monitor._util.argument_checks import check_kind
from monitor._util.explained_options import explains_options
from monitor.chunks import Chunk, ReasoningDelta, StreamRetried, TextDelta, ToolCall, ToolCallDelta, TurnFinished
from monitor.detectors.detector import NOTHING, TextFeed
from monitor.detectors.text.channel import InformationRule, TextChannel, TextRules
from monitor.detectors.text.chant import WindowRule
from monitor.detectors.text.counted import CountedRule
from monitor.detectors.text.recurrence import RecurrenceRule
from monitor.detectors.text.tail import TailRule
from monitor.errors import ConfigError
from monitor.verdicts import Channel, Detection

SNAPSHOT_VERSION = 6
WATCHED: tuple[Channel, ...] = ("text", "reasoning", "arguments")
CHANT = WindowRule()
TAIL = TailRule()
RECURRENCE = RecurrenceRule()
COUNTED = CountedRule()
INFORMATION = InformationRule()
RULE_OPTIONS: Final = ("chant", "tail", "recurrence", "counted", "information")
"""The options that take a rule."""
DEFAULT_RULES: TextRules = (CHANT, TAIL, RECURRENCE, COUNTED, INFORMATION)
"""The rules that all streams share by default."""


class ContentRepetition:
    """Loops in the text of a run.

    `chant=None`, `tail=None`, `recurrence=None`, `counted=None` or `information=None` turns a rule
    off; `channels` names what is watched.
    """

    __slots__ = (
        "_call",
        "_channels",
        "_rules",
        "_turn_start",
        "_watched",
        "name",
    )

    @explains_options(example="monitor.ContentRepetition(chant=None)")
    def __init__(
        self,
        *,
        chant: WindowRule | None = CHANT,
        tail: TailRule | None = TAIL,
        recurrence: RecurrenceRule | None = RECURRENCE,
        counted: CountedRule | None = COUNTED,
        information: InformationRule | None = INFORMATION,
        channels: Sequence[Channel] = WATCHED,
        name: str = "content_repetition",
    ) -> None:
        self._watched = tuple(channels)
        if self._watched is not WATCHED and (unknown := sorted(set(self._watched).difference(WATCHED))):
            raise ConfigError(
                f"ContentRepetition(channels=...): unknown channel {', '.join(map(repr, unknown))}; known:"
                f" {', '.join(WATCHED)}"
            )
        self.name = name
        rules = (chant, tail, recurrence, counted, information)
        if rules != DEFAULT_RULES:
            for option, rule, known in zip(RULE_OPTIONS, rules, DEFAULT_RULES, strict=True):
                kind = type(known)
                check_kind(f"ContentRepetition.{option}", rule, kind, f"a {kind.__name__}, or None to switch it off")
        self._rules: TextRules = DEFAULT_RULES if rules == DEFAULT_RULES else rules
        self._channels: dict[Channel, TextChannel] = {}
        self._turn_start: dict[Channel, int] = {}
        self._call = ""

    @classmethod
    def article(cls, **options: Any) -> ContentRepetition:
        """The chant rule of the article on Gemini CLI, and no other rule: the same 50 characters
        ten times at a mean distance of at most 75 are a loop.

        It does not matter what they are, or what stands between. So ruled lines, tables and data
        are loops as well: it fires on 24 of 43 hard good texts and runs of the recorded ones, where
        the default fires on none. `options` are those of the class.
        """
        chant = WindowRule(far_chars=None, unit_chars=1, doubtful_rounds=1, any_text=True)
        return cls(**{**dict.fromkeys(RULE_OPTIONS), "chant": chant, **options})

    @property
    def feed(self) -> Callable[[str], Sequence[Detection]]:
        """Take in the next visible text and say what it completes: `feed("some text")`; the same as
        observing it as a `TextDelta`.
        """
        return self._made("text").feed

    def options(self) -> dict[str, Any]:
        """The options that make the detector again."""
        return {
            **dict(zip(RULE_OPTIONS, self._rules, strict=True)),
            "channels": self._watched,
            "name": self.name,
        }

    def feed_of(self, channel: Channel) -> TextFeed | None:
        """Where the channel's next text goes. Arguments are fed by `observe` alone, which knows the
        call.
        """
        return self._made(channel) if channel in self._watched and channel != "arguments" else None

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """Take in the next chunk; deltas are text, a finished turn and a tool call end it, a retry
        takes it back.
        """
        match chunk:
            case TextDelta() if "text" in self._watched:
                return self.feed(chunk.text)
            case ReasoningDelta() if "reasoning" in self._watched:
                return self._made("reasoning").feed(chunk.text)
            case ToolCallDelta() if "arguments" in self._watched:
                return self._arguments(chunk.id, chunk.arguments_text)
            case ToolCall():
                self._end_text()
            case TurnFinished():
                self._end_text()
                self._turn_start = {channel: watched.offset for channel, watched in self._channels.items()}
            case StreamRetried():
                self._call = ""
                for channel, watched in self._channels.items():
                    watched.restart(self._turn_start.get(channel, 0))
            case _:
                pass
        return NOTHING

    def _arguments(self, call: str, text: str) -> Sequence[Detection]:
        arguments = self._made("arguments")
        if call != self._call:
            self._call = call
            arguments.restart(arguments.offset)
        return arguments.feed(text)

    def _end_text(self) -> None:
        self._call = ""
        for watched in self._channels.values():
            watched.restart(watched.offset)

    def _made(self, channel: Channel) -> TextChannel:
        if channel not in self._channels:
            rules = (None, self._rules[1], None, None, None) if channel == "arguments" else self._rules
            self._channels[channel] = TextChannel(rules, channel, detector=self.name)
        return self._channels[channel]

    def reset(self) -> None:
        """Forget everything; what `feed_of` gave stays valid."""
        self._call = ""
        self._turn_start = {}
        for watched in self._channels.values():
            watched.restart(0)

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data: about 7 KB for a channel in use."""
        return {
            "version": SNAPSHOT_VERSION,
            "call": self._call,
            "turn_start": {one: self._turn_start[one] for one in WATCHED if one in self._turn_start},
            "channels": {one: self._channels[one].snapshot() for one in WATCHED if one in self._channels},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken, with the same options."""
        if state.get("version") != SNAPSHOT_VERSION:
            raise ValueError(f"{self.name}: cannot restore version {state.get('version')!r}, only {SNAPSHOT_VERSION}")
        self.reset()
        self._call = str(state["call"])
        self._turn_start = {
            channel: int(state["turn_start"][channel]) for channel in WATCHED if channel in state["turn_start"]
        }
        for channel in WATCHED:
            if channel in state["channels"]:
                self._made(channel).restore(state["channels"][channel])
