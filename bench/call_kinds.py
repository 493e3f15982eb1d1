"""Sequences of calls of many kinds, made from a seed: loops that must be caught, and good work that
must not be stopped.

A kind gives turns; a turn is a list of calls, each with the result that it got. Times, ids and
names come from the seed.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from bench.benign_kinds import NOUNS

Rng: TypeAlias = random.Random
PLACES = ("Paris", "Lima", "Oslo", "Quito", "Cairo", "Turin", "Perth", "Dakar", "Hanoi", "Malmo", "Tampa", "Leeds")
ROUNDS = 14
"""Turns that a loop goes on for; those whose unit is longer take more."""


class Step(NamedTuple):
    """A call, and what came back."""

    tool: str
    arguments: Mapping[str, Any]
    result: str | None = "ok"
    """`None`: not seen."""
    is_error: bool = False


Turns: TypeAlias = Iterator[list[Step]]
Make: TypeAlias = Callable[[Rng], Turns]


def day(rng: Rng) -> str:
    """A date and a time, never the same one twice."""
    return (
        f"20{rng.randint(20, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
        f":{rng.randint(0, 59):02}.{rng.randint(0, 999):03}Z"
    )


def clock(rng: Rng) -> str:
    """A time of the day."""
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"


def new_id(rng: Rng) -> str:
    """A UUID."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def digest(rng: Rng, chars: int = 40) -> str:
    """A hash in hexadecimal."""
    return "".join(rng.choice("0123456789abcdef") for _ in range(chars - 2)) + "a1"


def token(rng: Rng, chars: int = 14) -> str:
    """Letters and digits."""
    return "".join(rng.choice("ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz23456789") for _ in range(chars - 1)) + "7"


def page(rng: Rng, lines: int = 12) -> str:
    """A text that is long enough to be an answer, and new each time."""
    return "\n".join(" ".join(rng.choices(NOUNS, k=9)) for _ in range(lines))


def failing(rng: Rng, names: Sequence[str]) -> str:
    """What a test run prints."""
    lines = "\n".join(f"FAILED tests/test_{name}.py::test_{name} - AssertionError: assert 1 == 2" for name in names)
    return f"{lines}\n{len(names)} failed, 20 passed in {rng.random() * 3:.2f}s"


def one(
    tool: str,
    arguments: Mapping[str, Any],
    make: Callable[[Rng, int], str],
    *,
    times: int = ROUNDS,
    error: bool = False,
) -> Make:
    """The same call again and again."""

    def turns(rng: Rng) -> Turns:
        for number in range(times):
            yield [Step(tool, arguments, make(rng, number), error)]

    return turns


def each(make: Callable[[Rng, int], Sequence[Step]], times: int = ROUNDS) -> Make:
    """A turn for each number."""

    def turns(rng: Rng) -> Turns:
        for number in range(times):
            yield list(make(rng, number))

    return turns


def unit(*steps: Step, rounds: int = 6, at_once: bool = False) -> Make:
    """The same calls in turn, one a turn, or all of them in every turn."""

    def turns(_: Rng) -> Turns:
        for _round in range(rounds):
            if at_once:
                yield list(steps)
            else:
                for step in steps:
                    yield [step]

    return turns


def inside(period: int, rounds: int = 6, tool: str = "read_file") -> Make:
    """One response that goes on and on; nothing of it has run."""

    def turns(rng: Rng) -> Turns:
        names = rng.sample(NOUNS, period)
        yield [Step(tool, {"path": f"src/{names[place % period]}.py"}, "text") for place in range(period * rounds)]

    return turns


def searches(
    queries: Callable[[Rng], Sequence[str]], answer: Callable[[Rng, str], str], tool: str = "web_search"
) -> Make:
    """One search in other words."""

    def turns(rng: Rng) -> Turns:
        for query in queries(rng):
            yield [Step(tool, {"query": query}, answer(rng, query))]

    return turns


def shuffled(rng: Rng) -> list[str]:
    """The same words in another order, now and then with one more."""
    words = [*rng.sample(NOUNS, 3), "maintenance", "schedule"]
    return [
        " ".join([*rng.sample(words, 5), *rng.sample(["latest", "full", "details", "information"], rng.randint(0, 1))])
        for _ in range(9)
    ]


def politer(rng: Rng) -> list[str]:
    """One question with more and more words around it."""
    noun = rng.choice(NOUNS)
    core = f"replace {noun} cable"
    forms = (
        "{}",
        "how to {}",
        "how do I {}",
        "how can I {} myself",
        "please tell me how to {}",
        "steps to {} at home",
        "{} step by step",
        "guide {}",
    )
    return [form.format(core) for form in forms]


def narrower(rng: Rng) -> list[str]:
    """Words are added and taken away."""
    words = rng.sample(NOUNS, 4)
    return [
        " ".join([*words[:3], *extra])
        for extra in (
            ["manual"],
            ["pdf", "manual"],
            ["manual", "download"],
            [],
            ["user", "manual"],
            ["pdf"],
            ["free", "pdf", "manual"],
            ["handbook", "manual"],
        )
    ]


