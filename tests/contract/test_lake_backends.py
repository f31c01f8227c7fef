"""Delta tables and folders of files by themselves: one commit per load, recovery, readers that never see half a load."""

from __future__ import annotations

import gzip
import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import duckdb
import pyarrow.orc
import pyarrow.parquet
import pytest

from ematix_flow import (
    JSON,
    UUID,
    BigInt,
    DeltaLocalConnection,
    Double,
    Integer,
    Numeric,
    ObjectStoreLocalConnection,
    String,
    Text,
    Timestamp,
    TimestampTZ,
    pk,
)
from ematix_flow.backends import delta as delta_backend
from ematix_flow.backends import files as files_backend
from ematix_flow.backends.files.source import FilesSource
from ematix_flow.contract.backend import Backend
from ematix_flow.contract.ddl import AddColumn, ChangeType, CreateTable
from ematix_flow.contract.shape import shape_of
from ematix_flow.contract.write import Counts, Opening, Stage, WriteJob, WriteResult
from ematix_flow.declare.strategy import Append, Deletes, Incremental, Merge, Scd2, Strategy, Truncate
from ematix_flow.declare.types import Column
from ematix_flow.families.lake.place import Place
from ematix_flow.families.lake.state import LakeState
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import (
    BadValue,
    Brake,
    DeclarationError,
    DriftError,
    DuplicateKeys,
    FlowError,
    LeaseHeld,
    MissingTable,
    NullViolation,
    PlanError,
    RunFailed,
    SqlError,
    TextTooLong,
    Unsupported,
)
from tests.contract.loading import columns, day, declare, frame

Row = dict[str, Any]
FORMATS = ("parquet", "csv", "orc", "json_lines")
HARD, SOFT = Deletes.HARD, Deletes.SOFT


@dataclass
class Lake:
    """A lake in a folder of its own, loaded through the capabilities of its backend."""

    backend: Backend
    connection: Any
    root: Path
    spark: Any

    def open(self, table: Any, strategy: Strategy, **options: Any) -> Load:
        spec = table.spec()
        shape = shape_of(spec, strategy)
        started = options.pop("at", None) or now()
        job = WriteJob(str(uuid.uuid4()), "load", options.pop("writer", "load"), shape, strategy, started, **options)
        ddl = self.backend.ddl(self.connection)
        if ddl.inspect(shape) is None:
            ddl.apply(shape, [CreateTable(shape.table)])
        sink = self.backend.batch_sink(self.connection)
        return Load(self, sink, job, sink.begin(job))

    def load(self, table: Any, strategy: Strategy, rows: list[Row], **options: Any) -> WriteResult:
        return self.open(table, strategy, **options).run(rows)

    def counts(self, table: Any, strategy: Strategy, rows: list[Row], **options: Any) -> dict[str, int]:
        made = self.load(table, strategy, rows, **options).counts
        return {name: count for name, count in vars(made).items() if count and name != "read"}

    def query(self, sql: str, **options: Any) -> list[Row]:
        source = FilesSource(self.connection, options) if options else self.backend.batch_source(self.connection)
        with ExitStack() as open_until:
            found = source.read(source.plan(sql, parallelism=2), self.spark, open_until)
            return [row.asDict() for row in found.collect()]

    def rows(self, table: Any, *names: str) -> list[tuple[Any, ...]]:
        return columns(self.query(f"SELECT * FROM {table.spec().qualified}"), names or table.spec().column_names)

    def history(self, table: Any) -> list[Any]:
        path = self.root / table.__schema__ / table.__tablename__
        return self.spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()  # type: ignore[no-any-return]


@dataclass
class Load:
    """One run that a test can stop anywhere."""

    lake: Lake
    sink: Any
    job: WriteJob
    opening: Opening

    def stage(self, rows: list[Row]) -> Stage:
        return self.sink.stage(self.job, frame(self.lake.spark, self.job.shape.declared, rows))  # type: ignore[no-any-return]

    def publish(self, rows: list[Row]) -> WriteResult:
        return self.sink.publish(self.job, self.stage(rows), self.opening)  # type: ignore[no-any-return]

    def run(self, rows: list[Row]) -> WriteResult:
        try:
            result = self.publish(rows)
        except FlowError as error:
            self.sink.settle(self.job, self.opening, None, error.what)
            raise
        self.sink.settle(self.job, self.opening, result, None)
        return result


