"""Secrets in the arguments of calls."""

from typing import Any

import pytest
from pydantic import SecretStr

from monitor.tools.masking import MASK, masked

KEY = "sk-" + "a" * 30


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"password": "x", "user": "me"}, {"password": MASK, "user": "me"}),
        ({"API-Key": "x", "apiKey": 3, "api_key": None}, {"API-Key": MASK, "apiKey": MASK, "api_key": None}),
        ({"headers": {"Authorization": "Basic abc"}}, {"headers": {"Authorization": MASK}}),
        ({"a": [{"token": "t"}, "plain"]}, {"a": [{"token": MASK}, "plain"]}),
        ({"command": f"curl -H 'Bearer {KEY}'"}, {"command": "curl -H 'Bearer (key removed)'"}),
        ({"x": SecretStr("s")}, {"x": MASK}),
        ({"tokens": 5, "max_tokens": 9}, {"tokens": 5, "max_tokens": 9}),
    ],
)
def test_secrets_are_masked_by_the_name_of_their_key_by_their_form_and_by_their_type(given: Any, shown: Any):
    assert masked(given) == shown


def test_what_has_no_secret_is_the_same_object():
    given = {"a": [1, {"b": "c"}], "d": None}
    assert masked(given) is given
    assert masked("text") == "text"


def test_data_that_holds_itself_is_masked_too():
    circle: dict[str, Any] = {"password": "x"}
    circle["again"] = circle
    assert masked(circle)["password"] == MASK
