"""`agent-monitor keys`: make, list and revoke the keys that clients of a proxy have."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from monitor.cli.render import output, table
from monitor.errors import ConfigError

if TYPE_CHECKING:
    from monitor.proxy.keys import VirtualKey

keys = typer.Typer(name="keys", add_completion=False, no_args_is_help=True, rich_markup_mode="rich")


@keys.callback()
def about() -> None:
    """Make, list and revoke the keys that clients of a proxy have.

    \b
    Examples:
      agent-monitor keys make alice --file keys.json --owner alice@example.com --expires 90d
      agent-monitor keys make nightly --file keys.json --models 'gpt-4o*' --tokens 2000000 \\
        --requests-per-minute 60
      agent-monitor keys list --file keys.json
      agent-monitor keys revoke alice --file keys.json
      agent-monitor proxy --upstream https://api.openai.com --keys keys.json \\
        --service-key OPENAI_API_KEY

    \b
    The file has only the digests of keys. A key is shown once, when it is made.
    A proxy that runs reads the file again on SIGHUP.
    """  # noqa: D301 - \b keeps the lines of an example apart


FileOption: TypeAlias = Annotated[
    Path, typer.Option("--file", metavar="FILE", envvar="AGENT_MONITOR_KEYS", help="The file of the keys, in JSON.")
]
NameArgument: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, . _ and -.")]


@keys.command()
def make(
    name: NameArgument,
    *,
    file: FileOption,
    owner: Annotated[str, typer.Option(metavar="WHO", help="The person or the team whose key it is.")] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="WHEN", help="A day such as 2027-01-31, or a time from now: 12h, 90d.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--models", metavar="PATTERN", help="It may ask for such models only; may be given again."),
    ] = None,
    tokens: Annotated[int | None, typer.Option(metavar="N", min=1, help="The limit of its budget.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(metavar="N", min=1, help="Further ones get 429.")] = None,
) -> None:
    """Make a key, and print it. It is shown only now."""
    from monitor.proxy.keys import (  # noqa: PLC0415 - takes time
        VirtualKey,
        digest_of,
        locked,
        new_key,
        read_keys,
        write_keys,
    )

    with locked(file):
        known = read_keys(file).all if file.exists() else []
        if any(one.name == name for one in known):
            raise ConfigError(f"{file} has a key {name!r}: revoke it first")
        secret = new_key()
        made = VirtualKey(
            name=name,
            digest=digest_of(secret),
            owner=owner,
            expires=_moment(expires, name),
            models=tuple(models or ()),
            tokens=tokens,
            requests_per_minute=requests_per_minute,
        )
        write_keys(file, [*known, made])
    output.write(secret)


@keys.command()
def revoke(name: NameArgument, *, file: FileOption) -> None:
    """Take a key out of the file. A proxy refuses it from its next SIGHUP or start on."""
    from monitor.proxy.keys import locked, read_keys, write_keys  # noqa: PLC0415

    with locked(file):
        known = read_keys(file).all
        left = [one for one in known if one.name != name]
        if len(left) == len(known):
            raise ConfigError(f"{file} has no key {name!r}")
        write_keys(file, left)
    output.line(output.stdout(), f"{name}: revoked")


@keys.command("list")
def list_(*, file: FileOption, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the keys, and what each may. No key is shown: the file has none."""
    from monitor.proxy.keys import read_keys  # noqa: PLC0415

    _KEYS.print(read_keys(file).all, as_json=as_json)


def _expires(one: VirtualKey) -> str:
    """The day on which a key ends."""
    if one.expires is None:
        return "-"
    return one.expires.isoformat()[:10] + (" (over)" if one.is_over(time.time()) else "")


_KEYS: Final = table.RowKind["VirtualKey"](
    table.Fact("name", table.Column("key", "middle"), lambda one: one.name),
    table.Fact("owner", "owner", lambda one: one.owner, lambda owner: owner or "-"),
    table.Fact("expires", None, lambda one: one.expires.isoformat() if one.expires is not None else None),
    table.Fact("expired", None, lambda one: one.is_over(time.time())),
    table.Fact(None, "expires", _expires),
    table.Fact("models", "models", lambda one: list(one.models), lambda models: ", ".join(models) or "any"),
    table.Fact(
        "tokens",
        table.Column("tokens", right=True),
        lambda one: one.tokens,
        lambda number: "-" if number is None else f"{number:,}",
    ),
    table.Fact(
        "requests_per_minute",
        table.Column("a minute", right=True),
        lambda one: one.requests_per_minute,
        lambda number: "-" if number is None else str(number),
    ),
)
"""The columns of a key."""


def _moment(given: str | None, name: str) -> datetime | None:
    """A day, or a time from now."""
    from monitor.proxy.keys import moment  # noqa: PLC0415

    if given is not None and given[:-1].isdecimal() and given[:-1].isascii() and given[-1] in "hd":
        number = int(given[:-1])
        try:
            return datetime.now(UTC).replace(microsecond=0) + (
                timedelta(hours=number) if given[-1] == "h" else timedelta(days=number)
            )
        except OverflowError:
            raise ConfigError(f"{given} from now is no date") from None
    return moment(given, name)
