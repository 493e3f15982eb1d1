"""What holds for every test: both event loops, reproducible random cases, and no network."""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import socket
import ssl
from collections.abc import Generator, Iterator
from functools import cache
from typing import Any

import pytest
import typer.testing
from hypothesis import HealthCheck, settings

from tests.event_loops import BOTH_LOOPS, cases_of_one_loop

# A shell starts background work with SIGINT ignored, and every child inherits that. Then no test of
# Ctrl-C could pass.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Typer makes its commands anew for each call of its runner, which takes longer than most calls.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

pytest_plugins = ["scripts.features"]  # the run of the whole suite proves the table of features

# MONITOR_EXAMPLES: how many random cases a law is tried with. The same ones each time, unless
# somebody asks for another number outside of CI: then new ones, to look for what the usual ones
# miss. CI tries three times as many as `make test`.
settings.register_profile(
    "monitor",
    max_examples=int(os.environ.get("MONITOR_EXAMPLES", "50" if "CI" in os.environ else "16")),
    derandomize="MONITOR_EXAMPLES" not in os.environ or "CI" in os.environ,
    deadline=None,  # a busy machine is no bug
    suppress_health_check=[HealthCheck.too_slow],  # the same
    print_blob=True,
)
settings.load_profile("monitor")


@pytest.hookimpl(wrapper=True, optionalhook=True)  # pytest-xdist is not in every environment
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One worker more than there are processors: tests wait for processes, servers and clocks."""
    processors = yield
    return processors if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else processors + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Many thousand tests, and all that they import, are objects that stay. The garbage collector
    need not visit them again and again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000)  # with 700 the collector takes a fourteenth of the time of all tests


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a run of the whole suite outside of CI, each case of a test runs on one of the two event
    loops. CI, and a run of chosen tests, try each case on both.
    """
    from scripts.features import runs_everything  # a plugin is imported by pytest first
    from tests.examples import ALL_CASES

    if not ALL_CASES and runs_everything(config):
        left_out = {*cases_of_one_loop(items)}
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="module", autouse=True)
def _no_garbage_is_left_to_the_next_file() -> Iterator[None]:
    """What was not closed is complained of here, and what the tests have imported stays."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Tests marked `anyio` run on both event loops."""
    return request.param


class NetworkRefusedError(RuntimeError):
    """A test wanted to talk to another machine. Not an `OSError`, so that no SDK takes it for a bad
    connection and retries.
    """


def _is_local(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def _refuse_unless_local(address: object) -> None:
    host = address[0] if isinstance(address, tuple) else None  # a Unix socket's address is a path
    if not _is_local(host):
        raise NetworkRefusedError(
            f"tests use no network: connection to {address!r} refused; use a local server or a recording"
        )


@pytest.fixture(scope="session", autouse=True)
def _no_certificates() -> Iterator[None]:
    """SDK clients read a file of certificates when they are made, which takes longer than most
    tests; the local servers speak plain HTTP. Without them every TLS connection would be refused.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _refuse_unless_local(address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _refuse_unless_local(address)
        return connect_ex(self, address)

    def guarded_getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_unless_local((host, port))
        return getaddrinfo(host, port, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        patch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Some tests log what models write, lone surrogates too; the workers of pytest-xdist can send
    no such report.
    """
    report = yield
    report.sections = [(title, text.encode("utf-8", "backslashreplace").decode()) for title, text in report.sections]
    return report
