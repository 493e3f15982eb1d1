"""The facts are collected from the messages that are to be summarised."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from monitor._util.arguments import arguments_in
from monitor._util.codec import to_plain
from monitor.compaction.pinned.fit import SHORT_CHARS
from monitor.compaction.pinned.pinned_facts import PinnedFacts
from monitor.compaction.pinned.text import head_of_messages, read_back, text_of_user
from monitor.compaction.records import CompactionDetails
from monitor.compaction.summaries.identifiers import (
    MessageNames,
    answered_calls,
    files_of,
    identifiers,
    merged,
    named_in,
    names_of,
    remembered,
)
from monitor.goal.declared import EMIT
from monitor.messages import Message, UserMessage

MOST_IDENTIFIERS: Final = 64
"""The most names of each sort that one compaction hands to the next. OpenClaw's number is 12."""
_NEWEST_MESSAGES: Final = 100
"""The number of newest user messages that are searched for names."""


def gathered(
    messages: Sequence[Message],
    earlier: PinnedFacts | None = None,
    *,
    named: Callable[[Message], MessageNames] = named_in,
) -> PinnedFacts:
    """The facts in `earlier`, and those in `messages`: what a person said, outputs, identifiers,
    files, what became of calls.

    Without `earlier`, the facts of a composed text at the beginning of `messages` count as earlier.
    `named` finds the names in a message. A caller that gathers more than once gives a function that
    remembers its results.
    """
    head = head_of_messages(messages)
    if earlier is None and head:
        first = messages[0]
        before = read_back(text_of_user(first)) if isinstance(first, UserMessage) else None
        earlier = before[1] if before else None
    facts, new = earlier or PinnedFacts(), messages[head:]
    theirs = [message for message in new if not message.synthetic]
    user_messages = (
        *facts.user_messages,
        *(text_of_user(message) for message in theirs if isinstance(message, UserMessage)),
    )
    emitted = dict(_handed_over(theirs))
    details = merged(facts.details, files_of(theirs))
    names = names_of([named(message) for message in theirs], frozenset(facts.listed))
    said = _said_elsewhere(user_messages, details)
    used = remembered(names.used, facts.identifiers, most=MOST_IDENTIFIERS, said=said)
    return replace(
        facts,
        user_messages=user_messages,
        emitted={**facts.emitted, **emitted},
        earlier_outputs={name: value for name, value in facts.earlier_outputs.items() if name not in emitted},
        identifiers=used,
        listed=remembered(
            names.listed, facts.listed, most=MOST_IDENTIFIERS, said=lambda name: name in used or said(name)
        ),
        details=details,
    )


def with_known(facts: PinnedFacts, known: PinnedFacts, *, again: bool) -> PinnedFacts:
    """The gathered `facts` with what is `known` of the run besides its messages: its outputs, its
    plan, names, files. `again`: there was an earlier compaction, which knew the user messages.
    """
    asked_for = {entry.partition(": ")[0] for entry in known.outstanding}
    # `facts.emitted` has outputs of earlier runs, too.
    of_this_run = known.emitted if known.emitted or known.outstanding else facts.emitted
    emitted = {name: value for name, value in of_this_run.items() if name not in asked_for}
    before = {**facts.earlier_outputs, **facts.emitted}
    return replace(
        facts,
        user_messages=facts.user_messages if again else (*known.user_messages, *facts.user_messages),
        emitted=emitted,
        earlier_outputs={
            name: value for name, value in before.items() if name not in emitted and name not in asked_for
        },
        outstanding=known.outstanding
        or tuple(entry for entry in facts.outstanding if entry.partition(": ")[0] not in emitted),
        plan=known.plan or facts.plan,
        identifiers=tuple(dict.fromkeys((*known.identifiers, *facts.identifiers))),
        listed=tuple(dict.fromkeys((*known.listed, *facts.listed))),
        details=merged(facts.details, known.details),
    )


def _said_elsewhere(user_messages: Sequence[str], details: CompactionDetails) -> Callable[[str], bool]:
    """Returns a test: is this name pinned already, as a file or in a user message? A long message
    may be cut, so its names do not count.
    """
    short = (text for text in user_messages[-_NEWEST_MESSAGES:] if len(text) <= SHORT_CHARS)
    said = {*details.files_read, *details.files_modified, *details.artifacts, *identifiers("\n".join(short))}
    return said.__contains__


def _handed_over(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """The outputs that accepted calls of `emit_value` gave, in this run and in earlier ones: each
    one's name, and its value as JSON.
    """
    for call, result in answered_calls(messages):
        if call.name == result.name == EMIT and not result.is_error:
            with suppress(ValueError):
                given = arguments_in(call.arguments)
                if isinstance(name := given.get("name"), str):
                    yield name, json.dumps(to_plain(given.get("value")), ensure_ascii=False, sort_keys=True)
