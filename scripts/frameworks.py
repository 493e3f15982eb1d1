"""Writes the part of docs/integrations.md that says which programs of which framework are tested
with the real package.

python scripts/frameworks.py            write the part
python scripts/frameworks.py --check    exit with 1 if it is not up to date
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "integrations.md"
TESTS = ROOT / "tests" / "integrations"
BEGIN, END = "<!-- programs -->\n", "<!-- end of programs -->\n"

FRAMEWORKS = {
    "pydantic-ai": "Pydantic AI",
    "openai-agents": "OpenAI Agents",
    "langchain": "LangChain",
    "autogen": "AutoGen",
    "adk": "Google ADK",
    "strands": "Strands",
    "agent-framework": "Agent Framework",
    "crewai": "CrewAI",
}
CELLS = (
    *("plain", "streaming", "structured", "tools", "sub-agent", "two sub-agents at once", "graph or team", "hand-off"),
    *("kept agent, four runs at once", "early break", "cancellation", "failing tool", "looping model"),
    *("batch", "chat", "approval", "resume"),
)
CONVERSATIONS = {
    "batch": "test_equal_answers_to_different_questions_are_no_loop",
    "chat": "test_equal_answers_to_different_questions_are_no_loop",
    "approval": "test_a_run_that_goes_on_is_the_same_run_and_its_results_are_seen",
    "resume": "test_a_run_that_goes_on_is_the_same_run_and_its_results_are_seen",
}
"""The tests of the programs in `tests/integrations/test_conversations.py`."""
TEAMS = {
    "sub-agent": {"boss", "as_tool"},
    "two sub-agents at once": {"boss", "gathered", "parallel"},
    "graph or team": {"graph", "batch", "parallel", "sequential"},
    "hand-off": {"transfer"},
}
"""For a cell, the programs of `tests/integrations/teams` that are it."""
_CREW = "test_a_good_team_gives_the_same_with_the_guard_as_without"
OWN = {
    ("crewai", "sub-agent"): _CREW,
    ("crewai", "two sub-agents at once"): _CREW,
    ("crewai", "graph or team"): _CREW,
    ("crewai", "looping model"): "test_a_chant_is_cut_is_not_retried_and_the_server_sees_the_client_leave",
}
"""Cells that a framework's own tests fill, `tests/integrations/test_<framework>.py`."""


NONE = {
    ("pydantic-ai", "graph or team"): "its graphs call no models by themselves",
    ("pydantic-ai", "hand-off"): "an agent calls another as a tool, or the program calls it next",
    ("openai-agents", "graph or team"): "several agents are tools or hand-offs",
    ("autogen", "approval"): "it asks nobody before a tool",
    ("crewai", "approval"): "it asks nobody before a tool",
    ("adk", "resume"): "an invocation is run to its end",
    ("strands", "resume"): "an agent is run to its end, or asks a person",
    ("agent-framework", "resume"): "an agent is run to its end, or asks a person",
    ("crewai", "chat"): "a crew has tasks, and no chat",
    ("crewai", "resume"): "a crew is run to its end",
    ("agent-framework", "hand-off"): "hand-offs stand in a package of their own",
    ("crewai", "hand-off"): "an agent delegates, which is a sub-agent",
    ("crewai", "cancellation"): "a cancelled crew goes on, without a guard too",
}
"""Programs that a framework does not have, with the reason."""


def tested() -> dict[tuple[str, str], str]:
    """The test of each cell that has one."""
    found = {(framework, cell): test for (framework, cell), test in OWN.items() if test in _tests_of(framework)}
    programs = _named(TESTS / "test_teams.py", "PROGRAMS")
    drivers = _named(TESTS / "drivers.py", "DRIVERS")
    for cell, frameworks in _named(TESTS / "test_conversations.py", "PROGRAMS").items():
        found |= {(framework, cell): CONVERSATIONS[cell] for framework in frameworks}
    for framework in FRAMEWORKS:
        for cell, names in TEAMS.items():
            if names & set(programs.get(framework, ())):
                found[framework, cell] = "test_a_good_program_gives_the_same_with_the_guard_as_without"
        scenes = TESTS / "transparent" / f"{framework.replace('-', '_')}.py"
        for cell in _named(scenes, "SCENES") if scenes.exists() else ():
            found[framework, cell] = "test_a_scene_gives_the_same_with_the_guard_as_without"
        if framework in drivers:
            found[framework, "looping model"] = (
                "test_a_chant_is_cut_while_it_is_written_and_the_server_sees_the_client_leave"
            )
    return found


def programs() -> str:
    """The programs, the frameworks, and every pair of them that is not tested, in markdown."""
    pairs = {(one, cell): FRAMEWORKS[one] + ", " + cell for one in FRAMEWORKS for cell in CELLS}
    untested = [pair for pair in pairs if pair not in tested()]
    lines = [f"- {pairs[pair]}: {NONE.get(pair, 'not tested')}." for pair in untested]
    first = f"The programs are: {'; '.join(CELLS)}."
    second = f"Each is tested with {', '.join(FRAMEWORKS.values())}, except:"
    return "\n".join([first, "", second, "", *lines]) + "\n"


def _named(path: Path, name: str) -> dict[str, list[str]]:
    """A dict that a module assigns to `name`: its keys, and the texts of each value. The module is
    read and not imported, because it needs its framework.
    """
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)  # noqa: S101 - it has targets
            made = node.value
            if isinstance(made, ast.Dict):
                return {
                    key.value: [one.value for one in ast.walk(value) if _is_text(one)]  # type: ignore[attr-defined,misc]
                    for key, value in zip(made.keys, made.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
    raise LookupError(f"{path} has no dict {name}")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _tests_of(framework: str) -> set[str]:
    path = TESTS / f"test_{framework.replace('-', '_')}.py"
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def page() -> str:
    """The whole page, with the part as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    begin, rest = text.split(BEGIN)
    _, end = rest.split(END)
    return f"{begin}{BEGIN}\n{programs()}\n{END}{end}"


def main() -> int:
    """Write the page, or check it."""
    new = page()
    if "--check" in sys.argv[1:]:
        return int(new != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(new, encoding="utf-8")
    cells = {(framework, cell) for framework in FRAMEWORKS for cell in CELLS}
    print(f"{len(cells & tested().keys())} cells of {len(cells)} are tested, {len(NONE)} programs do not exist")
    return 0


if __name__ == "__main__":
    sys.exit(main())
