"""The old address of `monitor.chunks`."""

from monitor.chunks import *  # noqa: F403 - an alias has all names
from monitor.moved import has_moved

has_moved(__name__)
