"""The live page: one HTML file with its style and its script, which loads nothing but the runs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from monitor.report.report_page import policy_of


def _part(name: str) -> str:
    return files("monitor.proxy.admin").joinpath(name).read_text("utf-8")


@cache
def page() -> tuple[bytes, str]:
    """The page, and its content security policy: this script, this style, and this server."""
    style, script = _part("page.css"), _part("page.js")
    filled = _part("page.html").replace("%STYLE%", style).replace("%SCRIPT%", script)
    return filled.encode(), f"{policy_of(style, script)}; connect-src 'self'; frame-ancestors 'none'"
