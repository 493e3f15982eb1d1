"""A real model that loops, on this machine, without a key and without a network.

    make live                    or, where the extra `live` is installed:
    python -m bench.live [--quick] [--answers 60] [--record] [--resume]

A model of 135 million parameters is served by llama.cpp behind an OpenAI-compatible address, in a
process of its own. 60 long answers are streamed through the guard. What was stopped is asked for
again with the same seed and without a guard, so that the table can say what the stop has saved.
Whether an answer is a loop is said by a measure of its own (`bench._live_labels`), from the whole
answer. Then two supervised runs with tools and with a judge, on the same model. As a judge it is of
no worth; it is there to be asked for real.

All of it takes about half an hour on two idle cores. `--resume` goes on with a run that was cut
off: its answers stand in `build/live`. `--record` writes the whole answers to `fixtures/live`.
Exits with 1 if a good answer was stopped, or a connection was not closed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, get_args

import openai
from rich.console import Console
from rich.table import Table

import monitor
from bench import _live_fixture, _report
from bench._live_fixture import Answer
from bench._live_labels import Label
from bench._live_process import LiveServer, missing, served
from bench._live_prompts import QUESTIONS, Asked, everything
from bench._live_runs import RunRow, show_runs, supervised
from monitor.errors import TerminateReason
from monitor.events import Event, StopDecided

QUICK = 8
ENDINGS = {TerminateReason.LOOP_DETECTED, TerminateReason.STREAM_ENDED, TerminateReason.TRUNCATED}
"""A loop, the end of the answer, and the limit of its tokens."""

UNFINISHED = Path(__file__).parents[1] / "build" / "live" / "rows.jsonl"
"""The rows of the newest run, as they come."""
_BY_READING = _live_fixture.labels_by_reading()
_console = Console(width=130)


@dataclass(slots=True)
class Row:
    """One answer: under the guard, and whole."""

    answer: Answer
    """The whole one."""
    stopped: bool
    kept_tokens: int
    """Tokens that came through the guard."""
    kept_chars: int
    same: bool
    """The whole answer begins with what came through the guard."""
    closed: bool
    """The server saw the client leave, or had sent all."""
    seen_after_ms: float | None
    """From the decision until the server saw that the client had left."""
    sent_after: int | None
    """Tokens that the server had sent and the guard did not read."""

    @property
    def saved_tokens(self) -> int:
        """That would have come."""
        return max(self.answer.tokens - self.kept_tokens, 0)

    @property
    def label(self) -> Label:
        """What the whole answer is."""
        return _live_fixture.labelled(self.answer, _BY_READING).label


class _Decided:
    """When the guard decided to stop."""

    def __init__(self) -> None:
        self.at: float | None = None

    def emit(self, event: Event) -> None:
        """Note the time of the decision, on the clock that the server uses too."""
        if isinstance(event, StopDecided) and self.at is None:
            self.at = time.monotonic()


@dataclass(slots=True)
class _Read:
    """What came of one stream."""

    text: str = ""
    tokens: int = 0
    finish: str = ""

    def take(self, chunk: Any) -> None:
        """The server sends a chunk for each token."""
        for choice in chunk.choices:
            self.text += choice.delta.content or ""
            self.tokens += bool(choice.delta.content)
            self.finish = choice.finish_reason or self.finish


class Session:
    """Answers of one server."""

    def __init__(self, server: LiveServer, client: openai.AsyncOpenAI) -> None:
        self._server = server
        self._client = client

    async def answer(self, asked: Asked) -> Row:
        """One answer through the guard; if it was stopped, again and whole."""
        number, decided, kept = await asyncio.to_thread(self._server.asked), _Decided(), _Read()
        async with monitor.watch(lambda: self._open(asked), sinks=[decided]) as watched:
            async for chunk in watched:
                kept.take(chunk)
        outcome, seen = watched.outcome, await self._server.seen(number)
        if outcome.reason not in ENDINGS:
            raise SystemExit(f"{asked.id} ended as {outcome.reason.value}: {outcome.detail}")
        stopped = outcome.reason is TerminateReason.LOOP_DETECTED
        whole = await self._whole(asked) if stopped else kept
        answer = Answer(asked.id, asked.question, asked.seed, asked.temperature, whole.finish, whole.tokens, whole.text)
        return Row(
            answer,
            stopped,
            kept.tokens,
            len(kept.text),
            same=whole.text.startswith(kept.text),
            closed=outcome.closed and (seen.finished or seen.left_at is not None),
            seen_after_ms=(seen.left_at - decided.at) * 1e3 if seen.left_at and decided.at else None,
            sent_after=seen.chunks - kept.tokens if stopped else None,
        )

    async def _whole(self, asked: Asked) -> _Read:
        read = _Read()
        async for chunk in await self._open(asked):
            read.take(chunk)
        return read

    async def _open(self, asked: Asked) -> Any:
        return await self._client.chat.completions.create(**asked.parameters(self._server.model))  # type: ignore[call-overload]


def unfinished() -> dict[str, Row]:
    """The answers of a run that was cut off, by their ids."""
    if not UNFINISHED.exists():
        return {}
    rows = [json.loads(line) for line in UNFINISHED.read_text("utf-8").splitlines()]
    return {row["answer"]["id"]: Row(**row | {"answer": Answer(**row["answer"])}) for row in rows}


async def measure(asked: Sequence[Asked], known: Mapping[str, Row]) -> tuple[list[Row], list[RunRow]]:
    """All answers that are not `known`, then the supervised runs."""
    UNFINISHED.parent.mkdir(parents=True, exist_ok=True)
    UNFINISHED.write_text("".join(_json_line(row) for row in known.values()), "utf-8")
    _console.print("Loading the model ...")
    async with (
        served() as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=600) as client,
    ):
        session, rows = Session(server, client), list[Row]()
        for number, one in enumerate(asked, 1):
            row = known.get(one.id) or await session.answer(one)
            rows.append(row)
            if one.id not in known:
                with UNFINISHED.open("a", encoding="utf-8") as file:
                    file.write(_json_line(row))
            _console.print(f"{number:>3}/{len(asked)}  {_line(row)}", markup=False, highlight=False)
        return rows, await supervised(server, client, _console)


def _json_line(row: Row) -> str:
    return json.dumps(asdict(row)) + "\n"


def _line(row: Row) -> str:
    answer = row.answer
    if not row.stopped:
        return f"{answer.id:<22} {row.label:<9} not stopped, {answer.tokens} tokens ({answer.finish})"
    seen = "not seen" if row.seen_after_ms is None else f"seen after {row.seen_after_ms:.1f} ms"
    return (
        f"{answer.id:<22} {row.label:<9} stopped at {row.kept_tokens} of {answer.tokens} tokens;"
        f" the server: {seen}, {row.sent_after} tokens more"
    )


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The numbers of all answers."""
    labels = {label: [row for row in rows if row.label == label] for label in get_args(Label)}
    stopped = [row for row in rows if row.stopped]
    seen = sorted(row.seen_after_ms for row in stopped if row.seen_after_ms is not None)
    written = sum(row.answer.tokens for row in rows)
    return {
        "answers": len(rows),
        "labels": {
            label: {"answers": len(group), "stopped": sum(row.stopped for row in group)}
            for label, group in labels.items()
        },
        "tokens": written,
        "tokens_saved": sum(row.saved_tokens for row in stopped),
        "tokens_of_loops": sum(row.answer.tokens for row in labels["loop"]),
        "seen_after_ms": {"median": round(median(seen), 2), "most": round(seen[-1], 2)} if seen else None,
        "sent_after": max((row.sent_after or 0 for row in stopped), default=0),
        "not_closed": sum(not row.closed for row in rows),
        "same_as_whole": sum(row.same for row in rows),
    }


