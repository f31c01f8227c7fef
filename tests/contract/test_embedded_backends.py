"""SQLite and DuckDB by themselves: every type both ways, exact counts, tokens, tables that change."""

from __future__ import annotations

import math
import sqlite3
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import duckdb
import pytest

from ematix_flow import (
    JSON,
    JSONB,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Date,
    Double,
    Float,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
    natural_key,
    pk,
)
from ematix_flow.backends import duckdb as duckdb_backend
from ematix_flow.backends import sqlite as sqlite_backend
from ematix_flow.contract.ddl import AddColumn, ChangeType, CreateTable, DropNotNull
from ematix_flow.contract.shape import shape_of
from ematix_flow.contract.write import Counts, WriteSession
from ematix_flow.dataplane.parquet_stage import ROOT_VARIABLE
from ematix_flow.declare.strategy import Append, Incremental, Merge, Scd2, Strategy, Truncate
from ematix_flow.declare.types import Column
from ematix_flow.foundation.errors import BadValue, LeaseHeld, Unsupported
from tests.contract.embedded import System, job_of, people, perform, person, read
from tests.contract.loading import day, declare, frame
from tests.harness.base import Row

EVERY_TYPE = {
    "id": Annotated[Integer, pk()], "small": SmallInt | None, "whole": Integer | None, "big": BigInt | None,
    "single": Float | None, "double": Double | None, "flag": Boolean | None, "words": Text | None,
    "short": String[40] | None, "day": Date | None, "wall": Timestamp | None, "instant": TimestampTZ | None,
    "document": JSON | None, "meaning": JSONB | None, "token": UUID | None, "raw": Bytes | None,
    "money": Numeric[15, 4] | None, "huge": Numeric[38, 10] | None, "digits": Numeric[38, 0] | None,
    "tiny": Numeric[20, 20] | None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stages of a test stay in the test's own folder."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "stages"))
    return tmp_path / "stages" / "ematix-flow-stage"


@pytest.fixture(params=[sqlite_backend.backend, duckdb_backend.backend], ids=["sqlite", "duckdb"])
def system(request: pytest.FixtureRequest, tmp_path: Path) -> System:
    return System(request.param, tmp_path / "new folder" / "data.db")


@pytest.fixture
def load(system: System, spark: Any) -> Callable[..., Counts]:
    """One whole load through the capabilities: create, begin, stage, publish, settle."""

    def run(table: Any, strategy: Strategy, rows: list[Row], **more: Any) -> Counts:
        return perform(system, spark, table, strategy, rows, **more).counts

    return run


@pytest.fixture
def sqlite(tmp_path: Path) -> System:
    return System(sqlite_backend.backend, tmp_path / "source.db")


def row_of(number: int, **values: Any) -> Row:
    return {name: values.get(name) for name in EVERY_TYPE} | {"id": number}


LARGEST = row_of(
    1, small=2**15 - 1, whole=2**31 - 1, big=2**63 - 1, single=3.4028234663852886e38, double=1.7976931348623157e308, flag=True,
    words="ünïcode 😀 'quoted' \"twice\"\n\ttabs", short="😀" * 40, day=date(9999, 12, 31),
    wall=datetime(9999, 12, 31, 23, 59, 59, 999999), instant=datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc),
    document='{"b": [1, {"a": null}], "a": 1.50}', meaning='{"deep": {"er": [true, "😀"]}}',
    token="ffffffff-ffff-ffff-ffff-ffffffffffff", raw=bytes(range(256)), money=Decimal("99999999999.9999"),
    huge=Decimal("9" * 28 + "." + "9" * 10), digits=Decimal("9" * 38), tiny=Decimal("0." + "9" * 20),
)  # fmt: skip
SMALLEST = row_of(
    2, small=-(2**15), whole=-(2**31), big=-(2**63), single=-1.401298464324817e-45, double=5e-324, flag=False, words="",
    short="", day=date(1, 1, 1), wall=datetime(1, 1, 1), instant=datetime(1, 1, 1, 0, 0, 0, 1, timezone.utc),
    document="1.50", meaning="null", token="00000000-0000-0000-0000-000000000000", raw=b"", money=Decimal("-99999999999.9999"),
    huge=Decimal("-0.0000000001"), digits=Decimal(-7), tiny=Decimal("0.00000000000000000001"),
)  # fmt: skip
ORDINARY = row_of(
    4, small=0, whole=0, big=0, single=0.1, double=0.1, flag=True, words="1e5", short="007", day=date(1582, 10, 10),
    wall=datetime(1969, 12, 31, 23, 59, 59, 5), instant=datetime(2026, 3, 29, 1, 30, tzinfo=timezone.utc), document='"text"',
    meaning="[]", token="123e4567-e89b-12d3-a456-426614174000", raw=b"\x00abc\x00", money=Decimal("0.1000"),
    huge=Decimal("12.5000000000"), digits=Decimal(0), tiny=Decimal(0),
)  # fmt: skip


