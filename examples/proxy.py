"""A proxy in front of a service whose model chants. The client's own SDK, unmodified, sees an
answer that ends, and the service sees its connection closed.

The service is a local server here. In front of a real one the same is a command:
`agent-monitor proxy --upstream https://api.openai.com`. Needs the extras `proxy` and `openai`.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator

import openai
import uvicorn

from monitor.proxy import Proxy
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Repeat, Script, text

CHANT: Script = [text("Let me look. "), Repeat(text("I will now read the file again. "), delay_s=0.005)]


@contextlib.asynccontextmanager
async def serving(proxy: Proxy) -> AsyncGenerator[str, None]:
    """The address of the proxy. `agent-monitor proxy` does this for you."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(proxy, log_level="warning", access_log=False))
        running = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await running


async def main() -> None:
    """Ask through the proxy, and show what both ends saw."""
    with LocalOpenAI([CHANT]) as service:
        proxy = Proxy(service.base_url.removesuffix("/v1"))
        async with serving(proxy) as address, openai.AsyncOpenAI(api_key="key", base_url=f"{address}/v1") as client:
            stream = await client.chat.completions.create(
                model="local", messages=[{"role": "user", "content": "Read the file"}], stream=True
            )
            async for chunk in stream:
                choice = chunk.choices[0]
                print(choice.delta.content or "", end="")
                if choice.finish_reason:
                    print(f"\nthe client's answer has ended: {choice.finish_reason}")
        print(
            f"the service saw its client leave after {service.wait_closed().at - service.requests[0].arrived_at:.2f} s"
        )
        for run in proxy.runs:
            print(f"{run.id}: {run.state}: {run.last_stop}")


if __name__ == "__main__":
    asyncio.run(main())
