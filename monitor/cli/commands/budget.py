"""`agent-monitor budget`: look at budgets that many processes share, and set their limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import anyio
import typer
from rich.text import Text

from monitor.cli.render import output, table
from monitor.errors import ConfigError
from monitor.shared import Amount, BudgetState, BudgetStore, budgets_at

T = TypeVar("T")

NO_LIMIT: Final = "-"

budget = typer.Typer(name="budget", add_completion=False, no_args_is_help=True, rich_markup_mode="rich")


@budget.callback()
def about() -> None:
    """Look at budgets that many processes share, and set their limits.

    \b
    Examples:
      agent-monitor budget limit research --tokens 5000000 --usd 20 --store budgets.db
      agent-monitor budget show --store budgets.db
      agent-monitor budget show research/night --store redis://localhost:6379/0

    \b
    What runs have reserved is held; what they have used is spent. The hold of
    a process that died comes back when its lease ends.
    """  # noqa: D301 - \b keeps the lines of an example apart


StoreOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="WHERE",
        envvar="AGENT_MONITOR_BUDGETS",
        help="The file of an SQLite store, or redis://..., or postgresql://....",
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@budget.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="This budget and those below it.")] = None,
    *,
    store: StoreOption,
    as_json: JsonOption = False,
) -> None:
    """Show limits, what is spent, what is held, and what is left."""
    if "://" not in store and not Path(store).is_file():
        raise ConfigError(f"there is no store {store}; `agent-monitor budget limit` makes one")
    states = _asked(store, lambda budgets: budgets.states(name))
    if name is not None and not states:
        raise ConfigError(f"there is no budget {name!r} in {store}")
    if as_json:
        for one in states:
            output.write_json(_as_json(one))
        return
    console = output.stdout()
    if not states:
        console.print("there is no budget yet; `agent-monitor budget limit` makes one")
        return
    table.show(console, _COLUMNS, [row for one in states for row in _rows(one)])


@budget.command()
def limit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Levels have / between them: team/alice.")],
    *,
    store: StoreOption,
    tokens: Annotated[int | None, typer.Option("--tokens", metavar="N", help="Input and output together.")] = None,
    usd: Annotated[float | None, typer.Option("--usd", metavar="X", help="US dollars.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Take the limits away; it counts on.")] = False,
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
