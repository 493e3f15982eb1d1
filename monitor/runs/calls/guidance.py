"""Puts a tool's guidance about its use into the context beside its first result, and not before.

Failure answered: a system prompt explains every tool, although few runs need that. It changes with
the tools, so the provider's cache is lost. Beside a result the guidance costs nothing before the
tool is used, and the system prompt stays the same, byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from monitor._util.argument_checks import with_context
from monitor._util.text import foreign
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError
from monitor.tools.base import Guidance, GuidanceContext
from monitor.verdicts import VETO

GuidanceFlag: TypeAlias = bool | Callable[[str], bool] | Callable[[str, GuidanceContext], bool]
"""Whether guidance is given; or a function that decides this for an experiment, by the name of a
tool, or by the name and the run.
"""

GUIDANCE_CHARS: Final = 8_000
"""The most characters of one text. A longer manual is better read by a tool."""


@dataclass(slots=True)
class GuidanceBook:
    """Remembers the guidance that a run has given. Each text is given once, and again after a
    compaction has removed it.
    """

    guidance_of: Callable[[str], Guidance | None]
    """The guidance of a tool, by name."""
    flag: GuidanceFlag = True
    context: Callable[[ToolCall], GuidanceContext] = lambda call: GuidanceContext(call=call)
    """The run, as the functions of a tool and of the caller see it."""
    _said: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        check_flag(self.flag)

    def new_for(self, call: ToolCall, result: ToolResult) -> str | None:
        """The text to put behind the text of `result`. `None`: nothing new.

        A call that was refused or not carried out gets no guidance, because the tool was not used.
        If a function that makes guidance fails, there is none.
        """
        if result.vetoed or self.flag is False:
            return None
        text = self._text(call)
        if not text or (call.name, text) in self._said:
            return None
        try:
            if callable(self.flag) and not _asked(self.flag)(call.name, self.context(call)):
                return None
        except Exception:  # noqa: BLE001 - an experiment of the caller's must not end the run
            return None
        self._said.add((call.name, text))
        return f"{VETO} About {call.name}: {foreign(text)}"

    def forget(self) -> None:
        """Earlier results have left the context, so their guidance may be given again."""
        self._said.clear()

    def _text(self, call: ToolCall) -> str | None:
        guidance = self.guidance_of(call.name)
        if callable(guidance):
            arguments: Mapping[str, Any] = call.arguments if isinstance(call.arguments, Mapping) else {}
            try:
                guidance = with_context("guidance", guidance, _LINE)(arguments, self.context(call))
            except Exception:  # noqa: BLE001 - the tool's own function; the result is there
                return None
        return guidance.strip()[:GUIDANCE_CHARS] if isinstance(guidance, str) else None


_LINE: Final = "lambda arguments, context: ..."


def _asked(flag: Callable[..., bool]) -> Callable[[str, GuidanceContext], bool]:
    return with_context("guidance", flag, "lambda tool, context: ...")


def check_flag(flag: object) -> None:
    """Raise `ConfigError` if `flag` is neither a boolean nor a function of one or two arguments."""
    if callable(flag):
        _asked(cast("Callable[..., bool]", flag))
    elif not isinstance(flag, bool):
        raise ConfigError(f"guidance={flag!r}: give True, False, or a function of the tool's name")