@pytest.fixture
def delta(spark: Any, tmp_path: Path) -> Lake:
    connection = DeltaLocalConnection("lake", path=str(tmp_path / "lake"))
    return Lake(delta_backend.backend, connection, tmp_path / "lake", spark)


@pytest.fixture
def files(spark: Any, tmp_path: Path) -> Callable[[str], Lake]:
    def lake(file_format: str) -> Lake:
        root = tmp_path / file_format
        connection = ObjectStoreLocalConnection("lake", path=str(root), format=file_format)
        return Lake(files_backend.backend, connection, root, spark)

    return lake


@pytest.fixture(params=["delta", "parquet"])
def lake(request: pytest.FixtureRequest, delta: Lake, files: Callable[[str], Lake]) -> Lake:
    return delta if request.param == "delta" else files(request.param)


def people() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "name": Text | None, "note": Text | None})


def person(key: int | None, name: str | None, note: str | None = None) -> Row:
    return {"id": key, "name": name, "note": note}


def merging(**options: Any) -> Merge:
    chosen = {"keys": ("id",), "compare": ("name", "note"), "update": ("name", "note"), **options}
    return Merge(**chosen)


# --- one commit, one token -------------------------------------------------------------------------------------------


def test_every_delta_load_is_one_commit_that_carries_its_token(delta: Lake) -> None:
    table = people()
    loads = [
        (Append(), [person(1, "a"), person(2, "b"), person(3, "c")], "WRITE"),
        (merging(deletes=HARD), [person(1, "a"), person(2, "B"), person(4, "d")], "MERGE"),
        (merging(), [], "MERGE"),
        (Truncate(), [person(9, "z")], "WRITE"),
    ]
    results = [delta.load(table, strategy, rows) for strategy, rows, _ in loads]
    history = delta.history(table)
    assert [(row.version, row.operation) for row in reversed(history)] == [
        (0, "CREATE TABLE"),
        *((number, operation) for number, (_, _, operation) in enumerate(loads, start=1)),
    ]
    kept = [json.loads(row.userMetadata)["ematix_flow"] for row in reversed(history[:-1])]
    assert [(note["run_id"], note["writer"], note["sequence"]) for note in kept] == [
        (result.run_id, "load", number) for number, result in enumerate(results, start=1)
    ]
    assert [note["counts"] for note in kept] == [vars(result.counts) for result in results]
    assert results[1].counts == Counts(read=3, inserted=1, updated=1, unchanged=1, deleted=1)
    assert [_token(delta, table, version) for version in range(1, 5)] == [("load", version) for version in range(1, 5)]


def _token(lake: Lake, table: Any, version: int) -> tuple[str, int]:
    log = lake.root / table.__schema__ / table.__tablename__ / "_delta_log" / f"{version:020}.json"
    txn = next(json.loads(line)["txn"] for line in log.read_text().splitlines() if line.startswith('{"txn"'))
    return txn["appId"], txn["version"]


def test_the_same_token_twice_loads_nothing(lake: Lake) -> None:
    table = people()
    first, second = lake.open(table, Append()), lake.open(table, Append())
    second.publish([person(1, "a")])
    with pytest.raises(LeaseHeld, match="meanwhile"):
        first.publish([person(2, "b")])
    with pytest.raises(LeaseHeld):
        second.publish([person(1, "a")])
    assert lake.rows(table, "id") == [(1,)]


def test_delta_itself_refuses_a_token_it_knows(delta: Lake) -> None:
    table = people()
    first = delta.open(table, Append())
    first.publish([person(1, "a")])
    (delta.root / "_ematix_flow" / "load.json").unlink()
    job = WriteJob(str(uuid.uuid4()), "load", "load", first.job.shape, Append(), now())
    with pytest.raises(LeaseHeld, match="load / 1"):
        Load(delta, first.sink, job, first.opening).publish([person(2, "b")])
    assert delta.rows(table, "id") == [(1,)]


# --- runs that died --------------------------------------------------------------------------------------------------


