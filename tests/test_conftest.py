"""The guards around the tests, guarded."""

import asyncio
import socket
import ssl
from pathlib import Path

import anyio
import pytest
import sniffio


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80), ("example.com", 80)])
def test_connections_to_other_machines_are_refused(address: tuple[str, int]) -> None:
    with socket.socket() as sock, pytest.raises(RuntimeError, match="tests use no network"):
        sock.connect(address)
    with socket.socket() as sock, pytest.raises(RuntimeError, match="tests use no network"):
        sock.connect_ex(address)


def test_names_of_other_machines_are_not_looked_up() -> None:
    with pytest.raises(RuntimeError, match="tests use no network"):
        socket.create_connection(("example.com", 80))


@pytest.mark.anyio
async def test_async_connections_are_refused_too() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="tests use no network")):
        await anyio.connect_tcp("192.0.2.1", 80)


def test_this_machine_may_be_reached() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(("localhost", server.getsockname()[1])) as client,
    ):
        assert client.getpeername() == server.getsockname()


@pytest.mark.anyio
async def test_anyio_tests_run_on_both_event_loops(anyio_backend: str) -> None:
    assert sniffio.current_async_library() == anyio_backend


@pytest.mark.asyncio
async def test_tests_of_sdks_run_on_asyncio() -> None:
    assert asyncio.get_running_loop().is_running()


def test_no_certificate_is_trusted(tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(tmp_path / "none.pem"))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats()["x509_ca"] == 0
