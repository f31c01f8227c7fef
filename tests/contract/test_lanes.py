"""Both lanes give the same table, type by type and strategy by strategy: Arrow, Spark."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

from ematix_flow import (
    UUID,
    BigInt,
    Boolean,
    Date,
    Double,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
    ematix,
    normalize,
    pk,
)
from ematix_flow.backends.catalog import backend_for
from ematix_flow.foundation.errors import BadValue, NullViolation, PlanError, TextTooLong
from tests.contract.conftest import Systems
from tests.contract.loading import columns, counts, day, declare
from tests.contract.odd_values import TYPES, differences, held_by, rows_of, written_by
from tests.contract.test_types import expected, table_of
from tests.harness.base import Harness
from tests.spark.test_normalizers_agree import ODD

LANES = ("arrow", "spark")
ARROW_SINKS = pytest.mark.systems("postgres", "mariadb", "mysql8", "sqlite", "duckdb", "delta", "files-parquet")
# Types these sources keep as text: turning that into the declared type is Spark's work.
AS_TEXT = {
    "mariadb": ("a_json", "a_jsonb", "a_uuid"),
    "mysql8": ("a_json", "a_jsonb"),
    "sqlite": ("a_whole", "a_fraction", "a_json", "a_jsonb"),
}
NORMALIZED: dict[str, tuple[Any, list[Any]]] = {
    "tidy": (Text, [normalize.trim(), normalize.empty_to_null()]),
    "short": (String[3], [normalize.regex_replace("[0-9]+", "#"), normalize.truncate(3)]),
    "whole": (BigInt, [normalize.parse_int()]),
    "price": (Numeric[10, 2], [normalize.parse_numeric(10, 2)]),
    "at": (TimestampTZ, [normalize.parse_timestamp()]),
    "day": (Date, [normalize.parse_date()]),
    "flag": (Boolean, [normalize.parse_bool()]),
    "known": (Text, [normalize.whitespace_to_null(), normalize.not_null_or("nobody")]),
}
OWN = ("_loaded_at", "_batch_id", "valid_from", "valid_to")
RAW = {"id": BigInt, "name": Text | None, "price": Numeric[12, 4] | None, "city": Text | None, "at": TimestampTZ | None}
FIRST = [
    (1, "Ana", "10.5", "Bonn", 1), (2, None, "7", "", 2), (3, "", "3.005", None, 3), (4, "ÄÖÜ", "0.1", "köln", 4),
    (5, "o'Hara, \"x\"\n", None, " ", 5), (6, "\\N", "1", "x", None),
]  # fmt: skip
SECOND = [
    (1, "Ana", "10.5", "Bonn", 11), (2, "", "7", None, 12), (3, "new", "-3.005", "Rom", 13), (4, "äöü", "0.1", "KÖLN", 14),
    (7, "😀", "99999.99", "x", 15),
]  # fmt: skip
STRATEGIES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append"},
    "truncate": {"mode": "truncate"},
    "merge": {"mode": "merge", "handle_deletes": "hard", "max_delete_fraction": 1.0},
    "scd2": {"mode": "scd2"},
}


def rows(batch: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [
        {"id": n, "name": name, "price": price and Decimal(price), "city": city, "at": at and day(1 + at)}
        for n, name, price, city, at in batch
    ]


def source_for(harness: Harness, systems: Systems) -> Harness:
    """Another system than the target, whose parts can be read as Arrow."""
    return systems("postgres" if harness.name == "sqlite" else "sqlite")


def run(source: Harness, spec: Any, target: Harness, table: Any, lane: str | None, **options: Any) -> Any:
    decorate = ematix.pipeline(
        target=table, target_connection=target.connection, source_connection=source.connection, force_lane=lane,
        name=f"lane_{table.__tablename__}", **{"mode": "append", **options},
    )  # fmt: skip
    return decorate(lambda: f"SELECT * FROM {source.reference(spec)}")


@ARROW_SINKS
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_lane_gives_the_same_table(harness: Harness, systems: Systems, strategy: str) -> None:
    if strategy not in backend_for(harness.connection).strategies:
        return  # the manifest is the promise, and tests/contract/test_suite.py holds it to that
    source, found = source_for(harness, systems), {}
    for lane in LANES:
        table = declare({**RAW, "id": Annotated[BigInt, pk()], "price": Numeric[10, 2] | None})
        said = []
        for batch in (FIRST, SECOND):
            spec = declare(RAW).spec()
            source.seed(spec, rows(batch))
            result = run(source, spec, harness, table, lane, **STRATEGIES[strategy]).sync()
            assert result.targets[0].lane == lane
            said.append(counts(result))
            if strategy == "append":
                break
        names = [name for name in harness.rows(table.spec())[0] if name not in OWN]
        found[lane] = (said, columns(harness.rows(table.spec()), sorted(names)))
    assert all(one == found["spark"] for one in found.values())


@ARROW_SINKS
@pytest.mark.by_default("delta", "duckdb")
def test_an_event_time_that_only_the_source_has_arrives_through_every_lane(harness: Harness, systems: Systems) -> None:
    if "scd2" not in backend_for(harness.connection).strategies:
        return
    source, spec, found = source_for(harness, systems), declare(RAW).spec(), {}
    source.seed(spec, [row for row in rows(FIRST) if row["at"] is not None])
    for lane in LANES:
        table = declare({"id": Annotated[BigInt, pk()], "name": Text | None})
        run(source, spec, harness, table, lane, mode="scd2", event_timestamp_column="at").sync()
        found[lane] = columns(harness.rows(table.spec()), ("id", "name", "valid_from"))
    assert found["arrow"] == found["spark"] != []


@pytest.mark.systems("postgres", "mariadb", "mysql8", "sqlite")
@pytest.mark.parametrize("lane", LANES)
def test_every_value_of_a_source_arrives_through_every_lane(harness: Harness, systems: Systems, lane: str) -> None:
    other = systems("postgres" if harness.name == "duckdb" else "duckdb")
    held, written = held_by(other.name), written_by(harness.name)
    names = [name for name in TYPES if name not in AS_TEXT.get(harness.name, ())]
    both = {name: [value for value in written[name] if any(value is kept for kept in held[name])] for name in names}
    source, target, values = table_of(names), table_of(names), rows_of(both)
    harness.seed(source.spec(), values)
    run(harness, source.spec(), other, target, lane).sync()
    assert differences(expected(target, values), other.rows(target.spec())) == []


@ARROW_SINKS
def test_rows_that_break_the_declaration_stop_a_lane_and_nothing_is_loaded(harness: Harness, systems: Systems) -> None:
    source = source_for(harness, systems)
    wrong: list[tuple[Any, Any, Any, type[Exception]]] = [
        (BigInt, SmallInt, 40_000, BadValue),
        (Numeric[12, 2], Numeric[4, 2], Decimal("12345.67"), BadValue),
        (Text | None, Text, None, NullViolation),
        (Text, String[3], "four", TextTooLong),
        (Text, UUID, "not-a-uuid", BadValue),
    ]
    for given, wanted, value, error in wrong:
        spec = declare({"id": BigInt, "v": given}).spec()
        fine = {BigInt: 1}.get(given, Decimal(1) if "Numeric" in str(given) else "abc")
        if wanted is UUID:
            fine = "6f1c2a34-0000-4000-8000-00000000000a"
        source.seed(spec, [{"id": 1, "v": fine}, {"id": 2, "v": value}])
        for lane in LANES[:-1]:
            table = declare({"id": Annotated[BigInt, pk()], "v": wanted})
            with pytest.raises(error) as caught:
                run(source, spec, harness, table, lane).sync()
            assert caught.value.hint
            assert harness.rows(table.spec()) == []


@pytest.mark.systems("duckdb")
def test_values_are_cast_alike_in_every_lane(harness: Harness, systems: Systems) -> None:
    source = systems("postgres")
    given = {"id": BigInt, "small": SmallInt, "whole": Integer, "price": Numeric[10, 4], "day": Date, "at": Timestamp, "tz": TimestampTZ, "u": Text}  # fmt: skip
    spec = declare(given).spec()
    source.seed(spec, [
        {"id": n, "small": n * 100, "whole": -n, "price": Decimal(price), "day": datetime(1969, 12, n).date(),
         "at": datetime(2026, 3, n, 2, 30, 0, 999999), "tz": day(n), "u": f"6F1C2A34-0000-4000-8000-00000000000{n}"}
        for n, price in enumerate(("1.005", "-1.005", "2.5", "0.0049", "99.9950"), start=1)
    ])  # fmt: skip
    wanted = {"id": Integer, "small": BigInt, "whole": Numeric[12, 3], "price": Numeric[8, 2], "day": Timestamp, "at": TimestampTZ, "tz": Timestamp, "u": UUID}  # fmt: skip
    found = {}
    for lane in LANES:
        table = declare({**wanted, "id": Annotated[Integer, pk()]})
        run(source, spec, harness, table, lane).sync()
        found[lane] = columns(harness.rows(table.spec()), tuple(wanted))
    assert found["arrow"] == found["spark"]
    assert [row[3] for row in found["arrow"]] == [Decimal(text) for text in ("1.01", "-1.01", "2.50", "0.00", "100.00")]


@pytest.mark.systems("duckdb")
def test_what_arrow_cannot_do_takes_the_spark_lane_and_preview_says_why(harness: Harness, systems: Systems) -> None:
    source = systems("postgres")
    spec = declare({"id": BigInt, "name": Text, "n": Text, "ratio": Double}).spec()
    source.seed(spec, [{"id": 1, "name": " a ", "n": "7", "ratio": 0.5}])
    for wanted, reason in (
        ({"name": Annotated[Text, normalize.sql("trim(col)")]}, "written for Spark"),
        ({"name": Annotated[Text, normalize.lower()]}, "changes the case of name"),
        ({"n": Integer}, "Spark casts n from"),
        ({"id": BigInt}, "in Spark's tasks"),
    ):
        pipeline = run(source, spec, harness, declare(wanted), None)
        plan = pipeline.preview().targets[0]
        assert reason in plan.lane_reason
        assert pipeline.sync().targets[0].lane == plan.lane == ("arrow" if "id" in wanted else "spark")
    with pytest.raises(PlanError, match="force_lane"):
        run(source, spec, harness, declare({"n": Integer}), "arrow").sync()


@pytest.mark.systems("duckdb")
def test_normalizers_give_the_same_values_in_every_lane(harness: Harness, systems: Systems) -> None:
    source = systems("postgres")
    spec = declare({"n": Integer, **dict.fromkeys(NORMALIZED, Text | None)}).spec()
    source.seed(spec, [{"n": n, **dict.fromkeys(NORMALIZED, text)} for n, text in enumerate(ODD)])
    found = {}
    for lane in LANES:
        columns_of = {name: Annotated[(kind | None, *markers)] for name, (kind, markers) in NORMALIZED.items()}
        table = declare({"n": Annotated[Integer, pk()], **columns_of})
        result = run(source, spec, harness, table, lane).sync()
        assert (result.targets[0].lane, result.rows_inserted) == (lane, len(ODD))
        found[lane] = columns(harness.rows(table.spec()), ("n", *NORMALIZED))
    assert found["arrow"] == found["spark"]
    assert sum(row[1] is None for row in found["arrow"]) > 1


@pytest.mark.systems("duckdb")
def test_an_incremental_load_reads_from_its_watermark_on_in_every_lane(harness: Harness, systems: Systems) -> None:
    source = systems("postgres")
    for lane in LANES:
        spec, table = declare(RAW).spec(), declare({**RAW, "id": Annotated[BigInt, pk()]})
        pipeline = run(source, spec, harness, table, lane, incremental=True, watermark_column="at")
        source.seed(spec, rows(FIRST))
        assert pipeline.sync().rows_inserted == 6
        late = [{"id": 8, "name": "late", "price": None, "city": None, "at": day(6)}]
        source.seed(spec, rows(FIRST) + rows(SECOND[-1:]) + late)
        again = pipeline.sync()
        assert (again.rows_inserted, again.rows_read) == (2, 4)
        assert len(harness.rows(table.spec())) == 8


@ARROW_SINKS
def test_a_load_that_only_moves_rows_takes_the_arrow_lane_however_few(harness: Harness, systems: Systems) -> None:
    source = source_for(harness, systems)
    spec = declare(RAW).spec()
    source.seed(spec, rows(FIRST))
    pipeline = run(source, spec, harness, declare({**RAW, "id": Annotated[BigInt, pk()]}), None)
    plan = pipeline.preview().targets[0]
    result = pipeline.sync()
    assert (plan.lane, result.targets[0].lane) == ("arrow", "arrow")
    assert result.cost is not None
    assert result.cost.session is not None  # rows moved in the tasks of a Spark session