def test_a_run_that_died_after_its_publish_is_finished_by_the_next(lake: Lake) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "at": TimestampTZ | None})
    mark = Incremental("at")
    dead = lake.open(table, Append(), incremental=mark)
    dead.publish([{"id": 1, "at": day(1)}, {"id": 2, "at": None}])
    _forget_that_it_was_published(lake)
    alive = lake.open(table, Append(), incremental=mark)
    assert alive.opening.recovered is not None
    assert (alive.opening.recovered.run_id, alive.opening.recovered.repeated) == (dead.job.run_id, True)
    assert alive.opening.recovered.counts == Counts(read=2, inserted=2, null_watermarks=1)
    assert (alive.opening.commit.sequence, alive.opening.watermark) == (2, "2026-01-01 00:00:00.000000+00:00")
    result = alive.run([{"id": 1, "at": day(1)}, {"id": 2, "at": None}, {"id": 3, "at": day(1)}, {"id": 4, "at": day(2)}])
    assert (result.counts.inserted, result.counts.unchanged) == (2, 2)
    assert lake.rows(table, "id") == [(1,), (2,), (3,), (4,)]
    shown = LakeState(Place(lake.root)).history()
    assert [(run["run_id"], run["status"], run["rows_inserted"]) for run in shown] == [
        (dead.job.run_id, "success", 2),
        (alive.job.run_id, "success", 2),
    ]


def _forget_that_it_was_published(lake: Lake) -> None:
    """As if the process had died between the commit and the note about it."""
    path = lake.root / "_ematix_flow" / "load.json"
    state = json.loads(path.read_text())
    state["pending"] |= {"published": False}
    path.write_text(json.dumps(state))


def test_a_run_that_died_before_its_publish_is_forgotten(lake: Lake) -> None:
    table = people()
    dead = lake.open(table, Append())
    dead.stage([person(1, "a")])
    assert lake.rows(table) == []
    alive = lake.open(table, Append())
    assert (alive.opening.recovered, alive.opening.commit.sequence) == (None, 1)
    assert not dead.sink.stage_folder(dead.job).exists()
    alive.run([person(1, "a")])
    assert lake.rows(table, "id") == [(1,)]
    assert [run["status"] for run in LakeState(Place(lake.root)).history()] == ["failed", "success"]


def test_a_lake_that_lost_its_state_asks_its_tables(lake: Lake) -> None:
    table = declare({"id": BigInt, "at": Timestamp})
    mark = Incremental("at")
    moment = datetime(2026, 1, 1, 12, 0, 0, 5)
    lake.load(table, Append(), [{"id": 1, "at": moment}, {"id": 2, "at": moment}], incremental=mark)
    (lake.root / "_ematix_flow" / "load.json").unlink()
    again = lake.open(table, Append(), incremental=mark)
    assert (again.opening.commit.sequence, again.opening.watermark) == (2, "2026-01-01 12:00:00.000005")
    # Without a key equal rows are counted: two of three copies are new.
    rows = [{"id": 1, "at": moment}, {"id": 2, "at": moment}, {"id": 2, "at": moment}, {"id": 2, "at": moment}]
    assert again.run(rows).counts == Counts(read=4, inserted=2, unchanged=2)
    assert lake.rows(table, "id") == [(1,), (2,), (2,), (2,)]


def test_events_of_a_run_that_died_are_taken_back(delta: Lake) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "name": Text | None, "at": TimestampTZ})
    strategy = Scd2(("id",), ("name",), "at")
    delta.load(table, strategy, [{"id": 1, "name": "a", "at": day(1)}])
    dead = delta.open(table, strategy)
    stage = dead.stage([{"id": 1, "name": "wrong", "at": day(2)}])
    dead.sink._remember(dead.job, dead.sink._planned(dead.job, _facts(dead), dead.opening)[1])
    observed = f"SELECT name FROM {table.spec().qualified}__observations"
    assert len(delta.query(observed)) == 2
    assert stage.rows == 1
    delta.load(table, strategy, [{"id": 1, "name": "b", "at": day(3)}])
    assert delta.rows(table, "name", "valid_from", "valid_to") == [
        ("a", _naive(day(1)), _naive(day(3))),
        ("b", _naive(day(3)), None),
    ]
    assert sorted(row["name"] for row in delta.query(observed)) == ["a", "b"]


def _facts(load: Load) -> Any:
    from ematix_flow.families.lake.checks import Facts

    return Facts.read(load.sink.stage_folder(load.job) / "facts.json")


def _naive(moment: datetime) -> datetime:
    return moment.astimezone().replace(tzinfo=None)


# --- strategies ------------------------------------------------------------------------------------------------------


