"""Secrets in the arguments of calls."""

import time
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


JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
SAID = {
    "a variable": "export DB_PASSWORD=hunter22x; echo",
    "a variable in quotes": "MY_API_KEY='abc def' run",
    "a secret key of a cloud": "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENG run",
    "a header": "curl -H 'X-Api-Key: abcdef123456' host",
    "a header in small letters": 'curl -H "x-goog-api-key: abcdef123456" host',
    "a basic header": "Authorization: Basic dXNlcjpodW50ZXIy",
    "a cookie": "Set-Cookie: session=0123456789abcdef",
    "a token of JSON": f"it answered {JWT} then",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow" + "A" * 70 + "\n-----END RSA PRIVATE KEY-----",
    "a user of an address": "postgres://admin:hunter22x@db.example/x",
    "a token of a chat": "xoxb-" + "1234567890-abcdefghij",
    "a token of a bot": "123456789:A" + "a" * 34,
    "a token of a payment": "sk_" + "live_" + "a1" * 12,
    "a token of a registry": "npm_" + "a" * 36,
}
HIDDEN: tuple[str, ...] = (
    "hunter22x",
    "abc def",
    "wJalr",
    "abcdef123456",
    "dXNlcj",
    "0123456789abcdef",
    "eyJzdWIi",
    "MIIEow",
)
HIDDEN = (*HIDDEN, "1234567890-abc", "a" * 30, "a1a1a1")


@pytest.mark.parametrize("text", SAID.values(), ids=SAID.keys())
def test_the_common_forms_of_secrets_are_masked_in_texts_and_in_keys_of_mappings(text: str):
    for shown in (masked(text), str(masked({text: 1})), str(masked({"files": {text: "hash"}}))):
        assert MASK in shown or "(key removed)" in shown
        assert not [secret for secret in HIDDEN if secret in shown]


@pytest.mark.parametrize(
    "text",
    [
        "export DB_PASSWORD=$OTHER; PRIMARY_KEY=id MAX_TOKENS=5 TOKEN=$(cat f)",
        "see https://example.org:8080/a@b and http://host/x:y",
        "the token: a word; password: required; eyes are open; key: value",
        "cookie: $(cat secret) | sh",
    ],
)
def test_what_is_no_secret_stays_and_no_code_is_hidden(text: str):
    assert masked(text) == text


def test_two_secret_keys_stay_two():
    assert len(masked({"npm_" + "a" * 36: 1, "npm_" + "b" * 36: 2})) == 2


@pytest.mark.parametrize(
    "piece", ["eyA", "-----BEGIN PRIVATE KEY-----", "://a:b", "x-a-", "A_", "-", "ey" + "a" * 17 + "."]
)
def test_forms_take_linear_time(piece: str):
    def took(times: int) -> float:
        text = piece * times
        began = time.process_time()
        masked(text)
        return time.process_time() - began

    assert took(40_000) < 12 * took(10_000) + 0.05
