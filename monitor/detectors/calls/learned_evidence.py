"""A detector of calls that add nothing, whatever they are called, by what was learnt from labelled
runs. Failure answered: rules that ask "equal or not" of a call or of a result miss loops of
different calls, and stop good work of equal ones.

Rules:

- A step is a call with its result, and is described by numbers (`step_features`). The model in
  `evidence.json` says how much more often such a step stands in a loop than in good work, as
  log odds. `python -m bench.evidence` makes that file, and writes beside it how well it does on
  runs of authors that it was not trained on.
- Evidence is the sum of the log odds, of which a share is forgotten with each step, and never below
  0. One step adds at most `most`. So no run goes from `doubt` to `stop` in one step: a finding is
  first a suspicion, and is a loop only if its evidence has grown.
- A call without a result is no step. Nor is an equal call with an equal result reported: that is
  left to `ToolCallRepetition`.
- The results of calls that were made together are taken in the order of the calls, whichever comes
  first.
- What the caller says of a tool (`tools=`) counts. Names of tools do not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from monitor._util.explained_options import explains_options
from monitor._util.hashing import identity
from monitor._util.package_data import data_beside
from monitor._util.text import quoted
from monitor.detectors.calls.front import EXCERPT_CHARS, OFFSETS_SHOWN, CallAnswer, CallRule, SeenCall, UnansweredCall
from monitor.detectors.calls.step_features import DescribedStep, StepFeatures, abridged, leaves_of, trim
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level

OPEN_KEPT = 16
"""The unanswered calls that are kept."""
ANSWER_CHARS = 60
"""The longest answer that a message quotes."""
TOOL_STEPS = 3
"""Steps of one tool without news, from which on its calls add nothing."""
LEAST_STEPS = 3
"""Fewer steps are no suspicion at a step whose result shows something new."""
FACTS_NAMED = 2
"""How many facts of steps a message names, the most frequent ones."""

Node: TypeAlias = float | list[Any]
"""The value of a leaf, or a question: the place of a feature, the highest value that goes left, and
the nodes to the left and to the right.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class EvidenceModel:
    """The learned model, as `evidence.json` has it."""

    features: Sequence[str]
    """The names of the features that are used, in the order of their places."""
    trees: Sequence[Node]
    """Their values for a step are added up."""
    base: float
    """The log odds of a step before anything is asked of it."""
    keep: float
    """The share of the evidence that is kept with each step."""
    most: float
    """The most that one step adds to the evidence."""
    doubt: float
    """The evidence from which on there is a suspicion, in nats."""
    stop: float
    """The evidence from which on there is a loop."""
    unasked: float = 1.0
    """How many times as much evidence a loop needs where no request is known: what looks like a
    loop may be what was asked for.
    """
    about: Mapping[str, Any]
    """From what it was learnt, when, and how well it does on runs that it was not trained on."""

    def log_odds(self, features: Mapping[str, float]) -> float:
        """How much more often such a step stands in a loop."""
        values = [features[name] for name in self.features]
        total = self.base
        for node in self.trees:
            while isinstance(node, list):
                node = node[2] if values[node[0]] <= node[1] else node[3]  # noqa: PLW2901 - down the tree
            total += node
        return total

    @classmethod
    def read(cls) -> EvidenceModel:
        """The model that comes with the package."""
        return cls(**data_beside(__file__, "evidence.json"))


MODEL: Final = EvidenceModel.read()


class _WaitingCall(NamedTuple):
    """A call without a result, or whose result waits for those of calls before it."""

    name: str
    leaves: tuple[tuple[str, str], ...]
    batch: int
    siblings: int = 1
    """The calls of its batch."""
    result: str | None = None
    is_error: bool = False


class _ShownStep(NamedTuple):
    """A step that is evidence."""

    offset: int
    """The index of its call."""
    tool: str
    words: str
    """How the call differs, and what the result shows."""
    is_news: bool
    answer: str
    """The result, if it is short."""


