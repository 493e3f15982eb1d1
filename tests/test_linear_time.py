"""The analysis itself: it finds what is slow, and says nothing of what is not."""

from __future__ import annotations

import re

import pytest

from tests.linear_time import How, ambiguities, pumps, slowest

SLOW: list[tuple[str, How]] = [
    (r"(a*)*b", "match"),
    (r"(a|a)*b", "match"),
    (r"(a|aa)+$", "match"),
    (r"([a-z_]+(?:[._]\w+)+)!", "fullmatch"),
    (r"\s*\s*x", "match"),
    (r"a*b?a*c", "match"),
    (r"x*(?:y|)x*z", "fullmatch"),
    (r"(?i)[a-z]*K?[A-Z]*!", "match"),
    (r"\s+$", "search"),
    (r"\d+[.)]", "search"),
    (r"(?m)^\s*<tag>", "search"),
    (r"<a[^>]*>", "search"),
    (r"(?=\D*\d)x", "search"),
    (r"(?s)(?:.*/)?gpt-5(?!.*chat)", "match"),
    (r"(?s).*?[.!?](?= )|.+", "search"),
    (r"(?s)a.*b.*c", "fullmatch"),
    (r"\w*\s*:", "search"),
]
FAST: list[tuple[str, How]] = [
    (r"a*b", "match"),
    (r"(?:a+b)*c", "match"),
    (r"[a-z0-9]+(?:[._-][a-z0-9]+)*", "fullmatch"),
    (r"\s*(?:[-*]\s+)?x", "match"),
    (r"\w+", "search"),
    (r"\b\w*\s*:", "search"),
    (r"[^\W\d_]+|\d+", "search"),
    (r"(?m)^[ ]{0,3}#{1,6}[ ]+\S.*$", "search"),
    (r"\b\w+(?:Error|Exception)\b", "search"),
    (r"<a[^<>]*>", "search"),
    (r"(?s)(?:.*:)?(.*)", "match"),
    (r"(?s)\A\s*<(a|b)>.*?</\1>", "search"),
    (r"(['\"])\w{2,80}\1", "search"),
    (r"(?:ab|a)c{0,100}d", "search"),
]


@pytest.mark.parametrize(("pattern", "how"), SLOW)
def test_a_slow_pattern_is_found_by_its_tree(pattern: str, how: How):
    assert ambiguities(re.compile(pattern), how)


@pytest.mark.parametrize(("pattern", "how"), FAST)
def test_a_linear_pattern_is_let_pass(pattern: str, how: How):
    assert ambiguities(re.compile(pattern), how) == []


@pytest.mark.parametrize("pattern", [r"(a*)*b", r"(\w+\s?)*!", r"\s*#?\s*\d?\s*\*?\s*\d?\s*[^#*\s].*"])
def test_a_slow_pattern_is_found_by_running_it(pattern: str):
    compiled = re.compile(pattern)
    took, text = slowest(compiled.fullmatch, pumps(compiled), bound_s=0.02, chars=300)
    assert took > 0.02, text