def test_a_merge_is_exact_about_nulls_and_touches_only_what_changes(delta: Lake) -> None:
    table = declare({"id": BigInt | None, "name": Text | None, "note": Text | None})
    strategy = merging(compare=("name",), update=("name",), deletes=SOFT)
    delta.load(table, strategy, [person(None, "none", "x"), person(1, None, "x"), person(2, "b", "x"), person(3, "c", "x")])
    result = delta.load(table, strategy, [person(None, "NONE", "y"), person(1, None, "y"), person(2, "", "y"), person(5, "e")])
    assert result.counts == Counts(read=4, inserted=1, updated=2, unchanged=1, deleted=1)
    found = delta.query(f"SELECT *, _deleted_at IS NOT NULL AS gone FROM {table.spec().qualified}")
    assert columns(found, ("id", "name", "note", "gone")) == [
        (None, "NONE", "x", False), (1, None, "x", False), (2, "", "x", False), (3, "c", "x", True), (5, "e", None, False),
    ]  # fmt: skip


def test_rows_that_break_a_promise_stop_the_load(delta: Lake) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "name": String[3] | None})
    strategy = Merge(("id",), ("name",), ("name",))
    with pytest.raises(DuplicateKeys, match=r"1 key\(s\) .* \(2 rows\): id=7; nothing was loaded") as caught:
        delta.load(table, strategy, [{"id": 7, "name": "a"}, {"id": 7, "name": "b"}, {"id": 8, "name": "c"}])
    assert "deduplicate_by('id'" in str(caught.value.hint)
    with pytest.raises(NullViolation, match=r"1 row\(s\) have NULL in .*\.id"):
        delta.load(table, strategy, [{"id": None, "name": "a"}])
    with pytest.raises(TextTooLong, match=r"2 row\(s\) have more than 3 characters in .* \(for example id=1; id=2\)"):
        delta.load(table, Append(), [{"id": 1, "name": "😀😀😀😀"}, {"id": 2, "name": "long"}, {"id": 3, "name": "😀😀😀"}])
    assert delta.rows(table) == []
    assert [row.operation for row in delta.history(table)] == ["CREATE TABLE"]


def test_the_brake_stops_a_merge_before_anything_is_deleted(delta: Lake) -> None:
    table = people()
    many = [person(number, "a") for number in range(120)]
    delta.load(table, Append(), many)
    with pytest.raises(Brake, match="110 of 120 rows"):
        delta.load(table, merging(deletes=HARD), many[:10])
    rehearsed = delta.load(table, merging(deletes=HARD), many[:10], accept_deletes=110, rehearsal=True)
    assert (rehearsed.counts.deleted, len(delta.history(table))) == (110, 2)


def test_versions_close_open_refresh_and_expire_in_one_commit(delta: Lake) -> None:
    table = people()
    strategy = Scd2(("id",), ("name",), ttl=timedelta(days=5), deletes=SOFT)
    shown = ("id", "name", "note", "valid_from", "valid_to", "is_current")
    one, two, seven, eight = (_naive(day(number)) for number in (1, 2, 7, 8))
    delta.load(table, strategy, [person(1, "a", "x"), person(2, "b", "x"), person(3, "c", "x")], at=day(1))
    second = delta.load(table, strategy, [person(1, "a", "y"), person(2, "B", "x"), person(4, None)], at=day(2))
    assert second.counts == Counts(read=3, inserted=2, updated=1, unchanged=0, closed=2)
    assert delta.rows(table, *shown) == [
        (1, "a", "y", one, None, True), (2, "B", "x", two, None, True), (2, "b", "x", one, two, False),
        (3, "c", "x", one, two, False), (4, None, None, two, None, True),
    ]  # fmt: skip
    third = delta.load(table, strategy, [person(1, "a", "y"), person(2, "C", "x"), person(4, None)], at=day(8))
    assert third.counts == Counts(read=3, inserted=1, unchanged=2, closed=3)
    ended = _naive(day(6))
    assert delta.rows(table, *shown) == [
        (1, "a", "y", one, ended, False), (2, "B", "x", two, eight, False), (2, "C", "x", eight, None, True),
        (2, "b", "x", one, two, False), (3, "c", "x", one, two, False), (4, None, None, two, seven, False),
    ]  # fmt: skip
    # What only its ttl closed does not come back, unless it changes.
    fourth = delta.load(table, strategy, [person(1, "a", "y"), person(2, "C", "x"), person(4, "new")], at=day(9))
    assert fourth.counts == Counts(read=3, inserted=1, unchanged=2)
    assert [row.operation for row in delta.history(table)] == ["MERGE", "MERGE", "MERGE", "WRITE", "CREATE TABLE"]