def chinese(_: Rng) -> list[str]:
    """The same without blanks."""
    return [
        "\u5982\u4f55\u4fee\u590d\u6570\u636e\u5e93\u8fde\u63a5\u9519\u8bef",
        "\u6570\u636e\u5e93\u8fde\u63a5\u9519\u8bef\u5982\u4f55\u4fee\u590d",
        "\u6570\u636e\u5e93\u8fde\u63a5\u9519\u8bef\u600e\u4e48\u4fee\u590d",
        "\u4fee\u590d\u6570\u636e\u5e93\u8fde\u63a5\u9519\u8bef\u7684\u65b9\u6cd5",
        "\u600e\u6837\u4fee\u590d\u6570\u636e\u5e93\u7684\u8fde\u63a5\u9519\u8bef",
        "\u6570\u636e\u5e93\u8fde\u63a5\u9519\u8bef\u4fee\u590d\u65b9\u6cd5",
        "\u6570\u636e\u5e93\u9519\u8bef\u8fde\u63a5\u5982\u4f55\u4fee\u590d",
    ]


def nothing_found(rng: Rng, query: str) -> str:
    """Says so, and repeats the question."""
    return f'No results found for "{query}".'


def empty_record(rng: Rng, query: str) -> str:
    """The same as a record with what changes by itself."""
    return json.dumps(
        {"query": query, "results": [], "total": 0, "took_ms": rng.randint(3, 99), "request_id": new_id(rng)}
    )


LISTING = "total 48\n" + "".join(f"-rw-r--r-- 1 user user {size * 13} file{size}.py\n" for size in range(20))
SAME_PAGE = "1. Rivers of the north - a short guide\n2. The old mill\n3. A list of ferries"

