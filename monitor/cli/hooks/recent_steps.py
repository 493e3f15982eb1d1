"""The newest calls of a session, for a first look: could they be a loop?

The detectors answer that question for sure, but importing them takes longer than an agent should
wait. This module imports little and keeps little. It errs on one side: wherever the detectors of
calls see a loop, `may_loop` is true. Where it is true, the detectors are asked.

A loop of calls has one of three signs: a call is made for the fifth time, it comes in turn with
another call for the third time, or results add nothing.
`tests/cli/hooks/test_recent_steps.py` compares both with the detectors on the recorded runs.
"""

from __future__ import annotations

import json
import re

from monitor.detectors.calls.seen_marks import SeenMarks, mark

# --------------------------------------------------------------------------------------------------
# The answers that the hook has given for a loop, for as long as nothing but the loop goes on.
#
# Importing the core takes longer than an agent should wait, and a model that is refused often
# makes the same call again. Then the answer of before holds. It holds no longer once another call
# is made, a tool says something new, a person says something, or the history is compacted.

KEPT = 16
"""The most answers that are kept: a loop has few different calls."""


class HeldAnswers:
    """The answers for one loop. `saved`: what `save` returned; `None`: there are none."""

    def __init__(self, saved: object = None) -> None:
        known = saved if isinstance(saved, dict) else {}
        answers, calls = known.get("answers"), known.get("calls")
        self._answers: dict[str, str] = {}
        """The line that was written to stdout, for each question."""
        self._calls: list[object] = calls if isinstance(calls, list) else []
        """The identities of the calls of the loop."""
        if isinstance(answers, dict):
            self._answers = {name: line for name, line in answers.items() if isinstance(line, str)}

    def save(self) -> dict[str, object]:
        """The state as JSON data."""
        return {"answers": self._answers, "calls": self._calls}

    def add(self, question: str, line: str, calls: list[object]) -> None:
        """Hold `line`, the answer to `question`. `calls`: the identities of the loop's calls."""
        self._answers[question] = line
        while len(self._answers) > KEPT:
            del self._answers[next(iter(self._answers))]
        self._calls = [*self._calls, *(call for call in calls if call not in self._calls)][-KEPT:]

    def find(self, question: str) -> str | None:
        """The answer to `question`. `None`: the detectors have to be asked."""
        return self._answers.get(question)

    def called(self, identity: int) -> None:
        """A call was made."""
        if identity not in self._calls:
            self.clear()

    def clear(self) -> None:
        """Something else than the loop goes on."""
        self._answers, self._calls = {}, []


CALLS = 24
"""The calls that are compared: three rounds of a ring of eight calls."""
EQUAL_CALLS, ROUNDS, OTHER_ROUNDS = 5, 3, 2
"""The detectors need five equal calls, or three rounds of a ring: then another call came again too,
for which one time less is enough.
"""
RESULTS = 6
"""The results that are compared."""
STALE_RESULTS = 3
"""The results that add nothing, among these: the detectors need five steps for a loop."""
NEW_WORDS = 3
"""A short result with fewer new words adds nothing."""
SHORT_WORDS = 30
HEAD_CHARS, TAIL_CHARS = 4_000, 1_000
"""The part of a result that is read."""
OWN_SIGN, OWN_SIGN_WITHIN = "agent-monitor: ", 200
"""Stands near the beginning of a refusal that this hook gave: it is no answer of a tool."""
_WORD = re.compile(r"[^\W_]{1,64}")


