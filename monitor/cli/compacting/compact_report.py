"""What a compaction did, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

import monitor
from monitor.cli.compacting.compact_input import CompactInput
from monitor.cli.render import output, table
from monitor.compaction.pinned import gathered, read_back
from monitor.compaction.records import compaction_codec
from monitor.reasons import CompactionReason
from monitor.sessions.postgres.postgres_reader import without_password
from monitor.view.run_ending import count

SCALED: Final = 0.05
"""A refused request was larger than the window, so it counts as larger than its estimate by this
share.
"""


@dataclass(slots=True, frozen=True)
class PinnedCounts:
    """The counted pinned facts beside the summary."""

    verbatim: int = 0
    """User messages that are kept word for word."""
    shortened: int = 0
    left_out: int = 0
    identifiers: int = 0
    files: int = 0


@dataclass(slots=True, frozen=True)
class CompactReport:
    """The result of the compaction, with all numbers to print."""

    given: CompactInput
    compaction: monitor.Compaction
    result: monitor.compaction.CompactionResult
    calls: int
    reason: CompactionReason
    breaks_at: int
    """The index of the first message that changed."""

    named_nobody: bool
    """No model was named."""

    @property
    def runs_compact_at(self) -> int:
        """The tokens at which a run with this window compacts."""
        return self.compaction.headroom.usable(self.given.window) or 0

    @property
    def summarised(self) -> int:
        """The number of messages that the summary replaces."""
        return self.result.record.first_kept if self.result.record is not None else 0

    @property
    def text(self) -> str:
        """The text in the place of the old messages; empty: there is none."""
        if self.result.record is None:
            return ""
        return "\n".join(part.text for part in self.result.record.shown[0].content if isinstance(part, monitor.Text))

    @property
    def pinned(self) -> PinnedCounts:
        """The facts for which there was room."""
        found = read_back(self.text)
        if found is None:
            return PinnedCounts()
        facts, said = found[1], set(gathered(self.given.messages[: self.summarised]).user_messages)
        verbatim = sum(text in said for text in facts.user_messages)
        files = {*facts.details.files_read, *facts.details.files_modified}
        return PinnedCounts(
            verbatim,
            len(facts.user_messages) - verbatim,
            facts.left_out,
            len(facts.identifiers) + len(facts.listed),
            len(files),
        )


def show_report(console: Console, done: CompactReport, *, text: bool, written_to: Path | str | None) -> None:
    """Print the result for people. `text`: with the summary. `written_to`: where it stands now."""
    rows = [*_facts(done), *_remarks(done)]
    if written_to is not None:
        rows.append(("written", output.on_one_line(without_password(str(written_to)))))
    output.card(console, "compacted", rows, style="green")
    output.heading(console, "tokens by source")
    before, after = (done.given.by_source(messages) for messages in (done.given.messages, done.result.messages))
    table.show(
        console,
        ("source", "before", "after"),
        [
            (source, f"{before.get(source, 0):,}", f"{after.get(source, 0):,}")
            for source in dict.fromkeys((*before, *after))
        ],
    )
    if text:
        output.heading(console, "what stands in their place")
        console.print(output.printable(done.text or "(nothing: no message is gone)"), soft_wrap=True)


def _facts(done: CompactReport) -> list[tuple[str, str | Text]]:
    given, result = done.given, done.result
    saved = result.tokens_before - result.tokens_after
    scaled = result.tokens_before > (1 + SCALED) * sum(given.by_source(given.messages).values())
    rows: list[tuple[str, str | Text]] = [
        ("preset", done.compaction.name),
        (
            "window",
            output.on_one_line(
                f"{given.window.tokens or 0:,} ({given.window.note or given.window.source.value}); a run compacts at"
                f" {done.runs_compact_at:,}"
            ),
        ),
        (
            "tokens",
            (
                f"{result.tokens_before:,} -> {result.tokens_after:,}, {saved * 100 // max(1, result.tokens_before)}%"
                f" less; {_how(scaled)}"
            ),
        ),
        ("messages", _messages(done)),
        ("by", output.on_one_line(_by(done))),
        ("cost", _cost(done)),
        ("cache", f"{_kept_in_cache(done.breaks_at)}; about {result.reread_tokens:,} tokens are read anew, once"),
    ]
    if result.record is not None:
        rows.insert(5, ("beside it", _pinned(done.pinned)))
    return rows


def _remarks(done: CompactReport) -> Iterator[tuple[str, str | Text]]:
    given, result = done.given, done.result
    if given.conversation.doubt:
        yield "but", Text(given.conversation.doubt, style="red")
    if given.repairs:
        yield "repaired", f"{count(given.repairs, 'repair')} first; agent-monitor context says which"
    if (said := given.window.problem or given.window.warning) is not None:
        yield "but", Text(output.on_one_line(said), style="yellow")
    if result.tokens_after >= done.runs_compact_at:
        yield "but", Text("that is still where a run compacts: nothing makes it smaller", style="yellow")
    for number, one in enumerate(result.warnings):
        yield "instead" if number == 0 else "", Text(output.on_one_line(one), style="yellow")


def _how(scaled: bool) -> str:
    """How the numbers of tokens were found."""
    return "what was refused has at least a window; the table has estimates" if scaled else "estimated"


def _kept_in_cache(breaks_at: int) -> str:
    if breaks_at == 0:
        return "none of the messages is cached any more"
    return f"the cached prefix ends before message {breaks_at:,}"


def _messages(done: CompactReport) -> str:
    kept = count(done.result.kept_messages, "message")
    if not done.summarised:
        return f"{kept}, all kept; nothing had to be summarised"
    if not done.result.kept_messages:
        return f"all {done.summarised:,} are one summary" if done.summarised > 1 else "the only one is a summary"
    gone = f"{done.summarised:,} are one summary" if done.summarised > 1 else "1 is a summary"
    return f"{gone}, the last {kept if done.result.kept_messages > 1 else 'message'} kept"


def _by(done: CompactReport) -> str:
    by = done.result.summarised_by
    if done.result.record is None:
        return f"no summary: {by} was enough"
    length = f", a summary of {len(done.result.record.summary):,} characters"
    return f"{by}{length}{'; no model was asked, --model names one' if done.named_nobody else ''}"


def _cost(done: CompactReport) -> str:
    usage, estimated = done.result.cost.usage, done.result.cost.estimated
    if not done.calls:
        return "nothing"
    tokens = f"{usage.total_tokens:,} tokens{' (partly estimated)' if estimated else ''}"
    return f"{count(done.calls, 'model call')}, {tokens}: {usage.input_tokens:,} in, {usage.output_tokens:,} out"


def _pinned(pinned: PinnedCounts) -> str:
    shortened = f", {pinned.shortened:,} shortened" if pinned.shortened else ""
    left_out = f", {pinned.left_out:,} left out" if pinned.left_out else ""
    names = f"{count(pinned.identifiers, 'identifier')}, {count(pinned.files, 'file')}"
    return f"{count(pinned.verbatim, 'user message')} word for word{shortened}{left_out}; {names}"


def as_json(done: CompactReport) -> dict[str, Any]:
    """The result as JSON data."""
    given, result, pinned = done.given, done.result, done.pinned
    return {
        "ok": True,
        "preset": done.compaction.name,
        "form": given.conversation.form,
        "window": {"tokens": given.window.tokens, "source": given.window.source.value, "note": given.window.note},
        "tokens": {
            "before": result.tokens_before,
            "after": result.tokens_after,
            "before_by_source": given.by_source(given.messages),
            "after_by_source": given.by_source(result.messages),
        },
        "messages": {
            "before": len(given.messages),
            "after": len(result.messages),
            "summarised": done.summarised,
            "kept": result.kept_messages,
            "kept_tokens": result.kept_tokens,
        },
        "pinned": {
            "user_messages": pinned.verbatim,
            "user_messages_shortened": pinned.shortened,
            "user_messages_left_out": pinned.left_out,
            "identifiers": pinned.identifiers,
            "files": pinned.files,
        },
        "summarised_by": result.summarised_by,
        "cost": {
            "model_calls": done.calls,
            "input_tokens": result.cost.usage.input_tokens,
            "output_tokens": result.cost.usage.output_tokens,
            "tokens_estimated": result.cost.estimated,
        },
        "cache": {"breaks_at": done.breaks_at, "reread_tokens": result.reread_tokens},
        "repairs": given.repairs,
        "not_understood": given.conversation.not_understood,
        "warnings": list(result.warnings),
        "text": done.text,
        "record": None if result.record is None else compaction_codec.to_dict(result.record),
    }