LOOPS: dict[str, Make] = {
    # one call whose answers differ in what changes by itself
    "a time stamp": one("status", {}, lambda rng, n: f"[{day(rng)}] nothing to do"),
    "a time stamp in a record": one("sync", {}, lambda rng, n: json.dumps({"state": "idle", "checked_at": day(rng)})),
    "an http date": one(
        "ping", {}, lambda rng, n: f"Date: Thu, {rng.randint(1, 28):02} May 2026 {clock(rng)} GMT\nserver is up"
    ),
    "syslog lines": one(
        "bash",
        {"command": "make"},
        lambda rng, n: f"May {rng.randint(1, 28):2} {clock(rng)} host make: nothing to be done",
    ),
    "seconds since 1970": one(
        "probe", {}, lambda rng, n: json.dumps({"ok": True, "timestamp": 1_700_000_000 + rng.randrange(10**8)})
    ),
    "a request id": one("refresh", {}, lambda rng, n: json.dumps({"data": [], "request_id": f"req_{token(rng)}"})),
    "a uuid": one("apply", {"plan": "a"}, lambda rng, n: f"Accepted as operation {new_id(rng)}, nothing changed"),
    "a hash": one("publish_page", {"page": "a"}, lambda rng, n: f"No change. Build {digest(rng)} is identical"),
    "a memory address": one(
        "python", {"code": "print(x)"}, lambda rng, n: f"<Parser object at 0x{rng.getrandbits(44):x}>"
    ),
    "a process id": one(
        "bash", {"command": "./serve"}, lambda rng, n: f"already running (pid {rng.randint(100, 60000)})"
    ),
    "a process group": one(
        "run_shell_command",
        {"command": "ls"},
        lambda rng, n: f"Output: a.py\nb.py\nExit Code: 0\nProcess Group PGID: {rng.randint(100, 60000)}",
    ),
    "a duration": one("pytest", {"path": "tests"}, lambda rng, n: f"12 passed in {rng.random() * 3 + n:.2f}s"),
    "a duration in a record": one(
        "query", {"sql": "select 1"}, lambda rng, n: json.dumps({"rows": [[1]], "elapsed_ms": rng.randint(1, 9**5) + n})
    ),
    "a counter of attempts": one(
        "connect", {"host": "db"}, lambda rng, n: f"could not connect (attempt {n + 1})", error=True
    ),
    "a counter in a record": one(
        "notebook",
        {"code": "pass"},
        lambda rng, n: json.dumps({"output": "", "exit_code": 0, "execution_count": n, "duration": rng.random()}),
    ),
    "the working folder in a record": one(
        "execute",
        {"command": "make"},
        lambda rng, n: json.dumps({"stdout": "", "exit_code": 2, "cwd": f"/srv/run-{token(rng)}"}),
    ),
    "an environment in a record": one(
        "execute",
        {"command": "true"},
        lambda rng, n: json.dumps(
            {
                "exit_code": 0,
                "output": "",
                "hostname": f"runner-{token(rng)}",
                "metadata": {"workdir": f"/w/{n}", "pid": n},
            }
        ),
    ),
    "the working folder in words": one(
        "execute_bash",
        {"command": "true"},
        lambda rng, n: f"\n[The command completed with exit code 0.]\n[Current working directory: /srv/{token(rng)}]",
    ),
    "a record in a list of parts": one(
        "terminal",
        {"command": "make"},
        lambda rng, n: json.dumps(
            [
                {
                    "type": "text",
                    "text": json.dumps(
                        {"exit_code": 1, "output": "", "duration_ms": rng.randint(1, 9**6), "cwd": f"/a/{n}"}
                    ),
                }
            ]
        ),
    ),
    "a temporary file": one(
        "render",
        {"page": "a"},
        lambda rng, n: f"Written to /tmp/tmp{token(rng, 8).lower()}/out.html: no page has changed",
    ),
    "the age of a pod": one(
        "kubectl",
        {"args": "get pods"},
        lambda rng, n: (
            f"NAME    READY   STATUS    RESTARTS   AGE\nweb-1   0/1     Pending   0          {n + 5}m{rng.randint(1, 59)}s"
        ),
    ),
    "a cell number": one("jupyter", {"code": "x"}, lambda rng, n: f"Out[{n + 3}]: 17"),
    "an error with everything": one(
        "deploy",
        {},
        lambda rng, n: (
            f"Error: {day(rng)} request {new_id(rng)} to node-1 timed out after {n}.{n} s (attempt {n}, pid {rng.randint(2, 9**5)})"
        ),
        error=True,
    ),
    # one search in other words
    "a search in other words, nothing found": searches(shuffled, nothing_found),
    "a search that gets longer, an empty record": searches(politer, empty_record, "search_docs"),
    "a search that gets longer, an empty list": searches(narrower, lambda rng, query: "[]", "search"),
    "a search in other words, the same short page": searches(shuffled, lambda rng, query: SAME_PAGE, "kb_search"),
    "a search in other words, the same long page": searches(politer, lambda rng, query: LISTING, "google_search"),
    "a search in Chinese": searches(chinese, lambda rng, query: "\u6ca1\u6709\u7ed3\u679c", "search"),
    "a search with more results wanted": each(
        lambda rng, n: [
            Step(
                "search_docs",
                {"query": ["tax form late", "late tax form", "form tax late filing"][n % 3], "limit": 5 * (n + 1)},
                '{"hits": []}',
            )
        ],
        9,
    ),
    # cycles
    "two calls in turn": unit(Step("run_tests", {}, "3 failed"), Step("read_file", {"path": "a.py"}, "x = 1")),
    "three calls in turn": unit(
        Step("ls", {"path": "."}, "a b"), Step("read_file", {"path": "a"}, "1"), Step("grep", {"pattern": "x"}, "a:1")
    ),
    "edit and undo": unit(
        Step("edit", {"path": "a", "old": "x", "new": "y"}, "ok"),
        Step("edit", {"path": "a", "old": "y", "new": "x"}, "ok"),
    ),
    "two calls at once": unit(
        Step("read_file", {"path": "a"}, "1"), Step("read_file", {"path": "b"}, "2"), at_once=True
    ),
    "eight calls at once": unit(*(Step("read_file", {"path": f"{n}.py"}, f"{n}") for n in range(8)), at_once=True),
    "twenty calls at once": unit(*(Step("read_file", {"path": f"{n}.py"}, f"{n}") for n in range(20)), at_once=True),
    "two calls in turn with times": each(
        lambda rng, n: [
            Step("run_tests", {}, failing(rng, ["river"]))
            if n % 2
            else Step("get_state", {}, json.dumps({"at": day(rng), "state": "red"}))
        ],
        14,
    ),
    "one look between": each(
        lambda rng, n: [
            Step("list_files", {"path": "x"}, "none") if n == 4 else Step("bash", {"command": "ab"[n % 2]}, "same")
        ],
        12,
    ),
    "one failing edit between": each(
        lambda rng, n: [
            Step("edit", {"old": "q"}, "Error: old string not found", is_error=True)
            if n == 4
            else Step("bash", {"command": "ab"[n % 2]}, "same")
        ],
        12,
    ),
    # in one response, where nothing has run
    "a cycle of two in one response": inside(2),
    "a cycle of five in one response": inside(5),
    "a cycle of six in one response": inside(6),
    "a cycle of nine in one response": inside(9),
    "a cycle of seven edits in one response": inside(7, 7, "edit_file"),
    "a cycle of polls in one response": unit(
        *[Step("get_job_status", {"id": 1}, None), Step("get_job_log", {"id": 1}, None)] * 6, at_once=True, rounds=1
    ),
    "equal calls in one response": unit(*[Step("read_file", {"path": "a"}, "1")] * 7, at_once=True, rounds=1),
    # what was always seen
    "the same call": one("read_file", {"path": "a"}, lambda rng, n: "x = 1"),
    "one error whatever is asked": each(
        lambda rng, n: [
            Step("sql", {"query": f"DESCRIBE t{n}"}, "ERROR 2002: the server cannot be reached", is_error=True)
        ]
    ),
    "a tool that is not there": each(
        lambda rng, n: [Step("browse", {"url": f"{n}"}, "browse is not a valid tool, try one of [search, read]")]
    ),
    "one mail again and again": one(
        "send_mail", {"to": "a@example.com"}, lambda rng, n: json.dumps({"id": new_id(rng)}), times=9
    ),
}


