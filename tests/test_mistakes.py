"""Mistakes that people make with the library: each message names what was wrong, where, and the way
out.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from pathlib import Path
from typing import Any, cast

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
monitor.Guard(stop_when=lambda state: True) ## stop_when takes a condition ## write stop_when=monitor.Predicate(lambda state: ...)
monitor.Guard(stop_when=enough) ## stop_when takes a condition ## write stop_when=monitor.Predicate(enough)
monitor.Guard(stop_when=[]) ## stop_when ... not [] ## write stop_when=monitor.Timeout(300)
monitor.MaxTurns(30) | 600 ## | joins two conditions ... 600 is none ## write monitor.MaxTurns(30) | monitor.Timeout(600)
600 | monitor.MaxTurns(30) ## | joins two conditions ... 600 is none ## write monitor.MaxTurns(30) | monitor.Timeout(600)
monitor.MaxTurns(30) & 'x' ## & joins two conditions ... 'x' is none ## write monitor.MaxTurns(30) & monitor.Timeout(600)
monitor.MaxTurns(30) | monitor.Timeout ## Timeout is a class ## write monitor.MaxTurns(30) | monitor.Timeout(...)
monitor.MaxTurns(-1) ## MaxTurns.turns ... not -1 ## whole number of at least 1
monitor.MaxTurns('30') ## MaxTurns.turns takes a whole number, not '30' ## write turns=30
monitor.MaxTurns(2.5) ## MaxTurns.turns takes a whole number, not 2.5 ## write turns=2
monitor.MaxTurns(Decimal('2.5')) ## MaxTurns.turns takes a whole number ... Decimal('2.5') ## as in monitor.MaxTurns(30)
monitor.MaxTurns(max_turns=3) ## MaxTurns has no option 'max_turns' ## write turns=3
monitor.MaxTurns(True) ## MaxTurns.turns takes a whole number, not True ## as in monitor.MaxTurns(30)
monitor.MaxModelCalls(0) ## MaxModelCalls ... not 0 ## leave the condition out for no limit
monitor.MaxToolCalls(0) ## MaxToolCalls ... not 0 ## leave the condition out for no limit
monitor.Timeout(-5) ## Timeout ... not -5 ## write monitor.Timeout(300)
monitor.Timeout('5m') ## Timeout.seconds takes a number, not '5m' ## as in monitor.Timeout(300)
monitor.Timeout('30 s') ## Timeout.seconds takes a number, not '30 s' ## write seconds=30
monitor.Timeout(timeout_s=30) ## Timeout has no option 'timeout_s' ## write seconds=30
monitor.Timeout(30, exclude_retry_delays=1) ## Timeout.exclude_retry_delays takes True or False ## write exclude_retry_delays=True
monitor.Timeout(None) ## Timeout.seconds ... not None ## as in monitor.Timeout(300)
monitor.Timeout(datetime.timedelta(minutes=5)) ## Timeout.seconds ... timedelta ## write seconds=300
monitor.Retries(first_delay_s=datetime.timedelta(seconds=2)) ## Retries.first_delay_s ... timedelta ## write first_delay_s=2
monitor.Timeout('300_000') ## Timeout.seconds ... '300_000' ## write seconds=300000
monitor.IdleTimeout(float('nan')) ## IdleTimeout ... not nan ## write monitor.IdleTimeout(300)
monitor.Timeout(float('inf')) ## Timeout ... not inf ## leave the condition out for no limit
monitor.TokenLimit(0) ## TokenLimit.total_tokens ... not 0 ## leave the condition out for no limit
monitor.CostLimit('$2') ## CostLimit.usd takes a number, not '$2' ## as in monitor.CostLimit(2.0)
monitor.CostLimit(-2) ## CostLimit.usd ... not -2 ## a finite number above 0
monitor.Guard(stop_when=monitor.CostLimit(2.0)) ## CostLimit(usd=2.0) ... costs ## prices=monitor.Price(...)
monitor.Supervisor(model, stop_when=monitor.CostLimit(2.0)) ## CostLimit(usd=2.0) ... scripted:model ## prices={'scripted:model': monitor.Price(...)}
monitor.Supervisor(model, budget=monitor.Budget(usd=2.0)) ## usd=2.0 ... scripted:model ## prices={'scripted:model': monitor.Price(...)}
monitor.Budget(dollars=2) ## Budget has no option 'dollars' ## write usd=2
monitor.Budget(max_tokens=2) ## Budget has no option 'max_tokens' ## write tokens=2
monitor.Budget(200_000) ## Budget: too many positional arguments ## write monitor.Budget(tokens=200_000)
monitor.Budget(tokens=-3) ## Budget.tokens ... not -3 ## leave it out for no limit
monitor.Supervisor(model, budget=200_000) ## budget ... not 200000 ## a monitor.Budget
monitor.Predicate('x', reason=monitor.TerminateReason.CONDITION_MET, name='x') ## Predicate takes a function ## write monitor.Predicate(lambda state: ...), not 'x'
monitor.conditions.ToolCalled(search) ## ToolCalled takes the name of a tool ## write monitor.conditions.ToolCalled('search')
monitor.Guard(stop_when=monitor.conditions.OutputsComplete()) ## OutputsComplete needs declared outputs ## write outputs={'summary': str}
monitor.Supervisor(model, stop_when=monitor.conditions.OutputsComplete() | monitor.MaxTurns(3)) ## OutputsComplete needs declared outputs ## write outputs={'summary': str}
monitor.Guard(stop_when=monitor.conditions.PlanComplete()) ## PlanComplete needs the plan of a supervisor ## plan=monitor.Plan(['look', 'mend', 'test'])
monitor.Supervisor(model, stop_when=monitor.conditions.PlanComplete()) ## PlanComplete needs the plan of a supervisor ## plan=monitor.Plan(['look', 'mend', 'test'])
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
monitor.Supervisor(model, tools=[add], requests=monitor.runs.Requests(tool_choice='always')) ## tool_choice ... not 'always' ## 'auto', 'required', 'none'
monitor.Supervisor(model, tools=[add], calls=monitor.runs.ToolCalls(parallel=0)) ## parallel=0 ## give 1 or more
monitor.Supervisor(model, tools=[add], calls=monitor.runs.ToolCalls(approval='always')) ## approval ... not 'always' ## 'default', 'auto_edit'
monitor.Supervisor(model, tools=[add], calls=monitor.runs.ToolCalls(approver='me')) ## approver ... not 'me' ## an object with ask(), or an async function
monitor.tool(kind='delete')(add) ## kind ... not 'delete' ## 'read', 'edit', 'execute'
monitor.tool(timeout_s='5')(add) ## tool.timeout_s ... not '5' ## write timeout_s=5
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
monitor.ToolCallRepetition(5) ## ToolCallRepetition: too many positional arguments ## write monitor.ToolCallRepetition(loop_at=5)
monitor.detectors.NoProgress(stalled=5) ## NoProgress has no option 'stalled' ## write stalled_at=5
monitor.Ladder(0) ## Ladder: too many positional arguments ## write monitor.Ladder(max_nudges=2)
monitor.Ladder(clean_turn=3) ## Ladder has no option 'clean_turn' ## write clean_turns=3
monitor.Guard(policy='ladder') ## policy: 'ladder' has no decide() ## give a policy object
monitor.Guard(policy=monitor.Ladder) ## policy ... Ladder is a class ## write Ladder()
monitor.Guard(sinks=monitor.sinks.LogSink()) ## sinks ... LogSink ## write sinks=[LogSink(...)]
monitor.Guard(sinks=['events.jsonl']) ## sinks: 'events.jsonl' has no emit() ## give a sink object
monitor.Guard(sinks=[monitor.sinks.JsonlSink]) ## sinks ... JsonlSink is a class ## write JsonlSink(...)
monitor.Supervisor(model, judge='gpt-5') ## judge ... 'gpt-5' ## write the provider, a colon
monitor.Supervisor(model, judge=object()) ## judge ... not <object ## write judge='google:gemini-2.5-flash-lite'
monitor.Supervisor(model, compaction='opencode') ## compaction ... not 'opencode' ## monitor.Compaction.opencode()
monitor.Supervisor(model, compaction=True) ## compaction ... not True ## monitor.Compaction.opencode()
monitor.Supervisor(model, session='a.session') ## session ... not the path 'a.session' ## write async with monitor.sessions.SQLiteSession('a.session') as session:
monitor.Supervisor(model, session=Path('a.session')) ## session ... not the path 'a.session' ## write async with monitor.sessions.SQLiteSession('a.session') as session:
monitor.Supervisor(model, session=monitor.sessions.SQLiteSession) ## session ... SQLiteSession is a class ## write SQLiteSession(...)
monitor.Supervisor(model, history='hello') ## history ... not 'hello' ## write history=[monitor.UserMessage(
monitor.Supervisor(model, history=[{'role': 'user', 'content': 'hi'}]) ## history ... 'role': 'user' ## write history=[monitor.UserMessage(
monitor.Guard(window='128k') ## window ... not '128k' ## as in window=128_000
monitor.Supervisor(model, last_turn=60) ## last_turn ... not 60 ## monitor.LastTurn(60)
monitor.Supervisor(model, requests=monitor.runs.Requests(retries=3)) ## retries ... not 3 ## takes a monitor.Retries
monitor.Supervisor(model, prices=2.5) ## prices ... not 2.5 ## write prices=monitor.Price(2.5, 10.0)
monitor.Supervisor(model, prices={'gpt-5': 2.5}) ## prices ... 'gpt-5': 2.5 ## write prices=monitor.Price(2.5, 10.0)
monitor.Price(2.5) ## Price: missing a required argument: 'output' ## write monitor.Price(2.5, 10.0)
monitor.Price(2.5, 10.0, cache=1) ## Price has no option 'cache' ## write cached=1
monitor.Supervisor(model, plan='do it') ## plan ... not 'do it' ## takes a monitor.Plan
monitor.Supervisor(model, variables=['name'], instructions='Hello') ## variables ... not ['name'] ## must be a dict
monitor.Supervisor(model, requests=monitor.runs.Requests(max_nudges=-1)) ## max_nudges is -1 ## give 0 or more
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
monitor.Supervisor(model, temperature=0.2) ## Supervisor has no option 'temperature' ## write requests=monitor.runs.Requests(settings={'temperature': 0.2}
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
monitor.shared.SQLiteBudgets('/') ## / is a folder ## such as /budgets.db
monitor.sessions.SQLiteSession('/') ## / is a folder ## such as /work.session
monitor.sessions.SessionReader('/') ## / is a folder ## such as /work.session
replayed('work.session') ## session takes an open session, not the path 'work.session' ## write async with monitor.sessions.SQLiteSession('work.session') as session:
bool(checked()) ## a verdict is neither true nor false ## write if isinstance(guard.check(), monitor.Stop): break
watched_sync('hello') ## cannot watch str ... a whole answer ## write stream = client.chat.completions.create(..., stream=True)
watched_sync({'role': 'assistant'}) ## cannot watch dict ... a whole answer ## write stream = client.chat.completions.create(..., stream=True)
with_key('OPENAI_API_KEY', 'sk-abc\n', 'openai:gpt-5') ## OPENAI_API_KEY has a line break ## write export OPENAI_API_KEY=...
with_key('ANTHROPIC_API_KEY', ' sk-abc', 'anthropic:claude-sonnet-5') ## ANTHROPIC_API_KEY has ... a space ## write export ANTHROPIC_API_KEY=...
with_key('GEMINI_API_KEY', 'sk-äbc', 'google:gemini-2.5-flash') ## GEMINI_API_KEY has ... not ASCII ## write export GEMINI_API_KEY=...
monitor.shared.budgets_at('mysql://x') ## 'mysql://x' is no store of budgets ## redis://
monitor.proxy.Proxy('api.openai.com') ## 'api.openai.com' is no address ## https://api.openai.com
monitor.Guard().outcome ## the outcome is known when ## read guard.outcome
watched(None) ## cannot watch NoneType ## write stream = await client
watched([1, 2]) ## cannot watch list ## write async with monitor.watch(stream)
watched('hello') ## cannot watch str ... a whole answer ## write stream = await client.chat.completions.create(..., stream=True)
watched(answer()) ## cannot watch ChatCompletion ... a whole answer ## create(..., stream=True)
watched(openai.AsyncOpenAI(api_key='x')) ## cannot watch AsyncOpenAI ... a client ## create(..., stream=True)
watched(iter(['a', 'b'])) ## cannot watch list_iterator ## write with monitor.watch(stream) as watched: for chunk in watched
watched_sync(stream) ## cannot watch ScriptedStream ... 'async with' ## write async with monitor.watch(stream)
watched_sync(answer()) ## cannot watch ChatCompletion ... a whole answer ## create(..., stream=True)
not_entered() ## enter the stream before reading it ## write async with monitor.watch(stream)
read_without_async() ## entered with 'async with' ## write async for chunk in watched
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
monitor.FirstChunkTimeout('10') ## FirstChunkTimeout.seconds ... not '10' ## write seconds=10
monitor.MaxConsecutiveErrors('3') ## MaxConsecutiveErrors.errors ... not '3' ## write errors=3
monitor.MaxToolCalls(1.5) ## MaxToolCalls.calls ... not 1.5 ## write calls=1
monitor.TokenLimit('200k') ## TokenLimit.total_tokens ... not '200k' ## as in monitor.TokenLimit(200_000)
monitor.CostLimit(float('nan')) ## CostLimit.usd ... not nan ## leave the condition out for no limit
monitor.conditions.ToolCalled(['a', 'b']) ## ToolCalled ... not ['a', 'b'] ## takes the name of a tool
monitor.Budget(tokens=True) ## Budget.tokens ... not True ## as in monitor.Budget(tokens=200_000)
monitor.Supervisor(model, budget={'tokens': 5}) ## budget ... not {'tokens': 5} ## such as monitor.Budget(tokens=200_000)
monitor.Price('2.5', '10') ## Price.input ... not negative, not '2.5' ## write monitor.Price(2.5, 10.0)
monitor.Supervisor(model, last_turn=monitor.LastTurn('60')) ## last_turn ... '60' ## write last_turn=monitor.LastTurn(60)
monitor.LastTurn(float('nan')) ## LastTurn.text ... not nan ## as in monitor.LastTurn(60)
monitor.Supervisor(model, last_turn=monitor.LastTurn(-1)) ## last_turn ... seconds=-1 ## write last_turn=monitor.LastTurn(60)
monitor.Supervisor(model, last_turn=monitor.LastTurn) ## last_turn ... not <class ## write last_turn=monitor.LastTurn(60)
monitor.Retries(attempts='3') ## Retries.attempts ... not '3' ## write attempts=3
monitor.Retries(attempts=2.5) ## Retries.attempts ... not 2.5 ## write attempts=2
monitor.Retries(first_delay_s='1s') ## Retries.first_delay_s ... not '1s' ## write first_delay_s=1
monitor.Supervisor(model, requests=monitor.runs.Requests(retries=False)) ## retries ... not False ## such as monitor.Retries(3)
monitor.LoopJudge() ## LoopJudge: missing a required argument: 'model' ## write monitor.LoopJudge(monitor.model('google:gemini-2.5-flash'))
monitor.LoopJudge(ScriptedModel) ## model takes objects, and ScriptedModel is a class ## write ScriptedModel()
monitor.LoopJudge('google:gemini-2.5-flash') ## model: 'google:gemini-2.5-flash' is a name ## write model=monitor.model('google:gemini-2.5-flash')
monitor.LoopJudge(model, threshold=90) ## threshold is 90 ## give a number above 0 and up to 1
monitor.LoopJudge(model, threshold='0.9') ## LoopJudge.threshold ... not '0.9' ## write threshold=0.9
monitor.LoopJudge(model, confirm_with='google:x') ## confirm_with: 'google:x' is a name ## write confirm_with=monitor.model('google:x')
monitor.judges.DoneJudge(model, counts='yes') ## DoneJudge.counts ... not 'yes' ## write counts=True
monitor.Supervisor(model, stop_when=monitor.conditions.TaskDone()) ## TaskDone needs a judge that says when ## write judge=monitor.judges.DoneJudge(model)
monitor.Supervisor(model, judge=monitor.LoopJudge) ## judge ... not <class 'monitor.judges.loop.LoopJudge'> ## write judge='google:gemini-2.5-flash-lite'
monitor.Guard(window=True) ## the window ... not True ## a number of tokens above 0
monitor.Compaction('pi') ## Compaction: too many positional arguments ## write monitor.Compaction.pi(timeout_s=60)
monitor.Compaction(low_water=60) ## low_water is 60 ## it must be a share of the high-water mark, above 0 and below 1
monitor.Compaction(rules=['Never push']) ## Compaction.rules ... not ['Never push'] ## as in monitor.Compaction.pi(timeout_s=60)
monitor.Compaction(background='yes') ## Compaction.background ... not 'yes' ## write background=True
monitor.Compaction(timeout='60') ## Compaction has no option 'timeout' ## write timeout_s='60'
monitor.Plan() ## Plan: missing a required argument: 'steps' ## write monitor.Plan(['look', 'mend', 'test'])
monitor.Plan('do it') ## the steps of a plan ... not 'do it' ## are a list
monitor.tools.Approval('yolo') ## Approval: too many positional arguments ## write monitor.tools.Approval(mode='default')
monitor.tools.Approval(expires_s='60') ## Approval.expires_s ... not '60' ## write expires_s=60
monitor.sinks.JsonlSink() ## JsonlSink: missing a required argument: 'path' ## write monitor.sinks.JsonlSink('events.jsonl')
monitor.sinks.JsonlSink(5) ## JsonlSink.path ... not 5 ## as in monitor.sinks.JsonlSink('events.jsonl')
monitor.ToolCallRepetition(suspect_at='3') ## ToolCallRepetition.suspect_at ... not '3' ## write suspect_at=3
monitor.ToolCallRepetition(tools=['x']) ## ToolCallRepetition.tools ... not ['x'] ## as in monitor.ToolCallRepetition(loop_at=5)
monitor.ContentRepetition(tail=5) ## ContentRepetition.tail ... not 5 ## a TailRule, or None to switch it off
monitor.ContentRepetition(channels='text') ## ContentRepetition(channels=...): unknown channel 'e', 't', 'x' ## known: text, reasoning, arguments
monitor.default_detectors('a') ## default_detectors: too many positional arguments ## write monitor.default_detectors(tools={'wait': monitor.ToolPolicy(polling=True)})
monitor.ToolPolicy(loop_at='5') ## ToolPolicy.loop_at ... not '5' ## write loop_at=5
monitor.ToolPolicy(polling='yes') ## ToolPolicy.polling ... not 'yes' ## write polling=True
monitor.ToolPolicy(poling=True) ## ToolPolicy has no option 'poling' ## write polling=True
monitor.ToolPolicy(loop_key='id') ## ToolPolicy.loop_key ... not 'id' ## as in monitor.ToolPolicy(polling=True, loop_at=20)
monitor.Ladder(final_tools='emit_value') ## Ladder.final_tools ... not 'emit_value' ## write final_tools=['emit_value']
monitor.Ladder(hold='yes') ## Ladder.hold ... not 'yes' ## write hold=True
monitor.Predicate(lambda: True) ## Predicate takes a function of the run's state ## write monitor.Predicate(lambda state: ...)
monitor.tool(timeout=5)(add) ## tool has no option 'timeout' ## write timeout_s=5
monitor.tool(idempotent='yes')(add) ## tool.idempotent ... not 'yes' ## write idempotent=True
monitor.tool(needs_approval='ask')(add) ## tool.needs_approval ... not 'ask' ## True, False or a function of the arguments and the context
monitor.tool(loop_key='a')(add) ## tool.loop_key ... not 'a' ## a function of the arguments
monitor.tool(command_argument='line')(add) ## add has no argument 'line' ## command_argument names one of them
monitor.tools.ToolGroup([add], prefix=5) ## ToolGroup.prefix ... not 5 ## as in monitor.tools.ToolGroup([search], prefix='docs_')
monitor.tools.ShellTools('.', env=['HOME']) ## ShellTools.env ... not ['HOME'] ## as in monitor.tools.ShellTools('.')
monitor.tools.ShellTools('/nowhere') ## Workspace('/nowhere') ## there is no such folder
monitor.tools.FileTools('.', patch='yes') ## FileTools.patch ... not 'yes' ## write patch=True
monitor.tools.Workspace(5) ## Workspace.path ... not 5 ## as in monitor.tools.Workspace('.')
monitor.tools.McpServer(5) ## McpServer.target ... not 5 ## as in monitor.tools.McpServer('npx -y server .')
monitor.tools.McpServer('server', timeout_s='60') ## McpServer.timeout_s ... not '60' ## write timeout_s=60
monitor.tools.McpServer('https://a.example', headers='Bearer x') ## McpServer.headers ... not 'Bearer x' ## as in monitor.tools.McpServer('npx -y server .')
monitor.tools.FileMemory(5) ## FileMemory.folder ... not 5 ## as in monitor.tools.FileMemory('memory')
monitor.tools.Rules.parse({'rules': []}) ## Rules.parse.text ... not {'rules': []} ## as in monitor.tools.Rules.parse(Path('rules.toml').read_text())
monitor.tools.DiscoveredTools('bin/list') ## DiscoveredTools: missing a required argument: 'call' ## write monitor.tools.DiscoveredTools('bin/list-tools', 'bin/call-tool')
monitor.shared.SharedBudget() ## SharedBudget: missing a required argument: 'store' ## write monitor.shared.SharedBudget(monitor.shared.SQLiteBudgets('budgets.db'), 'research')
monitor.shared.SQLiteBudgets(5) ## SQLiteBudgets.path ... not 5 ## as in monitor.shared.SQLiteBudgets('budgets.db')
monitor.load_settings(5) ## load_settings.path ... not 5 ## as in monitor.load_settings('agent-monitor.toml')
monitor.UserMessage('hello') ## UserMessage.content ... not a text ## write monitor.UserMessage((monitor.messages.Text('hello'),))
monitor.AssistantMessage('hello') ## AssistantMessage.content ... not a text ## write monitor.AssistantMessage((monitor.messages.Text('hello'),))
monitor.sessions.SQLiteSession() ## SQLiteSession: missing a required argument: 'path' ## write monitor.sessions.SQLiteSession('work.session')
monitor.sessions.SQLiteSession('x.session', wait_s='5') ## SQLiteSession.wait_s ... not '5' ## write wait_s=5
monitor.sessions.SQLiteSession('x.session', chunk=True) ## SQLiteSession has no option 'chunk' ## write chunks=True
monitor.proxy.Proxy() ## Proxy: missing a required argument: 'upstreams' ## write monitor.proxy.Proxy('https://api.openai.com')
monitor.sinks.OtelSink('reviewer') ## OtelSink: too many positional arguments ## write monitor.sinks.OtelSink(agent='reviewer')
monitor.model() ## model: missing a required argument: 'name' ## write monitor.model('google:gemini-2.5-flash')
monitor.model('openai:gpt-5', clients=1) ## model has no option 'clients' ## write client=1
monitor.guard.guarding(monitor.MaxTurns(3)) ## guarding: too many positional arguments ## write monitor.guard.guarding(stop_when=monitor.MaxTurns(30))
monitor.Supervisor(model).run_sync() ## Supervisor.run_sync: missing a required argument: 'task' ## write supervisor.run_sync('What to do')
monitor.Supervisor(model).run_sync('x', max_turns=3) ## Supervisor.run_sync has no option 'max_turns': it is an option of the supervisor ## write monitor.Supervisor(model, stop_when=monitor.MaxTurns(3))
monitor.Supervisor(model).run_sync('x', tools=[add]) ## Supervisor.run_sync has no option 'tools': it is an option of the supervisor ## write monitor.Supervisor(model, tools=...)
monitor.Supervisor(model).run_sync('x', temperature=0) ## Supervisor.run_sync has no option 'temperature': it is an option of the supervisor ## write monitor.Supervisor(model, requests=monitor.runs.Requests(settings={'temperature': 0})
monitor.Supervisor(model).as_tool('researcher', 'Finds facts.') ## Supervisor.as_tool: too many positional arguments ## write supervisor.as_tool(name='researcher', description='Finds facts.')
monitor.Supervisor(model).stream() ## Supervisor.stream: missing a required argument: 'task' ## write async with supervisor.stream('What to do') as run:
monitor.Supervisor(model).run_sync('x', history='hello') ## Supervisor.run.history ... not 'hello' ## write history=['hello']
watched(search) ## cannot watch search, a function that needs arguments ## write async with monitor.watch(search(...)) as watched: ...
watched(ScriptedStream) ## cannot watch ScriptedStream, which is a class ## write async with monitor.watch(ScriptedStream(...)) as watched: ...
watched(model) ## cannot watch ScriptedModel: it is not an async iterator; give the stream of an SDK ## write async with monitor.watch(stream) as watched: ...
watched_sync(search) ## cannot watch search, a function that needs arguments ## write with monitor.watch(search(...)) as watched: ...
monitor.Guard().abort(5) ## why ... not 5 ## takes a text
[chunk for chunk in monitor.watch(['a'])] ## enter the stream before reading it ## write with monitor.watch(stream) as watched: for chunk in watched: ...
monitor.MaxTurns(30) + monitor.Timeout(600) ## + does not join conditions ## write monitor.MaxTurns(30) | monitor.Timeout(600)
monitor.MaxTurns(30) + monitor.Timeout ## Timeout is a class ## write monitor.MaxTurns(30) | monitor.Timeout(...)
sum([monitor.MaxTurns(30), monitor.Timeout(600)]) ## joins two conditions ... 0 is none ## write monitor.MaxTurns(30) | monitor.Timeout(600)
monitor.Guard(detectors=monitor.default_detectors) ## detectors takes a list, not the function default_detectors ## write detectors=monitor.default_detectors()
monitor.Supervisor('gpt-5') ## 'gpt-5' is a name ## write model=monitor.model('openai:gpt-5')
monitor.Supervisor('claude-sonnet-5') ## 'claude-sonnet-5' is a name ## write model=monitor.model('anthropic:claude-sonnet-5')
monitor.model('gpt-5') ## model 'gpt-5' ## as in 'openai:gpt-5'
monitor.Guard(outputs={search: str}) ## the name of an output must be a string ... search ## write outputs={'search': ...}
monitor.Agent ## has no attribute 'Agent' ## write monitor.Supervisor
monitor.Outcome(**failed).result ## an Outcome has no 'result' ## write outcome.output
monitor.Outcome(**failed).stop_reason ## an Outcome has no 'stop_reason' ## write outcome.reason
monitor.Outcome(**failed).elapsed ## an Outcome has no 'elapsed' ## did you mean 'elapsed_s'
bool(monitor.Outcome(**failed)) ## an outcome is neither true nor false ## write if outcome.ok
disobeyed('watch') ## the run has ended: max_turns after 1 turn ## write if turn.stopped
disobeyed('check') ## the run has ended: max_turns after 1 turn ## isinstance(guard.check(), monitor.Stop): break
disobeyed('tool_result') ## the run has ended: max_turns after 1 turn ## leave the loop where turn.stopped is set
answered('mistyped', 'sunny') ## 'mistyped' is none of look ('c1') ## write for call in watched.turn.tool_calls: guard.tool_result(call, ...)
answered('sunny', 'c1') ## the call and its result are swapped ## write guard.tool_result(call, 'its text')
steered(5) ## a message to a run is a text ... not 5 ## write await run.steer("Look at main.py first")
"""  # noqa: E501 - one mistake a line

