"""A framework that is not installed is named, with the extra that brings it."""

from __future__ import annotations

import importlib
import sys

import pytest

from monitor.errors import ConfigError, MissingExtra


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("adk", "google.adk", "adk"),
        ("agent_framework", "agent_framework", "agent-framework"),
        ("autogen", "autogen_agentchat", "autogen"),
        ("crewai", "crewai", "crewai"),
        ("langchain", "langchain", "langchain"),
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("pydantic_ai_conversations", "pydantic_ai", "pydantic-ai"),
        ("strands", "strands", "strands"),
        ("temporal", "temporalio", "temporal"),
    ],
)
def test_the_missing_extra_is_named(module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch):
    for name in [one for one in sys.modules if one == package or one.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"monitor.integrations.{module}", raising=False)
    with pytest.raises(MissingExtra, match=rf"agent-monitor\[{extra}\]"):
        importlib.import_module(f"monitor.integrations.{module}")


def test_a_version_without_conversations_is_named_with_the_one_that_has_them(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("pydantic_ai", reason="the framework is not installed: pydantic_ai")
    monkeypatch.setitem(sys.modules, "pydantic_ai.conversation_store", None)
    monkeypatch.delitem(sys.modules, "monitor.integrations.pydantic_ai_conversations", raising=False)
    with pytest.raises(ConfigError, match=r"conversations need pydantic-ai-slim 2\.66 or newer, and .* is installed"):
        importlib.import_module("monitor.integrations.pydantic_ai_conversations")
