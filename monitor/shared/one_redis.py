"""One server of Redis or Valkey in which the processes of many machines count together. Needs the
extra `redis`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from monitor.errors import MissingExtra, StoreError
from monitor.shared.one_postgres import ANSWER_S

T = TypeVar("T")


class OneRedis:
    """The server at `url`, asked for the first time at the first step."""

    def __init__(self, url: str, *, error: type[StoreError], content: str) -> None:
        """`error`: the exception for a server that cannot be used. `content`: what it holds, for
        the message.
        """
        try:
            import redis  # noqa: PLC0415 - only who has Redis needs it
        except ImportError:
            raise MissingExtra("redis", "redis") from None
        self._failures = redis.RedisError
        self._broken = redis.ConnectionError
        self._error = error
        self._content = content
        self.client: Any = redis.Redis.from_url(
            url, decode_responses=True, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=None
        )
        """The client of the package `redis`."""

    def asked(self, step: Callable[[], T]) -> T:
        """Do `step`, a second time on a fresh connection if the first one breaks."""
        try:
            try:
                return step()
            except self._broken:
                self.client.connection_pool.disconnect()
                return step()
        except self._failures as error:
            raise self._error(f"the {self._content} in Redis cannot be used: {error}") from error
