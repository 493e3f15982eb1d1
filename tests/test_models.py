"""Which failed calls are made again, and when."""

from __future__ import annotations

import pytest

from monitor.errors import ConfigError
from monitor.models import PASSING, ErrorKind, ModelError, Retries


def failed(kind: ErrorKind, retry_after_s: float | None = None) -> ModelError:
    return ModelError(kind, "it failed", retry_after_s)


def test_a_provider_that_fails_is_given_longer_each_time_up_to_a_bound():
    retries = Retries(attempts=5, first_delay_s=1.0, max_delay_s=5.0)
    assert [retries.delay_s(failures, failed(ErrorKind.SERVER)) for failures in range(1, 7)] == [
        1.0,
        2.0,
        4.0,
        5.0,
        5.0,
        None,
    ]


def test_a_provider_that_says_how_long_is_given_that():
    assert Retries().delay_s(1, failed(ErrorKind.RATE_LIMITED, 17.5)) == 17.5


def test_a_delay_beyond_the_bound_is_not_waited_for():
    assert Retries(max_delay_s=60).delay_s(1, failed(ErrorKind.RATE_LIMITED, 3600.0)) is None


def test_an_answer_that_is_none_is_asked_for_again_at_once():
    assert Retries().delay_s(1, None) == 0.0
    assert Retries().delay_s(3, None) == 0.0
    assert Retries().delay_s(4, None) is None
    assert Retries().delay_s(1, failed(ErrorKind.MALFORMED)) == 0.0


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind not in PASSING])
def test_what_another_attempt_cannot_mend_is_not_tried_again(kind: ErrorKind):
    assert Retries().delay_s(1, failed(kind)) is None


def test_a_block_is_never_tried_again():
    assert ErrorKind.BLOCKED not in PASSING


def test_none_are_none():
    assert Retries(0).delay_s(1, failed(ErrorKind.NETWORK)) is None
    assert Retries(0).delay_s(1, None) is None


@pytest.mark.parametrize("wrong", [{"attempts": -1}, {"first_delay_s": -0.1}, {"max_delay_s": -1.0}])
def test_numbers_below_nothing_are_refused(wrong: dict[str, float]):
    with pytest.raises(ConfigError, match="cannot be negative"):
        Retries(**wrong)  # type: ignore[arg-type]
