"""Delta tables and folders of files: one commit per load, runs that died, readers that never see half a load."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

import duckdb
import pytest

from ematix_flow import JSON, UUID, BigInt, Integer, String, Text, Timestamp, TimestampTZ, pk
from ematix_flow.contract.ddl import AddColumn, ChangeType
from ematix_flow.contract.shape import shape_of
from ematix_flow.contract.write import Counts, WriteJob
from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.declare.strategy import Append, Deletes, Incremental, Merge, Scd2, Strategy, Truncate
from ematix_flow.declare.types import Column
from ematix_flow.families.lake.integrity import StageFacts
from ematix_flow.families.lake.state import LakeState
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import (
    Brake,
    DriftError,
    DuplicateKeys,
    LeaseHeld,
    NullViolation,
    TextTooLong,
    Unsupported,
)
from ematix_flow.storage.paths import LakeRoot
from tests.contract import native
from tests.contract.lakes import Files, Lake, Load, merging, naive, people, person
from tests.contract.loading import columns, day, declare

pytest_plugins = ("tests.contract.lake_fixtures",)
HARD, SOFT = Deletes.HARD, Deletes.SOFT
delta_if_full = pytest.mark.parametrize(
    "lake",
    [pytest.param("delta", marks=pytest.mark.full("slow, and Parquet shows the same")), "parquet"],
    indirect=True,
)


@pytest.mark.full
def test_every_delta_load_is_one_commit_that_carries_its_token(delta: Lake) -> None:
    table = people()
    loads = [
        (Append(), [person(1, "a"), person(2, "b"), person(3, "c")], "WRITE"),
        (
            merging(deletes=HARD),
            [person(1, "a"), person(2, "B"), person(4, "d")],
            "MERGE" if native.is_native() else "WRITE",
        ),
        (merging(), [], "WRITE"),
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


def test_a_new_table_that_lists_its_features_is_read_and_changed_by_delta_itself(delta: Lake) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "at": Timestamp})
    first = [{"id": n, "at": datetime(2026, 1, n, 10, 30)} for n in (1, 2)]
    delta.load(table, merging(compare=("at",), update=("at",)), first)
    folder = delta.root / table.__schema__ / table.__tablename__
    assert [row.operation for row in delta.history(table)] == ["WRITE", "CREATE TABLE"]
    spark = active_session()
    spark.sql(f"INSERT INTO delta.`{folder}` SELECT 3, TIMESTAMP_NTZ '2026-01-03 10:30:00', current_timestamp(), 'x'")
    found = spark.read.format("delta").load(str(folder)).select("id", "at").collect()
    assert sorted(tuple(row) for row in found) == [(n, datetime(2026, 1, n, 10, 30)) for n in (1, 2, 3)]
    protocol = next(
        line for line in (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines() if "protocol" in line[:12]
    )
    assert {"appendOnly", "invariants", "timestampNtz"} <= set(json.loads(protocol)["protocol"]["writerFeatures"])


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
        Load(delta, first.sink, job, first.opening).run([person(2, "b")])
    assert delta.rows(table, "id") == [(1,)]
    assert delta.open(table, Append()).opening.commit.sequence == 2


@delta_if_full
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
    result = alive.run(
        [{"id": 1, "at": day(1)}, {"id": 2, "at": None}, {"id": 3, "at": day(1)}, {"id": 4, "at": day(2)}]
    )
    assert (result.counts.inserted, result.counts.unchanged) == (2, 2)
    assert lake.rows(table, "id") == [(1,), (2,), (3,), (4,)]
    shown = LakeState(LakeRoot(lake.root)).history()
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
    assert [run["status"] for run in LakeState(LakeRoot(lake.root)).history()] == ["failed", "success"]


@delta_if_full
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


@pytest.mark.full
def test_a_merge_is_exact_about_nulls_and_touches_only_what_changes(delta: Lake) -> None:
    table = declare({"id": BigInt | None, "name": Text | None, "note": Text | None})
    strategy = merging(compare=("name",), update=("name",), deletes=SOFT)
    delta.load(
        table, strategy, [person(None, "none", "x"), person(1, None, "x"), person(2, "b", "x"), person(3, "c", "x")]
    )
    result = delta.load(
        table, strategy, [person(None, "NONE", "y"), person(1, None, "y"), person(2, "", "y"), person(5, "e")]
    )
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
        delta.load(
            table, Append(), [{"id": 1, "name": "😀😀😀😀"}, {"id": 2, "name": "long"}, {"id": 3, "name": "😀😀😀"}]
        )
    assert delta.rows(table) == []
    assert [row.operation for row in delta.history(table)] == ["CREATE TABLE"]


@pytest.mark.full
def test_the_brake_stops_a_merge_before_anything_is_deleted(delta: Lake) -> None:
    table = people()
    many = [person(number, "a") for number in range(120)]
    delta.load(table, Append(), many)
    with pytest.raises(Brake, match="110 of 120 rows"):
        delta.load(table, merging(deletes=HARD), many[:10])
    rehearsed = delta.load(table, merging(deletes=HARD), many[:10], accept_deletes=110, rehearsal=True)
    assert (rehearsed.counts.deleted, len(delta.history(table))) == (110, 2)


@pytest.mark.full
def test_versions_close_open_refresh_and_expire_in_one_commit(delta: Lake) -> None:
    table = people()
    strategy = Scd2(("id",), ("name",), ttl=timedelta(days=5), deletes=SOFT)
    shown = ("id", "name", "note", "valid_from", "valid_to", "is_current")
    one, two, seven, eight = (naive(day(number)) for number in (1, 2, 7, 8))
    delta.load(table, strategy, [person(1, "a", "x"), person(2, "b", "x"), person(3, "c", "x")], at=day(1))
    second = delta.load(table, strategy, [person(1, "a", "y"), person(2, "B", "x"), person(4, None)], at=day(2))
    assert second.counts == Counts(read=3, inserted=2, updated=1, unchanged=0, closed=2)
    assert delta.rows(table, *shown) == [
        (1, "a", "y", one, None, True), (2, "B", "x", two, None, True), (2, "b", "x", one, two, False),
        (3, "c", "x", one, two, False), (4, None, None, two, None, True),
    ]  # fmt: skip
    third = delta.load(table, strategy, [person(1, "a", "y"), person(2, "C", "x"), person(4, None)], at=day(8))
    assert third.counts == Counts(read=3, inserted=1, unchanged=2, closed=3)
    ended = naive(day(6))
    assert delta.rows(table, *shown) == [
        (1, "a", "y", one, ended, False), (2, "B", "x", two, eight, False), (2, "C", "x", eight, None, True),
        (2, "b", "x", one, two, False), (3, "c", "x", one, two, False), (4, None, None, two, seven, False),
    ]  # fmt: skip
    # What only its ttl closed does not come back, unless it changes.
    fourth = delta.load(table, strategy, [person(1, "a", "y"), person(2, "C", "x"), person(4, "new")], at=day(9))
    assert fourth.counts == Counts(read=3, inserted=1, unchanged=2)
    by = "MERGE" if native.is_native() else "WRITE"  # Spark writes a small table anew
    assert [row.operation for row in delta.history(table)] == [by, by, by, "WRITE", "CREATE TABLE"]


@pytest.mark.full
def test_observations_follow_what_is_published(delta: Lake) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "name": Text | None, "at": TimestampTZ})
    strategy = Scd2(("id",), ("name",), "at", deletes=HARD)
    rows = [{"id": key, "name": name, "at": day(at)} for key, name, at in [(1, "a", 1), (1, "b", 3), (2, "c", 1)]]
    observed = f"SELECT id, name FROM {table.spec().qualified}__observations"
    assert delta.counts(table, strategy, rows) == {"inserted": 3}
    assert delta.rows(table, "name", "valid_from", "valid_to") == [
        ("a", naive(day(1)), naive(day(3))), ("b", naive(day(3)), None), ("c", naive(day(1)), None),
    ]  # fmt: skip
    dead = delta.open(table, strategy)
    dead.stage([*rows, {"id": 2, "name": "never published", "at": day(2)}])
    dead.sink._remember(dead.job, dead.sink._planned(dead.job, _facts(dead), dead.opening)[1])
    assert ("never published",) in columns(delta.query(observed), ("name",))
    # The next run takes it back; and a key that is deleted for good takes its own along.
    assert delta.counts(table, strategy, rows[2:]) == {"deleted": 2, "unchanged": 1}
    assert delta.rows(table, "id", "name") == [(2, "c")]
    assert columns(delta.query(observed), ("id", "name")) == [(2, "c")]


def _facts(load: Load) -> Any:
    return StageFacts.read(load.sink.stage_folder(load.job) / "facts.json")


@pytest.mark.parametrize("strategy", [Append(), Truncate()], ids=["append", "truncate"])
def test_a_reader_never_sees_half_a_load(files: Files, strategy: Strategy) -> None:
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


@pytest.mark.full
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


@delta_if_full
def test_a_table_reports_the_types_it_was_declared_with_and_grows(lake: Lake) -> None:
    first = {"id": Annotated[Integer, pk()], "code": String[5], "extra": JSON | None, "token": UUID | None}
    table = declare(first, schema="raw", name="grown")
    lake.load(table, Append(), [{"id": 1, "code": "abc", "extra": "{}", "token": str(uuid.uuid4())}])
    shape = shape_of(table.spec(), Append())
    ddl = lake.backend.ddl(lake.connection)
    state = ddl.inspect(shape)
    assert [(item.name, item.type) for item in state.columns] == [
        (item.name, item.type) for item in shape.table.columns
    ]
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


@pytest.mark.full
def test_many_small_files_of_a_delta_table_become_few_and_no_row_changes(
    delta: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ematix_flow.backends.delta.compaction.EVERY", 3)
    monkeypatch.setattr("ematix_flow.backends.delta.compaction.MANY", 3)
    table = people()
    for number in range(1, 4):
        delta.load(table, Append(), [person(number, f"n{number}")])
    assert delta.rows(table, "id", "name") == [(number, f"n{number}") for number in range(1, 4)]
    assert delta.history(table)[0].operation == "OPTIMIZE"
    again = delta.load(table, Append(), [person(9, "later")])  # the token of the last load is found behind the commit
    assert again.counts == Counts(read=1, inserted=1)
    assert len(delta.rows(table)) == 4
