"""The further choices of an answer (`n` above 1), each watched as a stream of its own.

A loop in one of them ends the whole answer: clients read all choices together, and the service
bills them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from monitor.core.detector_bank import DetectorBank, PartCrash
from monitor.detectors.detector import Detector
from monitor.harness.runs.budget_hold import BudgetHold
from monitor.policy import stop_for
from monitor.proxy.exchange.byte_meter import BYTES_A_TOKEN
from monitor.reasons import TerminateReason
from monitor.verdicts import Detection, Stop


class OtherChoices:
    """Watches all choices but the first."""

    def __init__(
        self,
        detectors: Callable[[], Sequence[Detector]],
        holding: BudgetHold | None,
        *,
        counts: Callable[[Detection], bool],
    ) -> None:
        """`counts`: whether a detection ends an answer. `holding` pays for their text, until the
        service reports what all choices have used.
        """
        self._detectors = detectors
        self._holding = holding
        self._counts = counts
        self._banks: dict[int, DetectorBank] = {}
        self._bytes = 0
        self._tokens = 0

    def hear(self, chunks: Mapping[int, Sequence[Chunk]]) -> Stop | None:
        """The next chunks by the index of their choice. `Stop`: the answer ends."""
        if not chunks:
            return None
        for index, heard in chunks.items():
            try:
                found = self._found(self._bank(index), heard)
            except PartCrash as crash:
                return Stop(TerminateReason.ERROR, f"{crash.name} failed: {crash.error!r}", crash.name)
            for detection in found:
                if self._counts(detection):
                    return stop_for(detection)
        return self._pay()

    def reported(self) -> None:
        """The service has reported what all choices used: the estimates are taken back."""
        self._spend(-self._tokens)

    def _bank(self, index: int) -> DetectorBank:
        bank = self._banks.get(index)
        if bank is None:
            bank = self._banks[index] = DetectorBank(self._detectors())
            bank.reset()
        return bank

    def _found(self, bank: DetectorBank, chunks: Sequence[Chunk]) -> list[Detection]:
        found: list[Detection] = []
        for chunk in chunks:
            match chunk:
                case TextDelta(text=text):
                    self._bytes += len(text)
                    found += bank.text(text)
                case ReasoningDelta():
                    self._bytes += len(chunk.text)
                    found += bank.reasoning(chunk)
                case ToolCallDelta():
                    self._bytes += len(chunk.arguments_text)
                    found += bank.arguments(chunk)
                case _:
                    found += bank.fact(chunk)
        return found

    def _pay(self) -> Stop | None:
        self._spend(self._bytes // BYTES_A_TOKEN - self._tokens)
        return self._holding.grant.exhausted() if self._holding is not None else None

    def _spend(self, tokens: int) -> None:
        self._tokens += tokens
        if self._holding is not None and tokens:
            grant = self._holding.grant
            grant.spend(tokens, tokens * grant.slice_usd / grant.slice_tokens)