def test_a_key_deleted_for_good_takes_its_observations_along(delta: Lake) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "name": Text | None, "at": TimestampTZ})
    strategy = Scd2(("id",), ("name",), "at", deletes=HARD)
    rows = [{"id": key, "name": name, "at": day(at)} for key, name, at in [(1, "a", 1), (1, "b", 3), (2, "a", 1)]]
    assert delta.counts(table, strategy, rows) == {"inserted": 3}
    assert delta.counts(table, strategy, rows[2:]) == {"deleted": 2, "unchanged": 1}
    assert delta.rows(table, "id") == [(2,)]
    assert [row["id"] for row in delta.query(f"SELECT id FROM {table.spec().qualified}__observations")] == [2]


# --- files -----------------------------------------------------------------------------------------------------------

ODD = ["", " lead", "trail ", 'a,"b"', "new\nline", "cr\r\n", "back\\", '\\"', "\\N", "#c", "'", "😀", None]


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_are_what_their_own_readers_expect(files: Callable[[str], Lake], file_format: str) -> None:
    lake = files(file_format)
    table = declare({"id": Annotated[Integer, pk()], "word": Text | None, "price": Numeric[12, 2] | None})
    rows = [{"id": number, "word": word, "price": None} for number, word in enumerate(ODD)]
    assert lake.counts(table, Append(), rows[:5]) == {"inserted": 5}
    assert lake.counts(table, Append(), rows[5:]) == {"inserted": 8}
    expected = columns(rows, ("id", "word"))
    assert lake.rows(table, "id", "word") == expected
    folder = lake.root / table.__schema__ / table.__tablename__
    assert columns(_read_alone(file_format, folder), ("id", "word")) == expected
    batches = [path.name.partition("=")[2] for path in folder.glob("flow_batch=*")]
    assert {row["_batch_id"] for row in lake.query(f"SELECT _batch_id FROM {table.spec().qualified}")} == set(batches)
    assert lake.counts(table, Truncate(), rows[:1]) == {"inserted": 1, "deleted": 13}
    assert lake.rows(table, "id") == [(0,)]
    assert sorted(path.name for path in folder.parent.iterdir()) == [table.__tablename__]


def _read_alone(file_format: str, folder: Path) -> list[Row]:
    """The files by readers that know nothing of this product."""
    if file_format == "parquet":
        return pyarrow.parquet.read_table(folder).to_pylist()  # type: ignore[no-any-return]
    if file_format == "orc":
        return [row for path in folder.rglob("*.orc") for row in pyarrow.orc.read_table(path).to_pylist()]
    options = "all_varchar = true, header = true, quote = '\"', escape = '\"', allow_quoted_nulls = false" if file_format == "csv" else "format = 'newline_delimited'"
    reader, ending = ("read_csv", "csv") if file_format == "csv" else ("read_json", "json")
    found = duckdb.connect().execute(f"SELECT * FROM {reader}('{folder}/*/*.{ending}', {options})")
    names = [item[0] for item in found.description or ()]
    return [{**dict(zip(names, row, strict=True)), "id": int(row[0])} for row in found.fetchall()]


def test_csv_options_partitions_and_new_columns_read_back(files: Callable[[str], Lake]) -> None:
    lake = files("csv")
    options = {"partition_by": ["region"], "csv_delimiter": ";", "csv_header": False, "csv_quote": "'", "csv_escape": "\\",
               "csv_null_value": "NIL"}  # fmt: skip
    first = {"id": Annotated[BigInt, pk()], "region": String[9] | None, "word": Text | None}
    table = declare(first, schema="raw", name="words")
    rows = [{"id": number, "region": "eu/🌍" if number % 2 else None, "word": word} for number, word in enumerate(ODD)]
    lake.load(table, Append(), rows, write_options=options)
    wider = declare({**first, "age": Integer | None}, schema="raw", name="words")
    shape = shape_of(wider.spec(), Append())
    lake.backend.ddl(lake.connection).apply(shape, [AddColumn(wider.spec().column("age"))])
    lake.load(wider, Append(), [{"id": 99, "region": "us", "word": "new", "age": 7}], write_options=options)
    expected = [{**row, "age": None} for row in rows] + [{"id": 99, "region": "us", "word": "new", "age": 7}]
    assert lake.rows(wider) == columns(expected, wider.spec().column_names)
    with pytest.raises(DriftError, match=r"csv_delimiter=';'.*no options"):
        lake.load(wider, Append(), rows[:0])
    with pytest.raises(BadValue, match=r"have 'NIL' in raw\.words\.word"):
        lake.load(wider, Append(), [{"id": 1, "region": "x", "word": "NIL", "age": 1}], write_options=options)
    with pytest.raises(BadValue, match="cannot tell it from NULL"):
        lake.load(wider, Append(), [{"id": 1, "region": "", "word": "x", "age": 1}], write_options=options)
    lake.load(wider, Truncate(), [{"id": 1, "region": "", "word": "NIL", "age": 1}])
    assert lake.rows(wider, "region", "word", "age") == [("", "NIL", 1)]


