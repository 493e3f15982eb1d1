"""Hooks of the program: before a compaction, after it, and on whether the model goes on."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from monitor._util.argument_checks import check_kind
from monitor.compaction.records import CompactionError, CompactionResult
from monitor.errors import ConfigError, describe
from monitor.messages import Message
from monitor.reasons import CompactionFailure, CompactionReason


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionAsked:
    """The facts that a hook receives before a compaction."""

    reason: CompactionReason
    messages: tuple[Message, ...]
    """The messages that will be summarised."""
    previous: str | None
    """The summary that is in force now, if there is one."""
    tokens: int
    """Tokens of the next request before the compaction."""


@dataclass(slots=True, frozen=True, kw_only=True)
class BeforeCompaction:
    """The answer of a hook. A field that is `None` changes nothing."""

    cancel: str | None = None
    """The reason for having no compaction now."""
    context: str | None = None
    """A further hint for the summariser."""
    prompt: str | None = None
    """A prompt in the place of the template's instructions."""
    messages: Sequence[Message] | None = None
    """Messages in the place of `CompactionAsked.messages`. Only the summariser reads them: the
    history stays as it is.
    """
    note: str | None = None
    """A text that stands beside this summary word for word."""

    def __post_init__(self) -> None:
        for name in ("cancel", "context", "prompt", "note"):
            check_kind(f"BeforeCompaction.{name}", getattr(self, name), str, "a text")
        if self.messages is None:
            return
        if not self.messages:
            raise ConfigError("a hook leaves nothing to summarise; to have no compaction, it answers with cancel=")
        for message in self.messages:
            if not isinstance(message, Message):
                raise ConfigError(f"a hook's messages are UserMessage and AssistantMessage, not {message!r}")


Before: TypeAlias = Callable[[CompactionAsked], Awaitable[BeforeCompaction | None] | BeforeCompaction | None]
After: TypeAlias = Callable[[CompactionResult], object]
Autocontinue: TypeAlias = Callable[[CompactionResult], bool | Awaitable[bool]]


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionHook:
    """Functions, or coroutine functions, that are called around a compaction. A function that
    raises changes nothing but adds a warning.

    `before` may add to what the summariser reads, replace it, or cancel the compaction. `after`
    receives the result once it is part of the history. `autocontinue` returns `False` if no message
    shall ask the model to go on. Several hooks are called in order. Of several prompts, or lists of
    messages, the last one counts.
    """

    before: Before | None = None
    after: After | None = None
    autocontinue: Autocontinue | None = None

    def __post_init__(self) -> None:
        if self.before is None and self.after is None and self.autocontinue is None:
            raise ConfigError("a CompactionHook needs before=, after= or autocontinue=")
        for given in (self.before, self.after, self.autocontinue):
            if given is not None and not callable(given):
                raise ConfigError(f"a hook is a function, not {given!r}")


@dataclass(slots=True)
class Wishes:
    """The answers of all hooks together."""

    hints: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    warnings: list[str] = field(default_factory=list)


async def ask_before(hooks: Sequence[CompactionHook], asked: CompactionAsked) -> Wishes:
    """Ask the hooks in order. Each hook receives the messages as the earlier hooks left them.
    Raises `CompactionError` for a hook that cancels.
    """
    wishes = Wishes()
    for hook in hooks:
        wanted = await _answer(hook.before, asked, "before the compaction", wishes.warnings)
        if wanted is None:
            continue
        if not isinstance(wanted, BeforeCompaction):
            wishes.warnings.append(f"a hook answers with a BeforeCompaction or None, not {wanted!r}")
            continue
        if wanted.cancel is not None:
            raise CompactionError(CompactionFailure.CANCELLED, f"a hook cancelled it: {wanted.cancel}")
        wishes.hints += filter(None, (wanted.context,))
        wishes.notes += filter(None, (wanted.note,))
        wishes.prompt = wanted.prompt or wishes.prompt
        if wanted.messages is not None:
            wishes.messages = tuple(wanted.messages)
            asked = replace(asked, messages=wishes.messages)
    return wishes


async def tell_after(hooks: Sequence[CompactionHook], result: CompactionResult, warnings: list[str]) -> None:
    """Tell the hooks of a compaction that is part of the history. Errors of hooks are added to
    `warnings`.
    """
    for hook in hooks:
        await _answer(hook.after, result, "after the compaction", warnings)


async def may_continue(hooks: Sequence[CompactionHook], result: CompactionResult, warnings: list[str]) -> bool:
    """Whether no hook objects to telling the model to go on. A hook that raises does not object;
    its error is added to `warnings`.
    """
    for hook in hooks:
        if await _answer(hook.autocontinue, result, "that is asked whether to go on", warnings) is False:
            return False
    return True


async def _answer(function: Callable[[Any], Any] | None, about: object, which: str, warnings: list[str]) -> Any:
    """The answer of a hook's `function`; `None` where there is none, or where it raises: then its
    error is added to `warnings`.
    """
    if function is None:
        return None
    try:
        answer = function(about)
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:  # noqa: BLE001 - the caller's code: a compaction does not fail for it
        warnings.append(f"a hook {which} raised {describe(error)}")
        return None
