"""`agent-monitor proxy keys`: make, list and revoke the keys that clients of a proxy have."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import anyio
import typer
from rich.text import Text

from monitor.cli.options.shared import JsonOption, argument, flag, option
from monitor.cli.render import output, table
from monitor.errors import ConfigError
from monitor.shared import Amount, BudgetState, BudgetStore, budgets_at

if TYPE_CHECKING:
    from monitor.proxy.keys import VirtualKey

keys = typer.Typer(name="keys", add_completion=False, no_args_is_help=True, rich_markup_mode="rich")


@keys.callback()
def about_keys() -> None:
    """Make, list and revoke the keys that clients of a proxy have.

    Examples:
      agent-monitor proxy keys make alice --file keys.json \\
        --owner alice@example.com --expires 90d
      agent-monitor proxy keys make nightly --file keys.json --models 'gpt-4o*' \\
        --tokens 2000000 --requests-per-minute 60
      agent-monitor proxy keys list --file keys.json
      agent-monitor proxy keys revoke alice --file keys.json
      agent-monitor proxy --upstream https://api.openai.com --keys keys.json \\
        --service-key OPENAI_API_KEY

    The file has only the digests of keys. A key is shown once, when it is made.
    A proxy that runs reads the file again on SIGHUP.
    """


FileOption: TypeAlias = Annotated[
    Path, option("FILE", "The file of the keys, in JSON.", "--file", envvar="AGENT_MONITOR_KEYS")
]
NameArgument: TypeAlias = Annotated[str, argument("NAME", "Letters, digits, . _ and -.")]


@keys.command()
def make(
    name: NameArgument,
    *,
    file: FileOption,
    owner: Annotated[str, option("WHO", "The person or the team whose key it is.")] = "",
    expires: Annotated[str | None, option("WHEN", "A day such as 2027-01-31, or a time from now: 12h, 90d.")] = None,
    models: Annotated[
        list[str] | None,
        option("PATTERN", "It may ask for such models only; may be given again."),
    ] = None,
    tokens: Annotated[int | None, option("N", "The limit of its budget.", min=1)] = None,
    requests_per_minute: Annotated[int | None, option("N", "Further ones get 429.", min=1)] = None,
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
def list_(*, file: FileOption, as_json: JsonOption = False) -> None:
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


# --------------------------------------------------------------------------------------------------
# `agent-monitor proxy budget`: look at budgets that many processes share, and set their limits.

T = TypeVar("T")

NO_LIMIT: Final = "-"

budget = typer.Typer(name="budget", add_completion=False, no_args_is_help=True, rich_markup_mode="rich")


@budget.callback()
def about_budgets() -> None:
    """Look at budgets that many processes share, and set their limits.

    Examples:
      agent-monitor proxy budget limit research --tokens 5000000 --usd 20 \\
        --store budgets.db
      agent-monitor proxy budget show --store budgets.db
      agent-monitor proxy budget show research/night \\
        --store redis://localhost:6379/0

    What runs have reserved is held; what they have used is spent. The hold of
    a process that died comes back when its lease ends.
    """


StoreOption: TypeAlias = Annotated[
    str,
    option(
        "WHERE",
        "The file of an SQLite store, or redis://..., or postgresql://....",
        "--store",
        envvar="AGENT_MONITOR_BUDGETS",
    ),
]


@budget.command()
def show(
    name: Annotated[str | None, argument("NAME", "This budget and those below it.")] = None,
    *,
    store: StoreOption,
    as_json: JsonOption = False,
) -> None:
    """Show limits, what is spent, what is held, and what is left."""
    if "://" not in store and not Path(store).is_file():
        raise ConfigError(f"there is no store {store}; `agent-monitor proxy budget limit` makes one")
    states = _asked(store, lambda budgets: budgets.states(name))
    if name is not None and not states:
        raise ConfigError(f"there is no budget {name!r} in {store}")
    if as_json:
        for one in states:
            output.write_json(_as_json(one))
        return
    console = output.stdout()
    if not states:
        console.print("there is no budget yet; `agent-monitor proxy budget limit` makes one")
        return
    table.show(console, _COLUMNS, [row for one in states for row in _rows(one)])


@budget.command()
def limit(
    name: Annotated[str, argument("NAME", "Levels have / between them: team/alice.")],
    *,
    store: StoreOption,
    tokens: Annotated[int | None, option("N", "Input and output together.")] = None,
    usd: Annotated[float | None, option("X", "US dollars.")] = None,
    none: Annotated[bool, flag("--none", "Take the limits away; it counts on.")] = False,
) -> None:
    """Set the limits of a budget. Its spent amount stays.

    A limit that is not named is taken away: both are set at once.
    """
    if none == (tokens is not None or usd is not None):
        raise ConfigError("say --tokens, --usd or both; or --none, to take the limits away")
    _asked(store, lambda budgets: budgets.set_limit(name, tokens=tokens, usd=usd))
    said = " and ".join(
        part
        for part in (f"{tokens:,} tokens" if tokens is not None else "", f"{usd:g} USD" if usd is not None else "")
        if part
    )
    output.line(output.stdout(), f"{name}: {f'at most {said}' if said else 'no limit'}")


_COLUMNS: Final = (
    table.Column("budget", "middle"),
    "of",
    table.Column("limit", right=True),
    table.Column("spent", right=True),
    table.Column("held", right=True),
    table.Column("left", right=True),
    table.Column("runs", right=True),
)


def _rows(one: BudgetState) -> Sequence[Sequence[table.Cell]]:
    """A line for tokens, and one for money if there is any."""
    rows = []
    if one.tokens is not None or one.usd is None or one.spent.tokens or one.held.tokens:
        rows.append(_row(one, "tokens", "{:,}".format))
    if one.usd is not None or one.spent.usd or one.held.usd:
        rows.append(_row(one, "USD", "{:,.4f}".format))
    return rows


def _row(one: BudgetState, of: str, said: Callable[[float], str]) -> Sequence[table.Cell]:
    most, spent, held = (getattr(part, of.lower()) for part in (one, one.spent, one.held))
    left = None if most is None else most - spent - held
    over = left is not None and left <= 0
    return (
        one.name,
        of,
        NO_LIMIT if most is None else said(most),
        said(spent),
        said(held),
        NO_LIMIT if left is None else Text(said(left), style="red" if over else ""),
        str(one.holds),
    )


def _as_json(one: BudgetState) -> dict[str, Any]:
    parts: dict[str, BudgetState | Amount] = {"limit": one, "spent": one.spent, "held": one.held}
    amounts = {name: {"tokens": part.tokens, "usd": part.usd} for name, part in parts.items()}
    return {"name": one.name, **amounts, "holds": one.holds}


def _asked(where: str, ask: Callable[[BudgetStore], Awaitable[T]]) -> T:
    async def asked() -> T:
        store = budgets_at(where)
        try:
            return await ask(store)
        finally:
            await store.aclose()

    return anyio.run(asked)
