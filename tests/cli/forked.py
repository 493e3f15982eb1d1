"""Processes of the command line at the price of a fork. What the command imports is imported once,
in a process that does nothing else; each call of the command is a child of it, with arguments, a
folder, an environment, an output and an exit code of its own.

    with Forking() as forking:
        code, complaints = forking.run(("scan", "a.jsonl"), folder, out)
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self


class Forking:
    """The process that forks."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # of the kind that the children's are: Python asks once whether it can seek
                stderr=subprocess.PIPE,
            )

    def run(
        self, arguments: tuple[str, ...], folder: Path, out: int, environment: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The exit code and what was complained of."""
        read, write = os.pipe()
        request = {"arguments": arguments, "folder": str(folder), "environment": dict(environment or os.environ)}
        self._socket.settimeout(50)
        socket.send_fds(self._socket, [json.dumps(request).encode()], [out, write])
        os.close(write)
        with os.fdopen(read, "rb") as complaints:
            said = complaints.read()
        return int(self._socket.recv(16)), said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        complaints = self._process.communicate(timeout=250)[1]
        assert not complaints, complaints


def _child_begins(asked: socket.socket) -> bool:
    """Fork for each request. True in the child, False when nobody asks any more."""
    while True:
        said, descriptors, *_ = socket.recv_fds(asked, 1_000_000, 2)
        if not said:
            return False
        pid = os.fork()
        if pid == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        asked.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    asked.close()
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    request = json.loads(said)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    return True


if __name__ == "__main__":
    from monitor.cli import main

    if _child_begins(socket.socket(fileno=int(sys.argv[1]))):
        main()