class RecentSteps:
    """The newest calls and results. `saved`: what `save` returned; `None`: there were none."""

    def __init__(self, saved: dict[str, object] | None = None) -> None:
        known = saved or {}
        self._calls = _rows(known.get("calls"))
        """The id and the identity of each call."""
        self._open = _rows(known.get("open"))
        """The id and the text of each call without a result."""
        self._stale = [bool(one) for one in _rows(known.get("stale"))]
        """Whether each of the newest results added nothing."""
        self._signs = _number(known.get("signs"))
        """The number of equal calls and stale results."""
        self._calm = _number(known.get("calm"))
        """The signs at which the detectors last saw no loop; -1: they were not asked."""
        self._free = _number(known.get("free"))
        """The number of calls before the detectors need be asked."""
        self._awaited = known.get("awaited")
        """The identity of the call that they were asked about, until a call was made."""
        words = known.get("words")
        self._words = SeenMarks(words if isinstance(words, list) else None)
        self._held = HeldAnswers(known.get("held"))

    def save(self) -> dict[str, object]:
        """The state as JSON data."""
        return {
            "calls": self._calls,
            "open": self._open,
            "stale": self._stale,
            "signs": self._signs,
            "calm": self._calm,
            "free": self._free,
            "awaited": self._awaited,
            "words": self._words.save(),
            "held": self._held.save(),
        }

    def called(self, id: object, name: str, arguments: object) -> None:
        """Take in a call. One that comes again under its id is the same call."""
        if id is not None and any(one[0] == id for one in self._calls):
            return
        text = _text_of(name, arguments)
        identity = mark(text)
        self._held.called(identity)
        self._free = self._free - 1 if self._awaited in (None, identity) else 0
        self._awaited = None
        self._signs += any(one[1] == identity for one in self._calls)
        self._calls = [*self._calls, [id, identity]][-CALLS:]
        self._open = [*self._open, [id, text[:HEAD_CHARS]]][-CALLS:]

    def answered(self, id: object, text: str) -> None:
        """Take in a result. A second one of the same call is left out."""
        asked = next((one for one in self._open if one[0] == id), None)
        if asked is None:
            return
        self._open.remove(asked)
        read = text if len(text) <= HEAD_CHARS + TAIL_CHARS else f"{text[:HEAD_CHARS]} {text[-TAIL_CHARS:]}"
        said = set(_WORD.findall(str(asked[1]).lower()))
        told = [word for word in _WORD.findall(read.lower()) if word.isalpha() and word not in said]
        found, state = set(map(mark, told)), mark(" ".join(sorted(told)))
        new = sum(word not in self._words for word in found)
        stale = state in self._words or (new < NEW_WORDS and len(told) <= SHORT_WORDS)
        self._words.add([*found, state])
        self._stale = [*self._stale, stale][-RESULTS:]
        self._signs += stale
        if not stale and OWN_SIGN not in text[:OWN_SIGN_WITHIN]:
            self._held.clear()

    def interrupted(self) -> None:
        """A person said something, or the history was compacted."""
        self._held.clear()

    def hold(self, question: str, line: str, name: str, arguments: object) -> None:
        """`line` was answered to `question`, which was about this call: it is in a loop."""
        identities = [one[1] for one in self._calls]
        again = [identity for identity in dict.fromkeys(identities) if identities.count(identity) > 1]
        self._held.add(question, line, [*again, mark(_text_of(name, arguments))])

    def held(self, question: str) -> str | None:
        """The answer that holds as long as nothing but the loop goes on. `None`: there is none."""
        return self._held.find(question)

    def may_loop(self, name: str = "", arguments: object = None) -> bool:
        """Whether the detectors may see a loop that goes on with this call. Without a `name`: with
        any call.
        """
        asked = _identity_of(name, arguments)
        if self._signs_with(asked) == self._calm or (self._free > 0 and self._awaited in (None, asked)):
            return False
        made = [one[1] for one in self._calls]
        if name:
            made.append(asked)
        times = {identity: made.count(identity) for identity in made}
        equal = times.pop(made[-1]) if name else max(times.values(), default=0)
        others = sorted(times.values())[: None if name else -1]
        in_turn = equal >= ROUNDS and max(others, default=0) >= OTHER_ROUNDS
        return equal >= EQUAL_CALLS or in_turn or sum(self._stale) >= STALE_RESULTS

    def is_calm(self, free_calls: int = 0, name: str = "", arguments: object = None) -> None:
        """The detectors see no loop with the call that was asked about. Once it is made, they need
        not be asked before `free_calls` more calls, nor until there is one more sign.
        """
        self._awaited = _identity_of(name, arguments)
        self._calm, self._free = self._signs_with(self._awaited), free_calls + 1

    def _signs_with(self, asked: int | None) -> int:
        """The signs that there are once the call that is asked about stands in the session. It does
        already, if the same call has no result.
        """
        equal = [one[0] for one in self._calls if one[1] == asked]
        return self._signs + (bool(equal) and all(one[0] not in equal for one in self._open))


def _identity_of(name: str, arguments: object) -> int | None:
    return mark(_text_of(name, arguments)) if name else None


def _text_of(name: str, arguments: object) -> str:
    return f"{name}({json.dumps(arguments, sort_keys=True)})"


def _rows(value: object) -> list[list[object]]:
    return value if isinstance(value, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1