def show(rows: Sequence[Row]) -> None:
    """A line a question, and the sums."""
    table = Table(title="answers of a real small model, through the guard")
    labels = [name for label in get_args(Label) for name in (label, "stopped")]
    for column in ("question", "answers", *labels, "tokens saved"):
        table.add_column(column, justify="left" if column == "question" else "right")
    for question in QUESTIONS:
        group = [row for row in rows if row.answer.question == question]
        if group:
            table.add_row(question, *_cells(group))
    table.add_section()
    table.add_row("all", *_cells(rows))
    _console.print(table)
    numbers = summary(rows)
    if numbers["seen_after_ms"]:
        _console.print(
            f"The server saw the client leave {numbers['seen_after_ms']['median']} ms after the decision (median; at"
            f" most {numbers['seen_after_ms']['most']} ms), and had sent {numbers['sent_after']} tokens more at most."
        )
    _console.print(
        f"{numbers['tokens_saved']} of {numbers['tokens']} tokens were not written."
        f" {numbers['same_as_whole']} of {len(rows)} whole answers begin with what came through the guard."
    )


def _cells(group: Sequence[Row]) -> list[str]:
    numbers = summary(group)
    cells = [str(len(group))]
    for label in get_args(Label):
        cells += [str(numbers["labels"][label]["answers"]), str(numbers["labels"][label]["stopped"])]
    return [*cells, str(numbers["tokens_saved"])]


def _row_dict(row: Row) -> dict[str, Any]:
    answer = row.answer
    return {
        "id": answer.id,
        "label": row.label,
        "stopped": row.stopped,
        "tokens": answer.tokens,
        "kept_tokens": row.kept_tokens,
        "seen_after_ms": None if row.seen_after_ms is None else round(row.seen_after_ms, 2),
        "sent_after": row.sent_after,
        "same": row.same,
        "closed": row.closed,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, show, write; 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.live", description="A real small model under the guard.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} answers; writes nothing")
    parser.add_argument("--answers", type=int, help="only so many")
    parser.add_argument("--record", action="store_true", help="write the whole answers to fixtures/live")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was cut off")
    options = parser.parse_args(arguments)
    if packages := missing():
        print(f"{', '.join(packages)} is not installed: run `make live`, which installs it.", file=sys.stderr)
        return 2
    asked = everything()[: options.answers]
    known = unfinished() if options.resume else {}
    rows, runs = asyncio.run(measure(asked[:: max(len(asked) // QUICK, 1)] if options.quick else asked, known))
    show(rows)
    show_runs(_console, runs)
    numbers = summary(rows)
    if options.record:
        _console.print(f"Written: {_live_fixture.write(row.answer for row in rows)}", highlight=False)
    if not options.quick:
        answers = {"summary": numbers, "rows": [_row_dict(row) for row in rows]}
        _report.write("live", {"answers": answers, "runs": [asdict(run) for run in runs]})
    good = numbers["labels"]["good"]["stopped"]
    for what, count in (("good answers were stopped", good), ("connections were not closed", numbers["not_closed"])):
        if count:
            _console.print(f"WRONG: {count} {what}")
    return 1 if good or numbers["not_closed"] else 0


if __name__ == "__main__":
    sys.exit(main())