def comparable(row: Row) -> Row:
    """Bytes as bytes, floats by their text, instants in UTC; JSON and UUID are text on both sides."""
    kept: Row = {}
    for name, value in row.items():
        if name == "single" and value is not None:
            value = struct.unpack("f", struct.pack("f", value))[0]
        if isinstance(value, float):
            value = repr(value)
        if name == "instant" and value is not None and value.tzinfo is None:
            value = value.replace(tzinfo=timezone.utc)
        if isinstance(value, Decimal):
            value = str(value.normalize() + 0)
        kept[name] = value
    return kept


def test_every_type_comes_back_as_it_went_in(system: System, spark: Any) -> None:
    table = declare(EVERY_TYPE)
    rows = [LARGEST, SMALLEST, row_of(3), ORDINARY]
    perform(system, spark, table, Append(), rows)
    names = ", ".join(f'"{name}"' for name in EVERY_TYPE)
    query = f"SELECT {names} FROM {system.name(table.spec())}"
    plan = system.source().plan(query, parallelism=2)
    kinds = {column.name: column.type for column in plan.columns}
    expected = {column.name: column.type for column in table.spec().columns}
    if system.backend.name == "duckdb":  # it keeps neither lengths nor a second kind of JSON
        expected |= {"short": Text(), "meaning": JSON()}
    assert kinds == expected
    assert plan.estimated_rows is not None
    found = sorted(read(system, spark, query), key=lambda row: int(row["id"]))
    assert [comparable(row) for row in found] == [comparable(row) for row in rows]


def test_infinity_and_nan_are_kept_or_refused_but_never_bent(system: System, spark: Any) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "x": Double | None, "y": Float | None})
    perform(system, spark, table, Append(), [{"id": 1, "x": math.inf, "y": -math.inf}])
    assert read(system, spark, f"SELECT x, y FROM {system.name(table.spec())}") == [{"x": math.inf, "y": -math.inf}]
    odd = [{"id": 2, "x": math.nan, "y": 1.0}]
    if system.backend.name == "sqlite":
        with pytest.raises(BadValue, match=r"'x' holds NaN.*nothing was loaded"):
            perform(system, spark, table, Append(), odd)
        assert system.ask(f"SELECT COUNT(*) FROM {system.name(table.spec())}") == [(1,)]
    else:
        perform(system, spark, table, Append(), odd)
        assert math.isnan(read(system, spark, f"SELECT x FROM {system.name(table.spec())} WHERE id = 2")[0]["x"])


def test_append_and_truncate_count_and_keep(system: System, load: Callable[..., Counts], stages: Path) -> None:
    table = people()
    assert load(table, Append(), [person(1, "a"), person(2, None)]) == Counts(read=2, inserted=2)
    assert load(table, Append(), []) == Counts()
    assert load(table, Truncate(), [person(2, "b"), person(3, "c")]) == Counts(read=2, inserted=2, deleted=2)
    assert sorted(system.ask(f"SELECT id, name FROM {system.name(table.spec())}")) == [(2, "b"), (3, "c")]
    assert not any(stages.iterdir())


