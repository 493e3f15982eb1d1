"""The tokens of a stream of Anthropic: it may hold several messages, and one that begins again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from monitor.chunks import UsageReport

COUNTS: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "thinking_tokens",
    "ephemeral_1h_input_tokens",
)
"""The counts of a usage. The first three together are the input."""
_HOLDERS: Final = {"thinking_tokens": "output_tokens_details", "ephemeral_1h_input_tokens": "cache_creation"}
"""The field of a usage in which some counts stand."""

_NOTHING_USED: Final = UsageReport(0, 0, 0, 0, 0, 0, 0)
_FIELDS: Final = (
    *("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "total_tokens"),
    *("cache_write_tokens", "cache_write_1h_tokens"),
)


class StreamUsage:
    """The running totals of a stream."""

    def __init__(self) -> None:
        self.said = False
        """Whether any content came since the last report."""
        self._counts: dict[str, int] = {}
        self._before = _NOTHING_USED
        """The usage of earlier messages of the stream."""
        self._void = _NOTHING_USED
        """The usage of the running message before it began again, which is counted already."""

    def begin_another(self) -> None:
        """Another message begins. The usage of the messages before it still counts."""
        self._before, self._counts = self._sum(), {}

    def begin_again(self, *, same: bool) -> None:
        """A message begins before the one before it has ended. `same`: it is that message again."""
        self._before = _NOTHING_USED
        self._void = self._sum() if same else _NOTHING_USED
        self._counts = {}

    def report(self, usage: object, *, last: bool = False) -> Iterator[UsageReport]:
        """The running totals if they grew. Later events may lack a field that earlier ones had, so
        fields are merged.

        `last`: the totals are of the whole message. They are then reported unchanged as well, if
        anything came since the last report.
        """
        grew = False
        for name in COUNTS:
            holder = getattr(usage, _HOLDERS[name], None) if name in _HOLDERS else usage
            count = getattr(holder, name, None)
            if type(count) is int and count >= 0 and (last or count > self._counts.get(name, -1)):
                grew = grew or self.said or count > self._counts.get(name, -1)
                self._counts[name] = max(count, self._counts.get(name, -1))
        if grew:
            self.said = False
            yield self._sum() if self._void is _NOTHING_USED else _minus(self._sum(), self._void)

    def _sum(self) -> UsageReport:
        counts, before = self._counts, self._before
        read = [counts[name] for name in COUNTS[:3] if name in counts]
        output = counts.get("output_tokens")
        return UsageReport(
            input_tokens=_plus(before.input_tokens, sum(read) if read else None),
            output_tokens=_plus(before.output_tokens, output),
            reasoning_tokens=_plus(before.reasoning_tokens, counts.get("thinking_tokens")),
            cached_tokens=_plus(before.cached_tokens, counts.get("cache_read_input_tokens")),
            total_tokens=_plus(before.total_tokens, sum(read) + output if read and output is not None else None),
            cache_write_tokens=_plus(before.cache_write_tokens, counts.get("cache_creation_input_tokens")),
            cache_write_1h_tokens=_plus(before.cache_write_1h_tokens, counts.get("ephemeral_1h_input_tokens")),
        )


def _plus(before: int | None, count: int | None) -> int | None:
    """The sum of two counts. `None`: neither was reported."""
    return count if not before else before + (count or 0)


def _minus(total: UsageReport, void: UsageReport) -> UsageReport:
    counts = {name: (getattr(total, name), getattr(void, name) or 0) for name in _FIELDS}
    return UsageReport(
        **{name: None if count is None else max(0, count - less) for name, (count, less) in counts.items()}
    )
