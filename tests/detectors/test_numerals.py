"""Numbers in many scripts."""

from __future__ import annotations

import pytest

from tests.detectors.numerals import NUMERALS


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("arabic", "\u0662\u0660\u0666"),
        ("chinese", "二百零六"),
        ("decimal", "206"),
        ("downwards", "194"),
        ("hexadecimal", "00ce"),
        ("keycaps", "2\ufe0f\u20e30\ufe0f\u20e36\ufe0f\u20e3"),
        ("letters", "gx"),
        ("roman", "CCVI"),
    ],
)
def test_a_number_is_written_in_its_script(name: str, written: str):
    assert NUMERALS[name](206) == written


def test_small_chinese_numerals_have_no_one_before_ten():
    assert [NUMERALS["chinese"](number) for number in (7, 10, 15, 40, 110)] == ["七", "十", "十五", "四十", "一百一十"]


@pytest.mark.parametrize("name", NUMERALS)
def test_two_numbers_are_never_written_alike(name: str):
    assert len({NUMERALS[name](number) for number in range(1, 400)}) == 399