MISTAKES = rows(WRONG)


def test_there_are_many_of_them():
    assert len(MISTAKES) >= 200
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


def test_numbers_of_other_packages_are_numbers():
    """A type that has `__index__` or `__float__` and is registered as a number, as numpy's are."""

    @Integral.register
    class Int64:
        def __index__(self) -> int:
            return 30

    given: Any = Int64()
    assert monitor.MaxTurns(given) == monitor.MaxTurns(30)
    assert type(monitor.MaxTurns(given).turns) is int
    assert type(monitor.Budget(tokens=given).tokens) is int
    exact: Any = Decimal("0.5")
    assert monitor.CostLimit(exact) == monitor.CostLimit(0.5)
    assert monitor.Price(exact, output=exact) == monitor.Price(0.5, 0.5)
    assert type(monitor.Timeout(cast("Any", Fraction(5, 2))).seconds) is float


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
        "failed": {"ok": False, "reason": monitor.TerminateReason.TIMEOUT, "detail": "late", "source": "timeout"},
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
async def read_without_async() -> None:
    async with monitor.watch(ScriptedStream(["a"])) as watched:
        list(watched)  # type: ignore[call-overload]


@in_loop
async def result_not_awaited() -> None:
    async with monitor.Guard() as guard:
        guard.tool_result(None, search("x"))