def test_parquet_partitions_and_compression_are_as_asked(files: Callable[[str], Lake]) -> None:
    lake, table = files("parquet"), declare({"id": BigInt, "region": Text}, schema="raw", name="sales")
    options = {"partition_by": ("region",), "parquet_compression": "zstd"}
    lake.load(table, Append(), [{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}], write_options=options)
    written = list((lake.root / "raw" / "sales").rglob("*.parquet"))
    assert {path.parent.name for path in written} == {"region=eu", "region=us"}
    assert {pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0).compression for path in written} == {"ZSTD"}
    assert lake.rows(table) == [(1, "eu"), (2, "us")]
    with pytest.raises(Unsupported, match="a Double cannot be the name of a folder"):
        lake.load(declare({"x": Double}), Append(), [], write_options={"partition_by": ["x"]})


def test_a_folder_of_somebody_else_is_not_written_into(files: Callable[[str], Lake]) -> None:
    lake = files("csv")
    (lake.root / "raw" / "events").mkdir(parents=True)
    (lake.root / "raw" / "events" / "a.csv").write_text("id\n1\n")
    with pytest.raises(PlanError, match=r"did not write: a\.csv"):
        lake.load(declare({"id": BigInt}, schema="raw", name="events"), Append(), [{"id": 1}])


# --- readers at the same time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Append(), Truncate()], ids=["append", "truncate"])
def test_a_reader_never_sees_half_a_load(files: Callable[[str], Lake], strategy: Strategy) -> None:
    lake, table = files("parquet"), declare({"id": BigInt, "round": BigInt}, schema="raw", name="big")
    size = 20_000
    _load_range(lake, table, strategy, size, 0)
    pattern = f"{lake.root}/raw/big/*/*.parquet"
    seen: list[tuple[int, int]] = []

    def read() -> None:
        with duckdb.connect() as client:
            seen.extend(client.execute(f"SELECT count(*), count(DISTINCT round) FROM '{pattern}'").fetchall())

    with _Reading(read):
        for number in range(1, 4):
            _load_range(lake, table, strategy, size, number)
    appended = isinstance(strategy, Append)
    allowed = {(size * rounds, rounds) for rounds in range(1, 5)} if appended else {(size, 1)}
    assert len(seen) > 3
    assert set(seen) <= allowed


def test_a_reader_of_delta_never_sees_half_a_load(delta: Lake) -> None:
    from deltalake import DeltaTable

    table = declare({"id": BigInt, "round": BigInt}, schema="raw", name="big")
    size = 20_000
    _load_range(delta, table, Truncate(), size, 0)
    seen: list[tuple[int, int]] = []

    def read() -> None:
        found = DeltaTable(str(delta.root / "raw" / "big")).to_pyarrow_table(columns=["round"])
        seen.append((found.num_rows, len(found.column("round").unique())))

    with _Reading(read):
        for number in range(1, 3):
            _load_range(delta, table, Truncate(), size, number)
    assert len(seen) > 3
    assert set(seen) == {(size, 1)}


def _load_range(lake: Lake, table: Any, strategy: Strategy, size: int, number: int) -> None:
    load = lake.open(table, strategy)
    rows = lake.spark.range(0, size, 1, 4).selectExpr("id", f"{number}L AS round")
    result = load.sink.publish(load.job, load.sink.stage(load.job, rows), load.opening)
    load.sink.settle(load.job, load.opening, result, None)


class _Reading:
    """Reads again and again in another thread; a file that is gone by then is an error of the reader, not half a load."""

    def __init__(self, read: Callable[[], None]) -> None:
        self._read = read
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._over.is_set():
            try:
                self._read()
            except (duckdb.IOException, FileNotFoundError):
                continue

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


# --- tables as declared ----------------------------------------------------------------------------------------------


