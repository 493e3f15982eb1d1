"""What a user of a framework sees of a good program, as plain data that can be compared.

A framework is a module beside this one with `SCENES`: a function for each scene. It runs the same
program with a guard, and with `None` without one, and returns what its user sees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from tests.integrations.teams.service import answered
from tests.integrations.wires import GEMINI, Wire

Scene: TypeAlias = Callable[[str, Any], Coroutine[Any, Any, Any]]
"""Takes the address of the server and a guard, or `None`."""

_CHANCE = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"  # ids
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?"  # moments
    r'|(?<="created_at": )\d+\.\d+'
)


def guards(given: Any) -> list[Any]:
    """The guards of a scene, the innermost first: none, one, or those of a list."""
    return [] if given is None else given if isinstance(given, list) else [given]


def behind(given: Any, wrap: Callable[[Any, Any], Any], model: Any) -> Any:
    """The model behind each of the guards."""
    for guard in guards(given):
        model = wrap(model, guard)
    return model


def seen(*values: Any) -> Any:
    """The values as JSON data, without ids and moments, which differ from run to run."""
    return json.loads(_CHANCE.sub("0", json.dumps(values, default=_plain, sort_keys=True)))


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return {"is": type(value).__name__, **value.model_dump(mode="json")}
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else repr(value)


def told(error: BaseException | None, above: tuple[BaseException, ...] = ()) -> Any:
    """An exception with its causes and its contexts. `above`: those that have it as such."""
    if error is None or error in above:  # a framework may raise one error from another and then it again
        return None
    name, above = f"{type(error).__module__}.{type(error).__qualname__}: {error}", (*above, error)
    return [name, told(error.__cause__, above), told(error.__context__, above)]


async def raised(program: Coroutine[Any, Any, Any]) -> Any:
    """The exception that the program ends with."""
    try:
        return await program
    except Exception as error:  # noqa: BLE001 - each framework has its own
        return seen(told(error))


def scripts(wire: Wire, scene: str) -> Any:
    """The service of a scene."""
    if scene == "cancellation":
        return [wire.waits()]
    if scene == "failing service":
        return [wire.refuses()]

    def script(request: Any) -> list[Any]:
        body = request.body
        if scene == "structured":
            return _structured(wire, body)
        offers = [tool["function"]["name"] for tool in body.get("tools", ())] if wire is not GEMINI else []
        if scene in {"tools", "failing tool"} and not answered(body):
            return wire.calls("look", {"q": "a"}, "call_0")
        if scene == "hand-off" and "AGENT:second" not in json.dumps(body) and not answered(body):
            tool = next(one for one in offers if "transfer" in one or "handoff" in one)
            given = {"agent_name": "second", "message": "go on"} if tool == "handoff_to_agent" else {}
            return wire.calls(tool, given, "call_0")
        return wire.says(*(f"{number * 7919 % 10007} " for number in range(40)))

    return script


def _structured(wire: Wire, body: dict[str, Any]) -> list[Any]:
    offered = [tool["function"]["name"] for tool in body.get("tools", ())] if wire is not GEMINI else []
    given = {"summary": "fine", "risk": 0.5}
    return wire.calls(offered[0], given, "call_0") if offered else wire.says('{"summary": ', '"fine", "risk": 0.5}')
