"""A guarded model is taken for the model that it guards: by `isinstance`, by its attributes and by
its copies. One contract for each framework whose model is wrapped.
"""

from __future__ import annotations

import copy
import importlib
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import monitor

pytestmark = [
    # Clients that are asked nothing are left to the garbage collector, outside of an event loop.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
CLOSED = "http://127.0.0.1:9/v1"
"""Nobody asks the models of this file."""


def _pydantic_chat() -> Any:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel("local", provider=OpenAIProvider(base_url=CLOSED, api_key="x"))


def _pydantic_fallback() -> Any:
    from pydantic_ai.models.fallback import FallbackModel

    return FallbackModel(_pydantic_chat(), _pydantic_test())


def _pydantic_instrumented() -> Any:
    from pydantic_ai.models.instrumented import InstrumentedModel

    return InstrumentedModel(_pydantic_test())


def _pydantic_test() -> Any:
    from pydantic_ai.models.test import TestModel

    return TestModel()


def _agents(kind: str) -> Any:
    import agents
    from openai import AsyncOpenAI

    return getattr(agents, kind)("local", AsyncOpenAI(base_url=CLOSED, api_key="x"))


def _autogen() -> Any:
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    info: Any = {"vision": False, "function_calling": True, "json_output": True, "family": "unknown"}
    info["structured_output"] = True
    return OpenAIChatCompletionClient(model="local", base_url=CLOSED, api_key="x", model_info=info)


def _langchain() -> Any:
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    return ChatOpenAI(model="local", base_url=CLOSED, api_key=SecretStr("x"))


def _crewai() -> Any:
    from crewai import LLM

    return LLM(model="openai/local", base_url=CLOSED, api_key="x", stream=True)  # a guarded one always streams


def _adk() -> Any:
    from google.adk.models import Gemini

    return Gemini(model="gemini-2.5-flash")


def _langchain_fake() -> Any:
    from langchain_core.language_models import FakeListChatModel

    return FakeListChatModel(responses=["done"])


MODELS: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "pydantic-ai chat": ("pydantic_ai", "pydantic_ai:GuardedModel", _pydantic_chat),
    "pydantic-ai fallback": ("pydantic_ai", "pydantic_ai:GuardedModel", _pydantic_fallback),
    "pydantic-ai instrumented": ("pydantic_ai", "pydantic_ai:GuardedModel", _pydantic_instrumented),
    "pydantic-ai test": ("pydantic_ai", "pydantic_ai:GuardedModel", _pydantic_test),
    "openai-agents chat": ("agents", "openai_agents:GuardedModel", lambda: _agents("OpenAIChatCompletionsModel")),
    "openai-agents responses": ("agents", "openai_agents:GuardedModel", lambda: _agents("OpenAIResponsesModel")),
    "autogen": ("autogen_ext.models.openai", "autogen:GuardedClient", _autogen),
    "langchain": ("langchain_openai", "langchain:GuardedChatModel", _langchain),
    "langchain fake": ("langchain_core", "langchain:GuardedChatModel", _langchain_fake),
    "crewai": ("crewai", "crewai:guarded_llm", _crewai),
    "adk": ("google.adk", "adk:GuardedModel", _adk),
}
STAND_INS = [name for name in MODELS if name.startswith(("pydantic-ai", "openai-agents", "autogen"))]
"""Those that are wrappers. The others are copies under a subclass of the model's own class."""


@pytest.fixture(params=MODELS)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """A model, and the same one guarded."""
    package, wrapper, make = MODELS[request.param]
    pytest.importorskip(package, reason=f"the framework is not installed: {package}")
    module, _, name = wrapper.partition(":")
    guarded = getattr(importlib.import_module(f"monitor.integrations.{module}"), name)
    bare = make()
    with monitor.Guard() as guard:
        yield bare, guarded(bare, guard)


def test_it_is_an_instance_of_each_class_of_its_model(pair: tuple[Any, Any]):
    bare, guarded = pair
    assert [one for one in type(bare).__mro__ if not isinstance(guarded, one)] == []


