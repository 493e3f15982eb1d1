"""What a scan says of savings that no recording names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from monitor.cli.render.scan_report import _Savings


def run(tokens: int | None, usd: float | None, *, ended: bool = True) -> Any:
    return SimpleNamespace(ended_by="a finding" if ended else None, saved_tokens=tokens, saved_usd=usd)


@pytest.mark.parametrize(
    ("runs", "tokens", "usd"),
    [
        ([], 0, 0.0),
        ([run(None, None, ended=False)], 0, 0.0),
        ([run(None, None)], None, None),
        ([run(5, None)], 5, None),
        ([run(0, 0.0)], 0, 0.0),
        ([run(None, None), run(7, 0.5)], 7, 0.5),
        ([run(7, 0.5), run(None, None), run(1, 0.25)], 8, 0.75),
    ],
)
def test_an_unknown_saving_is_never_zero(runs: list[Any], tokens: int | None, usd: float | None):
    savings = _Savings()
    for one in runs:
        savings.add(one)
    assert (savings.tokens, savings.usd) == (tokens, usd)
