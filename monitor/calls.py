"""The old address of `monitor.messages`."""

from monitor.messages import *  # noqa: F403 - an alias has all names
from monitor.moved import has_moved

has_moved(__name__)
