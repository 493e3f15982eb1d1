"""A detector of one question in other words. Failure answered: a search that found nothing is asked
again with the words in another order, and then with one more, until the budget is gone. No two
calls are equal, and each "no results" is short and repeats the question.

Rules:

- A question is a call that changes nothing, of a tool that searches: by its name, or by an argument
  called `query`.
- Two questions are near if they differ only in texts of several words, most of them equal, and in
  the number of results (`limit`). Another path, id or page makes another question. So do names or
  numbers that changed on both sides: asking about one city after another is progress.
- One word or passage in the place of another may be a synonym, or the next item of a list. That is
  at most a suspicion.
- Answers are compared without the question that they repeat, and all answers that found nothing are
  equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from monitor._util.hashing import identity
from monitor.chunks import ToolResult
from monitor.detectors.calls.answers import found_nothing
from monitor.detectors.calls.call_detector import OFFSETS_SHOWN, Called, plain
from monitor.detectors.calls.tool_policy import ONLY_LOOKS, ToolPolicy, error_identity, words_of
from monitor.detectors.calls.volatile import without_fields

QUESTION_CHARS = 2_000
"""Longer arguments are not a question."""
QUESTIONS_KEPT = 3
"""How many of a streak's newest questions are kept beside the first. A question near to any of them
continues the streak.
"""
MOST = 0.6
"""The share of the shorter text's words that the other text must have too."""
STEM_CHARS = 5
"""`search`, `searches` and `searching` are one word."""
NOTHING_FOUND = "nothing"
_ASKS = frozenset(
    {"query", "q", "question", "search", "search_query", "keywords", "keyword", "term", "terms", "search_term"}
)
_HOW_MUCH = frozenset({"limit", "k", "top_k", "num_results", "max_results", "max_tokens", "search_depth"})
_ELSEWHERE = frozenset(
    {
        "path",
        "file",
        "file_path",
        "filename",
        "dir",
        "directory",
        "folder",
        "url",
        "id",
        "page",
        "offset",
        "cursor",
        "start",
        "repo",
    }
)
_CHANGES = re.compile(
    r"((insert|replace|merge) into|update \S{1,80} set|delete from|truncate table|(create|alter|drop)"
    r" (table|index|view)|mutation)\b",
    re.IGNORECASE,
)
"""A statement that changes something is not a question, even as an argument called `query`."""
_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts without spaces between words."""

Nearness: TypeAlias = Literal["equal", "near", "one place", "other"]


@dataclass(slots=True)
class Rewording:
    """Consecutive questions, near to each other, with the same answer."""

    answer: str = ""
    tool: str = ""
    near: int = 0
    """How many questions, including those that differ in one place."""
    reworded: int = 0
    """How many questions, without those that differ in one place."""
    questions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    offsets: list[int] = field(default_factory=list[int])

    def took(self, tool: str, question: dict[str, Any], answer: str, offset: int) -> bool:
        """Process a turn that is over. True: its question is new and near to the ones before, so it
        counts.
        """
        nearness = self._nearness(tool, question) if answer == self.answer else "other"
        if nearness == "equal":
            return False
        if nearness == "other":
            self.answer, self.tool, self.near, self.reworded = answer, tool, 0, 0
            self.questions, self.offsets = [], []
        self.near += 1
        self.reworded += nearness != "one place"
        self.questions = [*self.questions[:1], *self.questions[1:][1 - QUESTIONS_KEPT :], question]
        self.offsets = [*self.offsets, offset][-OFFSETS_SHOWN:]
        return nearness != "other"

    def forget(self) -> None:
        """End the streak, because something else was done."""
        self.answer, self.tool, self.near, self.reworded, self.questions, self.offsets = "", "", 0, 0, [], []

    @property
    def xxhash(self) -> str:
        """The identity of the finding."""
        return identity(f"{self.tool}:{self.answer}")

    def save(self) -> dict[str, Any]:
        """The state as JSON data."""
        return {**plain(self), "questions": self.questions[:]}

    def _nearness(self, tool: str, question: Mapping[str, Any]) -> Nearness:
        if tool != self.tool:
            return "other"
        found = {nearness(question, known) for known in self.questions}
        for one in _ORDER:
            if one in found:
                return one
        return "other"


_ORDER: tuple[Nearness, ...] = ("equal", "near", "one place")


def question_of(call: Called) -> dict[str, Any] | None:
    """The arguments of a call that is a question. `None`: it is not one."""
    policy = call.policy
    if call.exempt or policy.side_effect or policy.paginating or policy.polling or len(call.text) > QUESTION_CHARS:
        return None
    try:
        arguments = json.loads(call.text[len(call.name) + 1 : -1])
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict):
        return None
    asks = (
        policy.idempotent
        or not ONLY_LOOKS.isdisjoint(words_of(call.name))
        or any(key.lower() in _ASKS for key in arguments)
    )
    texts = [value for value in arguments.values() if isinstance(value, str)]
    return arguments if asks and texts and not any(_CHANGES.match(text.lstrip()) for text in texts) else None


def answer_to(question: Mapping[str, Any], result: ToolResult, policy: ToolPolicy) -> str:
    """The identity of an answer without the question that it repeats."""
    asked = frozenset(value for value in question.values() if isinstance(value, str) and value)
    text = without_fields(policy.said(result))
    if found_nothing(text, asked):
        return NOTHING_FOUND
    for value in asked:
        text = text.replace(value, "")
    return error_identity(text) if result.is_error else identity(text)


def nearness(one: Mapping[str, Any], other: Mapping[str, Any]) -> Nearness:
    """How two questions to one tool differ."""
    found: list[Nearness] = []
    for key in one.keys() | other.keys():
        mine, others = one.get(key, ""), other.get(key, "")
        if mine == others:
            continue
        if key.lower() in _HOW_MUCH:
            found.append("near")
        elif key.lower() in _ELSEWHERE or not (isinstance(mine, str) and isinstance(others, str)):
            return "other"
        else:
            found.append(_texts(mine, others))
    if not found:
        return "equal"
    return "other" if "other" in found else "one place" if "one place" in found else "near"


def _texts(one: str, other: str) -> Nearness:
    if not any(" " in text.strip() or _UNSPACED.search(text) for text in (one, other)):
        return "other"
    mine, others = _words(one), _words(other)
    stems, other_stems = [_stem(word) for word in mine], [_stem(word) for word in others]
    common = set(stems) & set(other_stems)
    if not common or len(common) < MOST * min(len(set(stems)), len(set(other_stems))):
        return "other"
    changed = (
        [word for word in mine if _stem(word) not in common],
        [word for word in others if _stem(word) not in common],
    )
    if all(changed) and all(any(map(_is_name, words)) for words in changed):
        return "other"
    return "one place" if all(changed) and _in_one_place(stems, other_stems, common) else "near"


def _words(text: str) -> list[str]:
    """The words of `text`; in scripts without spaces, its pairs of characters."""
    words: list[str] = []
    for word in _WORD.findall(text):
        words += [word[at : at + 2] for at in range(len(word) - 1)] if _UNSPACED.search(word) else [word]
    return words


def _stem(word: str) -> str:
    return word.casefold()[:STEM_CHARS]


def _is_name(word: str) -> bool:
    return any(map(str.isdigit, word)) or word[:1].isupper()


def _in_one_place(one: list[str], other: list[str], common: set[str]) -> bool:
    """Whether the two are equal except for one passage with no common word."""
    start = next((at for at, (mine, others) in enumerate(zip(one, other, strict=False)) if mine != others), 0)
    end = next(
        (at for at, (mine, others) in enumerate(zip(reversed(one), reversed(other), strict=False)) if mine != others), 0
    )
    middles = one[start : len(one) - end], other[start : len(other) - end]
    return all(middles) and common.isdisjoint(middles[0]) and common.isdisjoint(middles[1])
