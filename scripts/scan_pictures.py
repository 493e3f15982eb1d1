"""Draws what `agent-monitor scan` and `report` make of the recorded runs in `fixtures/readers`.

    python scripts/scan_pictures.py

Writes `docs/card.svg`, by the command itself, and with Chromium `docs/report.webp` and
`docs/report-dark.webp`.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.report.browser import CHROMIUM, browser  # noqa: E402 - of this repository, which is not installed

DOCS, RUNS = ROOT / "docs", ROOT / "fixtures" / "readers"
FIRST_RUN = "location.hash = '#run=' + JSON.parse(document.getElementById('data').textContent).runs[0].key"


def made_by(command: str, *options: str) -> None:
    """Let `agent-monitor` read the recorded runs. Some of their lines are damaged, on purpose."""
    called = [sys.executable, "-m", "monitor.cli", command, str(RUNS.relative_to(ROOT)), *options]
    subprocess.run(called, check=False, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def photograph(page: Path, out: Path, *, show: str, dark: bool) -> None:
    """A picture of the page after the expression `show`, in a browser."""
    with (
        tempfile.TemporaryDirectory() as folder,
        browser(Path(folder), width=1440, height=900, dark=dark) as tab,
    ):
        tab.open(page)
        tab.run(f"{show}; new Promise(done => setTimeout(done, 300))")
        taken = tab.ask("Page.captureScreenshot", format="webp", quality=80)
        out.write_bytes(base64.b64decode(taken["data"]))


def main() -> None:
    """Make the three pictures."""
    pictures = [DOCS / "card.svg"]
    made_by("scan", "--no-cache", "--card", str(pictures[0]))
    if CHROMIUM is not None:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "page.html")
            made_by("report", "-o", str(page))
            for out, show, dark in (("report.webp", FIRST_RUN, False), ("report-dark.webp", "0", True)):
                photograph(page, DOCS / out, show=show, dark=dark)
                pictures.append(DOCS / out)
    for picture in pictures:
        print(f"{picture.name}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
