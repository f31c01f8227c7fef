"""The answer to a commit is lost: the load is there, the run says so, and the next one does not load it again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from ematix_flow import BigInt, PostgresConnection, Text, ematix
from tests.contract.conftest import Systems
from tests.contract.loading import columns, counts, declare, frame
from tests.harness.postgres import PostgresHarness

pytestmark = pytest.mark.proves("postgres: once")


class CommitAnswersLost:
    """A door to a database that closes as soon as the database has answered a client's COMMIT of a load, once."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.is_armed = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(self._server)
        loads, loses = threading.Event(), threading.Event()

        def answers() -> None:
            while data := _received(server):
                if loses.is_set():
                    break
                client.sendall(data)
            _shut(client, server)

        threading.Thread(target=answers, daemon=True).start()
        while data := _received(client):
            if b"INSERT" in data and b'"commits"' in data:
                loads.set()
            if self.is_armed and loads.is_set() and b"COMMIT\x00" in data:
                self.is_armed = False
                loses.set()
            server.sendall(data)
        _shut(client, server)


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(65536)
    except OSError:
        return b""


def _shut(*ends: socket.socket) -> None:
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


@pytest.fixture
def server(systems: Systems) -> PostgresHarness:
    """A database of its own."""
    found = systems("postgres")
    assert isinstance(found, PostgresHarness)
    return found


@pytest.fixture
def door(server: PostgresHarness) -> Iterator[CommitAnswersLost]:
    parts = urlsplit(server.url)
    opened = CommitAnswersLost(str(parts.hostname), int(parts.port or 5432))
    yield opened
    opened.close()


def test_a_load_whose_commit_was_not_answered_is_there_once(server: PostgresHarness, door: CommitAnswersLost) -> None:
    table = declare({"id": BigInt, "name": Text | None})
    rows = [{"id": number, "name": "row"} for number in range(3)]
    parts = urlsplit(server.url)
    user = parts.netloc.rpartition("@")[0]
    url = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{door.port}"))

    def source(spark: Any) -> Any:
        return frame(spark, table.spec(), rows)

    connection = PostgresConnection(name="behind_the_door", url=url)
    append = ematix.pipeline(target=table, target_connection=connection, mode="append", name="lost_answer")(source)
    result = append.sync()
    assert not door.is_armed
    assert (result.status, counts(result)) == ("success", {"inserted": 3})
    assert any("although an error followed" in note for note in result.targets[0].notes)
    assert columns(server.rows(table.spec()), ("id",)) == [(0,), (1,), (2,)]
    history = server.ask("SELECT status FROM ematix_flow.run_history WHERE pipeline_name LIKE 'lost_answer%'")[1]
    assert history == [("success",)]
    assert counts(append.sync()) == {"inserted": 3}  # the next run is the next load
    assert len(server.rows(table.spec())) == 6
