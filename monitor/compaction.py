"""The old address of the names of compaction in `monitor.context`."""

from monitor.context import *  # noqa: F403 - an alias has all names
from monitor.moved import has_moved

has_moved(__name__)
