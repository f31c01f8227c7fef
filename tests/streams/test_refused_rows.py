"""Rows that the target itself refuses, by its constraints: set aside one by one, and everything else is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    DuckDBConnection,
    MySQLConnection,
    ObjectStoreLocalConnection,
    PostgresConnection,
    SQLiteConnection,
)
from ematix_flow.backends.catalog import backend_for
from ematix_flow.foundation.errors import ConstraintViolation, DataError, FlowError
from ematix_flow.streaming.dlq import service
from ematix_flow.streaming.dlq.dead_letter import LetterSelection
from ematix_flow.streaming.dlq.row_failures import find_failing_rows, refused_too_many
from ematix_flow.streaming.runtime.supervision import is_transient
from tests.harness.arrivals import put_whole
from tests.streams.operated import declared, run

pytestmark = pytest.mark.usefixtures("homes", "every_jar")
SYSTEMS = [
    pytest.param("sqlite", marks=pytest.mark.full("PostgreSQL shows the same")),
    "postgres",
    pytest.param("mariadb", marks=pytest.mark.full("PostgreSQL shows the same on a server")),
    pytest.param("duckdb", marks=pytest.mark.full("SQLite shows the same in a file")),
]


class Place:
    """A folder of files into a table of somebody else's, which has constraints."""

    def __init__(self, connection: Any, folder: Path) -> None:
        self.connection, self.folder = connection, folder
        (folder / "in" / "n").mkdir(parents=True)
        self.source = ObjectStoreLocalConnection("files", path=str(folder / "in"), format="json_lines")
        self.schema = {"PostgresConnection": "public", "MySQLConnection": ""}.get(type(connection).__name__, "main")

    def put(self, *rows: Any, name: str = "1") -> None:
        put_whole(self.folder / "in" / "n" / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def spec(self, **more: Any) -> Any:
        said = {
            "name": "numbers", "source": self.source, "source_query": "n", "target": self.connection,
            "target_table": (self.schema, "numbers"), "transform_on_error": "dlq", **more,
        }  # fmt: skip
        return declared(**said)

    def sql(self, *statements: str) -> None:
        with closing(backend_for(self.connection).client(self.connection)) as client:  # type: ignore[misc]
            for statement in statements:
                client.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(backend_for(self.connection).client(self.connection)) as client:  # type: ignore[misc]
            return sorted(client.query(query)[1])

    def letters(self) -> list[tuple[int, str, str]]:
        found = service.list_letters(self.spec(), bodies=True)
        return sorted((json.loads(one.payload or b"")["n"], one.stage, one.error) for one in found)


@pytest.fixture(params=SYSTEMS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    connection = {
        "sqlite": lambda: SQLiteConnection("shop", path=str(tmp_path / "shop.db")),
        "duckdb": lambda: DuckDBConnection("shop", path=str(tmp_path / "shop.duckdb")),
        "postgres": lambda: PostgresConnection("shop", url=request.getfixturevalue("fresh_postgres")),
        "mariadb": lambda: MySQLConnection("shop", url=request.getfixturevalue("fresh_mariadb")),
    }[request.param]()
    made = Place(connection, tmp_path)
    yield made
    if request.param in ("postgres", "mariadb"):  # which are shared by the tests of this file
        made.sql("DROP TABLE IF EXISTS numbers", "DROP TABLE IF EXISTS parents")
        service.purge_letters(made.spec(), LetterSelection())


def test_rows_that_break_a_constraint_are_set_aside_and_the_others_are_written(place: Place) -> None:
    place.sql("CREATE TABLE numbers (n bigint UNIQUE, d bigint, CHECK (d < 100))", "INSERT INTO numbers VALUES (7, 1)")
    good = [{"n": number, "d": 1} for number in range(10, 40)]
    place.put(*good[:9], {"n": 1, "d": 500}, *good[9:], {"n": 7, "d": 2}, {"n": 2, "d": 2}, {"n": 2, "d": 3})
    assert run(place.spec()).total_rows == 34
    assert place.rows("SELECT n, d FROM numbers WHERE n < 10") == [(2, 2), (7, 1)]
    assert len(place.rows("SELECT n FROM numbers")) == 32
    found = place.letters()
    assert [(n, stage) for n, stage, _ in found] == [(1, "write"), (2, "write"), (7, "write")]
    assert "constraint" in found[0][2].lower()
    place.sql("UPDATE numbers SET n = 70 WHERE n = 7")
    assert service.replay_letters(place.spec(), LetterSelection()).to_dict() == {
        "taken": 3, "succeeded": 1, "redeadlettered": 2, "parked": 0,
    }  # fmt: skip
    assert place.rows("SELECT n, d FROM numbers WHERE n = 7") == [(7, 2)]
    assert [n for n, _, _ in place.letters()] == [1, 2]


@pytest.mark.full
def test_behind_a_refused_row_the_one_before_it_counts(place: Place) -> None:
    place.sql("CREATE TABLE numbers (n bigint PRIMARY KEY, d bigint, CHECK (d < 100))")
    place.put({"n": 1, "d": 1}, {"n": 1, "d": 2}, {"n": 1, "d": 500}, {"n": 1, "d": 600}, {"n": 2, "d": 5})
    run(place.spec(mode="merge", keys=["n"]))
    assert place.rows("SELECT n, d FROM numbers") == [(1, 2), (2, 5)]
    assert [n for n, _, _ in place.letters()] == [1, 1]


@pytest.mark.parametrize(
    "place", ["postgres", pytest.param("mariadb", marks=pytest.mark.full("the same"))], indirect=True
)
def test_a_row_without_its_parent_waits_for_it(place: Place) -> None:
    place.sql(
        "CREATE TABLE parents (id bigint PRIMARY KEY)",
        "CREATE TABLE numbers (n bigint, d bigint, FOREIGN KEY (d) REFERENCES parents (id))",
        "INSERT INTO parents VALUES (1)",
    )
    place.put({"n": 1, "d": 1}, {"n": 2, "d": 2}, {"n": 3, "d": 1})
    run(place.spec())
    assert place.rows("SELECT n FROM numbers") == [(1,), (3,)]
    place.sql("INSERT INTO parents VALUES (2)")
    assert service.replay_letters(place.spec(), LetterSelection()).succeeded == 1
    assert place.rows("SELECT n FROM numbers") == [(1,), (2,), (3,)]


@pytest.mark.full
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_text_that_cannot_even_be_staged_is_set_aside(place: Place) -> None:
    place.put({"n": 1, "t": "a"}, {"n": 2, "t": "a\0b"}, {"n": 3, "t": "c"})
    run(place.spec())
    assert place.rows("SELECT n FROM numbers") == [(1,), (3,)]
    assert [(n, stage) for n, stage, _ in place.letters()] == [(2, "write")]


@pytest.mark.full
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_where_nothing_is_set_aside_the_stream_ends_and_is_not_tried_again(place: Place) -> None:
    place.sql("CREATE TABLE numbers (n bigint, d bigint, CHECK (d < 100))")
    place.put({"n": 1, "d": 1}, {"n": 2, "d": 500})
    with pytest.raises(ConstraintViolation, match="CHECK") as told:
        run(place.spec(transform_on_error="fail", restart_on_error=True, initial_backoff_ms=1))
    assert not is_transient(told.value)
    assert place.rows("SELECT n FROM numbers") == []


@pytest.mark.full
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_rows_of_a_kind_that_are_dropped_are_only_counted(place: Place) -> None:
    place.sql("CREATE TABLE numbers (n bigint, d bigint)",
              "CREATE TRIGGER odd BEFORE INSERT ON numbers WHEN NEW.n % 2 BEGIN SELECT RAISE(ABORT, 'an odd one'); END")  # fmt: skip
    place.put(*({"n": number, "d": 1} for number in range(10)))
    run(place.spec(transform_on_error="drop"))
    assert place.rows("SELECT n FROM numbers") == [(number,) for number in range(0, 10, 2)]


# The search -----------------------------------------------------------------------------------------------------------


class Table:
    """Refuses some rows, and the second one of a pair."""

    max_tries = 400
    may_fail_together = False

    def __init__(self, *refused: int, pairs: dict[int, int] | None = None) -> None:
        self.refused, self.pairs, self.asked = set(refused), pairs or {}, 0

    def __call__(self, first: int, last: int, without: Any) -> FlowError | None:
        self.asked += 1
        there = [one for one in range(0, last + 1, 3) if one not in without]
        for one in there:
            if one in self.refused or self.pairs.get(one) in there:
                return DataError(f"no {one}; nothing was loaded")
        return None

    def too_many(self, first_error: str) -> FlowError:
        return refused_too_many(self.max_tries, first_error)


@pytest.mark.parametrize("refused", [(), (0,), (297,), (0, 3, 6), (150, 297), tuple(range(0, 60, 3))])
def test_the_search_finds_every_refused_row_and_no_other(refused: tuple[int, ...]) -> None:
    assert find_failing_rows(range(0, 300, 3), Table(*refused)) == {one: f"no {one}" for one in refused}


def test_of_two_rows_with_one_key_the_second_is_refused() -> None:
    assert list(find_failing_rows(range(0, 300, 3), Table(pairs={90: 30, 120: 30}))) == [90, 120]
    assert find_failing_rows([], Table()) == {}


def test_a_batch_with_too_many_refused_rows_is_given_up() -> None:
    table = Table(*range(0, 1200, 3))
    with pytest.raises(DataError, match="more rows of this batch are refused than can be separated in 400 tries"):
        find_failing_rows(range(0, 1200, 3), table)
    assert table.asked == 400
