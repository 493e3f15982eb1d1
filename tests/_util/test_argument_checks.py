from __future__ import annotations

import math

import pytest

from monitor._util.argument_checks import check_kind, is_finite, is_whole
from monitor.errors import ConfigError


@pytest.mark.parametrize("value", [0, 1, -7, 10**400])
def test_a_whole_number_is_whole(value: object):
    assert is_whole(value)


@pytest.mark.parametrize("value", [True, 1.0, math.inf, "1", None, [1]])
def test_nothing_else_is(value: object):
    assert not is_whole(value)


@pytest.mark.parametrize("value", [0, -1, 1.5, 1e308, -1e308, 10**300])
def test_what_a_float_can_hold_is_finite(value: object):
    assert is_finite(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, "1", None, 1j])
def test_what_it_cannot_is_not(value: object):
    assert not is_finite(value)


def test_what_is_of_another_kind_is_refused_by_name_and_none_is_always_taken():
    for taken in (None, 3, True, 1.5):
        check_kind("share", taken, int | float, "a number")
    with pytest.raises(ConfigError, match=r"share takes a number, not '3'"):
        check_kind("share", "3", int | float, "a number")
