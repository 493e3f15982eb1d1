"""The program's say in a compaction: before it, after it, and in whether the model is told to go
on.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
        if hook.before is None:
            continue
        try:
            wanted = hook.before(asked)
            if inspect.isawaitable(wanted):
                wanted = await wanted
            if wanted is not None and not isinstance(wanted, BeforeCompaction):
                raise ConfigError(f"a hook answers with a BeforeCompaction or None, not {wanted!r}")
            changed = None if wanted is None or wanted.messages is None else _checked(wanted.messages)
        except Exception as error:  # noqa: BLE001 - the caller's code: a compaction does not fail for it
            warnings.append(f"a hook before the compaction raised {describe(error)}")
            continue
        if wanted is None:
            continue
        if wanted.cancel is not None:
            raise CompactionError(CompactionFailure.CANCELLED, f"a hook cancelled it: {wanted.cancel}")
        hints += [wanted.context] if wanted.context else []
        notes += [wanted.note] if wanted.note else []
        prompt = wanted.prompt or prompt
        if changed is not None:
            messages = changed
            asked = CompactionAsked(reason=asked.reason, messages=changed, previous=asked.previous, tokens=asked.tokens)
    return Wishes(hints=tuple(hints), notes=tuple(notes), prompt=prompt, messages=messages, warnings=tuple(warnings))


async def tell_after(hooks: Sequence[CompactionHook], result: CompactionResult) -> list[str]:
    """Tell the hooks of a compaction that is part of the history. The answers are warnings."""
    warnings: list[str] = []
    for hook in hooks:
        if hook.after is not None:
            try:
                told = hook.after(result)
                if inspect.isawaitable(told):
                    await told
            except Exception as error:  # noqa: BLE001 - the caller's code
                warnings.append(f"a hook after the compaction raised {describe(error)}")
    return warnings


async def may_continue(
    hooks: Sequence[CompactionHook], result: CompactionResult, warnings: list[str] | None = None
) -> bool:
    """Whether no hook objects to telling the model to go on. A hook that raises does not object;
    its error is added to `warnings`.
    """
    for hook in hooks:
        if hook.autocontinue is not None:
            try:
                answer = hook.autocontinue(result)
                if inspect.isawaitable(answer):
                    answer = await answer
            except Exception as error:  # noqa: BLE001 - the caller's code
                if warnings is not None:
                    warnings.append(f"a hook that is asked whether to go on raised {describe(error)}")
                continue
            if answer is False:
                return False
    return True


def _checked(messages: Sequence[Message]) -> tuple[Message, ...]:
    if not messages:
        raise ConfigError("a hook leaves nothing to summarise; to have no compaction, it answers with cancel=")
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigError(f"a hook's messages are UserMessage and AssistantMessage, not {message!r}")
    return tuple(messages)