@in_loop
async def run(task: Any) -> None:
    await monitor.Supervisor(a_model()).run(task)


@in_loop
async def steered(text: Any) -> None:
    async with monitor.Supervisor(a_model()).stream("x") as going:
        await going.steer(text)


@in_loop
async def without_key(name: str) -> None:
    await monitor.Supervisor(monitor.model(name)).run("x")


def with_key(variable: str, key: str, name: str) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(variable, key)
        without_key(name)


@in_loop
async def replayed(session: Any) -> None:
    await monitor.replay(session)


def enough(state: monitor.outcome.RunState) -> bool:
    return state.turns > 1


def checked() -> monitor.Verdict:
    """The verdict behind a stream that has ended well."""
    with monitor.Guard() as guard:
        with guard.watch(iter(["Hello."])) as chunks:
            list(chunks)
        return guard.check()


def disobeyed(goes_on: str) -> None:
    """A loop that does not hear the stop of `check`."""
    with monitor.Guard(stop_when=monitor.MaxTurns(1)) as guard:
        call = looked(guard)
        guard.check()
        {"watch": lambda: looked(guard), "check": guard.check, "tool_result": lambda: guard.tool_result(call, "")}[
            goes_on
        ]()


def answered(call: str, result: str) -> None:
    with monitor.Guard() as guard:
        looked(guard)
        guard.tool_result(call, result)


def looked(guard: monitor.Guard) -> monitor.chunks.ToolCall:
    """The call of one turn."""
    with guard.watch(iter([monitor.chunks.ToolCall("c1", "look", {})])) as chunks:
        return next(iter(chunks))


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
