"""The options of `agent-monitor proxy`, in groups: each gives some of the arguments of `Proxy`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from monitor.cli.options.run_options import IdleTimeoutOption, MaxToolCallsOption, PriceOption, limit_option
from monitor.cli.options.supervisor_arguments import limits_of, price_of
from monitor.errors import ConfigError
from monitor.shared import budgets_at, rows_at

BUDGETS, KEYS = "Budgets", "Keys"
"""The headings of these options in the help."""
budget_option = partial(typer.Option, rich_help_panel=BUDGETS)
key_option = partial(typer.Option, rich_help_panel=KEYS)
_SQLITE: Final = "sqlite:///"
_MIB: Final = 1024 * 1024


@dataclass(slots=True, frozen=True, kw_only=True)
class ServiceOptions:
    """Where the requests go."""

    upstream: Annotated[
        list[str] | None,
        typer.Option(
            "--upstream",
            metavar="[NAME=]URL",
            help="The service, without /v1. With a NAME it gets the paths below /NAME/; may be given again.",
        ),
    ] = None
    fallback: Annotated[
        list[str] | None,
        typer.Option(
            "--fallback",
            metavar="[NAME=]URL",
            help="A second service, asked if the first cannot be reached or has a status from 500 on.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of `Proxy`. Raises `ConfigError`."""
        if not self.upstream:
            raise ConfigError("say where the requests go: --upstream https://api.openai.com")
        return {
            "upstreams": _addresses("upstream", self.upstream),
            "fallbacks": _addresses("--fallback", self.fallback or ()),
        }


@dataclass(slots=True, frozen=True, kw_only=True)
class AnswerOptions:
    """What becomes of loops, of stopped answers, and of what is not watched. The fields have
    the names of the arguments of `Proxy`.
    """

    on_loop: Annotated[
        Literal["stop", "error", "hold", "observe"],
        typer.Option(
            help="stop: end the answer well; error: with an error; hold: wait for an operator; observe: only show it."
        ),
    ] = "stop"
    hold_s: Annotated[
        float, typer.Option("--hold", metavar="SECONDS", min=1, help="How long a held run waits for an operator.")
    ] = 300.0
    nudge: Annotated[
        bool,
        typer.Option("--nudge", help="Add a message to the request of a run that repeats itself, and may loop soon."),
    ] = False
    stop_as: Annotated[
        Literal["text", "error", "silent"],
        typer.Option(
            help="text: one sentence is the last text of an answer that is stopped; error: it ends with an error; "
            "silent: only a comment says why."
        ),
    ] = "text"
    holds_calls: Annotated[
        bool, typer.Option("--hold-calls/--pass-calls", help="Pass a call on when it is whole, or as it comes.")
    ] = True
    unwatched: Annotated[
        Literal["relay", "pay", "refuse"] | None,
        typer.Option(
            help="What cannot be judged: relay it, let it pay by its bytes, or refuse it. "
            "The default pays if there is a --budget.",
        ),
    ] = None


@dataclass(slots=True, frozen=True, kw_only=True)
class BoundOptions:
    """What a run, an answer, a request and all of them may take."""

    max_turns: Annotated[str, limit_option(metavar="N|off", help="Turns since the user's last task.")] = "off"
    max_tool_calls: MaxToolCallsOption = None
    timeout: Annotated[str, limit_option(metavar="SECONDS|off", help="For one answer.")] = "off"
    idle_timeout: IdleTimeoutOption = "off"
    max_body: Annotated[int, limit_option(metavar="BYTES", min=1, help="Longer requests cannot be judged.")] = 32 * _MIB
    max_in_flight: Annotated[
        int, limit_option(metavar="BYTES", min=1, help="Held at once, of all requests and answers.")
    ] = 256 * _MIB
    max_keyless: Annotated[
        int, limit_option(metavar="N", min=1, help="Requests without a key that are answered at once.")
    ] = 100
    arrival: Annotated[
        float, limit_option(metavar="SECONDS", min=0.1, help="How long a request may take to arrive.")
    ] = 60.0

    def arguments(self) -> dict[str, Any]:
        """The arguments of `Proxy`. Raises `ConfigError`."""
        return {
            "stop_when": limits_of(self),
            "most_body": self.max_body,
            "most_in_flight": self.max_in_flight,
            "most_keyless": self.max_keyless,
            "arrival_s": self.arrival,
        }


