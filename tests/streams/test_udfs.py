"""The user's functions in Spark SQL: rows, groups, types, and what is said when something does not fit."""

from __future__ import annotations

import math
import threading
from contextlib import ExitStack
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow import udaf, udf
from ematix_flow.declare.udfs import TYPES
from ematix_flow.engine.session import spark_errors
from ematix_flow.engine.sql.functions.tasks import PartialCall, PartialTask
from ematix_flow.foundation.errors import DataError, DeclarationError, MissingColumn, PlanError, SqlError
from tests.streams.aggregates import AGGREGATES, MORE_AGGREGATES
from tests.streams.sample_functions import LEVELS, STRAINED, VWAP_BY_MINUTE, Vwap, strain_of
from tests.streams.sql_session import answers, open_until, rows, spark, statement

__all__ = ["open_until", "spark"]


def _shift(values: Any) -> Any:
    return pc.add(values, _BY)


_BY = 10.0


@udf(args=("Float64",), returns="Float64")
def half(values: Any) -> Any:
    return pc.divide(values, 2.0)


@udf(args=("Float64",), returns="Float64")
def shifted(values: Any) -> Any:
    return _shift(values)


@udf(args=("Int64",), returns="Int64")
def picky(values: Any) -> Any:
    if pc.any(pc.equal(values, 13)).as_py():
        raise ValueError("thirteen")
    return values


@udaf(args=("Int64",), state=("Int64", "Int64"), returns="Utf8", name="span")
class Span:
    """The smallest and the largest number of a group, as text."""

    def __init__(self) -> None:
        self.low: int | None = None
        self.high: int | None = None

    def _take(self, lows: Any, highs: Any) -> None:
        found = [value for value in (self.low, pc.min(lows).as_py()) if value is not None]
        self.low = min(found) if found else None
        found = [value for value in (self.high, pc.max(highs).as_py()) if value is not None]
        self.high = max(found) if found else None

    def update_batch(self, values: Any) -> None:
        self._take(values, values)

    def merge_batch(self, lows: Any, highs: Any) -> None:
        self._take(lows, highs)

    def evaluate(self) -> Any:
        return pa.array([None if self.low is None else f"{self.low}..{self.high}"], type=pa.string())

    def state(self) -> Any:
        return (pa.array([self.low], type=pa.int64()), pa.array([self.high], type=pa.int64()))


@pytest.fixture(scope="module")
def trades(spark: Any) -> Any:
    """Prices and quantities in several partitions."""
    data = [("a", 10.0, 1.0, 1), ("a", 20.0, 3.0, 2), ("b", 5.0, 2.0, 3), (None, 7.0, 0.0, 4), ("a", None, 5.0, 5)] * 4
    return spark.createDataFrame(data, "g STRING, price DOUBLE, qty DOUBLE, n BIGINT").repartition(4).cache()


VWAPS = [(None, None), ("a", 70.0 / 9.0), ("b", 5.0)]