def test_merge_counts_are_exact_when_keys_move_between_tables(system: System, load: Callable[..., Counts]) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "code": Annotated[Text | None, natural_key()], "v": Double | None})
    strategy = Merge(("id",), ("code", "v"), ("code", "v"))

    def row(number: int, code: str | None, v: float | None) -> Row:
        return {"id": number, "code": code, "v": v}

    assert load(table, strategy, [row(n, str(n), n / 3) for n in range(2000)]) == Counts(read=2000, inserted=2000)
    changed = [row(n, str(n), n / 3 if n % 2 else n / 7 + 1) for n in range(2500)]
    assert load(table, strategy, changed) == Counts(read=2500, inserted=500, updated=1000, unchanged=1000)
    assert load(table, strategy, changed) == Counts(read=2500, unchanged=2500)
    total = system.ask(f"SELECT COUNT(*), COUNT(DISTINCT code) FROM {system.name(table.spec())}")
    assert total == [(2500, 2500)]


def test_keys_without_a_constraint_are_merged_by_an_index(sqlite: System, spark: Any) -> None:
    table = declare({"code": Text | None, "v": BigInt})
    strategy = Merge(("code",), ("v",), ("v",))
    perform(sqlite, spark, table, strategy, [{"code": None, "v": 1}, {"code": "a", "v": 1}])
    assert perform(sqlite, spark, table, strategy, [{"code": None, "v": 2}]).counts == Counts(read=1, updated=1)
    relation = sqlite.name(table.spec())
    plan = sqlite.ask(f"EXPLAIN QUERY PLAN SELECT * FROM {relation} WHERE code IS 'a'")
    assert f"{relation}__flow_keys" in plan[0][3]


def test_scd2_counts_are_exact_and_a_ttl_is_kept_to_the_microsecond(
    system: System, load: Callable[..., Counts]
) -> None:
    table = people()
    strategy = Scd2(("id",), ("name", "price"))
    first, second = day(1), day(2)
    assert load(table, strategy, [person(1, "a"), person(2, "b")], started_at=first) == Counts(read=2, inserted=2)
    again = load(table, strategy, [person(1, "a"), person(2, "b", "1.501"), person(3, None)], started_at=second)
    assert again == Counts(read=3, inserted=2, unchanged=1, closed=1)
    expiring = Scd2(("id",), ("name", "price"), ttl=timedelta(days=1, microseconds=1))
    assert load(table, expiring, [], started_at=day(2) + timedelta(days=1)) == Counts(closed=1)
    ends = system.ask(f"SELECT valid_to FROM {system.name(table.spec())} WHERE id = 1")
    assert str(ends[0][0]) == "2026-01-02 00:00:00.000001+00:00"


def test_scd2_by_event_time_places_late_events(system: System, load: Callable[..., Counts]) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "name": Text | None, "at": Timestamp})
    strategy = Scd2(("id",), ("name",), event_time="at")

    def event(name: str | None, number: int) -> Row:
        return {"id": 1, "name": name, "at": datetime(2026, 1, number)}

    assert load(table, strategy, [event("a", 1), event("a", 9), event("a", 9)]).inserted == 1
    assert load(table, strategy, [event("b", 5)]) == Counts(read=1, inserted=2, closed=1)
    assert load(table, strategy, [event("b", 5), event("a", 1)]) == Counts(read=2, unchanged=2)
    found = system.ask(f"SELECT name, valid_from, valid_to FROM {system.name(table.spec())} ORDER BY valid_from")
    days = [(name, str(start)[:10], str(end)[:10]) for name, start, end in found]
    assert days == [("a", "2026-01-01", "2026-01-05"), ("b", "2026-01-05", "2026-01-09"), ("a", "2026-01-09", "None")]


