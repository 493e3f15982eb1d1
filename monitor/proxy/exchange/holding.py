"""A run that loops over its turns waits for an operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from monitor.policy import stop_for
from monitor.proxy.exchange.context import ProxyContext
from monitor.proxy.state.runs import ProxiedRun, signature
from monitor.verdicts import Detection


async def may_go_on(
    context: ProxyContext,
    run: ProxiedRun,
    loop: Detection,
    *,
    remark: Callable[[], Awaitable[None]],
    hide: Callable[[str], str],
) -> bool:
    """Whether an operator lets the run go on, at this proxy or at another one. Meanwhile `remark`
    is called, which keeps the client waiting. `hide` masks secrets.
    """
    options, peers = context.options, context.peers
    if peers is not None:
        await peers.look()
        if signature(loop) in peers.allowed(run.id):
            run.allow(loop)
            return True
    if len(context.desk) >= options.most_held:
        return False
    await remark()
    run.end("held", stop_for(loop), hide=hide)
    context.runs.count("holds")
    until = options.clock.now() + options.hold_s
    run.held += 1
    context.runs.changed(run)
    try:
        with context.desk.wait(run.id) as waiting:
            while waiting.said is None and (left := until - options.clock.now()) > 0:
                await waiting.for_at_most(min(left, options.keep_alive_s))
                await remark()
    finally:
        run.held -= 1
        run.end("running")
        context.runs.changed(run)
    if waiting.said != "go":
        return False
    run.allow(loop)
    if peers is not None:
        await peers.look()  # the next request of the run may come to another proxy
    return True