def test_it_has_each_public_attribute_of_its_model_with_the_same_value(pair: tuple[Any, Any]):
    bare, guarded = pair
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a framework may say that an attribute is old
        for name in dir(bare):
            if name.startswith("_") or name == "wrapped":
                continue
            mine = _value(bare, name)
            its = _value(guarded, name)
            if not callable(mine):
                assert type(its) is type(mine), name
                assert its == mine or repr(its) == repr(mine), name
            else:
                assert callable(its), name


def test_its_type_has_the_name_that_logs_and_traces_show_of_its_model(pair: tuple[Any, Any]):
    bare, guarded = pair
    assert repr(type(guarded)) == repr(type(bare))
    assert type(guarded).__qualname__ == type(bare).__qualname__
    with monitor.Guard() as guard:
        twice = type(copy.copy(guarded))(bare, guard) if hasattr(guarded, "wrapped") else guarded
    assert type(twice).__name__ == type(bare).__name__


def _value(model: Any, name: str) -> Any:
    try:
        return getattr(model, name)
    except Exception as error:  # noqa: BLE001 - both must fail alike
        return type(error)


def test_it_is_shown_as_its_model_is(pair: tuple[Any, Any]):
    bare, guarded = pair
    assert repr(guarded).partition(" object at ")[0] == repr(bare).partition(" object at ")[0]
    assert {name for name in dir(bare) if not name.startswith("__")} <= set(dir(guarded))


def test_a_copy_is_a_guarded_model_of_the_same_class(pair: tuple[Any, Any]):
    bare, guarded = pair
    other = copy.copy(guarded)
    assert type(other) is type(guarded)
    assert isinstance(other, type(bare))


COPYABLE = ["pydantic-ai test", "autogen", "langchain fake", "adk"]  # the clients of other services have locks


@pytest.mark.parametrize("pair", COPYABLE, indirect=True)
def test_a_deep_copy_has_a_model_of_its_own_and_the_same_guard(pair: tuple[Any, Any]):
    bare, guarded = pair
    other = copy.deepcopy(guarded)
    assert type(other) is type(guarded)
    assert getattr(other, "wrapped", other) is not bare
    assert _guard_of(other) is _guard_of(guarded)


def _guard_of(model: Any) -> Any:
    held = {**vars(model), **(getattr(model, "__pydantic_private__", None) or {})}
    (requests,) = [one for name, one in held.items() if name == "_requests" or name.startswith("agent_monitor_guard")]
    return requests.guard


@pytest.mark.parametrize("pair", STAND_INS, indirect=True)
def test_what_is_set_on_it_is_set_on_its_model(pair: tuple[Any, Any]):
    bare, guarded = pair
    guarded.of_the_user = "mine"
    assert bare.of_the_user == guarded.of_the_user == "mine"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = guarded.no_such_thing


@pytest.mark.parametrize("pair", STAND_INS, indirect=True)
def test_it_is_not_pickled_and_says_why(pair: tuple[Any, Any]):
    bare, guarded = pair
    with pytest.raises(TypeError, match=f"a guarded {type(bare).__name__} cannot be pickled: its guard"):
        pickle.dumps(guarded)


def test_a_client_of_autogen_is_written_down_as_its_client_is():
    pytest.importorskip("autogen_ext.models.openai", reason="the framework is not installed: autogen_ext")
    from monitor.integrations.autogen import GuardedClient

    bare = _autogen()
    with monitor.Guard() as guard:
        guarded = GuardedClient(bare, guard)
    assert guarded.dump_component() == bare.dump_component()
    assert isinstance(type(bare).load_component(guarded.dump_component()), type(bare))


@pytest.mark.parametrize("pair", STAND_INS, indirect=True)
def test_a_guard_around_a_guarded_model_is_one_more_guard(pair: tuple[Any, Any]):
    bare, guarded = pair
    make = type(guarded)
    with monitor.Guard() as guard:
        twice = make(guarded, guard)
    assert twice.wrapped is guarded
    assert guarded.wrapped is bare
    assert isinstance(twice, type(bare))
