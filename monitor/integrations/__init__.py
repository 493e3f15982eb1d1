"""The guard inside a framework whose loop is not yours: one module for each framework, imported by
name.

    from monitor.integrations.pydantic_ai import GuardedModel
    from monitor.integrations.openai_agents import GuardedModel

Each module imports its framework, so none of them is imported here. `docs/integrations.md` says
what each can do and what it cannot.
"""
