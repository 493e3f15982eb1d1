"""The guards around the tests, guarded."""

import asyncio
import itertools
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import sniffio

from tests.event_loops import BOTH_LOOPS, cases_of_one_loop


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


def collected(name: str, loop: str | None, **params: Any) -> Any:
    """What pytest collects for one case of a test."""
    words = "-".join(str(value) for value in ([loop] if loop else []) + [*params.values()])
    params |= {"anyio_backend": loop} if loop else {}
    return SimpleNamespace(nodeid=f"tests/test_a.py::{name}[{words}]", callspec=SimpleNamespace(params=params))


def test_each_case_runs_on_one_event_loop_and_each_table_on_both() -> None:
    table = [
        collected("test_table", loop, how=how, at=at)
        for how in ("abort", "break")
        for at in range(5)
        for loop in BOTH_LOOPS
    ]
    small = [collected("test_small", loop, at=at) for at in range(2) for loop in BOTH_LOOPS]
    alone = [collected(name, loop) for name in ("test_alone", "test_another") for loop in BOTH_LOOPS]
    others = [
        collected("test_on_trio_only", "trio"),
        *(collected("test_without_a_loop", None, at=at) for at in range(3)),
        SimpleNamespace(nodeid="tests/test_a.py::test_plain"),
    ]
    left_out = cases_of_one_loop([*table, *small, *alone, *others])
    kept = [item.callspec.params for item in table if item not in left_out]
    assert sorted((one["how"], one["at"]) for one in kept) == [*itertools.product(("abort", "break"), range(5))]
    for how in ("abort", "break"):
        assert {one["anyio_backend"] for one in kept if one["how"] == how} == {*BOTH_LOOPS}
    for dealt in (small, alone):
        assert {item.callspec.params["anyio_backend"] for item in dealt if item not in left_out} == {*BOTH_LOOPS}
        assert len([item for item in dealt if item in left_out]) == len(dealt) / 2
    assert not [item for item in others if item in left_out]


@pytest.mark.asyncio
async def test_tests_of_sdks_run_on_asyncio() -> None:
    assert asyncio.get_running_loop().is_running()


def test_no_certificate_is_trusted(tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(tmp_path / "none.pem"))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats()["x509_ca"] == 0
