"""The runs of a disk as one page: a single HTML file that needs no network."""

from monitor.report.report_page import ReportPage
from monitor.report.run_details import StoryWatcher

__all__ = ["ReportPage", "StoryWatcher"]
