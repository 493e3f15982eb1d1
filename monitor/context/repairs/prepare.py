"""Prepares a stored history for a provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from monitor.context.repairs.repair import repair
from monitor.messages import Message, RepairReport
from monitor.wires.forms import Form
from monitor.wires.raw import RawMessage


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
