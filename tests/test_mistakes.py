"""Mistakes that people make with the library: each message names what was wrong, where, and the way
out.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import monitor
from monitor.sessions import InMemorySession
from monitor.testing import ScriptedModel, ScriptedStream


@dataclass(frozen=True)
class Mistake:
    code: str
    """The code that a person writes."""
    says: tuple[str, ...]
    """The parts of the message that say what was wrong, and where."""
    way_out: str
    """The part of the message that says what to write."""


def rows(text: str) -> list[Mistake]:
    """A mistake a line: the code, what its message says, and the way out, between ` ## `."""
    found = []
    for line in text.strip().splitlines():
        code, says, way_out = (part.strip() for part in line.split(" ## "))
        found.append(Mistake(code, tuple(says.split(" ... ")), way_out))
    return found


WRONG = r"""
monitor.MaxTurns(30) or monitor.Timeout(600) ## neither true nor false ## write monitor.MaxTurns(30) | monitor.Timeout(600)
monitor.MaxTurns(30) and monitor.Timeout(600) ## neither true nor false ## write monitor.MaxTurns(30) | monitor.Timeout(600)
not monitor.Timeout(30) ## neither true nor false ## write monitor.Timeout(30) | monitor.MaxTurns(30)
monitor.Guard(stop_when=[monitor.MaxTurns(30), monitor.Timeout(600)]) ## stop_when ... a list of 2 ## write stop_when=monitor.MaxTurns(30) | monitor.Timeout(600)
monitor.Supervisor(model, stop_when=[monitor.MaxTurns(30), monitor.Timeout(9)]) ## stop_when ... a list of 2 ## write stop_when=monitor.MaxTurns(30) | monitor.Timeout(9)
monitor.watch(stream, stop_when=(monitor.MaxTurns(3),)) ## stop_when ... a tuple of 1 ## write stop_when=monitor.MaxTurns(3)
monitor.watch(stream, stop_when={monitor.MaxTurns(3)}) ## stop_when ... a set of 1 ## write stop_when=monitor.MaxTurns(3)
monitor.Guard(stop_when=[monitor.MaxTurns(3) & monitor.Timeout(5), monitor.IdleTimeout(2)]) ## stop_when ... a list ## write stop_when=(monitor.MaxTurns(3) & monitor.Timeout(5)) | monitor.IdleTimeout(2)
monitor.Guard(stop_when=30) ## stop_when ... not 30 ## write stop_when=monitor.MaxTurns(30) or stop_when=monitor.Timeout(30)
monitor.Guard(stop_when=monitor.MaxTurns) ## stop_when ... MaxTurns is a class ## write stop_when=monitor.MaxTurns(...)
monitor.Guard(stop_when='30 turns') ## stop_when ... not '30 turns' ## write stop_when=monitor.Timeout(300)
monitor.Guard(stop_when=lambda state: True) ## stop_when takes a condition ## write stop_when=monitor.Timeout(300)
monitor.Guard(stop_when=[]) ## stop_when ... not [] ## write stop_when=monitor.Timeout(300)
monitor.MaxTurns(30) | 600 ## | joins two conditions ... 600 is none ## write monitor.MaxTurns(30) | monitor.Timeout(600)
600 | monitor.MaxTurns(30) ## | joins two conditions ... 600 is none ## write monitor.MaxTurns(30) | monitor.Timeout(600)
monitor.MaxTurns(30) & 'x' ## & joins two conditions ... 'x' is none ## write monitor.MaxTurns(30) & monitor.Timeout(600)
monitor.MaxTurns(30) | monitor.Timeout ## Timeout is a class ## write monitor.MaxTurns(30) | monitor.Timeout(...)
monitor.MaxTurns(-1) ## MaxTurns.turns ... not -1 ## whole number of at least 1
monitor.MaxTurns('30') ## MaxTurns.turns ... not '30' ## whole number of at least 1
monitor.MaxTurns(2.5) ## MaxTurns.turns ... not 2.5 ## whole number of at least 1
monitor.MaxTurns(True) ## MaxTurns.turns ... not True ## whole number of at least 1
monitor.MaxModelCalls(0) ## MaxModelCalls ... not 0 ## leave the condition out for no limit
monitor.MaxToolCalls(0) ## MaxToolCalls ... not 0 ## leave the condition out for no limit
monitor.Timeout(-5) ## Timeout ... not -5 ## write monitor.Timeout(300)
monitor.Timeout('5m') ## Timeout ... not '5m' ## write monitor.Timeout(300)
monitor.Timeout(None) ## Timeout ... not None ## write monitor.Timeout(300)
monitor.Timeout(datetime.timedelta(minutes=5)) ## Timeout ... timedelta ## write monitor.Timeout(300)
monitor.IdleTimeout(float('nan')) ## IdleTimeout ... not nan ## write monitor.IdleTimeout(300)
monitor.Timeout(float('inf')) ## Timeout ... not inf ## leave the condition out for no limit
monitor.TokenLimit(0) ## TokenLimit.total_tokens ... not 0 ## leave the condition out for no limit
monitor.CostLimit('$2') ## CostLimit.usd ... not '$2' ## a finite number above 0
monitor.CostLimit(-2) ## CostLimit.usd ... not -2 ## a finite number above 0
monitor.Guard(stop_when=monitor.CostLimit(2.0)) ## CostLimit(usd=2.0) ... costs ## prices=monitor.Price(...)
monitor.Supervisor(model, stop_when=monitor.CostLimit(2.0)) ## CostLimit(usd=2.0) ... scripted:model ## prices={'scripted:model': monitor.Price(...)}
monitor.Supervisor(model, budget=monitor.Budget(usd=2.0)) ## usd=2.0 ... scripted:model ## prices={'scripted:model': monitor.Price(...)}
monitor.Budget(dollars=2) ## Budget has no option 'dollars' ## write usd=2
monitor.Budget(max_tokens=2) ## Budget has no option 'max_tokens' ## write tokens=2
monitor.Budget(200_000) ## Budget: too many positional arguments ## write monitor.Budget(tokens=200_000)
monitor.Budget(tokens=-3) ## Budget.tokens ... not -3 ## leave it out for no limit
monitor.Supervisor(model, budget=200_000) ## budget ... not 200000 ## a monitor.Budget
monitor.Predicate('x', reason=monitor.TerminateReason.CONDITION_MET, name='x') ## Predicate ... not 'x' ## takes a function of the run's state
monitor.Predicate(lambda state: True, reason='enough', name='x') ## Predicate ... not 'enough' ## takes a TerminateReason
monitor.Supervisor() ## Supervisor ... 'model' ## write monitor.Supervisor(monitor.model('google:gemini-2.5-flash'))
monitor.Supervisor('google:gemini-2.5-flash') ## 'google:gemini-2.5-flash' is a name ## write model=monitor.model('google:gemini-2.5-flash')
monitor.Supervisor('gemini-2.5-flash') ## 'gemini-2.5-flash' is a name ## write model=monitor.model('google:gemini-2.5-flash')
monitor.Supervisor(None) ## model: None ## write model=monitor.model('google:gemini-2.5-flash')
monitor.Supervisor(ScriptedModel) ## model ... ScriptedModel is a class ## write ScriptedModel(
monitor.Supervisor(openai.AsyncOpenAI(api_key='x')) ## AsyncOpenAI is a client ## write model=monitor.model('openai:gpt-5', client=client)
monitor.Supervisor(anthropic.AsyncAnthropic(api_key='x')) ## AsyncAnthropic is a client ## write model=monitor.model('anthropic:claude-sonnet-5', client=client)
monitor.model('gemini-2.5-flash') ## 'gemini-2.5-flash' ## as in 'google:gemini-2.5-flash'
monitor.model('opennai:gpt-5') ## no provider is called 'opennai' ## openai:
monitor.model('google:') ## model 'google:' ## as in 'google:gemini-2.5-flash'
monitor.model('openai:gpt-5', client=openai.OpenAI(api_key='x')) ## client ... not OpenAI ## write client=openai.AsyncOpenAI()
monitor.model('openai:gpt-5', client=anthropic.AsyncAnthropic(api_key='x')) ## client ... not AsyncAnthropic ## write client=openai.AsyncOpenAI()
monitor.model('anthropic:claude', client=openai.AsyncOpenAI(api_key='x')) ## client ... not AsyncOpenAI ## write client=anthropic.AsyncAnthropic()
monitor.model('google:gemini', client=openai.AsyncOpenAI(api_key='x')) ## client ... not AsyncOpenAI ## write client=genai.Client()
monitor.Supervisor(model, tools=add) ## tools= ... add ## give a list of functions and tools
monitor.Supervisor(model, tools=['search']) ## 'search' is no tool ## as in tools=[search]
monitor.Supervisor(model, tools=[add(1, 2)]) ## 3 is no tool ## as in tools=[search]
monitor.Supervisor(model, tools=[lambda x: x]) ## lambda ... has no name ## give name=
monitor.Supervisor(model, tools=[terminate], outputs={'x': str}) ## 'terminate' ## give another name=
monitor.Supervisor(model, tools=[add], tool_choice='always') ## tool_choice ... not 'always' ## 'auto', 'required', 'none'
monitor.Supervisor(model, tools=[add], max_parallel_tools=0) ## max_parallel_tools=0 ## give 1 or more
monitor.Supervisor(model, tools=[add], approval='always') ## approval ... not 'always' ## 'default', 'auto_edit'
monitor.Supervisor(model, tools=[add], approver='me') ## approver ... not 'me' ## an object with ask(), or an async function
monitor.tool(kind='delete')(add) ## kind ... not 'delete' ## 'read', 'edit', 'execute'
monitor.tool(timeout_s='5')(add) ## timeout_s='5' ## give seconds above 0
monitor.Supervisor(model, outputs=['summary']) ## outputs ... not ['summary'] ## a dict of types
monitor.Supervisor(model, outputs='summary') ## outputs ... not 'summary' ## a dict of types
monitor.Supervisor(model, outputs={'summary': 'a text'}) ## outputs['summary'] ... 'a text' ## {'summary': Annotated[str, Field(description='...')]}
monitor.Guard(detectors=monitor.ToolCallRepetition()) ## detectors ... ToolCallRepetition ## write detectors=[ToolCallRepetition(...)]
monitor.Guard(detectors=[monitor.ToolCallRepetition]) ## detectors ... is a class ## write ToolCallRepetition()
monitor.Guard(detectors=['tool_call_repetition']) ## detectors ... 'tool_call_repetition' has no observe() ## give a detector object
monitor.Guard(detectors=False) ## detectors ... not bool ## write detectors=[...]
monitor.ToolCallRepetition(loop_at=0) ## ToolCallRepetition(loop_at=0) ## give 2 or more
monitor.ToolCallRepetition(suspect_at=9, loop_at=5) ## suspect_at=9 ## give 2 to loop_at (5)
monitor.ToolCallRepetition(threshold=5) ## ToolCallRepetition has no option 'threshold' ## give one of these: suspect_at, loop_at
monitor.ToolCallRepetition(5) ## ToolCallRepetition: too many positional arguments ## write monitor.ToolCallRepetition()
monitor.NoProgress(stalled=5) ## NoProgress has no option 'stalled' ## write stalled_at=5
monitor.Ladder(0) ## Ladder: too many positional arguments ## write monitor.Ladder()
monitor.Ladder(clean_turn=3) ## Ladder has no option 'clean_turn' ## write clean_turns=3
monitor.Guard(policy='ladder') ## policy: 'ladder' has no decide() ## give a policy object
monitor.Guard(policy=monitor.Ladder) ## policy ... Ladder is a class ## write Ladder()
monitor.Guard(sinks=monitor.LogSink()) ## sinks ... LogSink ## write sinks=[LogSink(...)]
monitor.Guard(sinks=['events.jsonl']) ## sinks: 'events.jsonl' has no emit() ## give a sink object
monitor.Guard(sinks=[monitor.JsonlSink]) ## sinks ... JsonlSink is a class ## write JsonlSink(...)
monitor.Supervisor(model, judge='gpt-5') ## judge ... not 'gpt-5' ## write judge=monitor.LoopJudge(
monitor.Supervisor(model, judge=model) ## judge ... ScriptedModel ## write judge=monitor.LoopJudge(
monitor.Supervisor(model, compaction='opencode') ## compaction ... not 'opencode' ## monitor.Compaction.opencode()
monitor.Supervisor(model, compaction=True) ## compaction ... not True ## monitor.Compaction.opencode()
monitor.Supervisor(model, session='a.session') ## session ... not the path 'a.session' ## write async with monitor.sessions.SQLiteSession('a.session') as session:
monitor.Supervisor(model, session=Path('a.session')) ## session ... not the path 'a.session' ## write async with monitor.sessions.SQLiteSession('a.session') as session:
monitor.Supervisor(model, session=monitor.sessions.SQLiteSession) ## session ... SQLiteSession is a class ## write SQLiteSession(...)
monitor.Supervisor(model, history='hello') ## history ... not 'hello' ## write history=[monitor.UserMessage(
monitor.Supervisor(model, history=[{'role': 'user', 'content': 'hi'}]) ## history ... 'role': 'user' ## write history=[monitor.UserMessage(
monitor.Guard(window='128k') ## window ... not '128k' ## a number of tokens above 0
monitor.Supervisor(model, last_turn=60) ## last_turn ... not 60 ## monitor.LastTurn(60)
monitor.Supervisor(model, retries=3) ## retries ... not 3 ## takes a monitor.Retries
monitor.Supervisor(model, prices=2.5) ## prices ... not 2.5 ## write prices=monitor.Price(2.5, 10.0)
monitor.Supervisor(model, prices={'gpt-5': 2.5}) ## prices ... 'gpt-5': 2.5 ## write prices=monitor.Price(2.5, 10.0)
monitor.Price(2.5) ## Price: missing a required argument: 'output' ## write monitor.Price(2.5, 10.0)
monitor.Price(2.5, 10.0, cache=1) ## Price has no option 'cache' ## write cached=1
monitor.Supervisor(model, plan='do it') ## plan ... not 'do it' ## takes a monitor.Plan
monitor.Supervisor(model, variables=['name'], instructions='Hello') ## variables ... not ['name'] ## must be a dict
monitor.Supervisor(model, max_nudges=-1) ## max_nudges is -1 ## give 0 or more
monitor.Supervisor(model, max_turns=30) ## Supervisor has no option 'max_turns' ## write stop_when=monitor.MaxTurns(30)
monitor.Supervisor(model, max_iterations=30) ## Supervisor has no option 'max_iterations' ## write stop_when=monitor.MaxTurns(30)
monitor.Supervisor(model, timeout=60) ## Supervisor has no option 'timeout' ## write stop_when=monitor.Timeout(60)
monitor.Guard(timeout=30) ## Guard has no option 'timeout' ## write stop_when=monitor.Timeout(30)
monitor.watch(stream, idle_timeout=30) ## watch has no option 'idle_timeout' ## write stop_when=monitor.IdleTimeout(30)
monitor.watch(stream, max_cost=1) ## watch has no option 'max_cost' ## write stop_when=monitor.CostLimit(1)
monitor.Supervisor(model, system='Be terse') ## Supervisor has no option 'system' ## write instructions='Be terse'
monitor.Supervisor(model, system_prompt='Be terse') ## Supervisor has no option 'system_prompt' ## write instructions='Be terse'
monitor.Supervisor(model, output_type=str) ## Supervisor has no option 'output_type' ## write outputs=...
monitor.Supervisor(model, response_format=str) ## Supervisor has no option 'response_format' ## write outputs=...
monitor.Supervisor(model, temperature=0.2) ## Supervisor has no option 'temperature' ## write model_settings={'temperature': 0.2}
monitor.Supervisor(model, name='researcher') ## Supervisor has no option 'name' ## write agent='researcher'
monitor.Supervisor(model, detector=None) ## Supervisor has no option 'detector' ## write detectors=None
monitor.Guard(temperature=0.2) ## Guard has no option 'temperature' ## pass temperature=0.2 to your own call of the model
monitor.Guard(tools=[add]) ## Guard has no option 'tools' ## monitor.Supervisor(model, tools=...)
monitor.Guard(model) ## Guard: too many positional arguments ## write monitor.Guard(stop_when=monitor.MaxTurns(30))
monitor.Guard(close_grace=3) ## Guard has no option 'close_grace' ## write close_grace_s=3
monitor.watch() ## watch: missing a required argument: 'stream' ## write monitor.watch(stream
monitor.Supervisior ## no attribute 'Supervisior' ## did you mean 'Supervisor'?
monitor.MaxTurn ## no attribute 'MaxTurn' ## did you mean 'MaxTurns'?
monitor.tools.Rule ## no attribute 'Rule' ## did you mean 'Rules'?
monitor.load_settings('/nowhere.toml') ## cannot read /nowhere.toml ## No such file
monitor.Supervisor(model).as_tool(name='my agent', description='x') ## 'my agent' ## letters, digits, _ and -
monitor.shared.SharedBudget('budgets.db', 'x') ## store: 'budgets.db' has no reserve() ## give a store object
monitor.shared.budgets_at('mysql://x') ## 'mysql://x' is no store of budgets ## redis://
monitor.proxy.Proxy('api.openai.com') ## 'api.openai.com' is no address ## https://api.openai.com
monitor.Guard().outcome ## the outcome is known when ## read guard.outcome
watched(None) ## cannot watch NoneType ## write stream = await client
watched([1, 2]) ## cannot watch list ## write async with monitor.watch(stream)
watched('hello') ## cannot watch str ## write async with monitor.watch(stream)
watched(answer()) ## cannot watch ChatCompletion ... a whole answer ## create(..., stream=True)
watched(openai.AsyncOpenAI(api_key='x')) ## cannot watch AsyncOpenAI ... a client ## create(..., stream=True)
watched(iter(['a', 'b'])) ## cannot watch list_iterator ## write with monitor.watch(stream) as watched: for chunk in watched
watched_sync(stream) ## cannot watch ScriptedStream ... 'async with' ## write async with monitor.watch(stream)
watched_sync(answer()) ## cannot watch ChatCompletion ... a whole answer ## create(..., stream=True)
not_entered() ## enter the stream before reading it ## write async with monitor.watch(stream)
result_not_awaited() ## a coroutine that nobody has awaited ## write guard.tool_result(call, await search(...))
run(42) ## the task ... not 42 ## write supervisor.run('What to do'
run([{'role': 'user'}]) ## the task ... 'role': 'user' ## history=[...]
stream_awaited() ## a stream of events is not awaited ## write outcome = await supervisor.run(task), or async with supervisor.stream(task) as run
stream_not_entered() ## enter the run before reading it ## write async with supervisor.stream(task) as run
resumed_empty() ## this session is empty ## write await supervisor.run(task, session=session)
resumed_ended() ## every run of this session has ended ## write await supervisor.run(task, session=session)
resumed_ended('x') ## has the id 'x' ## write await supervisor.resume(session, run='
resumed_without_session() ## resume needs a session ## write await supervisor.resume(session)
sync_inside_loop() ## would stop the event loop ## use 'await supervisor.run(...)'
without_key('openai:gpt-5') ## no OpenAI client ## set OPENAI_API_KEY, or give client=
without_key('anthropic:claude-sonnet-5') ## no Anthropic client ## set ANTHROPIC_API_KEY, or give client=
without_key('google:gemini-2.5-flash') ## no Gemini client ## set GEMINI_API_KEY
without_extra('openai', lambda: monitor.model('openai:gpt-5')) ## 'openai' is not installed ## pip install 'agent-monitor[openai]'
"""  # noqa: E501 - one mistake a line

MISTAKES = rows(WRONG)


def test_there_are_many_of_them():
    assert len(MISTAKES) >= 80
    assert len({mistake.code for mistake in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.code[:70])
def test_a_mistake_is_explained(mistake: Mistake, names: dict[str, Any]):
    with pytest.raises((monitor.ConfigError, AttributeError)) as caught:
        eval(mistake.code, names)
    said = str(caught.value)
    at = 0
    for part in mistake.says:
        assert part in said[at:]
        at = said.index(part, at) + len(part)
    assert mistake.way_out in said
    assert "object at 0x" not in said or "judge" in said, "an address says nothing to a person"
    if isinstance(caught.value, AttributeError):
        assert mistake.code.startswith("monitor.")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the code of a mistake may use."""
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(key, raising=False)

    def without_extra(module: str, use: Callable[[], object]) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        use()

    return {
        **globals(),
        "anthropic": pytest.importorskip("anthropic"),
        "Path": Path,
        "datetime": dt,
        "model": a_model(),
        "openai": pytest.importorskip("openai"),
        "stream": ScriptedStream(["a", "b"]),
        "without_extra": without_extra,
    }


