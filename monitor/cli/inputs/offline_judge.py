"""A judge for recorded runs. It is asked one question at a time, its answers are kept on disk, and
its costs are counted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from rich.console import Console

from monitor._util.codec import to_plain
from monitor._util.hashing import canonical_json
from monitor.adapters.model_names import model as model_of
from monitor.chunks import AskCost
from monitor.cli.inputs.cache_folder import cache_folder
from monitor.cli.options.shared import JudgeOptions
from monitor.cli.options.supervisor_arguments import REPLAY, replay_of
from monitor.cli.render import output
from monitor.errors import ConfigError, describe
from monitor.guard.options import CLOSE_GRACE_S
from monitor.guard.streams.ask import ask
from monitor.guard.streams.wait import SystemClock
from monitor.judges import LoopJudge
from monitor.judges.judge import Judge, JudgeInput
from monitor.models import Model, ModelRequest
from monitor.verdicts import Judgement
from monitor.view.status import count

REASONS_SHOWN = 5


class OfflineJudge:
    """Asks a judge from synchronous code. Answers of a replay are not kept, because they cost
    nothing.
    """

    def __init__(self, judge: Judge, portal: BlockingPortal, cache: ReplyCache) -> None:
        self.judge = judge
        self.questions = self.asked = self.cached = self.failed = 0
        """The numbers of questions, of model calls, of answers from the cache, and of questions
        without an answer.
        """
        self.cost = AskCost()
        self.reasons: Counter[str] = Counter()
        """The reasons of questions without an answer, with their counts."""
        self._portal = portal
        self._cache = cache

    def __call__(self, judge: Judge, told: JudgeInput) -> Judgement | str:
        """The answer, or the reason why there is none."""
        used: list[str] = []
        self.questions += 1
        try:
            return self._portal.call(judge.review, told, partial(self._ask, used))
        except Exception as error:  # noqa: BLE001 - a question without an answer is reported, and the scan goes on
            for key in used:
                self._cache.forget(key)
            self.failed += 1
            why = describe(error)
            self.reasons[why] += 1
            return why

    async def _ask(self, used: list[str], model: Model, request: ModelRequest) -> str:
        kept = not model.name.startswith(REPLAY)
        key = self._cache.key(model, request)
        reply = self._cache.get(key) if kept else None
        if reply is not None:
            self.cached += 1
            used.append(key)
            return reply
        self.asked += 1
        clock = SystemClock()
        reply = await ask(
            model,
            request,
            timeout_s=self.judge.timeout_s,
            clock=clock,
            close_grace_s=CLOSE_GRACE_S,
            charge=self._charge,
        )
        if kept:
            used.append(key)
            try:
                self._cache.put(key, model, reply)
            except OSError as error:
                self.reasons[f"the answer could not be kept: {describe(error)}"] += 1
        return reply

    def _charge(self, cost: AskCost) -> None:
        self.cost += cost

    def said(self) -> str:
        """The cost of all questions in a sentence."""
        tokens = f"{self.cost.usage.total_tokens:,} tokens{' (estimated)' if self.cost.estimated else ''}"
        failed = f", {self.failed} without an answer" if self.failed else ""
        return (
            f"Judge: {count(self.questions, 'question')}{failed}; {count(self.asked, 'call')} of a model for {tokens},"
            f" {count(self.cached, 'answer')} from {self._cache.folder}."
        )

    def complain(self, console: Console) -> None:
        """Print the reasons of questions without an answer, the most frequent first."""
        for why, times in self.reasons.most_common(REASONS_SHOWN):
            output.complain(console, f"judge: {why}{f' ({times} times)' if times > 1 else ''}")
        if len(self.reasons) > REASONS_SHOWN:
            console.print(f"judge: and {count(len(self.reasons) - REASONS_SHOWN, 'other reason')}", style="red")

    def as_json(self) -> dict[str, Any]:
        """The cost of all questions as JSON data."""
        return {
            "questions": self.questions,
            "model_calls": self.asked,
            "from_cache": self.cached,
            "failed": self.failed,
            "tokens": self.cost.usage.total_tokens,
            "tokens_estimated": self.cost.estimated,
            "failures": dict(self.reasons.most_common()),
        }


@contextmanager
def offline_judge(options: JudgeOptions) -> Iterator[OfflineJudge]:
    """The loop judge that `options` name, with its own event loop. Raises `ConfigError` as
    `monitor.model` does.
    """
    models = [_model(one) for one in (options.judge, options.judge_confirm) if one is not None]
    judge = LoopJudge(
        models[0],
        confirm_with=models[1] if options.judge_confirm is not None else None,
        first_turn=options.judge_from,
        share=None,
    )
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        stack.callback(_close, portal, models)
        yield OfflineJudge(judge, portal, ReplyCache(options.judge_cache or cache_folder("judge")))


def _model(name: str) -> Model:
    try:
        return replay_of(name) if name.startswith(REPLAY) else model_of(name)
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror or error}") from None


def _close(portal: BlockingPortal, models: Sequence[Model]) -> None:
    for model in models:
        close = getattr(model, "aclose", None)
        if close is not None:
            portal.call(close)


# --------------------------------------------------------------------------------------------------
# Keeps answers of models on disk, so that each question is paid for once: one file for each
# question, named by the hash of model and request.


class ReplyCache:
    """The answers in `folder`, which is made with the first answer. An unreadable answer counts as
    missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def key(self, model: Model, request: ModelRequest) -> str:
        """Equal for the same question to the same model."""
        return hashlib.sha256(canonical_json({"model": model.name, "request": to_plain(request)}).encode()).hexdigest()

    def get(self, key: str) -> str | None:
        """The text of the answer that is kept under `key`."""
        try:
            reply = json.loads(self._path(key).read_text("utf-8"))["reply"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return reply if isinstance(reply, str) else None

    def put(self, key: str, model: Model, reply: str) -> None:
        """Keep a reply. Raises `OSError`. The file is written atomically."""
        path = self._path(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, half = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps({"model": model.name, "reply": reply}))
        Path(half).replace(path)

    def forget(self, key: str) -> None:
        """Drop the reply of `key`, which was unusable, so that the next run asks again."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