@dataclass(slots=True, frozen=True, kw_only=True)
class SpendingOptions:
    """What keys and runs may spend, and with whom it is shared."""

    budget: Annotated[
        str | None,
        budget_option(
            metavar="STORE",
            envvar="AGENT_MONITOR_BUDGETS",
            help="A file, sqlite:///FILE, redis://... or postgresql://.... Keys spend from proxy/<key>.",
        ),
    ] = None
    key_tokens: Annotated[
        int | None,
        budget_option(metavar="N", min=1, help="The limit of a key that has none in the store."),
    ] = None
    run_tokens: Annotated[int | None, budget_option(metavar="N", min=1, help="The limit of each run.")] = None
    share: Annotated[
        bool,
        budget_option(
            "--share/--no-share",
            help="Share runs, their page and the operator's words with the other proxies of this STORE.",
        ),
    ] = True
    price: PriceOption = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of `Proxy`. Raises `ConfigError`."""
        store = None if self.budget is None else self.budget.removeprefix(_SQLITE)
        return {
            "budget": None if store is None else budgets_at(store),
            "rows": rows_at(store) if store is not None and self.share else None,
            "key_tokens": self.key_tokens,
            "run_tokens": self.run_tokens,
            "prices": price_of(self.price),
        }


@dataclass(slots=True, frozen=True, kw_only=True)
class KeyOptions:
    """The keys of clients and of services."""

    key: Annotated[
        list[str] | None,
        budget_option(
            "--key",
            metavar="NAME=WHAT",
            help="What a key is called. WHAT: the variable that holds the key, or sha256: and its digest.",
        ),
    ] = None
    named_keys_only: Annotated[
        bool, budget_option("--named-keys-only", help="Refuse requests whose key has no name by --key.")
    ] = False
    keys: Annotated[
        Path | None,
        key_option(
            metavar="FILE",
            envvar="AGENT_MONITOR_KEYS",
            help="Only the keys in this file may pass: agent-monitor keys makes them. Read again on SIGHUP.",
        ),
    ] = None
    service_key: Annotated[
        list[str] | None,
        key_option(
            "--service-key",
            metavar="[NAME=]VARIABLE",
            help="The variable with the key that the service gets in place of the client's.",
        ),
    ] = None
    fallback_key: Annotated[
        list[str] | None,
        key_option(
            "--fallback-key",
            metavar="[NAME=]VARIABLE",
            help="The variable with the key that the second service gets. Without it, the same key.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of `Proxy`. Raises `ConfigError`."""
        from monitor.proxy.keys import KeyNames, read_keys  # noqa: PLC0415 - the extra may be missing

        return {
            "keys": KeyNames(_names(self.key or ()), only=self.named_keys_only),
            "virtual_keys": None if self.keys is None else read_keys(self.keys),
            "service_keys": _secrets("--service-key", self.service_key or ()),
            "fallback_keys": _secrets("--fallback-key", self.fallback_key or ()),
        }


def _addresses(what: str, given: Sequence[str]) -> Mapping[str, str]:
    """Addresses by the names of upstreams."""
    found: dict[str, str] = {}
    for one in given:
        before, sign, after = one.partition("=")
        name, address = (before, after) if sign and "/" not in before else ("", one)
        if name in found:
            raise ConfigError(f"two {what}s are called {name!r}" if name else f"only one {what} may have no name")
        found[name] = address
    return found


def _secrets(option: str, given: Sequence[str]) -> Mapping[str, str]:
    """The keys of services by the names of upstreams. The options have the names of variables."""
    found: dict[str, str] = {}
    for one in given:
        before, sign, after = one.partition("=")
        name, variable = (before, after) if sign else ("", before)
        value = os.environ.get(variable)
        if not value:
            raise ConfigError(f"{option}: the variable that it names is not set")
        if name in found:
            raise ConfigError(f"{option}: two keys are for the upstream {name!r}")
        found[name] = value
    return found


def _names(given: Sequence[str]) -> Mapping[str, str]:
    """The digests of keys by their names."""
    from monitor.proxy.keys import digest_of  # noqa: PLC0415 - the extra may be missing

    found: dict[str, str] = {}
    for one in given:
        name, sign, what = one.partition("=")
        if name in found:
            raise ConfigError(f"--key {name}: two keys have this name")
        if not sign or not what:
            raise ConfigError(f"--key {name}: write NAME=VARIABLE, or NAME=sha256:...")
        if not what.startswith("sha256:"):
            value = os.environ.get(what)
            if not value:
                raise ConfigError(f"--key {name}: the variable that it names is not set")
            what = digest_of(value)
        found[name] = what
    return found
