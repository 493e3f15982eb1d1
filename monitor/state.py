"""The old address of `monitor.outcome`."""

from monitor.moved import has_moved
from monitor.outcome import *  # noqa: F403 - an alias has all names

has_moved(__name__)
