"""Texts that the rules of text are tried with: loops with something new in every round, and texts
on the edge of each rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.structure_kinds import chinese as chinese_number
from bench.structure_kinds import letters, roman

# --- loops


def jug_steps(rounds: int) -> str:
    steps = [
        "**Fill the 12-liter jug** completely again.",
        (
            "**Pour from the 12-liter jug into the 6-liter jug** until the 6-liter jug is full, which leaves 6 liters"
            " in the large one."
        ),
        "**Empty the 6-liter jug**.",
        (
            "**Pour the 6 liters from the 12-liter jug into the 6-liter jug**. Now the 6-liter jug is full and the"
            " other is empty again."
        ),
    ]
    return "".join(f"{number + 1}. {steps[number % 4]}\n" for number in range(4 * rounds))


def one_more_time(rounds: int) -> str:
    again = [
        "one more time",
        "once more, carefully",
        "again from the start",
        "a last time",
        "with fresh eyes",
        "another way",
    ]
    plan = (
        "First I read the configuration file and write down which keys it has. Then I compare them with the keys that"
        " the parser knows, and add what is missing there. After that I run the tests and look at the first one that"
        " fails.\n\nThe test still fails, and I do not see why, since the keys are all there and the parser reads every"
        " one of them.\n\n"
    )
    return "".join(f"Let me try {again[turn * turn % 6]}:\n\n{plan}" for turn in range(rounds))


def counter_in_prose(rounds: int) -> str:
    return "".join(
        f"Attempt number {i}: let me read the config again and see what happens now. " for i in range(rounds)
    )


def counter_in_lines(rounds: int) -> str:
    return "".join(
        f"Step {i}: I will now look at the whole configuration once more, since the {i + 1} tries before this one have"
        " all failed.\n"
        for i in range(rounds)
    )


def reworded(rounds: int) -> str:
    rng = random.Random(2)

    def one(*words: str) -> str:
        return rng.choice(words)

    return "".join(
        f"{one('Wait', 'Hmm', 'But wait')}, the man has to take the sheep across first, because the wolf would eat it"
        f" otherwise. {one('So', 'Then', 'Therefore')} he rows the sheep over and comes back alone, which leaves the"
        f" wolf and the cabbage. {one('Alternatively', 'Or', 'Maybe')} he could take the cabbage and return with the"
        " sheep, but that is the same again. "
        for _ in range(rounds)
    )


def chinese(rounds: int) -> str:
    plan = "我需要再次检查配置文件和所有的测试结果"
    then = "然后重新运行程序看看问题是不是已经解决"
    else_ = "如果没有解决就从头开始"
    return "".join(f"第{i}步先{plan}{then}{else_}\n" for i in range(rounds))


LOOPS = {
    make.__name__: make for make in (jug_steps, one_more_time, counter_in_prose, counter_in_lines, reworded, chinese)
}


# --- texts on the edge of a rule

MOST_CHARS = 12_000
ALPHABETS = ("ab", "abc", "abcdefgh", "a\u00e9", "ab\u6211\U0001f600", "abcdefghijklmnopqrstuvwxyz ", "ab1\n-", "a`\n#")


def some_text(rng: random.Random, alphabet: str, scale: int) -> str:
    """Noise, periods, periods with a defect, shared prefixes with varied ends, now and then a fence
    line.
    """
    parts: list[str] = []
    for _ in range(rng.randint(1, 5)):
        unit = "".join(rng.choice(alphabet) for _ in range(rng.randint(1, int(1.9 * scale))))
        times = rng.randint(1, max(2, 16 * scale // len(unit)))
        kind = rng.random()
        if kind < 0.3:
            part = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 4 * scale)))
        elif kind < 0.65:
            part = unit * times
        elif kind < 0.8:
            part = "".join(
                unit + "".join(rng.choice(alphabet) for _ in range(rng.randint(0, scale // 3 + 1)))
                for _ in range(times)
            )
        else:
            part = unit * times
            defect = rng.randrange(len(part))
            part = part[:defect] + rng.choice(alphabet) + part[defect + 1 :]
        parts.append(part)
        if rng.random() < 0.1:
            parts.append(rng.choice(["\n```\n", "\n```py\n", "\n~~~\n", "\n- ", "\n"]))
    return "".join(parts)


def nearly_periodic(rng: random.Random) -> str:
    """Rounds of a few lines or one paragraph, with counters, changes and noise; fences and rows now
    and then.
    """
    words = ["alpha", "beta", "(x)", "12", "gamma", "delta.", "\u6211\u4eec", "=", "=>", "\U0001f600"]
    out: list[str] = []
    for _ in range(rng.randint(1, 4)):
        lines = [" ".join(rng.choices(words, k=rng.randint(3, 30))) for _ in range(rng.randint(1, 4))]
        end, counted = rng.choice(["\n", "\n\n", " ", "\n- "]), rng.random() < 0.5
        for turn in range(rng.randint(2, 60)):
            out += [f"{turn if counted else ''}{line if rng.random() > 0.1 else line[::-1]}{end}" for line in lines]
            if len(out) > 200:
                break
        if rng.random() < 0.3:
            out.append(rng.choice(["\n```\n", "\n~~~\n", "\n" + "-" * 300 + "\n"]))
    return "".join(out)[:MOST_CHARS]


def counting(rng: random.Random) -> str:
    """Rounds with counters, some of which skip, are disturbed or are several; fences now and
    then.
    """
    words = ["alpha", "beta", "(x)", "gamma", "delta.", "\u6211\u4eec", "=>", "\U0001f600", "12:", "v1.", "no"]
    out: list[str] = []
    for _ in range(rng.randint(1, 4)):
        lines = [
            "".join(f"{word} " for word in rng.choices(words, k=rng.randint(1, 12))) for _ in range(rng.randint(1, 3))
        ]
        scripts: list[Callable[[int], str]] = [str, str, chinese_number, roman, letters]
        write, end = rng.choice(scripts), rng.choice([".\n", "\n", "\n\n", ". ", "\n- "])
        by, twice, slips = rng.choice([1, 1, 2, -1, 0]), rng.random() < 0.2, rng.choice([0, 0, 0.02, 0.2])
        first, many = rng.randint(80, 120), rng.randint(3, 70)
        for turn in range(many * len(lines)):
            number = write(max(first + by * turn + (rng.random() < slips), 1))
            out.append(f"{number}. {lines[turn % len(lines)]}{number if twice else ''}{end}")
        out.append(rng.choice(["", "", "\n```\n", "\n~~~\n", "\nSomething else.\n"]))
    return "".join(out)[:MOST_CHARS]


EDGES: dict[str, Callable[[random.Random], str]] = {
    "periods": lambda rng: some_text(rng, rng.choice(ALPHABETS), 60),
    "rounds": nearly_periodic,
    "counters": counting,
}
