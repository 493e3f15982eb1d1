"""A detector of calls that add nothing, whatever they are called. Failure answered: rules that ask
"equal or not" of a call or of a result miss loops of different calls, and stop good work of equal
ones.

Rules:

- A step is a call with its result. The result is read given its call: an error that repeats the
  guessed path says nothing new. A step is news if it shows a word, or a state, that this run has
  not seen (`step_reading`).
- A number of a state that was seen is news if it moves toward an end, or after something was done.
  A clock, a counter and noise are no news (`slot_movement`).
- A walk is work: the next item of a set, with a receipt, or named before. Guesses that are refused
  are not (`call_difference`). The request allows repetitions, items and looks (`allowance`).
- Each kind of step has a weight (`step_kind`). Evidence of a loop is the sum of the weights, at
  least 0. At 0.9 of `threshold` it is a suspicion, at `threshold` a loop, and so is each further
  step without news.
- An equal call in a row with an equal result is evidence too, but it is not reported: that is left
  to `ToolCallRepetition`.
- The results of calls that were made together are taken in the order of the calls, whichever comes
  first.
- What the caller says of a tool (`tools=`) counts. Names of tools do not, except a name
  that says that the tool polls: nothing else tells "running" from an answer that is stuck.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from monitor._util.explained_options import explains_options
from monitor._util.hashing import identity
from monitor.chunks import ToolResult
from monitor.detectors.calls.call_detector import (
    EXCERPT_CHARS,
    OFFSETS_SHOWN,
    CallDetector,
    Called,
    DetectorCall,
)
from monitor.detectors.calls.novelty.step_kind import MOST_WEIGHT, JudgedStep, StepKind
from monitor.detectors.calls.novelty.step_memory import trim
from monitor.detectors.calls.novelty.step_novelty import OpenCall, StepNovelty
from monitor.detectors.calls.novelty.step_reading import StepCall, StepResult, leaves_of
from monitor.detectors.calls.tool_policy import ToolPolicy, action_of, guess
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level

THRESHOLD = 4.3
"""None of the 664 good recorded runs of the development corpus comes above 3.9. By the
split-conformal bound, at most 1 in 600 runs like those comes to it. That promises nothing of other
runs: `agent-monitor calibrate` does.
"""
FITTED = "fitted on public development runs"
SUSPECT = 0.95
"""The share of the threshold that makes a suspicion."""
MOST = 2.0
"""Evidence grows to this many times the threshold: two steps with news then end the loop."""
TOOL_STEPS = 3
"""Steps of one tool without news, from which on its calls add nothing."""
KINDS_NAMED = 3
"""How many kinds of steps a message names, the most frequent ones."""
TOOLS_NAMED = 16
"""How many tools of an episode are counted."""
UNKNOWN_WALK = 0.52
UNKNOWN_REPETITION = 0.68
"""The factors of what a request may ask for, where none is known: other calls, calls made before.
Answers that are no refusal, and values that moved, are no evidence then.
"""
OPEN_KEPT = 32
"""The number of unanswered calls that are kept."""
POLLS_OF_A_LOOP = 16
"""Equal calls of a loop, of a tool that polls."""
EACH_WITHOUT_ARGUMENTS = 2
"""Items without a number that a call without arguments spends: it may be made for each of them."""


@dataclass(slots=True)
class _Episode:
    """The evidence since it was last 0."""

    nats: float = 0.0
    steps: int = 0
    """Steps without news."""
    xxhash: str = ""
    suspect_at: int = 0
    """The steps at which it became a suspicion; 0: it is none."""
    loop_at: int = 0
    newest: dict[int, str] = field(default_factory=dict[int, str])
    """The names of the kinds of the newest steps without news, by the index of the call."""
    tools: dict[str, int] = field(default_factory=dict[str, int])
    """The steps without news by tool, since the latest step with news of the tool."""
    kinds: dict[str, int] = field(default_factory=dict[str, int])
    """The number of steps by the name of their kind."""

    def add(self, kind: StepKind, tool: str, offset: int) -> None:
        """A step without news."""
        self.steps += 1
        self.newest[offset] = kind.name
        trim(self.newest, OFFSETS_SHOWN)
        self.kinds[kind.name] = self.kinds.get(kind.name, 0) + 1
        self.tools[tool] = self.tools.pop(tool, 0) + 1
        trim(self.tools, TOOLS_NAMED)

    @property
    def idle_tools(self) -> tuple[str, ...]:
        """The tools whose calls add nothing, the most frequent first."""
        often = sorted(self.tools.items(), key=lambda one: -one[1])
        return tuple(tool for tool, steps in often if steps >= TOOL_STEPS)

    @property
    def words(self) -> str:
        """What the steps were, for people."""
        often = sorted(self.kinds.items(), key=lambda one: -one[1])[:KINDS_NAMED]
        return "; ".join(f"{steps} x {StepKind[name].words}" for name, steps in often)

    def save(self) -> list[Any]:
        numbers = [self.nats, self.steps, self.xxhash, self.suspect_at, self.loop_at]
        return [*numbers, list(self.newest.items()), dict(self.tools), dict(self.kinds)]

    @classmethod
    def of(cls, saved: Sequence[Any]) -> _Episode:
        """What `save` returned."""
        nats, steps, xxhash, suspect_at, loop_at, newest, tools, kinds = saved
        known = {int(index): str(name) for index, name in newest}
        return cls(nats, steps, xxhash, suspect_at, loop_at, known, dict(tools), dict(kinds))


class StateNovelty(CallDetector):
    """Calls and results that add nothing to what the run has seen.

    `threshold`: the evidence that makes a loop, in nats. `fitted`: the runs that the threshold was
    fitted on, in words, for the message of a finding. `tools`: what is special about a tool, by its
    name. The user's request comes with `request`.
    """

    __slots__ = ("_episode", "_fitted", "_highest", "_novelty", "_open", "_threshold")
    _novelty: StepNovelty
    _open: dict[int, OpenCall]
    """Calls without a result, by their index."""
    _episode: _Episode
    _highest: float

    @explains_options(example="monitor.detectors.StateNovelty()")
    def __init__(
        self,
        *,
        threshold: float = THRESHOLD,
        fitted: str = FITTED,
        tools: Mapping[str, ToolPolicy] | None = None,
        name: str = "state_novelty",
    ) -> None:
        if not 0 < threshold < math.inf:
            raise ConfigError(f"StateNovelty(threshold={threshold}): give a number above 0, such as {THRESHOLD}")
        self._threshold = threshold
        self._fitted = fitted
        super().__init__(tools=tools, name=name)

    def options(self) -> dict[str, Any]:
        """The options that make the detector again."""
        return {"threshold": self._threshold, "fitted": self._fitted, "tools": self._tools, "name": self.name}

    @property
    def highest(self) -> float:
        """The highest evidence of the run that any threshold would have seen, in nats."""
        return self._highest if self._begun else 0.0

    @property
    def steps_left(self) -> int:
        """The fewest further steps after which there may be a loop."""
        known = self._episode.nats + self._novelty.excused if self._begun else 0.0
        return max(0, math.ceil((self._threshold - known) / MOST_WEIGHT))

    @property
    def idle_steps(self) -> dict[int, str]:
        """The newest steps without news since the evidence was last 0: by the index of the call,
        what each was, in words.
        """
        return {index: StepKind[name].words for index, name in self._episode.newest.items()} if self._begun else {}

    def request(self, text: str) -> None:
        """The user's request, at the beginning or later. It says what may be repeated, and names
        items. Another one than before allows one look: who asks at each tick wants an answer.
        """
        if self._begun and self._allowed.is_another(text):
            self._allowed.looks = max(self._allowed.looks, 1)
        super().request(text)
        self._novelty.request(text)

    def forget_streaks(self) -> None:
        """The evidence is 0 again. What the run has seen stays known."""
        if self._begun:
            self._episode = _Episode()

    def _policy_of(self, tool: str, action: str = "") -> ToolPolicy:
        if tool in self._tools:
            return self._tools[tool]
        return _POLLING if guess(tool).polling else _NO_POLICY

    def _called(self, call: Called) -> Sequence[Detection]:
        if call.exempt or call.policy.no_op:
            return NOTHING
        reading = StepCall(call.name, leaves_of(call.arguments))
        key = self._novelty.key_of(reading)
        again = any(one.key == key for one in self._open.values())
        waits = action_of(call.arguments) == "poll"
        self._open[call.index] = opened = OpenCall(reading, key, call.batch, waits=waits, counted=again)
        trim(self._open, OPEN_KEPT)
        siblings = [one for one in self._open.values() if one.batch == call.batch]
        different = len({one.key for one in siblings})
        for one in siblings:
            one.siblings = different
        return self._weighed(StepKind.UNANSWERED, opened, call.index) if again else NOTHING

    def _answered(self, asked: DetectorCall, policy: ToolPolicy, result: ToolResult) -> Sequence[Detection]:
        call = self._open.get(asked.index)
        if call is None:
            return NOTHING
        call.result = StepResult.of(call.reading, result, policy.said(result))
        return self._in_order(call.batch)

    def _vetoed(self, asked: DetectorCall) -> Sequence[Detection]:
        call = self._open.pop(asked.index, None)
        return NOTHING if call is None else self._in_order(call.batch)

    def _before_call(self, batch: int) -> Sequence[Detection]:
        """A result of an earlier batch waits no longer."""
        found: list[Detection] = []
        for index, call in [*self._open.items()]:
            if call.batch != batch and call.result is not None:
                found += self._judged(index, call, call.result)
        return found

    def _in_order(self, batch: int) -> Sequence[Detection]:
        """Take in the results of a batch as far as all calls before them are answered, in the order
        of the calls.
        """
        found: list[Detection] = []
        for index, call in [*self._open.items()]:
            if call.batch == batch:
                if call.result is None:
                    break
                found += self._judged(index, call, call.result)
        return found

    def _judged(self, index: int, call: OpenCall, reading: StepResult) -> Sequence[Detection]:
        del self._open[index]
        first, equal = not self._novelty.was_made(call.key), self._novelty.is_equal(call, reading)
        in_a_row = self._novelty.was_latest(call.key)
        pair = self._novelty.pair_with(call.key)
        step = self._novelty.take(call, reading)
        kind = self._spent(step, call, reading, pair, first=first, in_a_row=in_a_row)
        if call.counted and not kind.is_news:
            kind = StepKind.ASKED_FOR
        if first:
            self._novelty.did(kind, call.key, reading)
            self._allowed.items = max(self._allowed.items, reading.count)
        elif kind.is_news:
            self._allowed.earn()
        excused = 0.0 if kind is StepKind.ASKED_FOR else step.excused / call.siblings
        share = step.share if kind is step.kind else 1.0
        return self._weighed(kind, call, index, excused, shown=not equal, share=share)

    def _spent(
        self, step: JudgedStep, call: OpenCall, result: StepResult, pair: int, *, first: bool, in_a_row: bool
    ) -> StepKind:
        """The kind of the step, or `ASKED_FOR` if the request allows it. `pair`: the call with the
        one before it. `first`: the call was not made before. `in_a_row`: it is the call before it.
        """
        allowed, kind = self._allowed, step.kind
        if first:
            return self._spent_on_item(kind, result) if kind.is_walk and step.is_item else kind
        if not kind.is_repetition:
            return kind
        if not result.failed and allowed.repeat(pair):
            return StepKind.ASKED_FOR
        if not result.failed and allowed.items > 0 and not call.reading.leaves:
            allowed.items -= 1
        elif not result.failed and allowed.each > 0 and not call.reading.leaves and not in_a_row:
            allowed.each -= EACH_WITHOUT_ARGUMENTS
        elif allowed.looks > 0:
            allowed.looks -= 1
        else:
            return kind
        return StepKind.ASKED_FOR

    def _spent_on_item(self, kind: StepKind, result: StepResult) -> StepKind:
        allowed = self._allowed
        if allowed.items > 0:
            allowed.items -= 1
        elif allowed.each > 0 and (result.is_empty or not result.failed):
            allowed.each -= _COST.get(kind, 1)
        else:
            return kind
        return StepKind.ASKED_FOR

    def _weight(self, kind: StepKind, call: OpenCall) -> float:
        weight = kind.weight
        if call.counted and kind.is_news:  # what was counted before its answer was known
            return weight - StepKind.UNANSWERED.weight / math.sqrt(call.siblings)
        if weight <= 0:
            return weight
        policy = self._policy_of(call.reading.name)
        if policy.paginating and kind.is_walk:
            return 0.0
        if not self._allowed.known:
            if kind.is_unclear:
                return 0.0
            if kind.is_walk and kind is not StepKind.SAME_ERROR:
                weight *= UNKNOWN_WALK
            elif kind.is_repetition:
                weight *= UNKNOWN_REPETITION
        if (policy.polling or policy.loop_at) and kind is not StepKind.CLOCK:
            weight = min(weight, THRESHOLD / (policy.loop_at or POLLS_OF_A_LOOP))
        return weight / (math.sqrt(call.siblings) if kind is StepKind.UNANSWERED else call.siblings)

    def _weighed(
        self,
        kind: StepKind,
        call: OpenCall,
        index: int,
        excused: float = 0.0,
        *,
        shown: bool = True,
        share: float = 1.0,
    ) -> Sequence[Detection]:
        """Add a step to the evidence. `shown`: what it comes to is reported. `share`: how much of
        its weight counts.
        """
        weight = share * self._weight(kind, call) + excused
        episode = self._episode
        episode.nats = min(max(0.0, episode.nats + weight), MOST * self._threshold)
        tool = call.reading.name
        if episode.nats == 0.0:
            self._episode = _Episode()
            return NOTHING
        if weight <= 0:
            if kind.is_news:
                episode.tools.pop(tool, None)
            return NOTHING
        episode.add(kind, tool, index)
        episode.xxhash = episode.xxhash or identity(f"{tool} {call.key}")
        if not shown:
            return NOTHING
        self._highest = max(self._highest, episode.nats)
        if episode.nats >= self._threshold:
            episode.loop_at = episode.loop_at or episode.steps
            return (self._detection("loop", call, index),)
        if episode.nats >= SUSPECT * self._threshold and not episode.suspect_at:
            episode.suspect_at = episode.steps
            return (self._detection("suspect", call, index),)
        return NOTHING

    def _detection(self, level: Level, call: OpenCall, index: int) -> Detection:
        episode = self._episode
        arguments = ", ".join(f"{place.lstrip('.')}={value!r}" for place, value in call.reading.leaves)
        shown = f"{call.reading.name}({arguments})"
        return Detection(
            detector=self.name,
            kind="no_news",
            channel="tools",
            level=level,
            count=episode.steps,
            threshold=episode.loop_at if level == "loop" else episode.suspect_at,
            start_offset=next(iter(episode.newest)),
            offset=index,
            evidence=Evidence(
                shown[:EXCERPT_CHARS],
                episode.xxhash,
                len(shown),
                tuple(episode.newest),
                nats=round(episode.nats, 3),
                tools=episode.idle_tools,
            ),
            message=f"{episode.steps} calls added nothing that this run had not seen (evidence {episode.nats:.1f} nats"
            f" of {self._threshold:g}, {self._fitted}): {episode.words}",
        )

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data, smaller than 64 KB."""
        return {**super().snapshot(), "novelty": self._novelty.save()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken."""
        super().restore(state)
        self._novelty = StepNovelty(state["novelty"])

    def _save(self) -> dict[str, Any]:
        """Only the open calls: a failed attempt has no results, so nothing was learnt from it."""
        opened = {index: replace(call) for index, call in self._open.items()}
        return {"open": opened, "episode": self._episode.save(), "highest": self._highest}

    def _as_json(self, saved: dict[str, Any]) -> dict[str, Any]:
        opened = {str(index): one if isinstance(one, list) else one.save() for index, one in saved["open"].items()}
        return {**saved, "open": opened}

    def _load(self, state: Mapping[str, Any] | None) -> None:
        if state is None:
            self._novelty = StepNovelty()
        self._episode = _Episode.of(state["episode"]) if state else _Episode()
        self._highest = float(state["highest"]) if state else 0.0
        opened = state["open"] if state else {}
        self._open = {
            int(index): one if isinstance(one, OpenCall) else OpenCall.of(one) for index, one in opened.items()
        }


_COST = {
    StepKind.REFUSED_ITEM: 4,
    StepKind.REFUSED_NAMED: 4,
    StepKind.SAME_ERROR: 4,
    StepKind.SAME_CAUSE: 4,
    StepKind.SILENT_ROW: 4,
    StepKind.REFUSED_ELSEWHERE: 2,
    StepKind.SILENT_ITEM: 2,
}
"""Items without a number that one step spends; others spend one."""


_NO_POLICY, _POLLING = ToolPolicy(), ToolPolicy(polling=True)
