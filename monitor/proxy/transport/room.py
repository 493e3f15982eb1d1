"""One bound on the bytes that all requests and answers hold at once."""

from __future__ import annotations

from typing import Final

NO_ROOM: Final = "the proxy holds as many bytes of requests and answers as it may: try again"


class NoRoom(Exception):
    """The bound is reached."""

    def __init__(self) -> None:
        super().__init__(NO_ROOM)


class Room:
    """The bytes that are held, of `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class HeldBytes:
    """The part of the room that one request has."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._held = 0

    def add(self, number: int) -> None:
        """Hold `number` bytes more. Raises `NoRoom`, and holds none of them."""
        if self._room.held + number > self._room.most:
            raise NoRoom
        self._room.held += number
        self._held += number

    def release(self) -> None:
        """Hold nothing any more."""
        self._room.held -= self._held
        self._held = 0