def fix_and_test(rng: Rng) -> Turns:
    """An edit, then the tests, whose failures get fewer."""
    names = rng.sample(NOUNS, 8)
    for left in range(8, 0, -1):
        yield [Step("run_tests", {}, failing(rng, names[:left]))]
        yield [Step("edit_file", {"path": f"{names[left - 1]}.py", "new": token(rng)}, "The file was updated.")]
    yield [Step("run_tests", {}, "28 passed in 0.41s")]


def edit_between_checks(rng: Rng) -> Turns:
    """It looks twice, edits once, and looks again: the same failures still."""
    failed, text = failing(rng, rng.sample(NOUNS, 2)), page(rng)
    for number in range(6):
        for _ in range(2):
            yield [Step("run_tests", {}, failed)]
            yield [Step("read_file", {"path": "a.py"}, text)]
        yield [Step("edit_file", {"path": "a.py", "new": f"{number}"}, "The file was updated.")]


def edit_between_checks_at_once(rng: Rng) -> Turns:
    """The same with two checks in one response."""
    for number in range(9):
        for _ in range(1 + number % 2):
            yield [Step("lint", {}, "ok"), Step("typecheck", {}, "1 error in a.py")]
        yield [Step("write_file", {"path": "a.py", "content": f"{number}"}, "written")]


def shell_edit_between_checks(rng: Rng) -> Turns:
    """Edits by a shell, which print nothing."""
    for number in range(8):
        for _ in range(2):
            yield [Step("bash", {"command": "pytest -q"}, "1 failed, 3 passed in 0.20s")]
            yield [Step("bash", {"command": "cat a.py"}, "x = 1")]
        yield [Step("bash", {"command": f"sed -i s/a{number}/b/ a.py"}, "")]


def windows_of_a_file(rng: Rng) -> Turns:
    """A long file, window by window."""
    for number in range(14):
        yield [Step("read_file", {"path": "big.txt", "offset": number * 100, "limit": 100}, page(rng))]


def search_with_hits(rng: Rng) -> Turns:
    """Reworded searches that find something else each time."""
    for query in shuffled(rng):
        yield [Step("web_search", {"query": query}, page(rng, 5))]


def search_then_found(rng: Rng) -> Turns:
    """Two searches find nothing, the third does."""
    for _ in range(4):
        for place, query in enumerate(shuffled(rng)[:3]):
            yield [Step("web_search", {"query": query}, page(rng, 5) if place == 2 else "No results found.")]
        yield [Step("open_page", {"url": f"https://example.com/{token(rng)}"}, page(rng))]


def retries_that_recover(rng: Rng) -> Turns:
    """A server that is down for a moment."""
    for number in range(4):
        for attempt in range(3):
            yield [
                Step(
                    "fetch",
                    {"url": f"https://example.com/{number}"},
                    f"503 Service Unavailable ({day(rng)}, attempt {attempt})",
                    is_error=True,
                )
            ]
        yield [Step("fetch", {"url": f"https://example.com/{number}"}, page(rng))]


def job_that_gets_on(rng: Rng) -> Turns:
    """Polled until it is done; the share rises."""
    for percent in range(0, 101, 5):
        yield [
            Step(
                "get_job",
                {"id": 7},
                json.dumps({"state": "running", "percent": percent, "elapsed_s": percent * 3, "at": day(rng)}),
            )
        ]


def job_that_waits(rng: Rng) -> Turns:
    """Polled, unchanged but for the time, for a while."""
    for _ in range(12):
        yield [Step("get_job_status", {"id": 7}, json.dumps({"status": "queued", "checked_at": day(rng)}))]
    yield [Step("get_job_status", {"id": 7}, '{"status": "done"}')]


def same_checks_after_each_edit(rng: Rng) -> Turns:
    """Four checks in one response after each edit."""
    for number in range(9):
        yield [Step("edit_file", {"path": "a.py", "new": f"{number}"}, "ok")]
        yield [Step(name, {}, "1 error" if name == "pytest" else "ok") for name in ("ruff", "mypy", "pytest", "build")]


def many_files_at_once(rng: Rng) -> Turns:
    """Parallel reads, other files in each response, and the first ones again once."""
    names = [f"src/{name}.py" for name in rng.sample(NOUNS, 20)]
    for start in (0, 10, 0):
        yield [Step("read_file", {"path": name}, f"{name}\n{LISTING}") for name in names[start : start + 10]]
        yield [Step("edit_file", {"path": names[start], "new": token(rng)}, "ok")]


def scroll_and_look_at_once(rng: Rng) -> Turns:
    """A page is scrolled three times in one response, with a look after each."""
    for _ in range(4):
        looks = [Step("screenshot", {}, digest(rng, 64)) for _ in range(3)]
        yield [step for look in looks for step in (Step("scroll", {"by": 600}, "ok"), look)]


def pages_of_ids(rng: Rng) -> Turns:
    """A list of nothing but ids, page by page, by the same call."""
    for _ in range(12):
        yield [Step("next_page", {}, json.dumps({"items": [new_id(rng) for _ in range(10)], "next": new_id(rng)}))]


def pages_of_ids_by_cursor(rng: Rng) -> Turns:
    """The same with a cursor."""
    cursor = "first"
    for _ in range(12):
        following = new_id(rng)
        yield [
            Step(
                "list_orders", {"cursor": cursor}, json.dumps({"orders": [new_id(rng), new_id(rng)], "next": following})
            )
        ]
        cursor = following