@pytest.mark.parametrize(
    ("keyed", "mark"), [(True, Numeric[20, 2]), (False, TimestampTZ)], ids=["keyed by decimal", "no key by instant"]
)
def test_a_row_at_the_watermark_is_loaded_once(
    system: System, load: Callable[..., Counts], keyed: bool, mark: Any
) -> None:
    table = declare({"id": Annotated[BigInt, pk()] if keyed else BigInt, "at": mark | None})
    options = {"incremental": Incremental("at")}
    low, high = (day(1), day(2)) if mark is TimestampTZ else (Decimal("9.00"), Decimal("10.00"))

    def row(number: int, at: Any) -> Row:
        return {"id": number, "at": at}

    first = load(table, Append(), [row(1, low), row(2, high), row(3, None)], **options)
    assert first == Counts(read=3, inserted=3, null_watermarks=1)
    boundary = [row(2, high), row(4, high), row(3, None)]
    assert load(table, Append(), boundary, **options) == Counts(read=3, inserted=1, unchanged=2, null_watermarks=1)
    twins = [row(5, high), row(5, high)] if not keyed else [row(5, high)]
    assert load(table, Append(), [*boundary, *twins], **options).inserted == len(twins)
    assert system.ask(f"SELECT COUNT(*) FROM {system.name(table.spec())}") == [(4 + len(twins),)]
    stored = system.ask(
        f"SELECT last_value FROM ematix_flow{'_' if system.backend.name == 'sqlite' else '.'}watermarks"
    )
    assert stored == [("2026-01-02 00:00:00.000000+00:00" if mark is TimestampTZ else "10.00",)]


def test_a_token_is_published_once_and_a_dead_run_is_found(system: System, spark: Any, stages: Path) -> None:
    table = people()
    shape = shape_of(table.spec(), Append())
    sink, job = system.sink(), job_of(shape, Append())
    system.ddl().apply(shape, [CreateTable(shape.table)])
    opening: WriteSession = sink.begin(job)
    stage = sink.stage(job, frame(spark, shape.declared, [person(1, "a")]))
    published = sink.publish(job, stage, opening)
    with pytest.raises(LeaseHeld, match="nothing was loaded twice"):
        sink.publish(job, stage, opening)
    assert any(stages.iterdir())
    after_the_crash = sink.begin(job_of(shape, Append()))
    assert after_the_crash.recovered is not None
    assert after_the_crash.recovered.counts == published.counts
    assert after_the_crash.commit.sequence == opening.commit.sequence + 1
    assert not any(stages.iterdir())
    assert system.ask(f"SELECT COUNT(*) FROM {system.name(table.spec())}") == [(1,)]


def test_a_stage_from_a_query_equals_the_one_from_spark(system: System, spark: Any) -> None:
    table = declare(EVERY_TYPE, schema="given")
    copies = declare(EVERY_TYPE, schema="taken")
    perform(system, spark, table, Append(), [LARGEST, SMALLEST, row_of(3), ORDINARY])
    shape = shape_of(copies.spec(), Append())
    sink, job = system.sink(), job_of(shape, Append())
    system.ddl().apply(shape, [CreateTable(shape.table)])
    opening = sink.begin(job)
    stage = sink.stage_query(job, f"SELECT * FROM {system.name(table.spec())}")
    assert stage.rows == 4
    result = sink.publish(job, stage, opening)
    sink.settle(job, opening, result, None)
    names = ", ".join(f'"{name}"' for name in EVERY_TYPE)
    both = [system.ask(f"SELECT {names} FROM {system.name(item.spec())} ORDER BY id") for item in (table, copies)]
    assert both[0] == both[1]
    left = (
        "SELECT name FROM sqlite_master"
        if system.backend.name == "sqlite"
        else "SELECT table_name FROM duckdb_tables()"
    )
    assert not [name for (name,) in system.ask(left) if "stage" in name]


