"""The newest nodes of one sort on a branch of a session."""

from __future__ import annotations

from collections.abc import Callable

from monitor.sessions import Node, SessionStore


async def newest_nodes(
    store: SessionStore, branch: str, number: int | None, is_wanted: Callable[[Node], bool]
) -> list[Node]:
    """The newest `number` nodes of the branch for which `is_wanted` answers `True`, oldest first.
    `None`: all. Little more of the branch is read than that needs.
    """
    last = number
    while True:
        path = await store.active_path(branch, last=last)
        found = [node for node in path if is_wanted(node)]
        if number is None or last is None:
            return found
        if len(found) >= number or len(path) < last:
            return found[len(found) - min(number, len(found)) :]
        last = 2 * last + 1  # nodes of other sorts stand between them
