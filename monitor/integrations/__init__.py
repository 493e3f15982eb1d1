"""Parts of this library for the users of other agent frameworks."""

from monitor.integrations.openai_agents import AgentsSession as AgentsSession

__all__ = ["AgentsSession"]
