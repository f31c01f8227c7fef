"""A stream from every source into a table, and from a source into every broker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    Annotated,
    BigInt,
    Double,
    ManagedTable,
    ObjectStoreLocalConnection,
    Source,
    Text,
    pk,
    run_streaming_pipeline,
)
from ematix_flow.foundation.errors import DeclarationError, FlowError
from tests.contract.conftest import Systems
from tests.contract.loading import declare, unique
from tests.harness.arrivals import put_whole
from tests.harness.base import Harness
from tests.harness.feeds import BROKERS, FEEDS, Broker, Feed

pytestmark = pytest.mark.embedded("a stream's driver is its own process")

# Each broker has tests of its own; here one without offsets stands for the others by default.
_SEEN = ("kafka", "rabbitmq", "files")


def _by_default(names: Iterable[str]) -> list[Any]:
    waits = pytest.mark.full("a source whose own tests run by default")
    return [pytest.param(name, marks=() if name in _SEEN else waits) for name in names]


@pytest.fixture(params=_by_default(FEEDS))
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Feed:
    return FEEDS[request.param](request, tmp_path)


@pytest.fixture(params=_by_default(BROKERS))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Feed:
    return FEEDS[request.param](request, tmp_path)


@pytest.fixture
def database(systems: Systems) -> Harness:
    return systems("sqlite")


def documents(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"n{n}", "amount": n / 4} for n in numbers]


def drained(feed: Feed, name: str, folder: Path, **target: Any) -> Any:
    return run_streaming_pipeline(
        name=name, source=feed.connection, source_query=feed.query, checkpoint=str(folder / "checkpoint"), once=True,
        **target,
    )  # fmt: skip


def numbers() -> type[ManagedTable]:
    return declare({"id": Annotated[BigInt, pk()], "name": Text | None, "amount": Double | None})


def test_everything_arrives_once_and_the_next_start_goes_on(feed: Feed, database: Harness, tmp_path: Path) -> None:
    table, name = numbers(), unique("stream")
    into = {"target": table, "target_connection": database.connection, "mode": "append"}
    feed.send(documents(*range(10)))
    assert drained(feed, name, tmp_path, **into).total_rows == 10
    feed.send(documents(10, 11))
    feed.send(documents(12))
    assert drained(feed, name, tmp_path, **into).total_rows == 3
    assert drained(feed, name, tmp_path, **into).total_rows == 0
    found = sorted((row["id"], row["name"], row["amount"]) for row in database.rows(table.spec()))
    assert found == [(n, f"n{n}", n / 4) for n in range(13)]


@pytest.mark.full
def test_every_row_becomes_a_message(broker: Broker, tmp_path: Path) -> None:
    feed, name = FEEDS["files"](None, tmp_path), unique("stream")  # type: ignore[arg-type]
    feed.send(documents(*range(20)))
    drained(feed, name, tmp_path, transform_sql="SELECT id, name FROM source WHERE id % 2 = 0", **broker.target)
    feed.send(documents(20, 21))
    drained(feed, name, tmp_path, transform_sql="SELECT id, name FROM source WHERE id % 2 = 0", **broker.target)
    found = sorted(broker.received(11), key=lambda one: int(one["id"]))
    assert found == [{"id": n, "name": f"n{n}"} for n in range(0, 22, 2)]


@pytest.mark.parametrize("source", ["kafka"])
def test_where_a_message_came_from_can_be_asked_for(
    source: str, database: Harness, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    feed, name, table = FEEDS[source](request, tmp_path), unique("stream"), unique("t")
    schema = unique("s")
    feed.send(documents(1, 2))
    drained(
        feed, name, tmp_path, target=database.connection, target_table=(schema, table),
        transform_sql="SELECT id, _source.topic, _source.partition, _source.offset, _event_ts FROM source",
    )  # fmt: skip
    rows = database.raw_rows(schema, table)
    assert {row["id"] for row in rows} == {1, 2}
    assert {row["topic"] for row in rows} == {feed.query}
    assert all(row["_event_ts"] for row in rows)


# A folder may come later, and the connection names the stream of Kinesis.
_MAY_COME_LATER = ("files", "files_s3", "kinesis")


@pytest.mark.parametrize("feed", _by_default(name for name in FEEDS if name not in _MAY_COME_LATER), indirect=True)
def test_a_name_that_is_not_there_is_refused_with_a_sentence(feed: Feed, database: Harness, tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="nowhere"):
        run_streaming_pipeline(
            name=unique("stream"), source=feed.connection, source_query="nowhere", once=True,
            checkpoint=str(tmp_path / "checkpoint"), target=database.connection, target_table=(unique("s"), unique("t")),
        )  # fmt: skip


@pytest.mark.full
def test_files_of_another_dialect_are_read_by_their_options(database: Harness, tmp_path: Path) -> None:
    folder = tmp_path / "feed" / "orders"
    folder.mkdir(parents=True)
    put_whole(folder / "one.csv", "# two orders\nid;name\n1;'a;b'\n2;c\n")
    lake = ObjectStoreLocalConnection("incoming", path=str(tmp_path / "feed"), format="csv")
    options = {"delimiter": ";", "quote": "'", "comment": "#"}
    schema, table = unique("s"), unique("t")
    run_streaming_pipeline(
        name=unique("stream"), sources=[Source(lake, "orders", csv_read_options=options)], once=True,
        checkpoint=str(tmp_path / "checkpoint"), target=database.connection, target_table=(schema, table),
    )  # fmt: skip
    assert {(int(row["id"]), row["name"]) for row in database.raw_rows(schema, table)} == {(1, "a;b"), (2, "c")}
    with pytest.raises(DeclarationError, match="delimiter"):
        Source(lake, "orders", csv_read_options={"delimeter": ";"})
