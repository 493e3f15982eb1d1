"""A headless Chromium, driven over a pipe with its own protocol: no driver and no package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_S = 40
"""A browser that says nothing for so long has crashed."""

PLACED = """
import fcntl, os, sys
there, here = (fcntl.fcntl(int(given), fcntl.F_DUPFD, 10) for given in sys.argv[1:3])
os.dup2(there, 3)
os.dup2(here, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A browser reads its protocol from file 3 and answers on file 4."""


class Tab:
    """One page in the browser."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    _session: str | None = None

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]  # type: ignore[no-any-return]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            assert time.monotonic() < until, "the browser says nothing"
            more = os.read(self._back, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def show_as(self, *, width: int, height: int = 800, dark: bool = False) -> None:
        """Give the window a size, and the page the colours that its reader prefers."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, file: Path, place: str = "") -> None:
        self.events.clear()
        self.ask("Page.navigate", url=f"{file.as_uri()}{place}")
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        done = self.ask("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "End": 35}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, **code)
        self.run("new Promise(done => setTimeout(done, 30))")

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """What the page wrote into the console, and what it tried to load."""
        found = []
        for event in self.events:
            match event.get("method"):
                case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                    found.append(json.dumps(event["params"])[:400])
                case "Network.requestWillBeSent" if event["params"]["request"]["url"].split(":")[0] not in (
                    "file",
                    "data",
                ):
                    found.append(event["params"]["request"]["url"])
                case "Page.javascriptDialogOpening" | "Page.windowOpen":
                    found.append(event["method"])
        return found


@contextmanager
def browser(folder: Path, *, width: int = 1280, height: int = 800, dark: bool = False) -> Iterator[Tab]:
    """A tab of a browser of its own, whose profile is in `folder`."""
    assert CHROMIUM is not None
    there, to = os.pipe()
    back, here = os.pipe()
    command = [
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
        *(f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"),
    ]
    done = subprocess.Popen(
        [sys.executable, "-c", PLACED, str(there), str(here), *command],
        pass_fds=(there, here),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(there)
    os.close(here)
    try:
        tab = Tab(to, back)
        tab.show_as(width=width, height=height, dark=dark)
        yield tab
    finally:
        os.killpg(done.pid, signal.SIGKILL)
        done.wait()
        os.close(to)
        os.close(back)
