"""The answers that the hook has given for a loop, for as long as nothing but the loop goes on.

Importing the core takes longer than an agent should wait, and a model that is refused often makes
the same call again. Then the answer of before holds. It holds no longer once another call is made,
a tool says something new, a person says something, or the history is compacted.
"""

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

    def save(self) -> "dict[str, object]":
        """The state as JSON data."""
        return {"answers": self._answers, "calls": self._calls}

    def add(self, question: str, line: str, calls: "list[object]") -> None:
        """Hold `line`, the answer to `question`. `calls`: the identities of the loop's calls."""
        self._answers[question] = line
        while len(self._answers) > KEPT:
            del self._answers[next(iter(self._answers))]
        self._calls = [*self._calls, *(call for call in calls if call not in self._calls)][-KEPT:]

    def find(self, question: str) -> "str | None":
        """The answer to `question`. `None`: the detectors have to be asked."""
        return self._answers.get(question)

    def called(self, identity: int) -> None:
        """A call was made."""
        if identity not in self._calls:
            self.clear()

    def clear(self) -> None:
        """Something else than the loop goes on."""
        self._answers, self._calls = {}, []
