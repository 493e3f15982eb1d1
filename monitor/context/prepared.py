"""A stored history, on its way to a provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from monitor.context.forms import Form
from monitor.context.raw import RawMessage
from monitor.context.repairs import repair
from monitor.messages import Message, RepairReport


def prepare(
    history: Iterable[RawMessage | Message],
    *,
    form: Form | None = None,
    limit: Callable[[tuple[Message, ...]], Sequence[Message]] | None = None,
    tools: Collection[str] | None = None,
) -> tuple[tuple[Message, ...], RepairReport]:
    """Clean it and bring it into the turns that `form` wants, then `limit` it, then repair what the
    limit may have left: in this order.

    A limit before the cleaning would count what is dropped anyway; pairing before the limit alone
    would not see what it cuts. The report is of both; in the second half of it `index` is that of a
    message after the limit. Raises what `repair` raises.
    """
    messages, report = repair(history, form=form, tools=tools)
    if limit is None:
        return messages, report
    messages, again = repair(tuple(limit(messages)), form=form)
    return messages, RepairReport(report.repairs + again.repairs, report.instructions)
