"""The runs of a disk as one page: a single HTML file that needs no network."""

from monitor.report.report_page import ReportPage as ReportPage
from monitor.report.story import StoryWatcher as StoryWatcher

__all__ = ["ReportPage", "StoryWatcher"]
