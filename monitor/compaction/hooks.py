"""The program's say in a compaction: before it, after it, and in whether the model is told to go
on.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from monitor.compaction.records import CompactionError, CompactionResult
from monitor.errors import ConfigError, describe
from monitor.messages import Message
from monitor.reasons import CompactionFailure, CompactionReason


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionAsked:
    """What a hook receives before a compaction."""

    reason: CompactionReason
    messages: tuple[Message, ...]
    """What will be summarised."""
    previous: str | None
    """The earlier summary."""
    tokens: int
    """Of the next request, as it stands."""


@dataclass(slots=True, frozen=True, kw_only=True)
class BeforeCompaction:
    """What a hook wants. What it leaves out stays as it is."""

    cancel: str | None = None
    """Why there is to be no compaction now."""
    context: str | None = None
    """Further hints for the summariser."""
    prompt: str | None = None
    """Instead of the template's instructions."""
    messages: Sequence[Message] | None = None
    """To be summarised instead of those that were told. The history is not concerned: it is only
    what the summariser reads.
    """
    note: str | None = None
    """What stands beside the summary word for word, this time."""

    def __post_init__(self) -> None:
        for name in ("cancel", "context", "prompt", "note"):
            said = getattr(self, name)
            if said is not None and not isinstance(said, str):
                raise ConfigError(f"BeforeCompaction.{name} is a text, not {said!r}")
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
    """Functions, or coroutine functions, that are called around a compaction; one that raises is
    passed over, with a warning.

    `before` may add to what the summariser is told, replace it, or cancel. `after` is told of a
    compaction that is part of the history. `autocontinue` answers `False` to have no message that
    tells the model to go on. Several hooks are called in order; of several prompts, or lists of
    messages, the last counts.
    """

    before: Before | None = None
    after: After | None = None
    autocontinue: Autocontinue | None = None

    def __post_init__(self) -> None:
        if self.before is None and self.after is None and self.autocontinue is None:
            raise ConfigError("a CompactionHook has before=, after= or autocontinue=")
        for given in (self.before, self.after, self.autocontinue):
            if given is not None and not callable(given):
                raise ConfigError(f"a hook is a function, not {given!r}")


@dataclass(slots=True, frozen=True, kw_only=True)
class Wishes:
    """What all hooks together want."""

    hints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    warnings: tuple[str, ...] = ()


async def ask_before(hooks: Sequence[CompactionHook], asked: CompactionAsked) -> Wishes:
    """What the hooks want, in order; each one receives what the earlier hooks made of the messages.
    Raises `CompactionError` for a veto.
    """
    hints: list[str] = []
    notes: list[str] = []
    warnings: list[str] = []
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    for hook in hooks:
        wanted = await _answer(hook.before, asked, "before the compaction", warnings)
        if wanted is None:
            continue
        if not isinstance(wanted, BeforeCompaction):
            warnings.append(f"a hook answers with a BeforeCompaction or None, not {wanted!r}")
            continue
        if wanted.cancel is not None:
            raise CompactionError(CompactionFailure.CANCELLED, f"a hook cancelled it: {wanted.cancel}")
        hints += [wanted.context] if wanted.context else []
        notes += [wanted.note] if wanted.note else []
        prompt = wanted.prompt or prompt
        if wanted.messages is not None:
            messages = tuple(wanted.messages)
            asked = replace(asked, messages=messages)
    return Wishes(hints=tuple(hints), notes=tuple(notes), prompt=prompt, messages=messages, warnings=tuple(warnings))


async def tell_after(hooks: Sequence[CompactionHook], result: CompactionResult) -> list[str]:
    """Tell the hooks of a compaction that is part of the history. Returns warnings."""
    warnings: list[str] = []
    for hook in hooks:
        await _answer(hook.after, result, "after the compaction", warnings)
    return warnings


async def may_continue(hooks: Sequence[CompactionHook], result: CompactionResult, warnings: list[str]) -> bool:
    """Whether no hook objects to telling the model to go on. A hook that raises does not object;
    its error is added to `warnings`.
    """
    for hook in hooks:
        if await _answer(hook.autocontinue, result, "that is asked whether to go on", warnings) is False:
            return False
    return True


async def _answer(function: Callable[[Any], Any] | None, about: object, which: str, warnings: list[str]) -> Any:
    """What a hook's `function` answers; `None` where there is none, or where it raises: then its
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