def test_inspect_gives_back_what_was_declared(system: System) -> None:
    table = declare(EVERY_TYPE)
    shape = shape_of(table.spec(), Scd2(("id",), ("words",)))
    ddl = system.ddl()
    assert ddl.inspect(shape) is None
    assert not system.path.exists()
    ddl.apply(shape, [CreateTable(shape.table)])
    state = ddl.inspect(shape)
    assert state.primary_key == ("id", "valid_from")
    for column, found in zip(shape.table.columns, state.columns, strict=True):
        assert found.name == column.name
        assert found.type == ddl.stored_type(shape, column)
        assert found.nullable == (column.nullable and not column.primary_key)
        if system.backend.name == "sqlite":
            assert found.type == column.type


def test_a_table_changes_without_losing_rows_keys_or_indexes(system: System, load: Callable[..., Counts]) -> None:
    annotations = {
        "id": Annotated[Integer, pk()],
        "code": Annotated[Text | None, natural_key()],
        "n": SmallInt,
        "p": Numeric[10, 2] | None,
    }
    table = declare(annotations)
    load(
        table,
        Append(),
        [{"id": 1, "code": "a", "n": 7, "p": Decimal("1.50")}, {"id": 2, "code": None, "n": 8, "p": None}],
    )
    relation = system.name(table.spec())
    system.ask(f"CREATE INDEX looked_up ON {relation} (n)")
    wider = declare({**annotations, "id": Annotated[BigInt, pk()], "p": Numeric[30, 4] | None, "note": Text | None},
                    schema=table.spec().schema, name=table.spec().name)  # fmt: skip
    shape = shape_of(wider.spec(), Append())
    ddl = system.ddl()
    before = {column.name: column for column in ddl.inspect(shape).columns}
    columns = {column.name: column for column in shape.table.columns}
    steps = [ChangeType(columns["id"], before["id"]), ChangeType(columns["p"], before["p"]), DropNotNull(before["n"]),
             AddColumn(columns["note"])]  # fmt: skip
    ddl.apply(shape, steps)
    after = {column.name: column for column in ddl.inspect(shape).columns}
    assert after["id"].type == BigInt()
    assert after["p"].type == Numeric(30, 4)
    assert after["n"].nullable
    assert "note" in after
    assert ddl.inspect(shape).primary_key == ("id",)
    found = system.ask(f"SELECT id, code, n, p FROM {relation} ORDER BY id")
    assert [(row[0], row[1], row[2], str(row[3])) for row in found] == [(1, "a", 7, "1.5000"), (2, None, 8, "None")]
    loaded = "'2026-01-01', '123e4567-e89b-12d3-a456-426614174000'"
    for doubled in ("1, 'z', 1", "9, 'a', 1"):
        with pytest.raises((sqlite3.IntegrityError, duckdb.ConstraintException)):
            system.ask(f"INSERT INTO {relation} (id, code, n, _loaded_at, _batch_id) VALUES ({doubled}, {loaded})")
    catalog = (
        "sqlite_master WHERE type = 'index' AND name"
        if system.backend.name == "sqlite"
        else "duckdb_indexes() WHERE index_name"
    )
    assert system.ask(f"SELECT COUNT(*) FROM {catalog} = 'looked_up'") == [(1,)]


def test_a_table_with_parts_a_copy_would_lose_is_left_alone(system: System) -> None:
    table = declare({"id": BigInt, "n": Text | None}, schema="main", name="kept")
    system.path.parent.mkdir(parents=True)
    system.ask("CREATE TABLE kept (id INTEGER PRIMARY KEY CHECK (id > 0), n VARCHAR DEFAULT 'x' UNIQUE)")
    shape = shape_of(table.spec(), Append())
    state = system.ddl().inspect(shape)
    column = Column(BigInt(), name="n")
    with pytest.raises(Unsupported, match=r"would lose CHECK, DEFAULT"):
        system.ddl().apply(shape, [ChangeType(column, state.columns[1])])