class _EvidenceEpisode(NamedTuple):
    """The evidence since it was last 0. It is never changed, only replaced."""

    nats: float = 0.0
    steps: int = 0
    """The steps that are evidence."""
    xxhash: str = ""
    suspect_at: int = 0
    """The steps at which it became a suspicion; 0: it is none."""
    loop_at: int = 0
    newest: tuple[_ShownStep, ...] = ()

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools whose calls add nothing since their latest news, the most frequent first."""
        idle: Counter[str] = Counter()
        for step in self.newest:
            idle[step.tool] = 0 if step.is_news else idle[step.tool] + 1
        return tuple(tool for tool, steps in idle.most_common() if steps >= TOOL_STEPS)

    @property
    def words(self) -> str:
        """What the steps were, for people."""
        tools = [*dict.fromkeys(step.tool for step in self.newest)]
        named = " and ".join(tools) if len(tools) <= FACTS_NAMED else f"{len(tools)} tools"
        found = "added little" if any(step.is_news for step in self.newest) else "found nothing"
        answers = {step.answer for step in self.newest}
        if len(answers) == 1 and "" not in answers:
            facts = f"each answered {quoted(answers.pop())}"
        else:
            often = Counter(step.words for step in self.newest).most_common(FACTS_NAMED)
            facts = "; ".join(f"{words} ({count} times)" if count > 1 else words for words, count in often)
        steps = "1 step" if self.steps == 1 else f"{self.steps} steps"
        return f"{steps} of {named} {found} that was not known: {facts}"


class _IdleStep(NamedTuple):
    """A step without news."""

    offset: int
    words: str


@dataclass(slots=True)
class _EvidenceState:
    """The state of `LearnedEvidence` but the features: a failed attempt has no results, so nothing
    was learnt from it.
    """

    open: dict[int, _WaitingCall] = field(default_factory=dict[int, _WaitingCall])
    """Calls by their index."""
    episode: _EvidenceEpisode = field(default_factory=_EvidenceEpisode)
    highest: float = 0.0
    idle: tuple[_IdleStep, ...] = ()
    """The newest steps without news."""


class LearnedEvidence(CallRule[_EvidenceState]):
    """Calls and results that look like those of loops, as was learnt from labelled runs.

    `doubt`: the evidence from which on there is a suspicion, in nats. `stop`: the evidence that
    makes a loop. `tools`: what is special about a tool, by its name. The user's request comes with
    `request`. Raises `ConfigError` unless `doubt` is above 0 and below `stop`.
    """

    __slots__ = ("_doubt", "_features", "_stop")
    _features: StepFeatures
    model: ClassVar[EvidenceModel] = MODEL

    @explains_options(example="monitor.detectors.LearnedEvidence()")
    def __init__(
        self,
        *,
        doubt: float = MODEL.doubt,
        stop: float = MODEL.stop,
        tools: Mapping[str, ToolPolicy] | None = None,
        name: str = "learned_evidence",
    ) -> None:
        if not 0 < doubt < stop < math.inf:
            raise ConfigError(
                f"LearnedEvidence(doubt={doubt}, stop={stop}): give two numbers above 0, the lower one as doubt, such"
                f" as {MODEL.doubt} and {MODEL.stop}"
            )
        self._doubt, self._stop = doubt, stop
        super().__init__(_EvidenceState, tools=tools, name=name)
        self._features = StepFeatures()

    def options(self) -> dict[str, Any]:
        """The options that make the detector again."""
        return {"doubt": self._doubt, "stop": self._stop, "tools": self.tools, "name": self.name}

    @property
    def highest(self) -> float:
        """The highest evidence of the run that any `stop` would have seen, in nats."""
        return self._state.highest

    @property
    def steps_left(self) -> int:
        """The fewest further steps after which there may be a loop."""
        return max(0, math.ceil((self._stop - self._state.episode.nats) / self.model.most))

    @property
    def idle_steps(self) -> dict[int, str]:
        """The newest steps without news: by the index of the call, what each was, in words."""
        return dict(self._state.idle)

    def request(self, text: str) -> None:
        """The user's request, at the beginning or later: it says what may be repeated, and names
        items.
        """
        super().request(text)
        self._features.request(text)

    def forget_streaks(self) -> None:
        """The evidence is 0 again. What the run has seen stays known."""
        self._state.episode, self._state.idle = _EvidenceEpisode(), ()

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._features = StepFeatures()

    def _said_of(self, tool: str) -> ToolPolicy:
        return self.tools.get(tool, _NOTHING_SAID)

    def called(self, call: SeenCall) -> Sequence[Detection]:
        if call.exempt or self._said_of(call.name).no_op:
            return NOTHING
        together = [index for index, one in self._state.open.items() if one.batch == call.batch]
        self._state.open[call.index] = _WaitingCall(call.name, leaves_of(call.arguments), call.batch)
        for index in (*together, call.index):
            self._state.open[index] = self._state.open[index]._replace(siblings=len(together) + 1)
        trim(self._state.open, OPEN_KEPT)
        return NOTHING

    def answered(self, answer: CallAnswer) -> Sequence[Detection]:
        call = self._state.open.get(answer.call.index)
        if call is None:
            return NOTHING
        text = abridged(answer.policy.said(answer.result))
        self._state.open[answer.call.index] = call._replace(result=text, is_error=answer.result.is_error)
        return self._taken(call.batch)

    def vetoed(self, call: UnansweredCall) -> Sequence[Detection]:
        waiting = self._state.open.pop(call.index, None)
        return NOTHING if waiting is None else self._taken(waiting.batch)

    def turn_ended(self) -> Sequence[Detection]:
        return self._taken(max((call.batch for call in self._state.open.values()), default=0))

    def _taken(self, batch: int) -> Sequence[Detection]:
        """Take in the results that have come, in the order of the calls. A result of this batch
        waits for those of the calls before it in the batch, one of an earlier batch for none.
        """
        found: list[Detection] = []
        for index, call in [*self._state.open.items()]:
            if call.result is not None and call.batch <= batch:
                del self._state.open[index]
                found += self._weighed(index, call, call.result)
            elif call.batch == batch:
                break
        return found

    def _weighed(self, index: int, call: _WaitingCall, result: str) -> Sequence[Detection]:
        """Add a step to the evidence."""
        step = DescribedStep(call.name, call.leaves, result, call.is_error, call.siblings)
        described = self._features.take(step, self.allowed)
        if not described.is_news and not 0 <= described.features["idle_most"] < 1:  # the request allows no such step
            self._state.idle = (*self._state.idle, _IdleStep(index, described.words))[-OFFSETS_SHOWN:]
        model, policy = self.model, self._said_of(call.name)
        weight = model.log_odds(described.features)
        if policy.polling or policy.paginating:
            weight = min(weight, 0.0)
        kept = self._state.episode.nats * model.keep ** (1 / call.siblings)
        nats = max(0.0, kept + min(weight, model.most) / call.siblings)
        if not nats:
            self._state.episode = _EvidenceEpisode()
            return NOTHING
        episode = self._state.episode = self._state.episode._replace(nats=nats)
        if weight <= 0:
            return NOTHING
        answer = result.strip() if len(result) <= ANSWER_CHARS else ""
        shown = _ShownStep(index, call.name, described.words, described.is_news, answer)
        episode = self._state.episode = episode._replace(
            steps=episode.steps + 1,
            xxhash=episode.xxhash or identity(f"{call.name} {call.leaves!r}"),
            newest=(*episode.newest, shown)[-OFFSETS_SHOWN:],
        )
        if described.is_equal:
            return NOTHING
        self._state.highest = max(self._state.highest, nats)
        needed = 1.0 if self._features.knows_request else model.unasked
        if nats >= needed * self._stop and episode.suspect_at:
            self._state.episode = episode._replace(loop_at=episode.loop_at or episode.steps)
            return (self._detection("loop", call, index),)
        doubted = nats >= needed * self._doubt and (episode.steps >= LEAST_STEPS or not described.is_news)
        if doubted and not episode.suspect_at:
            self._state.episode = episode._replace(suspect_at=episode.steps)
            return (self._detection("suspect", call, index),)
        return NOTHING

    def _detection(self, level: Level, call: _WaitingCall, index: int) -> Detection:
        episode = self._state.episode
        arguments = ", ".join(f"{place.lstrip('.')}={value!r}" for place, value in call.leaves)
        shown = f"{call.name}({arguments})"
        return Detection(
            detector=self.name,
            kind="no_news",
            channel="tools",
            level=level,
            count=episode.steps,
            threshold=episode.loop_at if level == "loop" else episode.suspect_at,
            start_offset=episode.newest[0].offset,
            offset=index,
            evidence=Evidence(
                shown[:EXCERPT_CHARS],
                episode.xxhash,
                len(shown),
                tuple(step.offset for step in episode.newest),
                nats=round(episode.nats, 3),
                tools=episode.tools,
            ),
            message=episode.words,
        )

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON data, smaller than 64 KB."""
        return {**super().snapshot(), "features": self._features.save()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken."""
        super().restore(state)
        self._features = StepFeatures(state["features"])


_NOTHING_SAID = ToolPolicy()
