"""SIGHUP of `agent-monitor proxy`: its keys and its detectors are read again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from monitor.cli.render import output
from monitor.errors import MonitorError
from monitor.settings import Settings

if TYPE_CHECKING:
    from monitor.proxy import Proxy

_REST: Final = "addresses, limits, budgets and the port need a restart"


class SettingsReload:
    """Reads what can change without a restart."""

    def __init__(self, proxy: Proxy, keys: Path | None, read: Callable[[], Settings]) -> None:
        """`keys`: the file of virtual keys, if there is one. `read` reads the settings."""
        self._proxy = proxy
        self._keys = keys
        self._read = read

    async def follow(self) -> None:
        """Read again at each SIGHUP, if the system has it, until this is cancelled."""
        if hasattr(signal, "SIGHUP"):
            with anyio.open_signal_receiver(signal.SIGHUP) as signals:
                async for _ in signals:
                    await self.run()

    async def run(self) -> None:
        """Read the keys and the settings, and say what came of it. If anything in them is wrong,
        everything stays as it was.
        """
        from monitor.proxy.key_file import read_keys  # noqa: PLC0415 - the extra may be missing

        console = output.stderr()
        try:
            detectors = self._read().detectors
            keys = None if self._keys is None else read_keys(self._keys)
            await self._proxy.renew(virtual_keys=keys, detectors=detectors)
        except MonitorError as error:
            output.complain(console, f"the settings were not read again: {error}")
            return
        said = "" if keys is None else f"{len(keys)} {'key' if len(keys) == 1 else 'keys'} and "
        output.complain(console, f"read again: {said}the detectors; {_REST}", style="")
