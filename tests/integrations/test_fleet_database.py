"""The connections of a fleet, while their server is away."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("dbos")

import sqlalchemy
from dbos._utils import retriable_postgres_exception
from sqlalchemy.exc import OperationalError

from monitor.errors import StoreError
from monitor.integrations import _fleet_runs as fleet_database
from monitor.integrations._fleet_runs import engine_at, reached


@pytest.mark.parametrize(
    "place",
    [
        "postgresql://127.0.0.1:1/fleet",  # nobody listens
        "postgresql:///fleet?host=/nowhere",  # the socket is gone with its server
        "postgresql://gone/fleet",  # the name is gone with its server
    ],
)
def test_dbos_asks_again_whatever_is_in_the_way_of_a_connection(place: str, monkeypatch: pytest.MonkeyPatch):
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    engine = engine_at(place)
    with pytest.raises(OperationalError) as raised:
        engine.connect()
    assert retriable_postgres_exception(raised.value)
    engine.dispose()


def test_a_database_that_comes_back_is_waited_for_and_one_that_stays_away_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fleet_database, "_PAUSE_S", 0.0)
    away = [OperationalError("select 1", {}, Exception("it is restarted"))] * 3

    def asked() -> str:
        if away:
            raise away.pop()
        return "here"

    assert reached(asked) == "here"
    monkeypatch.setattr(fleet_database, "PATIENCE_S", 0.0)
    away.append(OperationalError("select 1", {}, Exception("it is restarted")))
    with pytest.raises(StoreError, match="cannot be reached: it is restarted"):
        reached(asked)


def test_sqlite_needs_no_server(tmp_path: object):
    engine = engine_at(f"sqlite:///{tmp_path}/fleet.db")
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("select 1")).scalar() == 1
    engine.dispose()
