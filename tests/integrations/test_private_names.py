"""The names of others that are not public, and on which an integration depends: each is looked for
in the package that is installed. If one is gone, this test says what needs another way.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.integrations._guarded_requests import must_have

NAMES = [
    (
        "pydantic_ai",
        "_run_context",
        "get_current_run_context",
        "the name of the agent; without it, the events have none",
    ),
    ("pydantic_ai", "models", "StreamedResponse.__aiter__", "it reads `_event_iterator`, which is written"),
    ("agents", "models._run_context", "get_model_run_owner", "the key of a run; without it, calls and answers tell"),
    ("agents", "models.interface", "Model._cleanup_on_run_end", "it is passed on to the wrapped model"),
    ("langchain_core", "language_models", "BaseChatModel._astream", "what a model's author overrides"),
    ("langchain_core", "language_models", "BaseChatModel._agenerate", "what a model's author overrides"),
    (
        "langchain_openai",
        "chat_models.base",
        "BaseChatOpenAI._agenerate",
        "it reads whole answers",
    ),
    ("google.adk", "agents.callback_context", "CallbackContext._invocation_context", "the agent of a request"),
    ("strands", "models", "Model.stream", "`_supports_structured_output` beside it is optional"),
    ("crewai", "llms.providers.openai.completion", "OpenAICompletion._get_sync_client", "the client of a call"),
    ("crewai", "llms.providers.openai.completion", "OpenAICompletion._get_async_client", "the client of a call"),
    ("dbos", "", "DBOS._recover_pending_workflows", "takes over the runs of a worker that is gone"),
]
"""The package, the module in it, the name, and what it is for."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("package", "module", "name", "use"), NAMES, ids=lambda one: str(one)[:40])
def test_a_private_name_is_where_an_integration_expects_it(package: str, module: str, name: str, use: str):
    pytest.importorskip(package, reason=f"not installed: {package}")
    found: Any = importlib.import_module(f"{package}.{module}" if module else package)
    for part in name.split("."):
        found = getattr(found, part, None) or _made_by_init(found, part)
    assert found is not None, f"{package}: {name} is gone, which is needed: {use}"


def _made_by_init(owner: Any, name: str) -> object:
    """The attribute that an object gets when it is made, if its class sets it."""
    kinds = inspect.getmro(owner)[:-1] if inspect.isclass(owner) else ()
    return any(f"self.{name}" in inspect.getsource(one) for one in kinds) or None


@pytest.mark.filterwarnings("ignore")
def test_pydantic_ai_reads_the_events_of_a_response_where_they_are_written():
    models = pytest.importorskip("pydantic_ai.models", reason="not installed: pydantic_ai")
    assert "_event_iterator" in inspect.getsource(models.StreamedResponse)


@pytest.mark.filterwarnings("ignore")
def test_langchain_reads_whole_answers_through_the_clients_that_are_replaced():
    base = pytest.importorskip("langchain_openai.chat_models.base", reason="not installed: langchain_openai")
    source = inspect.getsource(base.BaseChatOpenAI._agenerate)
    for used in ("root_async_client.responses.with_raw_response", "async_client.with_raw_response.create"):
        assert used in source, f"langchain_openai does not use {used} any more: whole answers are not watched"


def test_a_name_that_is_gone_is_said_in_a_sentence():
    must_have(object(), "__doc__", "somebody")
    with pytest.raises(ConfigError, match="this version of crewai has no _get_sync_client, by which the guard watches"):
        must_have(object(), "_get_sync_client", "crewai")
