from collections.abc import Iterator

import monitor


def stream() -> Iterator[str]:  # client.chat.completions.create(..., stream=True)
    yield "The sum "
    yield "is 4."


with monitor.watch(stream(), stop_when=monitor.Timeout(300)) as watched:
    for chunk in watched:
        print(chunk, end="")
print(watched.outcome.reason, watched.to_form("openai-chat"))