def alike(found: list[Any], expected: list[Any]) -> None:
    """Equal, but for the last digit of a float."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other)


def test_a_function_of_rows_is_called_from_select_where_and_from_itself(spark: Any, trades: Any) -> None:
    found = answers(spark, trades, "SELECT DISTINCT half(half(price)) AS q FROM source WHERE half(price) > 3", half)
    assert found == [(1.75,), (2.5,), (5.0,)]


@pytest.mark.full
def test_numbers_of_other_widths_are_widened(spark: Any, trades: Any) -> None:
    found = answers(
        spark, trades, "SELECT DISTINCT half(n) AS a, half(1.5) AS b, half(NULL) AS c FROM source WHERE n < 3", half
    )
    assert found == [(0.5, 0.75, None), (1.0, 0.75, None)]


@pytest.mark.full
def test_a_helper_of_the_same_module_travels_along(spark: Any, trades: Any) -> None:
    assert answers(spark, trades, "SELECT DISTINCT shifted(n) AS s FROM source WHERE n = 1", shifted) == [(11.0,)]


@pytest.mark.full
def test_a_column_without_a_name_is_named_after_the_call(spark: Any, trades: Any, open_until: ExitStack) -> None:
    made = statement("SELECT half(price), n, half(price) + 1 AS more FROM source", half).frame(trades, {}, open_until)
    assert made.columns == ["half(price)", "n", "more"]
    made = statement("SELECT g, vwap(price, qty) FROM source GROUP BY g", Vwap).frame(trades, {}, open_until)
    assert made.columns == ["g", "vwap(price, qty)"]


VALUES: dict[str, Any] = {
    "Int8": -128, "Int16": -32768, "Int32": -(2**31), "Int64": -(2**63), "UInt8": 255, "UInt16": 65535,
    "UInt32": 2**32 - 1, "UInt64": 2**64 - 1, "Float32": 1.5, "Float64": 0.1, "Boolean": True, "Utf8": "Çelik",
    "Binary": b"\x00\xff",
}  # fmt: skip
SQL_TYPES = {
    "Int8": "TINYINT", "Int16": "SMALLINT", "Int32": "INT", "Int64": "BIGINT", "UInt8": "SMALLINT", "UInt16": "INT",
    "UInt32": "BIGINT", "UInt64": "DECIMAL(20,0)", "Float32": "FLOAT", "Float64": "DOUBLE", "Boolean": "BOOLEAN",
    "Utf8": "STRING", "Binary": "BINARY",
}  # fmt: skip


@pytest.mark.full
def test_every_type_goes_in_and_comes_out_as_declared(spark: Any) -> None:
    handles = []
    for name in TYPES:
        seen = str(
            {"Boolean": pa.bool_(), "Utf8": pa.string(), "Binary": pa.binary()}.get(name) or getattr(pa, name.lower())()
        )

        def same(values: Any, seen: str = seen) -> Any:
            assert str(values.type) == seen, f"{values.type} instead of {seen}"
            return values

        handles.append(udf(args=(name,), returns=name, name=f"same_{name}")(lambda values, same=same: same(values)))
    schema = ", ".join(f"{name} {SQL_TYPES[name]}" for name in TYPES)
    given = {name: Decimal(value) if name == "UInt64" else value for name, value in VALUES.items()}
    frame = spark.createDataFrame([tuple(given[name] for name in TYPES), (None,) * len(TYPES)], schema)
    calls = ", ".join(f"same_{name}({name}) AS {name}" for name in TYPES)
    with ExitStack() as open_until:
        made = statement(f"SELECT {calls} FROM source", *handles).frame(frame, {}, open_until)
        assert dict(made.dtypes) == {name: kind.lower() for name, kind in SQL_TYPES.items()}
        found = made.collect()
    assert found[0].asDict() == given
    assert set(found[1]) == {None}


@pytest.mark.full
def test_a_number_that_is_no_unsigned_one_names_the_function(spark: Any) -> None:
    small = udf(args=("UInt8",), returns="UInt8", name="small")(lambda values: values)
    frame = spark.createDataFrame([(1,), (-1,)], "n SMALLINT")
    with pytest.raises(Exception, match="FLOW_ERROR") as failed:
        answers(spark, frame, "SELECT small(n) AS n FROM source", small)
    error = spark_errors.translate(failed.value)
    assert isinstance(error, DataError)
    assert error.what == "small: argument 1 is not of type UInt8: -1"


def test_a_function_of_five_columns_is_called_inside_of_an_aggregate(spark: Any, open_until: ExitStack) -> None:
    at = datetime(2026, 1, 5, 14, 30, 12, tzinfo=timezone.utc)
    data = [(at, 45.0, 1.25, 1.30, 50.0, 0.2, 0.05, 2.5), (at, 46.0, 0.5, 0.6, 50.0, 0.2, 0.05, 2.5)]
    names = ("dock", "bikes", "slots", "capacity", "tilt", "rust", "years")
    schema = "seen_at TIMESTAMP, " + ", ".join(f"{name} DOUBLE" for name in names)
    made = statement(STRAINED, strain_of).frame(spark.createDataFrame(data, schema), {}, open_until)
    (row,) = made.collect()
    assert (row.at_minute.minute, row.at_minute.second) == (30, 0)
    found = {item.dock: item for item in row.docks}
    used = 45.0 / (45.0 + 50.0 * math.exp(-0.05 * 2.5))
    assert found[45.0].strain == pytest.approx(1 - (1 - used) * (1 - math.tanh(0.2 * used)))
    assert (found[46.0].bikes, found[46.0].slots) == (0.5, 0.6)
    assert found[46.0].strain > found[45.0].strain


def test_a_pivot_needs_no_function(spark: Any, open_until: ExitStack) -> None:
    at = datetime(2026, 1, 5, 14, 30, 12, tzinfo=timezone.utc)
    data = [(at, "Oslo", 0, 45.0, 1.25, 1.30), (at, "Oslo", 1, 1.0, 1.0, 1.0), (at, "Turku", 0, 2.0, 2.0, 2.0)]
    schema = "seen_at TIMESTAMP, city STRING, level_no INT, dock DOUBLE, bikes DOUBLE, slots DOUBLE"
    frame = spark.createDataFrame(data, schema)
    for dialect in ("spark", "datafusion"):
        (row,) = statement(LEVELS, dialect=dialect).frame(frame, {}, open_until).collect()
        assert [item.asDict() for item in row.docks] == [{"dock": 45.0, "bikes": 1.25, "slots": 1.3}], dialect


def test_a_class_aggregates_by_the_minute(spark: Any, open_until: ExitStack) -> None:
    minutes = [datetime(2026, 1, 5, 14, minute, 12, tzinfo=timezone.utc) for minute in (30, 31)]
    data = [(minutes[0], 100.0, 10.0), (minutes[0], 110.0, 5.0), (minutes[0], 105.0, 15.0), (minutes[1], 9.0, 1.0)]
    frame = spark.createDataFrame(data, "at TIMESTAMP, price DOUBLE, qty DOUBLE").repartition(3)
    for in_parts in (True, False):
        ready = statement(VWAP_BY_MINUTE, Vwap, in_parts=in_parts)
        found = {row.at_minute.minute: row.vwap for row in ready.frame(frame, {}, open_until).collect()}
        assert found == {30: pytest.approx(3125 / 30), 31: pytest.approx(9.0)}


@pytest.mark.full
def test_plain_sql_aggregates_in_parts_and_as_a_whole_alike(spark: Any, trades: Any) -> None:
    sql = "SELECT g, vwap(price, qty) AS v FROM source GROUP BY g"
    ready = statement(sql, Vwap)
    with ExitStack() as open_until:
        ready.register_source(trades, open_until)
        assert ready.prepared(trades, {}).partial is not None
    for in_parts in (True, False):
        alike(answers(spark, trades, sql, Vwap, in_parts=in_parts), VWAPS)


@pytest.mark.full
@pytest.mark.parametrize("sql", AGGREGATES)
def test_aggregates_work_in_every_place(spark: Any, trades: Any, sql: str) -> None:
    for in_parts in (True, False):
        alike(answers(spark, trades, sql, Vwap, Span, half, in_parts=in_parts), AGGREGATES[sql])


@pytest.mark.full("the same by four statements")
@pytest.mark.parametrize("sql", MORE_AGGREGATES)
def test_aggregates_work_in_more_places(spark: Any, trades: Any, sql: str) -> None:
    for in_parts in (True, False):
        alike(answers(spark, trades, sql, Vwap, Span, half, in_parts=in_parts), MORE_AGGREGATES[sql])


_NUMBERS = st.one_of(st.none(), st.integers(-1000, 1000))
_KEYS = st.one_of(st.none(), st.sampled_from(["a", "b", ""]))
_MOMENTS = st.one_of(
    st.none(), st.sampled_from([datetime(1, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31)])
)
_ROWS = st.lists(st.tuples(_KEYS, _MOMENTS, st.one_of(st.none(), st.floats(width=32)), _NUMBERS, _NUMBERS), max_size=40)


@pytest.mark.full("every aggregate is run in both ways")
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=_ROWS, parts=st.integers(1, 4))
def test_parts_and_whole_groups_give_the_same(spark: Any, data: list[Any], parts: int) -> None:
    frame = spark.createDataFrame(data, "k STRING, at TIMESTAMP_NTZ, f FLOAT, x BIGINT, y BIGINT").repartition(parts)
    sql = "SELECT k, at, f, span(x) AS s, vwap(x, y) AS v FROM source GROUP BY k, at, f"
    ready = statement(sql, Span, Vwap)
    with ExitStack() as open_until:
        ready.register_source(frame, open_until)
        assert ready.prepared(frame, {}).partial is not None

    def results(in_parts: bool) -> list[tuple[str, ...]]:
        return [tuple(map(repr, row)) for row in answers(spark, frame, sql, Span, Vwap, in_parts=in_parts)]

    assert results(in_parts=True) == results(in_parts=False)  # sums of whole numbers are exact, whatever their order


@pytest.mark.full
def test_a_task_with_too_many_groups_hands_their_states_on() -> None:
    task = PartialTask(1, (PartialCall(Span, (1,)),), ("k", "low", "high"), max_groups=10)
    batches = [pa.record_batch([pa.array([n % 40 for n in range(base, base + 20)]), pa.array(range(base, base + 20))], names=["k", "x"])
               for base in range(0, 200, 20)]  # fmt: skip
    results = list(task(batches))
    assert len(results) > 3
    assert max(batch.num_rows for batch in results) <= 20
    assert sum(batch.num_rows for batch in results) >= 40


@pytest.mark.full
def test_keys_that_python_has_no_word_for_are_groups_as_well(spark: Any) -> None:
    frame = spark.sql("SELECT timestamp'20000-01-01 00:00:00' AS at, 1.0D AS price, 2.0D AS qty FROM range(3)")
    sql = "SELECT at = timestamp'20000-01-01 00:00:00' AS same, vwap(price, qty) AS v FROM source GROUP BY at"
    assert answers(spark, frame, sql, Vwap) == [(True, 1.0)]


@pytest.mark.full
def test_nested_keys_are_grouped_by_spark_alone(spark: Any, open_until: ExitStack) -> None:
    frame = spark.sql("SELECT named_struct('a', id % 2) AS k, 1.0D AS price, 2.0D AS qty FROM range(4)")
    ready = statement("SELECT k, vwap(price, qty) AS v FROM source GROUP BY k", Vwap)
    assert len(ready.frame(frame, {}, open_until).collect()) == 2
    assert ready.prepared(frame, {}).partial is None


@pytest.mark.parametrize(
    ("sql", "kind", "said"),
    [
        ("SELECT half(g) FROM source", PlanError, "half takes Float64 as argument 1, and g is STRING"),
        ("SELECT picky(price) FROM source", PlanError, "picky takes Int64 as argument 1, and price is DOUBLE"),
        ("SELECT vwap(price, g) FROM source", PlanError, "vwap takes Float64 as argument 2, and g is STRING"),
        ("SELECT g, vwap(price, true) FROM source GROUP BY g", PlanError, "argument 2, and true is BOOLEAN"),
        ("SELECT span(sum(n)) FROM source", SqlError, "aggregate function"),
        ("SELECT half(span(n)) FROM source", PlanError, r"half takes Float64 as argument 1, and span\(n\) is STRING"),
        ("SELECT half(price, 2) FROM source", SqlError, r"half takes 1 argument\(s\), and 2 are given"),
        ("SELECT vwap(price) FROM source", SqlError, r"vwap takes 2 argument\(s\), and 1 are given"),
        ("SELECT halff(price) FROM source", SqlError, "no function is called 'halff'"),
        ("SELECT half(prize) FROM source", MissingColumn, "prize"),
        ("SELECT n FROM source WHERE vwap(price, qty) > 1", SqlError, "WHERE"),
        ("SELECT n, vwap(price, qty) FROM source", SqlError, "GROUP BY|aggregate"),
    ],
)
def test_a_call_that_does_not_fit_is_an_error_before_anything_runs(
    spark: Any, trades: Any, sql: str, kind: Any, said: str
) -> None:
    with ExitStack() as open_until, pytest.raises(kind, match=said) as refused:
        statement(sql, half, picky, Vwap, Span).frame(trades, {}, open_until)
    assert refused.value.hint


@pytest.mark.full
def test_the_nearest_function_and_column_are_named(spark: Any, trades: Any, open_until: ExitStack) -> None:
    with pytest.raises(SqlError) as refused:
        statement("SELECT halff(price) FROM source", half).frame(trades, {}, open_until)
    assert refused.value.hint == "did you mean 'half'?"
    with pytest.raises(MissingColumn) as missing:
        statement("SELECT half(prize) FROM source", half).frame(trades, {}, open_until)
    assert missing.value.hint == "did you mean 'price'?"


@pytest.mark.full
def test_types_are_determined_inside_of_joins_subqueries_and_groups(spark: Any, trades: Any) -> None:
    for sql in (
        "SELECT half(a.g) FROM source a JOIN source b ON a.n = b.n",
        "SELECT * FROM source WHERE n IN (SELECT half(g) FROM source)",
        "SELECT max(half(g)) FROM source GROUP BY n",
        "WITH c AS (SELECT g AS x FROM source) SELECT half(x) FROM c",
        "SELECT n FROM source ORDER BY half(g)",
        "SELECT n FROM source GROUP BY n HAVING max(half(first(g))) > 1",
    ):
        with ExitStack() as open_until, pytest.raises((PlanError, SqlError)):
            statement(sql, half).frame(trades, {}, open_until)


def error_of(spark: Any, frame: Any, sql: str, *functions: Any, **fields: Any) -> Any:
    with pytest.raises(Exception) as failed:  # noqa: PT011  what Spark wraps around it is looked into
        answers(spark, frame, sql, *functions, **fields)
    return spark_errors.translate(failed.value)


def test_an_exception_in_a_task_names_the_function_and_the_row(spark: Any) -> None:
    error = error_of(spark, spark.range(1000), "SELECT picky(id) AS p FROM source", picky)
    assert isinstance(error, DataError)
    assert error.what == "udf picky failed: ValueError: thirteen; row: values=13"
    assert "test_udfs.py:" in error.hint


@pytest.mark.full
def test_an_exception_in_an_aggregate_names_the_function_and_the_row(spark: Any) -> None:
    class Picky:
        def update_batch(self, values: Any) -> None:
            if 13 in values.to_pylist():
                raise ValueError("thirteen")

        def merge_batch(self, counts: Any) -> None: ...
        def evaluate(self) -> Any:
            return pa.array([0], type=pa.int64())

        def state(self) -> Any:
            return (pa.array([0], type=pa.int64()),)

    handle = udaf(args=("Int64",), state=("Int64",), returns="Int64", name="picked")(Picky)
    for in_parts in (True, False):
        error = error_of(spark, spark.range(100), "SELECT picked(id) AS p FROM source", handle, in_parts=in_parts)
        assert isinstance(error, DataError)
        assert error.what == "udaf picked: update_batch() failed: ValueError: thirteen; row: values=13"


@pytest.mark.full
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("values.to_pylist()", "udf careless returned list, not a pyarrow Array"),
        ("values.slice(1)", "udf careless returned an array of length"),
        ("values.cast(pa.float64())", "udf careless returned the dtype double, and Int64 is declared"),
    ],
)
def test_an_answer_that_was_not_promised_names_the_function(spark: Any, answer: str, said: str) -> None:
    space: dict[str, Any] = {"pa": pa}
    exec(f"def careless(values):\n    import pyarrow as pa\n    return {answer}", space)
    handle = udf(args=("Int64",), returns="Int64")(space["careless"])
    error = error_of(spark, spark.range(10), "SELECT careless(id) AS c FROM source", handle)
    assert isinstance(error, DeclarationError)
    assert said in error.what


@pytest.mark.full
def test_a_function_that_cannot_be_shipped_is_reported_with_its_place(spark: Any) -> None:
    lock = threading.Lock()

    @udf(args=("Int64",), returns="Int64")
    def locked(values: Any) -> Any:
        with lock:
            return values

    with pytest.raises(DeclarationError, match="locked cannot be sent to Spark's tasks") as refused:
        answers(spark, spark.range(1), "SELECT locked(id) AS l FROM source", locked)
    assert refused.value.where is not None


@pytest.mark.full
def test_two_statements_of_one_session_may_use_one_name_for_different_things(spark: Any) -> None:
    less = udf(args=("Int64",), returns="Int64", name="change")(lambda values: pc.subtract(values, 1))
    more = udf(args=("Int64",), returns="Int64", name="change")(lambda values: pc.add(values, 1))
    with ExitStack() as open_until:
        frames = [
            statement("SELECT change(id) AS c FROM source", one).frame(spark.range(1), {}, open_until)
            for one in (less, more)
        ]
        assert [rows(frame) for frame in frames] == [[(-1,)], [(1,)]]


@pytest.mark.full
def test_a_name_of_sparks_own_is_refused(spark: Any) -> None:
    mine = udf(args=("Utf8",), returns="Utf8", name="lower")(lambda texts: texts)
    with pytest.raises(PlanError, match="lower is a function of Spark's own"):
        answers(spark, spark.range(1), "SELECT lower('A') AS a FROM source", mine)
