"""Facts that the owner of a session knows without asking the database, because nobody else writes.

Each statement costs a change of the thread, or a way through the network. So a question that need
not be asked saves time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from monitor.messages import CallRecord, CallState
from monitor.sessions.nodes import Node
from monitor.sessions.tables.sharing import Pointers

if TYPE_CHECKING:
    from monitor.sessions.tables.seal import Seal

MOST_NODES: Final = 64
"""The most nodes of a turn that are searched for texts to share."""
MOST_RUNS: Final = 256
"""The most runs whose newest turns are remembered."""


class Memory:
    """The ends of the branches, the nodes of the last steps, the runs, the states of the open calls
    and the digests.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """A step has failed: what it wrote is not there."""
        self.runs: set[str] = set()
        """The ids of runs that are stored."""
        self.heads: dict[str, Node] = {}
        """The newest node of each branch."""
        self.recent: dict[str, Node] = {}
        """The nodes of the last step of each branch, by their ids."""
        self.calls: dict[str, tuple[CallState, int]] = {}
        """The state and the attempt of each open call, by its key."""
        self.last: dict[str, int] = {}
        """The newest numbers of the tables, as far as they are known."""
        self.seal: Seal | None = None
        self._pointers: dict[str, tuple[int, Pointers]] = {}
        """The newest turn of each run, and pointers into all nodes of that turn."""

    def take(self, nodes: Sequence[Node], branch: str, head: str | None) -> None:
        """Note that `nodes` were written, and that the branch ends at `head`."""
        written = {node.id: node for node in nodes}
        for node in nodes:
            self._point_into(node)
        self.last["nodes"] = nodes[-1].seq
        end = written.get(head) or self.recent.get(head) if head is not None else None
        if end is not None:
            self.heads[branch] = end
        else:
            self.heads.pop(branch, None)
        ends = {node.id: node for node in self.heads.values()}
        self.recent = written | ends

    def take_call(self, record: CallRecord) -> None:
        """Note that a step of a call was written."""
        if record.open:
            self.calls[record.key] = record.state, record.attempt
        else:
            self.calls.pop(record.key, None)

    # -------------------------------------------------------------- texts that are stored once

    def pointers(self, run: str, turn: int) -> Pointers | None:
        """Pointers into the nodes of a turn. `None`: they are not known."""
        known = self._pointers.get(run)
        return known[1] if known is not None and known[0] == turn else None

    def points_into(self, run: str) -> bool:
        """Whether pointers into a turn of this run are known."""
        return run in self._pointers

    def take_pointers(self, run: str, turn: int, pointers: Pointers) -> None:
        """Note pointers into all nodes of a turn."""
        self._pointers.pop(run, None)
        self._pointers[run] = turn, pointers
        if len(self._pointers) > MOST_RUNS:
            del self._pointers[next(iter(self._pointers))]

    def _point_into(self, node: Node) -> None:
        known = self._pointers.get(node.run) if node.run is not None else None
        if known is None or node.turn is None or node.turn < known[0]:
            return
        turn, pointers = known
        if node.turn > turn:  # a turn begins
            pointers = Pointers()
            self._pointers[node.run] = node.turn, pointers  # type: ignore[index]
        if pointers.size < MOST_NODES:
            pointers.add(node.seq, node.body)
