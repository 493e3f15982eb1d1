"""The parts of a core as JSON data, and the same parts made from it again. What only a program can
make (a function, a class of the caller's) is named, and has to be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import monitor.detectors
from monitor._util.codec import to_plain
from monitor._util.part_options import made_again, options_of
from monitor.budget import Budget, Grant
from monitor.chunks import Price
from monitor.conditions.condition import Condition, condition_from_dict
from monitor.context.window import Window
from monitor.core.replay.inputs import RecordedJudge
from monitor.detectors.detector import Detector
from monitor.errors import ConfigError
from monitor.goal.goal import RecordedGoal, described_goal
from monitor.judges.judge import Judge
from monitor.policy import Ladder, ObserveOnly, Policy, StopAtFirstLoop
from monitor.verdicts import LastTurn

_POLICIES: Mapping[str, type[Policy]] = {cls.__name__: cls for cls in (Ladder, ObserveOnly, StopAtFirstLoop)}


def members_of(budgets: Sequence[Budget]) -> tuple[Budget, ...]:
    """The budgets, and those that they are shares of, each once."""
    return tuple(dict.fromkeys(member for budget in budgets for member in budget.chain))


def parts_to_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a `RunCore` that decide, as JSON data."""
    goal, last = options.get("goal"), options.get("last_turn")
    return {
        "stop_when": _condition(options.get("stop_when")),
        "detectors": [_part(one, one.name) for one in options.get("detectors", ())],
        "policy": _part(options["policy"], type(options["policy"]).__name__),
        "budgets": _budgets(options.get("budgets", ())),
        "price": to_plain(options.get("price")),
        "window": to_plain(options.get("window")),
        "last_turn": last and {"text": last.text, "tools": last.tools, "seconds": last.seconds, "after": [*last.after]},
        "keep_text_chars": options.get("keep_text_chars"),
        "goal": goal and described_goal(goal),
        "cuts": options.get("cuts", False),
        "supervised": options.get("supervised", False),
        "nested": options.get("parent") is not None,
        "task": options.get("task"),
        "judges": [to_plain(recorded_judge(one)) for one in options.get("judges", ())],
    }


def recorded_judge(judge: Judge) -> RecordedJudge:
    """What a core needs of `judge`."""
    return RecordedJudge(judge.name, judge.fact, judge.threshold, judge.counts, judge.schedule().lines)


def _condition(condition: Condition | None) -> dict[str, Any] | None:
    if condition is None:
        return None
    try:
        return condition.to_dict()
    except ConfigError:
        return {"unknown": condition.name}


def _part(part: object, name: str) -> dict[str, Any]:
    known = {**_detectors(), **_POLICIES}.get(type(part).__name__) is type(part)
    options = options_of(part) if known else None
    return {"unknown": name} if options is None else {"class": type(part).__name__, "options": options}


def _detectors() -> dict[str, Any]:
    return {name: getattr(monitor.detectors, name) for name in dir(monitor.detectors)}


def _budgets(budgets: Sequence[Budget]) -> dict[str, Any]:
    members = members_of(budgets)
    return {
        "members": [_member(one) for one in members],
        "chains": [[members.index(one) for one in budget.chain] for budget in budgets],
    }


def _member(budget: Budget) -> dict[str, Any]:
    granted = {"slice": [budget.slice_tokens, budget.slice_usd]} if isinstance(budget, Grant) else {}
    return {"tokens": budget.tokens, "usd": budget.usd, "state": budget.state(), **granted}


def _member_from_json(data: Mapping[str, Any]) -> Budget:
    budget = Grant(*data["slice"]) if "slice" in data else Budget(tokens=data["tokens"], usd=data["usd"])
    budget.set_state(data["state"])
    return budget


class NotRecorded(ConfigError):
    """A part of a recorded run can be made only by a program."""


def condition_from_json(data: Mapping[str, Any] | None) -> Condition | None:
    """The condition. Raises `NotRecorded`."""
    if data is None:
        return None
    if (name := data.get("unknown")) is not None:
        raise NotRecorded(f"the limit {name} is Python code, which is not on record: give stop_when=")
    return condition_from_dict(data)


def detectors_from_json(data: Sequence[Mapping[str, Any]]) -> list[Detector]:
    """The detectors. Raises `NotRecorded`."""
    return [_made_from_json(one, _detectors(), "detector", "detectors=") for one in data]


def policy_from_json(data: Mapping[str, Any]) -> Policy:
    """The policy. Raises `NotRecorded`."""
    policy: Policy = _made_from_json(data, _POLICIES, "policy", "policy=")
    return policy


def _made_from_json(data: Mapping[str, Any], known: Mapping[str, Callable[..., Any]], what: str, option: str) -> Any:
    if (name := data.get("unknown")) is not None:
        raise NotRecorded(f"the {what} {name} is Python code, which is not on record: give {option}")
    cls: Any = known.get(data["class"])
    if cls is None:
        raise NotRecorded(f"the {what} {data['class']} is not known to this version: give {option}")
    return made_again(cls, data["options"])


def others_from_json(data: Mapping[str, Any]) -> dict[str, Any]:
    """The other options of a `RunCore`."""
    price, window, last = data["price"], data["window"], data["last_turn"]
    return {
        "budgets": _budgets_from_json(data["budgets"]),
        "price": price and made_again(Price, price),
        "window": window and made_again(Window, window),
        "last_turn": last and LastTurn(last["text"], last["tools"], seconds=last["seconds"], after=last["after"]),
        "keep_text_chars": data["keep_text_chars"],
        "goal": data["goal"] and RecordedGoal(data["goal"]),
        "cuts": data["cuts"],
        "supervised": data["supervised"],
        "task": data["task"],
        "judges": [made_again(RecordedJudge, one) for one in data.get("judges", ())],
    }


def _budgets_from_json(data: Mapping[str, Any]) -> list[Budget]:
    members = [_member_from_json(one) for one in data["members"]]
    budgets = [members[chain[0]] for chain in data["chains"]]
    for budget, chain in zip(budgets, data["chains"], strict=True):
        budget.chain = tuple(members[one] for one in chain)
    return budgets
