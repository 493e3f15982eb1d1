import anyio
from monitor import AssistantMessage, UserMessage
from monitor.messages import Text
from monitor.sessions import SQLiteSession, message


async def main() -> None:
    async with SQLiteSession("work.session") as session:
        await session.append(message(UserMessage((Text("Why is the sky blue?"),))))
        await session.append(message(AssistantMessage((Text("Because of Rayleigh scattering."),))))
    async with SQLiteSession("work.session") as session:  # tomorrow, in another process
        for said in (await session.context()).messages:
            print(type(said).__name__, *(part.text for part in said.content if isinstance(part, Text)))


anyio.run(main)