def asked(tool: str, key: str, answer: Callable[[Rng, str], str], values: Callable[[Rng], Sequence[str]]) -> Make:
    """One question about each thing of a list."""

    def turns(rng: Rng) -> Turns:
        for value in values(rng):
            yield [Step(tool, {key: value}, answer(rng, value))]

    return turns


def nouns(rng: Rng) -> list[str]:
    """Twelve words."""
    return rng.sample(NOUNS, 12)


def climbs_out(rng: Rng) -> Turns:
    """A test run that fails in other places until it passes; the same read before each."""
    for left in range(6, 0, -1):
        yield [Step("read_file", {"path": "a.py"}, f"x = {left}")]
        yield [Step("edit_file", {"path": "a.py", "old": f"x = {left}", "new": f"x = {left - 1}"}, "ok")]
        yield [Step("bash", {"command": "pytest"}, f"E   line {left}: AssertionError\n1 failed in 0.3{left}s")]


GOOD: dict[str, Make] = {
    # tests, edits, reads
    "fix and test": fix_and_test,
    "an edit between checks": edit_between_checks,
    "an edit between checks at once": edit_between_checks_at_once,
    "an edit by the shell between checks": shell_edit_between_checks,
    "the same checks after each edit": same_checks_after_each_edit,
    "an error that moves": climbs_out,
    "windows of a file": windows_of_a_file,
    "windows by lines": each(
        lambda rng, n: [Step("bash", {"command": f"sed -n {n * 50},{n * 50 + 49}p a.py"}, page(rng, 6))]
    ),
    "many files at once": many_files_at_once,
    "edits of many files": each(
        lambda rng, n: [Step("edit_file", {"path": f"{NOUNS[n]}.py", "new": "import os"}, "The file was updated.")], 20
    ),
    "tests after each edit pass": each(
        lambda rng, n: [
            Step("edit_file", {"path": f"m{n}.py", "new": token(rng)}, "ok"),
            Step("pytest", {}, f"12 passed in 0.{n + 31}s"),
        ]
    ),
    "the folder after each write": each(
        lambda rng, n: [
            Step("write_file", {"path": f"f{n}", "content": "x"}, "ok"),
            Step("ls", {"path": "."}, "\n".join(f"f{m}" for m in range(n + 1))),
        ]
    ),
    "a commit after each edit": each(
        lambda rng, n: [
            Step("edit_file", {"path": "a", "new": f"{n}"}, "ok"),
            Step(
                "bash",
                {"command": "git commit -am wip"},
                f"[main {digest(rng, 7)}] wip\n 1 file changed, 1 insertion(+)",
            ),
        ]
    ),
    "a file is written in parts": each(
        lambda rng, n: [Step("append_file", {"path": "book.md", "text": page(rng)}, "appended")]
    ),
    "the same edit in many files": each(
        lambda rng, n: [
            Step("replace", {"path": f"src/{NOUNS[n]}.py", "old": "colour", "new": "color"}, "Replaced 1 occurrence.")
        ],
        16,
    ),
    "the log grows": each(
        lambda rng, n: [Step("bash", {"command": "cat build.log"}, "\n".join(f"step {m} done" for m in range(n + 1)))]
    ),
    "coverage rises": each(
        lambda rng, n: [Step("write_test", {"n": n}, "ok"), Step("coverage", {}, f"TOTAL 200 {60 - 3 * n} {70 + n}%")]
    ),
    "warnings get fewer": each(lambda rng, n: [Step("fix", {"at": n}, "ok"), Step("lint", {}, f"{30 - n} warnings")]),
    # searches
    "a search with other hits": search_with_hits,
    "a search that finds at last": search_then_found,
    "one word after the other": asked(
        "search_code", "pattern", lambda rng, value: "No matches found.", lambda rng: rng.sample(NOUNS, 6)
    ),
    "a search about each city": asked(
        "web_search",
        "query",
        lambda rng, value: page(rng, 4),
        lambda rng: [f"population of {place} today" for place in PLACES],
    ),
    "a search about each city that finds nothing": asked(
        "web_search",
        "query",
        lambda rng, value: "No results found.",
        lambda rng: [f"floods in {place} this week" for place in rng.sample(PLACES, 7)],
    ),
    "orders by number": asked(
        "search_orders",
        "query",
        lambda rng, value: "[]",
        lambda rng: [f"open order {n} of this customer" for n in range(411, 418)],
    ),
    "a pattern in each folder": asked(
        "grep",
        "path",
        lambda rng, value: "No matches found.",
        lambda rng: [f"src/{name}" for name in rng.sample(NOUNS, 7)],
    ),
    "greps that find nothing": each(
        lambda rng, n: [Step("bash", {"command": f"grep -rn {rng.choice(NOUNS)}_{n} src"}, "", is_error=True)]
    ),
    "a lint of each file": asked(
        "lint_file", "path", lambda rng, value: "No problems found.", lambda rng: [f"{name}.py" for name in nouns(rng)]
    ),
    "documents of a search": each(lambda rng, n: [Step("open_result", {"number": n}, page(rng))]),
    "a search and its pages": each(lambda rng, n: [Step("search", {"query": "river boats", "page": n}, page(rng, 4))]),
    "empty pages at the end": each(
        lambda rng, n: [Step("search", {"query": "river boats", "page": n}, page(rng, 4) if n < 9 else "[]")], 12
    ),
    "a lookup of each name": asked(
        "find_customer", "name", lambda rng, value: json.dumps({"id": new_id(rng), "name": value}), nouns
    ),
    "ids of many names": asked("resolve", "name", lambda rng, value: json.dumps({"id": new_id(rng)}), nouns),
    "hashes of many files": asked("sha256", "path", lambda rng, value: digest(rng, 64), nouns),
    "dates of many events": asked("event_date", "name", lambda rng, value: day(rng), nouns),
    # pages
    "pages by number": each(
        lambda rng, n: [
            Step("list_items", {"page": n}, json.dumps({"items": [n * 10 + m for m in range(10)], "at": day(rng)}))
        ]
    ),
    "pages of ids": pages_of_ids,
    "pages of ids by cursor": pages_of_ids_by_cursor,
    "the next page of the same call": each(lambda rng, n: [Step("next_page", {}, page(rng))]),
    "the next message of the same call": each(
        lambda rng, n: [
            Step(
                "read_next", {}, json.dumps({"id": new_id(rng), "at": day(rng), "text": " ".join(rng.sample(NOUNS, 5))})
            )
        ]
    ),
    "rows by offset": each(
        lambda rng, n: [Step("sql", {"table": "t", "offset": 5 * n}, "\n".join(rng.sample(NOUNS, 5)))]
    ),
    # waiting
    "a job that gets on": job_that_gets_on,
    "a job that waits": job_that_waits,
    "a build that prints": each(
        lambda rng, n: [
            Step("bash", {"command": "tail -n 1 build.log"}, f"[{n * 7}/200] compiling {rng.choice(NOUNS)}.c")
        ]
    ),
    "a progress bar": each(
        lambda rng, n: [
            Step(
                "download_status",
                {"id": 1},
                f"{n * 6}% |{'#' * n}{' ' * (16 - n)}| {n * 31}/500 [00:{n:02}<00:{40 - n}, 3.2it/s]",
            )
        ],
        15,
    ),
    "a shell that sleeps": each(
        lambda rng, n: [
            Step(
                "bash",
                {"command": "sleep 30 && kubectl get pods"},
                f"web-1   0/1   Pending   0   {n}m{rng.randint(1, 59)}s",
            )
        ],
        9,
    ),
    "a wait that gets shorter": each(
        lambda rng, n: [Step("queue", {}, json.dumps({"state": "waiting", "remaining_s": 300 - 20 * n}))]
    ),
    "a countdown": each(lambda rng, n: [Step("check", {}, f"starts in {60 - 4 * n} seconds")]),
    "bytes of a transfer": each(
        lambda rng, n: [Step("transfer", {"id": 3}, f"{1_500_000_000 + n * 31_000_000} of 2000000000 bytes")]
    ),
    "a training run": each(
        lambda rng, n: [
            Step("bash", {"command": "tail -n 1 train.log"}, f"{day(rng)} epoch {n} loss {2 / (n + 1):.4f}")
        ]
    ),
    "pods that start": each(
        lambda rng, n: [Step("kubectl", {"args": "get pods"}, f"web   {n}/20   Running   0   {n}m2s")]
    ),
    "replicas and a poll in turn": each(
        lambda rng, n: [Step("get_status", {}, f"{n} of 12 ready") if n % 2 else Step("get_logs", {}, page(rng, 2))]
    ),
    # measuring, playing, clicking
    "a measurement": one("bash", {"command": "python bench.py"}, lambda rng, n: f"parse: {1 + n * 0.03:.2f} s"),
    "throws of dice": one("roll_dice", {"sides": 20}, lambda rng, n: f"You rolled {n + 1}"),
    "a price": one(
        "get_quote",
        {"symbol": "ABC"},
        lambda rng, n: json.dumps({"symbol": "ABC", "price": 101 + n / 7, "timestamp": day(rng)}),
    ),
    "five ids that were asked for": one("new_uuid", {}, lambda rng, n: new_id(rng)),
    "a counter that is clicked": one("click", {"at": "#plus"}, lambda rng, n: json.dumps({"counter": n + 1})),
    "steps of a debugger": one("step", {}, lambda rng, n: f"main.c:{n + 10}\tx = {rng.choice(NOUNS)};"),
    "moves in a maze": each(
        lambda rng, n: [
            Step("move", {"to": rng.choice(["north", "south", "east", "west"])}, " ".join(rng.sample(NOUNS, 6)))
        ],
        24,
    ),
    "scrolling": one("scroll", {"by": 600}, lambda rng, n: page(rng, 4)),
    "scroll and look at once": scroll_and_look_at_once,
    "keys and screens": each(
        lambda rng, n: [Step("send_keys", {"keys": "Tab"}, "ok"), Step("screenshot", {}, page(rng, 3))]
    ),
    "filling a form": each(lambda rng, n: [Step("type", {"field": NOUNS[n], "text": "x"}, "ok")]),
    # effects and retries
    "retries that recover": retries_that_recover,
    "a mail to each customer": asked(
        "send_mail", "to", lambda rng, value: json.dumps({"ok": True, "id": new_id(rng)}), nouns
    ),
    "rows that are added": each(lambda rng, n: [Step("insert_row", {"name": NOUNS[n]}, json.dumps({"inserted": 1}))]),
    "an error that is worked on": each(
        lambda rng, n: [Step("bash", {"command": f"make T{n}"}, f"a.c:{n + 3}: error: expected ';'", is_error=True)]
    ),
    "other errors": each(
        lambda rng, n: [Step("bash", {"command": f"./x{n}"}, f"Error: no such option: --{NOUNS[n]}", is_error=True)]
    ),
    "two tries each": each(
        lambda rng, n: [
            Step("click", {"at": f"#b{n // 2}"}, "Error: not visible yet" if n % 2 == 0 else "clicked", n % 2 == 0)
        ]
    ),
    "sub-agents at once": unit(*[Step("task", {"prompt": "review the change"}, None)] * 6, at_once=True, rounds=1),
    "thinking between": each(
        lambda rng, n: [
            Step("think", {"thought": " ".join(rng.sample(NOUNS, 7))}, ""),
            Step("read_file", {"path": f"{n}.py"}, page(rng)),
        ]
    ),
    "a plan that is ticked off": each(
        lambda rng, n: [
            Step("update_plan", {"done": list(range(n))}, "Plan updated"),
            Step("bash", {"command": f"make part{n}"}, "ok"),
        ]
    ),
    "cells of a notebook": each(
        lambda rng, n: [
            Step(
                "run_cell",
                {"code": f"x = {n}"},
                json.dumps({"output": "", "exit_code": 0, "execution_count": n, "cwd": "/w"}),
            )
        ]
    ),
}

