from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.chunks import ToolResult
from monitor.detectors import ToolPolicy
from monitor.detectors.calls.tool_policy import GUESSES_KEPT, WAITS, action_of, checked, guess, policy_of
from monitor.errors import ConfigError


def same(policy: ToolPolicy, one: str, other: str) -> bool:
    return policy.outcome_of(ToolResult("a", "t", one)) == policy.outcome_of(ToolResult("b", "t", other))


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("calendar.create_event", ToolPolicy(side_effect=True)),
        ("send_email", ToolPolicy(side_effect=True)),
        ("mcp__mail__replyToAll", ToolPolicy(side_effect=True)),
        ("BookFlight", ToolPolicy(side_effect=True)),
        ("sessions_send", ToolPolicy(side_effect=True)),
        ("blog_post", ToolPolicy()),
        ("poll_job", ToolPolicy(polling=True, suspect_at=10, loop_at=20)),
        ("poll_create", ToolPolicy()),
        ("company_directory.find_email_address", ToolPolicy(idempotent=True)),
        ("read_file", ToolPolicy(idempotent=True)),
        ("getWeather", ToolPolicy(idempotent=True)),
        ("think", ToolPolicy(no_op=True)),
        ("sequential-thinking:sequentialthinking", ToolPolicy(no_op=True)),
        ("wait", ToolPolicy(no_op=True)),
        ("order_status", ToolPolicy()),
        ("get_job_status", WAITS),
        ("poll_build", WAITS),
        ("shell_wait", WAITS),
        ("git.show_git_status", ToolPolicy(idempotent=True)),
        ("send_keys", ToolPolicy()),
        ("post_search", ToolPolicy()),
        ("wait_for_element", ToolPolicy()),
        ("rethink_plan", ToolPolicy()),
        ("bash", ToolPolicy()),
        ("update_task", ToolPolicy()),
        ("", ToolPolicy()),
        ("工具", ToolPolicy()),
    ],
)
def test_a_name_says_little_and_only_what_is_in_the_lists(name: str, policy: ToolPolicy):
    assert guess(name) == policy


def test_what_the_caller_says_replaces_the_guess():
    given = checked({"create_event": ToolPolicy(polling=True)})
    assert policy_of("create_event", given) == ToolPolicy(polling=True)
    assert policy_of("create_task", given) == ToolPolicy(side_effect=True)


@pytest.mark.parametrize(
    ("arguments", "policy"),
    [
        ({"action": "send", "text": "hi"}, ToolPolicy(side_effect=True)),
        ({"action": "read"}, ToolPolicy(idempotent=True)),
        ({"action": "wait"}, ToolPolicy(no_op=True)),
        ({"action": "poll", "id": 1}, ToolPolicy(polling=True, suspect_at=10, loop_at=20)),
        ({"action": "click"}, ToolPolicy()),
        ({"action": ["send"]}, ToolPolicy()),
        ({"action": "send " * 40}, ToolPolicy()),
        ("send", ToolPolicy()),
        (None, ToolPolicy()),
    ],
)
def test_a_tool_that_is_many_in_one_is_guessed_by_its_action(arguments: object, policy: ToolPolicy):
    action = action_of(arguments)
    assert policy_of("message", {}, action) == policy
    assert policy_of("message", {"message": ToolPolicy(paginating=True)}, action) == ToolPolicy(paginating=True)


def test_an_action_that_says_nothing_leaves_the_word_to_the_name():
    assert policy_of("send_sms", {}, "now") == ToolPolicy(side_effect=True)


def test_invented_names_do_not_fill_the_memory():
    for number in range(1_000):
        assert policy_of(f"send_{number}", {}).side_effect
    assert guess.cache_info().currsize <= GUESSES_KEPT


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ('{"out": "ok", "lease": 17, "load": 0.2}', '{"load": 0.9, "lease": 18, "out": "ok"}', True),
        ('{"jobs": [{"lease": 1, "state": "up"}]}', '{"jobs": [{"lease": 2, "state": "up"}]}', True),
        ('{"out": "ok", "lease": 17}', '{"out": "no", "lease": 17}', False),
        ("done lease: 17, load=0.2 out=ok", "done lease: 18, load=0.9 out=ok", True),
        ("done lease: 17, out=ok", "done lease: 18, out=no", False),
        ("the lease is unknown", "the lease is known", False),
    ],
)
def test_volatile_fields_are_no_news_and_the_others_are(one: str, other: str, equal: bool):
    assert same(ToolPolicy(volatile=("lease", "load")), one, other) is equal
    assert not same(ToolPolicy(), one, other)


def failing(arguments: Any) -> object:
    raise KeyError(arguments)


@pytest.mark.parametrize(
    ("loop_key", "one", "other", "equal"),
    [
        (lambda a: a["path"], {"path": "a", "reason": "first"}, {"path": "a", "reason": "second"}, True),
        (lambda a: a["path"], {"path": "a"}, {"path": "b"}, False),
        (failing, {"path": "a"}, {"path": "a"}, True),
        (failing, {"path": "a"}, {"path": "b"}, False),
    ],
)
def test_a_loop_key_says_what_makes_two_calls_the_same(
    loop_key: Callable[[Any], object], one: Any, other: Any, equal: bool
):
    policy = ToolPolicy(loop_key=loop_key)
    assert (policy.key_of(one) == policy.key_of(other)) is equal


def test_a_loop_key_can_exempt_a_call():
    assert ToolPolicy(loop_key=lambda a: None).key_of({}) is None
    assert ToolPolicy(exempt=True).key_of({}) is None


@pytest.mark.parametrize(
    "options",
    [
        {"volatile": "pid"},
        {"polling": True, "side_effect": True},
        {"suspect_at": 1},
        {"loop_at": 1},
        {"suspect_at": 5, "loop_at": 4},
    ],
)
def test_policies_that_mean_nothing_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
        ToolPolicy(**options)
    with pytest.raises(ConfigError, match="takes a ToolPolicy"):
        checked({"read": {"exempt": True}})  # type: ignore[dict-item]
