"""What the SDKs' exceptions have in common."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from monitor.adapters.sdk_errors import delay_s, header_delay_s, with_its_cause


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "20", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "20", "retry-after-ms": "soon"}, 20.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "later"}, None),
        ({}, None),
        (None, None),
        ([("retry-after", "7")], None),
    ],
)
def test_the_delay_that_the_headers_ask_for(headers: Any, seconds: float | None):
    assert header_delay_s(headers) == seconds


def test_a_delay_may_be_a_date():
    delay = delay_s(format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True))
    assert delay is not None
    assert 80 < delay <= 90


def test_a_lost_connection_says_why():
    """The SDKs say no more than "Connection error." of a wrong host and of a broken key."""
    cause = OSError(-2, "Name or service not known")
    error = RuntimeError("Connection error.")
    error.__cause__ = cause
    assert with_its_cause(error) == "Connection error: [Errno -2] Name or service not known"
    assert with_its_cause(cause) == "[Errno -2] Name or service not known"
    assert with_its_cause(TimeoutError()) == "TimeoutError"
