"""How a history is kept inside the window. A preset is numbers, a template, and what is taken out
before anything is summarised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, TypedDict, Unpack

from monitor._util.argument_checks import check_number, check_part, check_parts, check_seconds, check_word, is_finite
from monitor.context import window as headrooms
from monitor.context.compaction.hooks import CompactionHook, CompactionStore
from monitor.context.compaction.summarizer import Summarizer
from monitor.context.compaction.templates import CHECKPOINT, EIGHT_SECTIONS, FIVE_SECTIONS, MARKDOWN, Template
from monitor.context.compaction.triggers import LOW_WATER
from monitor.context.cut import Keep, KeepMessages, KeepNewTurns, KeepShare, KeepTokens
from monitor.context.reduce import DropMedia, PruneArguments, PruneResults, Reducer
from monitor.context.window import Headroom, Window
from monitor.errors import ConfigError
from monitor.models import Model

SUMMARY_TOKENS = 4_096
"""The most tokens of a summary. Source: opencode."""
TIMEOUT_S = 180.0
"""Seconds for all calls of one compaction together. Source: OpenClaw."""

Continues: TypeAlias = Literal["always", "when_needed", "never"]


class PresetOptions(TypedDict, total=False):
    """The options of a preset, for editors and type checkers: the fields of `Preset`, which
    explains them.
    """

    name: str
    headroom: Headroom
    low_water: float
    steps: Sequence[Reducer]
    after_turn: Sequence[Reducer]
    keep: Keep
    template: Template
    summary_tokens: int
    model: Model | None
    window: Window | int | None
    settings: Mapping[str, Any]
    summarizer: Summarizer | None
    timeout_s: float
    background: bool
    attempts: int
    continues: Continues
    on_live_prefix: bool
    rules: str | None
    hooks: Sequence[CompactionHook]
    store: CompactionStore | None


@dataclass(slots=True, frozen=True, kw_only=True)
class Preset:
    """How a history is kept inside the window. Take a preset, and change what you like:
    `Compaction.pi(timeout_s=60)`.

    `headroom` sets the high-water mark. A compaction there must get the whole next request below
    the share `low_water` of that mark. `steps` are tried before anything is summarised: if they
    alone get there, nothing is summarised. `keep` says what stays beside the summary. `after_turn`
    runs in the background after each turn. `model` writes the summary, with `settings`, and with
    `window` if the table of known models does not have it; by default the run's model does.
    `summarizer` makes the summary in another way, such as `Extractive()`.

    `background`: at the high-water mark the summary is made beside the run. The run waits at the
    ceiling, halfway between that mark and the end of the window. `attempts`: the most compactions
    for one request that the provider refuses. `continues`: whether the model is asked to go on
    afterwards; with `when_needed`, only where no message is left that it could answer.
    `on_live_prefix`: the summary is asked for at the end of the conversation as it stands, because
    the provider has that conversation in its cache.
    """

    name: str = "default"
    headroom: Headroom = headrooms.DEFAULT
    low_water: float = LOW_WATER
    steps: Sequence[Reducer] = (PruneArguments(), DropMedia())
    after_turn: Sequence[Reducer] = ()
    keep: Keep = field(default_factory=KeepTokens)
    template: Template = CHECKPOINT
    summary_tokens: int = SUMMARY_TOKENS
    model: Model | None = None
    window: Window | int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    summarizer: Summarizer | None = None
    timeout_s: float = TIMEOUT_S
    background: bool = True
    attempts: int = 3
    continues: Continues = "when_needed"
    on_live_prefix: bool = False
    rules: str | None = None
    """A text that stands word for word beside every summary: rules of the operator, notes of the
    project.
    """
    hooks: Sequence[CompactionHook] = ()
    store: CompactionStore | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.headroom, Headroom):
            raise ConfigError(f"headroom takes a monitor.context.Headroom, not {self.headroom!r}")
        if not (is_finite(self.low_water) and 0 < self.low_water < 1):
            raise ConfigError(
                f"low_water is {self.low_water!r}; it must be a share of the high-water mark, above 0 and below 1"
            )
        if not isinstance(self.template, Template):
            raise ConfigError(f"template takes a Template, not {self.template!r}")
        check_number("summary_tokens", self.summary_tokens, 200)
        check_number("attempts", self.attempts, 0)
        check_seconds("timeout_s", self.timeout_s)
        check_word("continues", self.continues, Continues)
        check_part("keep", self.keep, "cut")
        for name, part, does in (
            ("model", self.model, "stream"),
            ("summarizer", self.summarizer, "summarize"),
            ("store", self.store, "add"),
        ):
            if part is not None:
                check_part(name, part, does)
        for name in ("steps", "after_turn"):
            object.__setattr__(self, name, tuple(check_parts(name, getattr(self, name), "reduce")))
        for hook in check_parts("hooks", self.hooks, "__post_init__"):
            if not isinstance(hook, CompactionHook):
                raise ConfigError(f"hooks takes CompactionHooks, not {hook!r}")
        object.__setattr__(self, "hooks", tuple(self.hooks))

    @classmethod
    def default(cls, **options: Unpack[PresetOptions]) -> Self:
        """The preset of this library: old long arguments and media go first. Then a checkpoint is
        made in the background, with the newest 20,000 tokens kept.
        """
        return cls(**options)

    @classmethod
    def gemini_cli(cls, **options: Unpack[PresetOptions]) -> Self:
        """At 70 % of the window; the newest 30 % stay, whole user turns only; an XML snapshot in
        five sections.
        """
        return cls._after(
            options,
            name="gemini_cli",
            headroom=headrooms.GEMINI_CLI,
            low_water=0.9,
            steps=(PruneResults.gemini_cli(),),
            keep=KeepShare(0.3),
            template=FIVE_SECTIONS,
        )

    @classmethod
    def claude_code(cls, **options: Unpack[PresetOptions]) -> Self:
        """At 92 % of the window; the newest five messages stay; eight sections. The numbers are
        those of articles about it.
        """
        return cls._after(
            options,
            name="claude_code",
            headroom=headrooms.CLAUDE_CODE,
            keep=KeepMessages(5),
            template=EIGHT_SECTIONS,
            summary_tokens=20_000,
        )

    @classmethod
    def opencode(cls, **options: Unpack[PresetOptions]) -> Self:
        """At the window less a reserve of 20,000 tokens; up to two user turns stay, 8,000 tokens at
        most. Then the model is asked to go on.
        """
        return cls._after(
            options,
            name="opencode",
            headroom=headrooms.OPENCODE,
            keep=KeepNewTurns(),
            template=MARKDOWN,
            continues="always",
        )

    @classmethod
    def openclaw(cls, **options: Unpack[PresetOptions]) -> Self:
        """At the window less 20,000 tokens; the newest 20,000 stay; a checkpoint, asked for on top
        of the live prefix.
        """
        return cls._after(options, name="openclaw", headroom=headrooms.OPENCLAW, on_live_prefix=True)

    @classmethod
    def pi(cls, **options: Unpack[PresetOptions]) -> Self:
        """At the window less 16,384 tokens; the newest 20,000 stay; a checkpoint. One try for a
        request that the provider refuses.
        """
        return cls._after(options, name="pi", headroom=headrooms.PI, attempts=1)

    @classmethod
    def _after(cls, given: PresetOptions, **its: Unpack[PresetOptions]) -> Self:
        """A preset after another agent, with the options that are `given`: nothing is taken out
        before the summary, and the run waits.
        """
        return cls(**(PresetOptions(steps=(), background=False) | its | given))


PRESETS = ("default", "gemini_cli", "claude_code", "opencode", "openclaw", "pi")
"""The names of the presets; each is a class method."""
