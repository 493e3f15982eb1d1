import anyio
from pathlib import Path
from monitor import UserMessage
from monitor.messages import Text
from monitor.sessions import SessionReader, SQLiteSession, exported, fork, imported, message, retain


async def main() -> None:
    async with SQLiteSession("kept.session") as session:
        await session.append(message(UserMessage((Text("hello"),))))


anyio.run(main)
fork(Path("kept.session"), Path("copy.session"))
with SessionReader("kept.session") as session:
    lines = list(exported(session))
    print(session.verify() or "as it was written")
imported(lines, Path("again.session"))
print(retain(Path("."), max_age_s=30 * 86_400, dry=True).removed)
