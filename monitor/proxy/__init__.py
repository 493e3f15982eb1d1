"""The proxy: the same guard in front of any client, in any language.

    from monitor.proxy import Proxy

    proxy = Proxy("https://api.openai.com")       # an ASGI application: uvicorn my_module:proxy

`agent-monitor proxy` runs it. Needs the extra `proxy`.
"""

from monitor.proxy.app import Proxy
from monitor.proxy.keys import KeyNames, digest_of
from monitor.proxy.options import OnLoop
from monitor.proxy.runs import ProxiedRun, ProxiedRuns

__all__ = ["KeyNames", "OnLoop", "ProxiedRun", "ProxiedRuns", "Proxy", "digest_of"]
