"""The proxies that are measured, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHAT = "/v1/chat/completions"
START_S = 180.0
KEY = "sk-4f1d9a6be07c4c35a8c2d7e9135b60fae28c90d7"
"""Of the clients. LiteLLM refuses to start without one of its own."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Front:
    """What the client talks to."""

    name: str
    port: int
    path: str
    pid: int
    """0: there is no proxy."""

    def cpu_s(self) -> float:
        """Processor time of the process so far."""
        if not self.pid:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_mb(self) -> float:
        """Resident memory now."""
        if not self.pid:
            return 0.0
        return int(Path(f"/proc/{self.pid}/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextlib.contextmanager
def upstream() -> Iterator[int]:
    """The port of the service."""
    with _process([sys.executable, "-m", "bench._proxy_upstream"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


@contextlib.contextmanager
def ours(service: int) -> Iterator[Front]:
    """`agent-monitor proxy`."""
    port = _free_port()
    command = [
        *(sys.executable, "-c", "from monitor.cli import main; main()", "proxy"),
        *("--upstream", f"http://127.0.0.1:{service}", "--port", str(port)),
    ]
    with _process(command) as process:
        _wait(port, process)
        yield Front("agent-monitor", port, CHAT, process.pid)


def plain(front: Front) -> Front:
    """The same server and client, which relay and do not watch: the path says no format."""
    return Front("plain relay", front.port, "/v1/relayed", front.pid)


@contextlib.contextmanager
def litellm(service: int, python: str) -> Iterator[Front]:
    """LiteLLM's proxy, of another environment."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(
            "model_list:\n  - model_name: m\n    litellm_params:\n      model: openai/m\n"
            f"      api_base: http://127.0.0.1:{service}/v1\n      api_key: sk-bench\n",
            "utf-8",
        )
        command = [str(Path(python).with_name("litellm")), "--config", str(config), "--port", str(port)]
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY}
        with _process([*command, "--host", "127.0.0.1"], env=environment) as process:
            _wait(port, process)
            yield Front("LiteLLM proxy", port, CHAT, process.pid)


def version_of(python: str) -> str:
    """Of LiteLLM in that environment."""
    code = "from importlib.metadata import version; print(version('litellm'))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def _process(command: list[str], **more: object) -> Iterator[subprocess.Popen[bytes]]:
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more}
    process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} did not listen within {START_S:g} s")
