"""The guard inside a framework whose loop is not yours: one module for each framework, imported by
name. And sessions for frameworks that bring their own runs.

    from monitor.integrations.pydantic_ai import GuardedModel
    from monitor.integrations.openai_agents import GuardedModel
    from monitor.integrations import AgentsSession

A module of a framework imports that framework, so none of them is imported here.
`docs/integrations.md` says what each can do and what it cannot.
"""

from monitor.integrations.openai_agents_session import AgentsSession

__all__ = ["AgentsSession"]
__dir__ = __all__.copy
