"""The proxy: the same guard in front of any client, in any language.

    from monitor.proxy import Proxy

    proxy = Proxy("https://api.openai.com")       # an ASGI application: uvicorn my_module:proxy

`agent-monitor proxy` runs it. Needs the extra `proxy`.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.proxy.accounts import OnLoop as OnLoop
    from monitor.proxy.app import Proxy as Proxy
    from monitor.proxy.keys import KeyNames as KeyNames
    from monitor.proxy.keys import VirtualKey as VirtualKey
    from monitor.proxy.keys import VirtualKeys as VirtualKeys
    from monitor.proxy.keys import digest_of as digest_of
    from monitor.proxy.keys import read_keys as read_keys
    from monitor.proxy.runs import ProxiedRun as ProxiedRun
    from monitor.proxy.runs import ProxiedRuns as ProxiedRuns
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)
