"""One wire format: how its requests, its answers and its refusals are read and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from monitor.proxy.formats.base import Beginning, FrameContent, JudgedRequest, Refusal, Unjudged, WireAnswer
from monitor.proxy.formats.framing import sse
from monitor.proxy.formats.requests import RequestFields, judged
from monitor.wires.forms import Form


class Wire(ABC):
    """Reads the requests and answers of one wire format."""

    form: ClassVar[Form]
    """The form of its histories, which is also its name."""

    def asked(self, path: str, body: bytes, known: Beginning | None = None) -> JudgedRequest | Unjudged:
        """Read a request. `path`: with its query. `known`: the beginning of its history, whose
        records the body has in this place. Never raises.
        """
        return judged(self.form, path, body, known, self._asked)

    @abstractmethod
    def _asked(self, path: str, fields: RequestFields) -> JudgedRequest:
        """The request in a body that is a JSON object. May raise `CannotJudge`."""

    def answer(self, asked: JudgedRequest, beginning: bytes) -> WireAnswer | None:
        """A reader for the answer, whose status is 200, by its first bytes. `None`: it is not a
        stream; use `whole`.
        """
        return self.stream(asked) if sse.is_event_stream(beginning) else None

    @abstractmethod
    def stream(self, asked: JudgedRequest) -> WireAnswer:
        """A streamed answer in the form that was asked for."""

    @abstractmethod
    def whole(self, asked: JudgedRequest, body: bytes) -> FrameContent:
        """Read an answer that came in one piece. Never raises."""

    @abstractmethod
    def refusal(self, reason: str, *, status: int = 429, code: str = "agent_monitor") -> Refusal:
        """The answer of the service's own form that makes its SDK raise, with `reason` as the
        message. `code`: one word for programs. A header asks the SDK not to try again.
        """
