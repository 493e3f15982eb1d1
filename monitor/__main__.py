"""`python -m monitor` is the command `agent-monitor`."""

from monitor.cli import main

main()
