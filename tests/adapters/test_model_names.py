"""Models by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import monitor
from monitor.adapters.google.model import GoogleModel
from monitor.adapters.model_names import _NO_CLIENT, _PROVIDERS
from monitor.adapters.replay_model import ReplayModel
from monitor.errors import ConfigError, MissingExtra

CLIENT: Any = SimpleNamespace(models=SimpleNamespace(generate_content_stream=print))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "a:run.jsonl"
    path.write_text('{"type": "text_delta", "text": "a"}\n')
    return path


def test_the_provider_stands_before_the_first_colon(recording: Path):
    google = monitor.model("google:tuned:gemini", client=CLIENT)
    assert isinstance(google, GoogleModel)
    assert google.name == "google:tuned:gemini"
    replay = monitor.model(f"replay:{recording}")
    assert isinstance(replay, ReplayModel)
    assert replay.name == f"replay:{recording}"


@pytest.mark.parametrize("name", ["gemini-2.5-flash", "", "google:", ":", "nobody:x", "Google:x", None])
def test_what_names_no_provider_or_no_model_is_answered_with_those_there_are(name: Any):
    with pytest.raises(ConfigError, match=r"google:.*, replay:"):
        monitor.model(name)


def test_openai_is_asked_by_chat_completions_or_by_responses():
    pytest.importorskip("openai")
    assert [type(monitor.model(name)).__name__ for name in ("openai:gpt-5", "openai-responses:gpt-5")] == [
        "OpenAIModel",
        "OpenAIResponsesModel",
    ]


def test_a_recording_takes_no_client(recording: Path):
    with pytest.raises(ConfigError, match="takes no client"):
        monitor.model(f"replay:{recording}", client=CLIENT)


def test_what_takes_no_client_is_a_provider():
    assert set(_PROVIDERS) >= _NO_CLIENT


def test_a_missing_sdk_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "google.genai", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agent-monitor\[google\]'"):
        monitor.model("google:gemini-2.5-flash")


def test_a_recording_needs_no_sdk(recording: Path):
    program = f"import sys, monitor; monitor.model('replay:{recording}'); print('google.genai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout == "False\n"
