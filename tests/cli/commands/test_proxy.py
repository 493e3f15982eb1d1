"""`agent-monitor proxy`, as a user starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
import typer.testing

from monitor.cli.app import app
from monitor.proxy import digest_of
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import finish, text

RUN = [sys.executable, "-c", "from monitor.cli import main; main()", "proxy"]
KEY = "sk-of-alice-0123456789"


def invoke(*arguments: str) -> typer.testing.Result:
    return typer.testing.CliRunner().invoke(app, ["proxy", *arguments], env={"COLUMNS": "200"})


def test_it_says_what_to_set_watches_names_keys_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with LocalOpenAI([[text("I will now read the file again. ")] * 40 + [finish()]]) as server:
        root = server.base_url.removesuffix("/v1")
        options = ["--upstream", f"openai={root}", "--port", "0", "--key", "alice=ALICE", "--drain", "60"]
        store = ["--budget", f"sqlite:///{tmp_path / 'budgets.db'}", "--key-tokens", "5000"]
        keys = tmp_path / "keys.json"
        keys.write_text(json.dumps({"keys": {"alice": {"digest": digest_of(KEY)}}}), "utf-8")
        options += ["--keys", str(keys)]
        environment = {**os.environ, "ALICE": KEY, "AGENT_MONITOR_TOKEN": "secret-token"}
        process = subprocess.Popen([*RUN, *options, *store], stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        try:
            said = [process.stderr.readline() for _ in range(3)]
            base = re.search(r"OPENAI_BASE_URL=(\S+)", said[1])
            assert base is not None
            assert "secret-token" not in "".join(said)
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
            headers = {"authorization": f"Bearer {KEY}"}
            with httpx2.Client(trust_env=False) as client:
                reply = client.post(f"{base[1]}/chat/completions", json=body, headers=headers)
                assert reply.text.endswith("data: [DONE]\n\n")
                stopped = process.stderr.readline()
                hidden = []
                for written in ("no JSON", '{"keys": {}}'):
                    keys.write_text(written, "utf-8")
                    process.send_signal(signal.SIGHUP)
                    said.append(process.stderr.readline())
                    hidden.append(client.get(f"{base[1]}/models", headers=headers).status_code)
                bearer = {"authorization": "Bearer secret-token"}
                page = base[1].removesuffix("/openai/v1") + "/agent-monitor/events"
                with client.stream("GET", page, headers=bearer) as watching:  # it does not delay the end
                    next(watching.iter_bytes())
                    process.send_signal(signal.SIGINT)
                    process.wait(timeout=250)
        finally:
            process.kill()
            rest = process.communicate(timeout=250)[1]
    assert "were not read again" in said[3]
    assert "read again: 0 keys and the detectors; addresses" in said[4]
    assert (hidden[0] != 401, hidden[1]) == (True, 401)
    assert stopped.startswith("stopped alice/")
    assert "loop_detected" in stopped
    assert "Traceback" not in rest
    assert process.returncode == 130
    shown = typer.testing.CliRunner().invoke(
        app, ["proxy", "budget", "show", "--store", str(tmp_path / "budgets.db"), "--json"]
    )
    assert '"proxy/alice"' in shown.output
    assert KEY not in shown.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--upstream https://api.openai.com"),
        (["--upstream", "x"], "no address of an upstream"),
        (["--upstream", "http://a", "--upstream", "http://b"], "only one upstream may have no name"),
        (["--upstream", "http://a", "--key", "alice"], "NAME=VARIABLE"),
        (["--upstream", "http://a", "--key", "alice=NOT_SET_AT_ALL"], "is not set"),
        (["--upstream", "http://a", *["--key", f"alice=sha256:{64 * 'a'}"] * 2], "two keys have this name"),
        (["--upstream", "http://a", "--token", " "], "the token is empty"),
        (["--upstream", "http://a", "--key-tokens", "5"], "need budget="),
        (["--upstream", "http://a", "--keys", "/none.json"], "cannot be read"),
        (["--upstream", "http://a", "--service-key", "NOT_SET_AT_ALL"], "is not set"),
        (["--upstream", "http://a", "--service-key", "PATH"], "needs keys of the clients"),
        (["--upstream", "http://a", "--fallback", "b=http://b"], "no upstream 'b'"),
        (["--upstream", "http://a", *["--fallback", "http://b"] * 2], "only one --fallback may have no name"),
        (["--upstream", "http://a", "--max-turns", "some"], "--max-turns some"),
        (["--upstream", "http://a", "--set", "Nothing.x=1"], "Nothing"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in result.output.replace("\n", " ")