# Made after the rules, and run before anything was tuned to them: of 20 good kinds two were
# stopped, of 16 loops four were missed. The rules were mended for all but one, the events of
# `kubectl describe`, which are not here.

GOOD |= {
    "free slots": each(
        lambda rng, n: [
            Step(
                "next_free_slot",
                {},
                json.dumps({"start": f"2026-05-{n + 1:02}T10:00:00Z", "end": f"2026-05-{n + 1:02}T10:30:00Z"}),
            )
        ],
        12,
    ),
    "free slots in a room": each(
        lambda rng, n: [
            Step("next_free_slot", {}, json.dumps({"room": "A", "start": f"2026-05-{n + 1:02}T10:00:00Z"}))
        ],
        12,
    ),
    "weather by day": each(
        lambda rng, n: [Step("get_weather", {"day": n}, json.dumps({"temp": rng.randint(1, 30), "as_of": day(rng)}))]
    ),
    "weather same": each(
        lambda rng, n: [
            Step("get_weather", {"city": PLACES[n % 12]}, json.dumps({"sky": "sunny", "timestamp": day(rng)}))
        ],
        12,
    ),
    "git log loop": each(
        lambda rng, n: [
            Step(
                "bash",
                {"command": "git add -A && git commit -m wip"},
                f"[main {digest(rng, 7)}] wip\n {n + 1} files changed",
            )
        ]
    ),
    "curl health while waiting": each(
        lambda rng, n: [
            Step(
                "bash",
                {"command": "sleep 5; curl -s localhost:8000/health"},
                "curl: (7) Failed to connect" if n < 8 else "ok",
            )
        ],
        9,
    ),
    "read mails": each(
        lambda rng, n: [
            Step(
                "read_mail",
                {"id": new_id(rng)},
                json.dumps({"from": "x", "date": day(rng), "text": " ".join(rng.sample(NOUNS, 6))}),
            )
        ]
    ),
    "empty mailboxes": each(lambda rng, n: [Step("search_mail", {"query": f"from:{NOUNS[n]}@example.com"}, "[]")], 7),
    "sql rows by name": each(
        lambda rng, n: [Step("sql", {"query": f"SELECT * FROM users WHERE name = '{NOUNS[n]}'"}, "[]")], 7
    ),
    "sql updates": each(
        lambda rng, n: [
            Step(
                "sql",
                {"query": f"UPDATE users SET active = true WHERE name = '{NOUNS[n]}' AND town = '{NOUNS[-n - 1]}'"},
                "[]",
            )
        ],
        12,
    ),
    "docs: each concept": asked(
        "search_docs",
        "query",
        lambda rng, value: "No results.",
        lambda rng: [
            "how to configure logging",
            "how to configure tracing",
            "rotate api keys",
            "retry policy for uploads",
            "pricing of storage",
            "limits of queues",
        ],
    ),
    "tail -f": each(
        lambda rng, n: [
            Step("bash", {"command": "tail -n 3 app.log"}, f"{day(rng)} INFO handled request {n}\n{day(rng)} INFO ok")
        ]
    ),
    "stat mtime": each(
        lambda rng, n: [
            Step("edit", {"n": n}, "ok"),
            Step("bash", {"command": "stat a.py"}, f"Size: {n * 3 + 100}\nModify: 2026-05-01 10:{n:02}:00.000 +0000"),
        ]
    ),
    "docker ps up": each(
        lambda rng, n: [Step("edit", {"n": n}, "ok"), Step("bash", {"command": "docker ps"}, f"abc web Up {n} minutes")]
    ),
    "game board": each(
        lambda rng, n: [Step("play", {"move": rng.choice("abc")}, "".join(rng.choice("XO.") for _ in range(9)))], 20
    ),
    "browser same url": each(
        lambda rng, n: [
            Step("browser_click", {"ref": f"e{n}"}, page(rng, 3)),
            Step("browser_snapshot", {}, page(rng, 6)),
        ]
    ),
    "five searches none then stop": searches(
        lambda rng: [
            "fire station opening hours",
            "is the library open on sunday",
            "parking near city hall",
            "tram line nine detour",
            "tax office phone number",
        ],
        lambda rng, query: "No results found.",
    ),
    "grep variants": asked(
        "grep",
        "pattern",
        lambda rng, value: "No matches found",
        lambda rng: ["def parse_config", "class ConfigParser", "load_settings\\(", "read_settings", "import config"],
    ),
    "checks twice around each edit": each(
        lambda rng, n: [Step("run_tests", {}, "1 failed")] if n % 3 != 1 else [Step("apply_patch", {"n": n}, "Done")],
        18,
    ),
    "time asked": one("get_current_time", {"tz": "UTC"}, lambda rng, n: json.dumps({"now": day(rng)}), times=6),
}
LOOPS |= {
    "ls with date in result": one("ls", {"path": "."}, lambda rng, n: f"a.py\nb.py\nlisted at {clock(rng)}"),
    "mcp meta": one(
        "call_tool",
        {"name": "x"},
        lambda rng, n: json.dumps(
            {
                "content": [{"type": "text", "text": "nothing new"}],
                "meta": {"traceId": new_id(rng), "latencyMs": rng.randint(1, 900)},
            }
        ),
    ),
    "codex record": one(
        "shell",
        {"command": ["ls"]},
        lambda rng, n: json.dumps(
            {"output": "a\nb\n", "metadata": {"exit_code": 0, "duration_seconds": round(rng.random(), 1)}}
        ),
    ),
    "codex text": one(
        "shell",
        {"command": ["make"]},
        lambda rng, n: f"Exit code: 2\nWall time: {rng.random() * 9:.1f} seconds\nOutput:\nmake: *** No rule",
    ),
    "server date header": one(
        "http_get",
        {"url": "u"},
        lambda rng, n: json.dumps(
            {
                "status": 200,
                "headers": {
                    "date": f"Mon, {rng.randint(1, 28):02} May 2026 {clock(rng)} GMT",
                    "x-request-id": token(rng),
                },
                "body": "[]",
            }
        ),
    ),
    "copilot": one("bash", {"command": "x"}, lambda rng, n: f"<shellId: {n} completed with exit code 0>"),
    "ruby test": one(
        "bash",
        {"command": "rspec"},
        lambda rng, n: (
            f"Finished in {rng.random():.5f} seconds (files took {rng.random() * 2:.3f} seconds to load)\n5 examples, 0 failures"
        ),
    ),
    "go test": one("bash", {"command": "go test"}, lambda rng, n: f"ok  \texample.com/a\t{rng.random():.3f}s"),
    "jest": one(
        "bash",
        {"command": "npm test"},
        lambda rng, n: f"Tests: 3 passed, 3 total\nTime:        {rng.random() * 9:.3f} s",
    ),
    "cargo": one(
        "bash",
        {"command": "cargo build"},
        lambda rng, n: f"    Finished `dev` profile [unoptimized] target(s) in {rng.random():.2f}s",
    ),
    "unittest": one(
        "bash", {"command": "python -m unittest"}, lambda rng, n: f"Ran 3 tests in {rng.random():.3f}s\n\nOK"
    ),
    "reworded 2": searches(
        lambda rng: [
            "python asyncio cancel task",
            "asyncio cancel task python",
            "how to cancel an asyncio task in python",
            "cancel a running asyncio task",
            "python cancel asyncio task example",
            "asyncio task cancellation python",
        ],
        lambda rng, query: f"0 results for '{query}'",
    ),
    "reworded uppercase": searches(
        lambda rng: [
            "Acme Corp annual report 2023",
            "2023 Acme Corp annual report",
            "Acme Corp 2023 annual report pdf",
            "annual report Acme Corp 2023 download",
            "Acme Corp report annual 2023",
        ],
        lambda rng, query: json.dumps({"results": [], "query": query, "answer": None}),
    ),
    "reworded tavily": searches(
        lambda rng: [
            "best hiking trails near lake",
            "hiking trails near the lake best",
            "top hiking trails near lake",
            "best trails for hiking near lake",
            "near lake best hiking trails list",
            "good hiking trails near lake",
        ],
        lambda rng, query: "I couldn't find any results.",
        "tavily_search_results_json",
    ),
    "cycle w meta": each(
        lambda rng, n: [
            Step("a", {}, json.dumps({"x": 1, "ts": 1700000000 + n}))
            if n % 2
            else Step("b", {}, f"pid={n * 7 + 100} idle")
        ],
        14,
    ),
}