def a_model() -> ScriptedModel:
    return ScriptedModel(["Hello.", "And again."])


def add(a: int, b: int) -> int:
    return a + b


def terminate(x: str) -> str:
    return x


async def search(query: str) -> str:
    return query


def answer() -> object:
    """An answer that was not asked for as a stream."""
    from openai.types.chat import ChatCompletion

    return ChatCompletion(id="x", choices=[], created=1, model="m", object="chat.completion")


def in_loop(function: Callable[..., Awaitable[object]]) -> Callable[..., object]:
    """`function`, in an event loop of its own."""

    async def awaited(*arguments: object) -> object:
        return await function(*arguments)

    return lambda *arguments: asyncio.run(awaited(*arguments))


@in_loop
async def watched(source: Any) -> None:
    async with monitor.watch(source) as chunks:
        async for _ in chunks:
            pass


def watched_sync(source: Any) -> None:
    with monitor.watch(source) as chunks:
        for _ in chunks:
            pass


@in_loop
async def not_entered() -> None:
    await anext(aiter(monitor.watch(ScriptedStream(["a"]))))


@in_loop
async def result_not_awaited() -> None:
    async with monitor.Guard() as guard:
        guard.tool_result(None, search("x"))


@in_loop
async def run(task: Any) -> None:
    await monitor.Supervisor(a_model()).run(task)


@in_loop
async def without_key(name: str) -> None:
    await monitor.Supervisor(monitor.model(name)).run("x")


@in_loop
async def stream_awaited() -> None:
    awaited: Any = monitor.Supervisor(a_model()).stream("x")
    await awaited


@in_loop
async def stream_not_entered() -> None:
    await anext(aiter(monitor.Supervisor(a_model()).stream("x")))


@in_loop
async def resumed_without_session() -> None:
    await monitor.Supervisor(a_model()).resume()


@in_loop
async def resumed_empty() -> None:
    async with InMemorySession() as session:
        await monitor.Supervisor(a_model()).resume(session)


@in_loop
async def resumed_ended(run_id: str | None = None) -> None:
    async with InMemorySession() as session:
        supervisor = monitor.Supervisor(a_model(), session=session)
        await supervisor.run("x")
        await supervisor.resume(run=run_id)


@in_loop
async def sync_inside_loop() -> None:
    monitor.Supervisor(a_model()).run_sync("x")
