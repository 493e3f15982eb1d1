from monitor import IdleTimeout, MaxTurns
from monitor.proxy import Proxy

proxy = Proxy(
    {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"},
    stop_when=MaxTurns(40) | IdleTimeout(60),
    on_loop="hold",
    token="from your own settings",
)
print([f"/{one.name}/ -> {one}" for one in proxy.upstreams.all])  # /openai/ -> https://api.openai.com, ...
