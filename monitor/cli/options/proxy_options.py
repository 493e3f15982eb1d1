"""The options of `agent-monitor proxy`. The fields have the names of the arguments of `Proxy`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from monitor.cli.options.run_arguments import IdleTimeoutOption, MaxToolCallsOption, PriceOption, limit_option
from monitor.cli.options.shared import Read, arguments_of, flag, option
from monitor.cli.options.supervisor_arguments import limits_of, price_of
from monitor.errors import ConfigError
from monitor.shared import budgets_at, rows_at

if TYPE_CHECKING:
    from monitor.proxy.keys import VirtualKeys

ANSWERS, BUDGETS, KEYS = "Answers", "Budgets", "Keys"
"""The headings of these options in the help."""
answer_option, budget_option, key_option = (partial(option, panel=panel) for panel in (ANSWERS, BUDGETS, KEYS))
_SQLITE: Final = "sqlite:///"
_MIB: Final = 1024 * 1024


def _upstreams(given: Sequence[str] | None) -> Mapping[str, str]:
    if not given:
        raise ConfigError("say where the requests go: --upstream https://api.openai.com")
    return _addresses("upstream", given)


def _virtual(file: Path | None) -> VirtualKeys | None:
    from monitor.proxy.keys import read_keys  # noqa: PLC0415 - the extra may be missing

    return None if file is None else read_keys(file)


def _addresses(what: str, given: Sequence[str] | None) -> Mapping[str, str]:
    """Addresses by the names of upstreams."""
    found: dict[str, str] = {}
    for one in given or ():
        before, sign, after = one.partition("=")
        name, address = (before, after) if sign and "/" not in before else ("", one)
        if name in found:
            raise ConfigError(f"two {what}s are called {name!r}" if name else f"only one {what} may have no name")
        found[name] = address
    return found


def _secrets(option: str, given: Sequence[str] | None) -> Mapping[str, str]:
    """The keys of services by the names of upstreams. The options have the names of variables."""
    found: dict[str, str] = {}
    for one in given or ():
        before, sign, after = one.partition("=")
        name, variable = (before, after) if sign else ("", before)
        value = os.environ.get(variable)
        if not value:
            raise ConfigError(f"{option}: the variable that it names is not set")
        if name in found:
            raise ConfigError(f"{option}: two keys are for the upstream {name!r}")
        found[name] = value
    return found


def _names(given: Sequence[str] | None) -> Mapping[str, str]:
    """The digests of keys by their names."""
    from monitor.proxy.keys import digest_of  # noqa: PLC0415 - the extra may be missing

    found: dict[str, str] = {}
    for one in given or ():
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


@dataclass(slots=True, frozen=True, kw_only=True)
class AnswerLimits:
    """What a run and an answer may take."""

    max_turns: Annotated[str, limit_option("N|off", "Turns since the user's last task.")] = "off"
    max_tool_calls: MaxToolCallsOption = None
    timeout: Annotated[str, limit_option("SECONDS|off", "For one answer.")] = "off"
    idle_timeout: IdleTimeoutOption = "off"


@dataclass(slots=True, frozen=True, kw_only=True)
class ProxyCommandOptions:
    """Where the requests go, what becomes of the answers, and who pays."""

    upstreams: Annotated[
        list[str] | None,
        option(
            "[NAME=]URL",
            "The service, without /v1. With a NAME it gets the paths below /NAME/; may be given again.",
            "--upstream",
        ),
        Read(_upstreams),
    ] = None
    fallbacks: Annotated[
        list[str] | None,
        option(
            "[NAME=]URL",
            "A second service, asked if the first cannot be reached or has a status from 500 on.",
            "--fallback",
        ),
        Read(partial(_addresses, "--fallback")),
    ] = None
    on_loop: Annotated[
        Literal["stop", "error", "hold", "observe"],
        answer_option(
            "WHAT",
            "stop: end the answer well; error: with an error; hold: wait for an operator; observe: only show it.",
        ),
    ] = "stop"
    hold_s: Annotated[
        float, answer_option("SECONDS", "How long a held run waits for an operator.", "--hold", min=1)
    ] = 300.0
    nudge: Annotated[
        bool,
        flag("--nudge", "Add a message to the request of a run that repeats itself, and may loop soon.", panel=ANSWERS),
    ] = False
    stop_as: Annotated[
        Literal["text", "error", "silent"],
        answer_option(
            "WHAT",
            "text: one sentence is the last text of an answer that is stopped; error: it ends with an error;"
            " silent: only a comment says why.",
        ),
    ] = "text"
    holds_calls: Annotated[
        bool,
        flag("--hold-calls/--pass-calls", "Pass a call on when it is whole, or as it comes.", panel=ANSWERS),
    ] = True
    unwatched: Annotated[
        Literal["relay", "pay", "refuse"] | None,
        answer_option(
            "WHAT",
            "What cannot be judged: relay it, let it pay by its bytes, or refuse it."
            " The default pays if there is a --budget.",
        ),
    ] = None
    most_body: Annotated[int, limit_option("BYTES", "Longer requests cannot be judged.", "--max-body", min=1)] = (
        32 * _MIB
    )
    most_in_flight: Annotated[
        int, limit_option("BYTES", "Held at once, of all requests and answers.", "--max-in-flight", min=1)
    ] = 256 * _MIB
    most_keyless: Annotated[
        int, limit_option("N", "Requests without a key that are answered at once.", "--max-keyless", min=1)
    ] = 100
    arrival_s: Annotated[
        float, limit_option("SECONDS", "How long a request may take to arrive.", "--arrival", min=0.1)
    ] = 60.0
    budget: Annotated[
        str | None,
        budget_option(
            "STORE",
            "A file, sqlite:///FILE, redis://... or postgresql://.... Keys spend from proxy/<key>.",
            envvar="AGENT_MONITOR_BUDGETS",
        ),
    ] = None
    key_tokens: Annotated[int | None, budget_option("N", "The limit of a key that has none in the store.", min=1)] = (
        None
    )
    run_tokens: Annotated[int | None, budget_option("N", "The limit of each run.", min=1)] = None
    share: Annotated[
        bool,
        flag(
            "--share/--no-share",
            "Share runs, their page and the operator's words with the other proxies of this STORE.",
            panel=BUDGETS,
        ),
    ] = True
    prices: Annotated[PriceOption, Read(price_of)] = None
    keys: Annotated[
        list[str] | None,
        budget_option(
            "NAME=WHAT",
            "What a key is called. WHAT: the variable that holds the key, or sha256: and its digest.",
            "--key",
        ),
        Read(_names),
    ] = None
    named_keys_only: Annotated[
        bool, flag("--named-keys-only", "Refuse requests whose key has no name by --key.", panel=BUDGETS)
    ] = False
    virtual_keys: Annotated[
        Path | None,
        key_option(
            "FILE",
            "Only the keys in this file may pass: agent-monitor proxy keys makes them. Read again on SIGHUP.",
            "--keys",
            envvar="AGENT_MONITOR_KEYS",
        ),
        Read(_virtual),
    ] = None
    service_keys: Annotated[
        list[str] | None,
        key_option(
            "[NAME=]VARIABLE",
            "The variable with the key that the service gets in place of the client's.",
            "--service-key",
        ),
        Read(partial(_secrets, "--service-key")),
    ] = None
    fallback_keys: Annotated[
        list[str] | None,
        key_option(
            "[NAME=]VARIABLE",
            "The variable with the key that the second service gets. Without it, the same key.",
            "--fallback-key",
        ),
        Read(partial(_secrets, "--fallback-key")),
    ] = None

    def arguments(self, limits: AnswerLimits) -> dict[str, Any]:
        """The arguments of `Proxy`. Raises `ConfigError`."""
        from monitor.proxy.keys import KeyNames  # noqa: PLC0415 - the extra may be missing

        made = arguments_of(self)
        shares = made.pop("share")
        made["keys"] = KeyNames(made["keys"], only=made.pop("named_keys_only"))
        if (store := self.budget) is not None:
            store = store.removeprefix(_SQLITE)
            made |= {"budget": budgets_at(store), "rows": rows_at(store) if shares else None}
        return {**made, "stop_when": limits_of(limits)}