def test_a_table_reports_the_types_it_was_declared_with_and_grows(lake: Lake) -> None:
    first = {"id": Annotated[Integer, pk()], "code": String[5], "extra": JSON | None, "token": UUID | None}
    table = declare(first, schema="raw", name="grown")
    lake.load(table, Append(), [{"id": 1, "code": "abc", "extra": "{}", "token": str(uuid.uuid4())}])
    shape = shape_of(table.spec(), Append())
    ddl = lake.backend.ddl(lake.connection)
    state = ddl.inspect(shape)
    assert [(item.name, item.type) for item in state.columns] == [(item.name, item.type) for item in shape.table.columns]
    assert {item.name for item in state.columns if not item.nullable} == {"id", "code", "_loaded_at", "_batch_id"}
    assert state.primary_key == ("id",)
    steps: list[Any] = [
        AddColumn(Column(Timestamp(), name="seen")),
        ChangeType(Column(Text(), False, name="code"), next(item for item in state.columns if item.name == "code")),
    ]
    if lake.backend.name == "delta":
        steps.append(ChangeType(Column(BigInt(), False, True, "id"), state.columns[0]))
    assert len(ddl.statements(shape, steps)) >= len(steps)
    ddl.apply(shape, steps)
    grown = {item.name: item.type for item in ddl.inspect(shape).columns}
    assert (grown["seen"], grown["code"]) == (Timestamp(), Text())
    wider = declare({**first, "code": Text, "seen": Timestamp | None}, schema="raw", name="grown")
    moment = datetime(2026, 5, 1, 1, 2, 3, 4)
    lake.load(wider, Append(), [{"id": 2, "code": "longer than five", "extra": None, "token": None, "seen": moment}])
    assert lake.rows(wider, "id", "code", "seen") == [(1, "abc", None), (2, "longer than five", moment)]
    with pytest.raises((Unsupported, DriftError)):
        ddl.apply(shape, [ChangeType(Column(Integer(), name="extra"), state.columns[2])])


def test_delta_partitions_are_laid_out_once(delta: Lake) -> None:
    table = declare({"id": BigInt, "region": Text}, schema="raw", name="sales")
    options = {"partition_by": ["region"]}
    delta.load(table, Append(), [{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}], write_options=options)
    assert sorted(path.name for path in (delta.root / "raw" / "sales").glob("region=*")) == ["region=eu", "region=us"]
    with pytest.raises(DriftError, match=r"partitioned by \(region\), asked for is \(id\)"):
        delta.load(table, Append(), [], write_options={"partition_by": ["id"]})


# --- sources ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def incoming(files: Callable[[str], Lake]) -> Lake:
    lake = files("csv")
    (lake.root / "raw" / "events").mkdir(parents=True)
    (lake.root / "raw" / "events" / "1.csv").write_text(
        'id,zip,at,day,ok,price,word\n1,01234,2026-01-01T10:00:00Z,2026-01-01,true,1.50,"a ""b""\nc"\n'
    )
    (lake.root / "raw" / "events" / "2.csv").write_text('id,zip,at,day,ok,price,word\n2,98765,,2026-01-02,false,NaN,""\n3,,,,,,\n')
    with gzip.open(lake.root / "customers.csv.gz", "wt") as out:
        out.write("id,name\n1,Ana\n2,Bo\n")
    return lake


def test_sql_over_folders_and_files_keeps_what_was_written(incoming: Lake) -> None:
    found = incoming.query(
        """
        WITH events AS (SELECT * FROM lake.raw.events)  -- the name of a common table stands before a table's
        SELECT e.id, zip, at, day, ok, price, word, customers.name, 'raw.events' AS text
        FROM events AS e LEFT JOIN customers ON customers.id = e.id AND customers.id IN (SELECT raw.events.id FROM raw.events)
        ORDER BY e.id;
        """
    )
    assert [(row["id"], row["zip"], row["ok"], row["word"], row["name"], row["text"]) for row in found] == [
        (1, "01234", True, 'a "b"\nc', "Ana", "raw.events"), (2, "98765", False, "", "Bo", "raw.events"),
        (3, None, None, None, None, "raw.events"),
    ]  # fmt: skip
    source = incoming.backend.batch_source(incoming.connection)
    plan = source.plan("SELECT * FROM raw.events", parallelism=2)
    assert {column.name: str(column.type) for column in plan.columns} == {
        "id": "BigInt", "zip": "Text", "at": "TimestampTZ", "day": "Date", "ok": "Boolean", "price": "Double", "word": "Text",
    }  # fmt: skip
    assert not [table for table in incoming.spark.catalog.listTables() if table.name.startswith("flow_")]


