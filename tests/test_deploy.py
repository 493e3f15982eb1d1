"""The files in `deploy`: they say what the proxy does, as far as this machine can tell."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from monitor.cli.app import app
from monitor.proxy import Proxy
from monitor.proxy.admin import prometheus
from monitor.proxy.runs import ProxiedRuns
from tests.proxy.asked import ask

DEPLOY = Path(__file__).parents[1] / "deploy"
DRAIN = "300"


def documents(name: str) -> list[Any]:
    return [*yaml.safe_load_all((DEPLOY / name).read_text("utf-8"))]


def container() -> Any:
    [found] = documents("kubernetes.yaml")[0]["spec"]["template"]["spec"]["containers"]
    return found


def unit(key: str) -> str:
    [found] = re.findall(rf"^{key}=(.*)$", (DEPLOY / "agent-monitor-proxy.service").read_text("utf-8"), re.MULTILINE)
    return str(found)


def commands() -> dict[str, list[str]]:
    """The arguments of the proxy in each file."""
    entry = re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    return {
        "Dockerfile": [word for line in entry for word in json.loads(line)][2:],
        "compose": documents("compose.yaml")[0]["services"]["proxy"]["command"],
        "kubernetes": container()["args"],
        "systemd": shlex.split(unit("ExecStart"))[2:],
    }


@pytest.mark.parametrize("file", ["Dockerfile", "compose", "kubernetes", "systemd"])
def test_the_proxy_has_every_option_that_a_file_gives(file: str) -> None:
    command: Any = typer.main.get_command(app)
    proxy = command.get_command(None, "proxy")
    known = {name for parameter in proxy.params for name in parameter.opts} | {"--help"}
    given = {word for word in commands()[file] if word.startswith("--")}
    assert given
    assert given <= known


def test_each_system_waits_longer_than_the_drain() -> None:
    pod = documents("kubernetes.yaml")[0]["spec"]["template"]["spec"]
    proxy = documents("compose.yaml")[0]["services"]["proxy"]
    waits = [
        pod["terminationGracePeriodSeconds"],
        int(proxy["stop_grace_period"].rstrip("s")),
        int(unit("TimeoutStopSec")),
    ]
    for words in (commands()["compose"], commands()["kubernetes"], commands()["systemd"]):
        assert words[words.index("--drain") + 1] == DRAIN
    assert min(waits) >= int(DRAIN) + 5


@pytest.mark.anyio
async def test_probes_and_the_scrape_ask_pages_that_there_are() -> None:
    proxy = Proxy("http://127.0.0.1:9", token="t")
    for probe in ("readinessProbe", "livenessProbe"):
        assert (await ask(proxy, "GET", container()[probe]["httpGet"]["path"])).status == 200
    [scrape] = documents("prometheus.yml")[0]["scrape_configs"]
    assert (await ask(proxy, "GET", scrape["metrics_path"], headers={"authorization": "Bearer t"})).status == 200
    checked = re.findall(r"127\.0\.0\.1:8787(\S+)'", (DEPLOY / "Dockerfile").read_text("utf-8"))
    assert checked == ["/agent-monitor/health"]


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    told = prometheus(ProxiedRuns(1, lambda: 0.0), 0)
    known = dict(re.findall(r"^# TYPE (\w+) (\w+)$", told, re.MULTILINE))
    parts = {
        f"{name}_{part}" for name, kind in known.items() if kind == "histogram" for part in ("bucket", "sum", "count")
    }
    panels = json.loads((DEPLOY / "grafana" / "dashboards" / "proxy.json").read_text("utf-8"))["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"agent_monitor_\w+", target["expr"])
    }
    assert len(asked) >= 10
    assert asked <= known.keys() | parts


def test_every_file_that_the_compose_file_mounts_is_there() -> None:
    services = documents("compose.yaml")[0]["services"]
    mounted = [volume.split(":")[0] for one in services.values() for volume in one.get("volumes", ())]
    local = [name for name in mounted if name.startswith(".")]
    assert len(local) >= 3
    assert all((DEPLOY / name).exists() for name in local)
    for name in ("datasources/prometheus.yaml", "dashboards/files.yaml"):
        assert documents(f"grafana/provisioning/{name}")


def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed here")
    text = (DEPLOY / "agent-monitor-proxy.service").read_text("utf-8")
    made = tmp_path / "agent-monitor-proxy.service"
    made.write_text(text.replace("/opt/agent-monitor/bin/agent-monitor", "/bin/true"), "utf-8")
    done = subprocess.run([program, "verify", str(made)], capture_output=True, text=True, check=False)
    assert str(made) not in done.stderr, done.stderr


def test_docker_compose_reads_the_compose_file() -> None:
    program = shutil.which("docker")
    has_compose = (
        program and not subprocess.run([program, "compose", "version"], capture_output=True, check=False).returncode
    )
    if not program or not has_compose:
        pytest.skip("docker compose is not installed here")
    done = subprocess.run(
        [program, "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"],
        env={"PATH": "/usr/bin:/bin", "AGENT_MONITOR_TOKEN": "t", "POSTGRES_PASSWORD": "p"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
