"""What the small model is asked: long answers, some of which repeat themselves for a good reason.

Each question is asked with every one of `SEEDS` at every one of `TEMPERATURES`. No penalty for
repetition is set, as in most programs. A low temperature makes a small model loop often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

QUESTIONS: Final[dict[str, str]] = {
    # prose
    "story": "Write a long story about a lighthouse keeper who finds a message in a bottle.",
    "essay": "Write a detailed essay about how bread is made, from the field to the oven.",
    "letter": "Write a long letter from a traveller who describes three cities to a friend.",
    "history": "Explain the history of the railway in as much detail as you can.",
    "advice": "Give detailed advice to somebody who wants to learn to play the piano.",
    # lists and forms, whose lines resemble each other
    "ideas": "List 60 ideas for a birthday party, each with one sentence of explanation.",
    "animals": "List 50 animals. For each, say where it lives and what it eats.",
    "questions": "Write 40 different quiz questions about geography, each with its answer.",
    "table": "Make a Markdown table of 40 countries with capital, continent and language.",
    "numbers": "Count from 1 to 150, one number a line.",
    "times": "Write the multiplication tables from 2 to 9, one line for each product.",
    # code and texts with a refrain
    "code": "Write a Python module with 15 functions for working with strings, with docstrings.",
    "config": "Write an example configuration file in YAML for 20 web servers.",
    "song": "Write a song with six verses. The same refrain of four lines follows each verse.",
    "dialogue": "Write a long dialogue between a teacher and a student about the moon.",
}
SEEDS: Final = (1, 2)
TEMPERATURES: Final = (0.7, 0.1)
MAX_TOKENS: Final = 1_000


@dataclass(slots=True, frozen=True)
class Asked:
    """One answer that is asked for."""

    question: str
    """A key of `QUESTIONS`."""
    seed: int
    temperature: float

    @property
    def id(self) -> str:
        """Names the answer in the results and in the fixture."""
        return f"{self.question}-t{self.temperature:g}-s{self.seed}"

    def parameters(self, model: str) -> dict[str, object]:
        """Of `chat.completions.create`. What the server would choose by itself is said here, so
        that the same seed gives the same answer.
        """
        return {
            "model": model,
            "messages": [{"role": "user", "content": QUESTIONS[self.question]}],
            "max_tokens": MAX_TOKENS,
            "seed": self.seed,
            "temperature": self.temperature,
            "top_p": 0.95,
            "extra_body": {"top_k": 40, "min_p": 0.05, "repeat_penalty": 1.0},
            "stream": True,
        }


def everything() -> list[Asked]:
    """All answers: every question at every temperature with every seed."""
    return [Asked(question, seed, at) for at in TEMPERATURES for seed in SEEDS for question in QUESTIONS]