def test_a_table_that_is_not_there_is_named_with_the_nearest(incoming: Lake, delta: Lake) -> None:
    with pytest.raises(MissingTable, match=r"raw\.event is not a folder or file of csv") as caught:
        incoming.query("SELECT * FROM raw.event")
    assert caught.value.hint == "did you mean 'raw.events'?"
    delta.load(declare({"id": BigInt}, schema="raw", name="orders"), Append(), [])
    with pytest.raises(MissingTable, match=r"raw\.order is not a Delta table") as caught:
        delta.query("SELECT * FROM raw.order")
    assert caught.value.hint == "did you mean 'raw.orders'?"
    for wrong, error in [("DROP TABLE raw.orders", SqlError), ("SELECT 1; SELECT 2", SqlError), ("SELECT (", SqlError)]:
        with pytest.raises(error):
            delta.query(wrong)


def test_csv_read_options_are_followed(incoming: Lake) -> None:
    (incoming.root / "odd.csv").write_text("# made by hand\n1;'it\\'s';NA\n2;'#2'\n3;\\N;4\n")
    options = {"has_header": False, "delimiter": ";", "quote": "'", "escape": "\\", "comment": "#", "null_regex": r"^(NA|\\N)$",
               "truncated_rows_ok": True, "schema_infer_max_records": 100}  # fmt: skip
    found = incoming.query("SELECT _c0, _c1, _c2 FROM odd ORDER BY _c0", **options)
    assert [tuple(row.values()) for row in found] == [(1, "it's", None), (2, "#2", None), (3, None, 4)]
    with pytest.raises(BadValue):
        incoming.query("SELECT * FROM odd", **{**options, "truncated_rows_ok": False})
    with pytest.raises(DeclarationError, match="does not know 'delimitre'"):
        incoming.query("SELECT * FROM odd", delimitre=";")


def test_json_lines_keep_their_documents(files: Callable[[str], Lake]) -> None:
    lake = files("json_lines")
    lake.root.mkdir()
    (lake.root / "events.jsonl").write_text('{"id": 1, "who": {"name": "Ana", "tags": ["x"]}}\n{"id": 2, "more": 2.5}\n')
    expected = [(1, '{"name":"Ana","tags":["x"]}', None), (2, None, 2.5)]
    for options in ({}, {"schema_infer_max_records": 2, "batch_size": 10}):
        found = lake.query("SELECT id, who, more FROM events ORDER BY id", **options)
        assert [tuple(row.values()) for row in found] == expected
    (lake.root / "broken.jsonl").write_text('{"id": 1}\n{"id": \n')
    with pytest.raises((BadValue, RunFailed)):
        lake.query("SELECT * FROM broken")


def test_people_may_ask_and_change_delta_tables_by_name(delta: Lake, files: Callable[[str], Lake]) -> None:
    table = declare({"id": BigInt, "name": Text | None}, schema="raw", name="people")
    delta.load(table, Append(), [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    client = delta_backend.backend.client(delta.connection)  # type: ignore[misc]
    assert client.execute("UPDATE raw.people SET name = 'x' WHERE people.id = 2") == 1
    assert client.query("SELECT id, name FROM raw.people ORDER BY id", limit=1) == (["id", "name"], [(1, "a")])
    assert client.query("SELECT name FROM raw.people WHERE id = 2")[1] == [("x",)]
    with pytest.raises(MissingTable, match=r"raw\.person"):
        client.execute("DELETE FROM raw.person")
    with pytest.raises(SqlError, match="only INSERT, UPDATE"):
        client.execute("DROP TABLE raw.people")
    with pytest.raises(Unsupported):
        files_backend.backend.client(files("csv").connection).execute("DELETE FROM raw.people")  # type: ignore[misc]


def test_a_read_from_a_watermark_keeps_rows_without_one(delta: Lake) -> None:
    table = declare({"id": BigInt, "at": TimestampTZ | None})
    delta.load(table, Append(), [{"id": 1, "at": day(1)}, {"id": 2, "at": day(2)}, {"id": 3, "at": None}])
    source = delta.backend.batch_source(delta.connection)
    plan = source.plan(f"SELECT * FROM {table.spec().qualified}", parallelism=2)
    assert plan.estimated_rows == 3
    column = next(item for item in plan.columns if item.name == "at")
    found = delta.query(source.since(plan.query, column, "2026-01-02 00:00:00.000000+00:00"))
    assert columns(found, ("id",)) == [(2,), (3,)]


@pytest.fixture(autouse=True)
def _no_leftovers(tmp_path: Path) -> Iterator[None]:
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)
