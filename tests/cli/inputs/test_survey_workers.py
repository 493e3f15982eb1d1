"""The processes that read the transcripts of a scan."""

from __future__ import annotations

import subprocess
import sys

from monitor.cli.inputs.survey_workers import without_interrupts


def test_a_process_that_is_started_without_interrupts_never_gets_one():
    look = [sys.executable, "-c", "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"]
    with without_interrupts():
        inside = subprocess.run(look, capture_output=True, text=True, check=True)
    outside = subprocess.run(look, capture_output=True, text=True, check=True)
    assert (inside.stdout, outside.stdout) == ("True\n", "False\n")
