"""The runs of a disk as one page: a single HTML file that needs no network."""

from monitor.report.page import Page as Page
from monitor.report.story import StoryWatcher as StoryWatcher

__all__ = ["Page", "StoryWatcher"]
