"""The common part of the models of all SDKs: the name, and the client of each event loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from anyio.lowlevel import RunVar

from monitor.errors import ConfigError


class SdkModel(ABC):
    """A model whose calls are made by a client of an SDK."""

    provider: ClassVar[str]
    """Stands before the colon of the name."""
    example: ClassVar[str]
    """The name of a model of this provider."""

    def __init__(self, model: str, client: Any) -> None:
        """`client`: the caller's, who closes it. `None`: each event loop makes one of its own."""
        if not model:
            raise ConfigError(f"the model has no name; write one such as {self.example!r}")
        self.name: str = f"{self.provider}:{model}"
        self._model = model
        self._given = client
        self._made: RunVar[Any] = RunVar("client")

    async def aclose(self) -> None:
        """Close the client that was made in this event loop, if any. The next call makes another
        one.
        """
        made = self._made.get(None)
        if made is not None:
            self._made.set(None)
            await self._close(made)

    def _client(self) -> Any:
        client = self._given or self._made.get(None)
        if client is None:
            client = self._client_from_environment()
            self._made.set(client)
        return client

    @abstractmethod
    def _client_from_environment(self) -> Any:
        """A client without retries of its own. Raises `ConfigError` if none can be made."""

    async def _close(self, client: Any) -> None:
        await client.close()
