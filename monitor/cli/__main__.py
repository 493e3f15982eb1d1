"""`python -m monitor.cli` is the command `agent-monitor`."""

from monitor.cli import main

main()
