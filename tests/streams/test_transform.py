"""SQL over the rows of micro-batches: names, schemas that change, and rows on which it fails."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ematix_flow import udaf, udf
from ematix_flow.declare.streams.spec import DROP
from ematix_flow.engine.sql.statement_errors import row_error
from ematix_flow.foundation.errors import DataError, DeclarationError, MissingColumn, MissingTable, SqlError
from ematix_flow.streaming.dlq.sql_row_failures import StatementRowSearch
from tests.streams.sample_functions import Vwap
from tests.streams.sql_session import DLQ, Aside, explained, open_until, rows, spark, statement, transform

__all__ = ["open_until", "spark"]


@udf(args=("Int64",), returns="Int64")
def picky(values: Any) -> Any:
    if pc.any(pc.equal(pc.bit_wise_and(values, 7), 5)).as_py():
        raise ValueError("five of eight")
    return values


@pytest.fixture
def orders(spark: Any) -> Any:
    """Twenty orders, of which the amounts of 3 and 12 are no numbers."""
    return messages(spark, 20, bad=(3, 12))


def messages(spark: Any, count: int, *, bad: Any = (), parts: int = 4) -> Any:
    """Decoded messages: columns of the payload, and what travels with them."""
    wrong = set(bad)
    data = [(n, "x" if n in wrong else str(n * 2), f"{{{n}}}".encode(), (n,)) for n in range(count)]
    schema = "id BIGINT, amount STRING, _raw BINARY, _source STRUCT<offset: BIGINT>"
    return spark.createDataFrame(data, schema).repartition(parts)


def applied(made: Any, frame: Any, open_until: ExitStack, *, sorter: Aside | None = None) -> Any:
    """The rows; without dead letters, as a target takes them that does not ask where they come from."""
    return sorter.good(made, frame, open_until) if sorter is not None else made.apply(frame, open_until).drop("_source")


@pytest.mark.full
def test_a_stream_without_sql_leaves_its_rows_alone(orders: Any, open_until: ExitStack) -> None:
    assert transform(None).apply(orders, open_until) is orders


def test_rows_are_filtered_renamed_and_cast(orders: Any, open_until: ExitStack) -> None:
    made = transform("SELECT id AS number, s.id % 3 AS rest, _source.offset FROM source AS s WHERE id < 4")
    found = applied(made, orders, open_until)
    assert found.columns == ["number", "rest", "offset"]
    assert rows(found) == [(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 0, 3)]


@pytest.mark.full
def test_the_source_may_be_named_in_full_in_capitals_and_in_a_with_query(orders: Any, open_until: ExitStack) -> None:
    sql = "WITH few AS (SELECT * FROM Source WHERE source.id < 2) SELECT few.id, source.id AS other FROM few JOIN source ON few.id = source.id;"
    assert rows(applied(transform(sql), orders, open_until)) == [(0, 0), (1, 1)]


@pytest.mark.full
def test_two_streams_of_one_session_do_not_see_each_other(spark: Any, open_until: ExitStack) -> None:
    one, other = transform("SELECT id FROM source"), transform("SELECT id * 100 AS id FROM source")
    first = applied(one, messages(spark, 2), open_until)
    second = applied(other, messages(spark, 3), open_until)
    assert (rows(first), rows(second)) == ([(0,), (1,)], [(0,), (100,), (200,)])


def test_sql_alone_adds_nothing_to_a_batch_but_itself(spark: Any, orders: Any) -> None:
    said = "SELECT id, amount || '!' AS amount FROM {} WHERE id > 3"
    made, plans = transform(said.format("source")), []
    group = f"planning {made.statement.view}"
    spark.sparkContext.setJobGroup(group, "")
    for _ in range(2):
        with ExitStack() as open_until:
            plans.append(plan_of(applied(made, orders, open_until)))
    orders.createOrReplaceTempView("orders_by_hand")
    by_hand = plan_of(spark.sql(said.format("orders_by_hand")))
    spark.catalog.dropTempView("orders_by_hand")
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert plans == [by_hand, by_hand]
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(group) == []


def plan_of(frame: Any) -> str:
    """How Spark would run it, without the numbers of expressions."""
    return re.sub(r"#\d+L?|\[plan_id=\d+\]", "", explained(frame)).partition("== Optimized")[2]


@pytest.mark.parametrize(
    ("sql", "kind", "said", "hint"),
    [
        ("SELECT amuont FROM source", MissingColumn, "amuont", "did you mean 'amount'?"),
        ("SELECT id FROM sauce", MissingTable, "sauce, which is neither source nor a lookup", "did you mean 'source'?"),
        ("SELECT id FROM public.source", MissingTable, "public.source", "did you mean 'source'?"),
        ("SELECT id FROM", SqlError, "not Spark SQL", "Spark SQL over the table source"),
        ("DELETE FROM source", SqlError, "one query", "Spark SQL over the table source"),
        ("SELECT id FROM source; SELECT 2", SqlError, "one statement", "Spark SQL over the table source"),
        ("SELECT id, count(*) FROM source", SqlError, "GROUP BY", "Spark SQL over the table source"),
        ("SELECT id + map(1, 2) FROM source", SqlError, "Cannot resolve", "Spark SQL over the table source"),
        ("SELECT nothing(id) FROM source", SqlError, "no function is called 'nothing'", "pass your own functions"),
    ],
)
def test_what_is_wrong_with_the_sql_is_reported_before_anything_runs(
    orders: Any, open_until: ExitStack, sql: str, kind: Any, said: str, hint: str
) -> None:
    for policy in ("fail", DROP, DLQ):
        with pytest.raises(kind, match=said) as refused:
            applied(transform(sql, policy=policy), orders, open_until, sorter=None if policy == "fail" else Aside())
        assert hint in refused.value.hint
        assert "flow_source" not in str(refused.value)


@pytest.mark.full
def test_functions_and_lookups_of_a_stream_are_checked_when_it_is_made() -> None:
    with pytest.raises(DeclarationError, match="two functions"):
        transform(
            "SELECT 1 FROM source", udfs=(picky, udf(args=("Int64",), returns="Int64", name="PICKY")(lambda v: v))
        )
    with pytest.raises(DeclarationError, match="cannot be called 'source'"):
        transform("SELECT 1 FROM source", lookups={"source": None})


@pytest.mark.full
def test_a_schema_that_changes_in_mid_stream_is_planned_anew(spark: Any) -> None:
    made = transform("SELECT * , picky(id) AS p FROM source", udfs=(picky,))
    for schema, width in (("id BIGINT", 2), ("id INT, more STRING", 3), ("id BIGINT", 2)):
        with ExitStack() as open_until:
            data = [(1,)] if width == 2 else [(1, "x")]
            (row,) = applied(made, spark.createDataFrame(data, schema), open_until).collect()
            assert (len(row), row.p) == (width, 1)
    assert len(made.statement._plans) == 2


# Rows on which the SQL fails


@pytest.mark.full
def test_without_a_policy_a_bad_row_ends_the_batch(orders: Any, open_until: ExitStack) -> None:
    made = applied(transform("SELECT id, CAST(amount AS INT) AS amount FROM source"), orders, open_until)
    with pytest.raises(Exception, match="CAST_INVALID_INPUT") as failed:
        made.collect()
    error = row_error(failed.value)
    assert isinstance(error, DataError)
    assert "'x'" in error.what


_TWIN = pytest.mark.full("a filter and a star show the same")


@pytest.mark.parametrize(
    ("sql", "wanted", "wrong"),
    [
        ("SELECT id, CAST(amount AS INT) AS amount FROM source WHERE id > 3", range(4, 20), {12}),
        ("SELECT *, CAST(amount AS INT) AS a2 FROM source WHERE CAST(amount AS INT) >= 0", range(20), {3, 12}),
        pytest.param("SELECT s.*, array(1, 2)[s.id] AS a FROM source s", range(20), set(range(2, 20)), marks=_TWIN),
        pytest.param("SELECT id, id AS b, CAST(amount AS INT) + b AS c FROM source", range(20), {3, 12}, marks=_TWIN),
        pytest.param(
            "SELECT id, explode(array(CAST(amount AS INT))) AS c FROM source", range(20), {3, 12}, marks=_TWIN
        ),
    ],
)
def test_rows_that_fail_are_set_aside_and_all_others_go_on(
    orders: Any, open_until: ExitStack, sql: str, wanted: Any, wrong: set[int]
) -> None:
    aside = Aside()
    made = applied(transform(sql, policy=DLQ), orders, open_until, sorter=aside)
    assert {row.id for row in made.collect()} == set(wanted) - wrong
    assert {row["id"] for row in aside.bad} == wrong
    assert {row["_raw"] for row in aside.bad} == {f"{{{n}}}".encode() for n in wrong}
    assert {row["stage"] for row in aside.bad} == {"transform"}


@pytest.mark.full
def test_what_is_wrong_is_reported_row_by_row(orders: Any, open_until: ExitStack) -> None:
    aside = Aside()
    applied(
        transform("SELECT id, CAST(amount AS INT) / (id - 5) AS x FROM source", policy=DLQ),
        orders,
        open_until,
        sorter=aside,
    )
    said = {row["id"]: row["wrong"] for row in aside.bad}
    assert set(said) == {3, 5, 12}
    assert "'x'" in said[3]
    assert "ivision by zero" in said[5]
    assert "SQLSTATE" not in said[5]


@pytest.mark.full
def test_a_good_batch_is_run_once(spark: Any, open_until: ExitStack) -> None:
    sieve = StatementRowSearch(statement("SELECT id, CAST(amount AS INT) AS amount FROM source"), {}, open_until)
    made, bad = sieve.split_failing(messages(spark, 100))
    assert (made.count(), bad, sieve.tries) == (100, None, 0)


@pytest.mark.full
def test_many_bad_rows_are_found_without_trying_them_one_by_one(spark: Any, open_until: ExitStack) -> None:
    wrong = set(range(0, 2000, 3))
    sieve = StatementRowSearch(statement("SELECT id, CAST(amount AS INT) AS amount FROM source"), {}, open_until)
    made, bad = sieve.split_failing(messages(spark, 2000, bad=wrong))
    assert bad is not None
    assert {row.id for row in bad.collect()} == wrong
    assert {row.id for row in made.collect()} == set(range(2000)) - wrong
    assert sieve.tries == 0


@pytest.mark.full
def test_rows_on_which_a_function_fails_follow_the_policy(spark: Any, open_until: ExitStack) -> None:
    aside = Aside()
    made = transform("SELECT id, picky(id) AS p FROM source WHERE id <> 13", udfs=(picky,), policy=DLQ)
    found = applied(made, messages(spark, 200), open_until, sorter=aside)
    wrong = {n for n in range(200) if n % 8 == 5} - {13}
    assert {row["id"] for row in aside.bad} == wrong
    assert {row.id for row in found.collect()} == set(range(200)) - wrong - {13}
    assert (
        min(aside.bad, key=lambda row: row["id"])["wrong"]
        == "udf picky failed: ValueError: five of eight; row: values=5"
    )


@pytest.mark.full
def test_functions_of_functions_and_of_failing_casts_are_sorted_out_as_well(spark: Any, open_until: ExitStack) -> None:
    aside = Aside()
    made = transform("SELECT id, picky(picky(CAST(amount AS BIGINT))) AS p FROM source", udfs=(picky,), policy=DLQ)
    found = applied(made, messages(spark, 30, bad=(7,)), open_until, sorter=aside)
    assert {row["id"] for row in aside.bad} == {7}  # twice a number is never five of eight
    assert found.count() == 29


def test_rows_that_are_computed_anew_after_the_loss_of_their_blocks_are_never_taken_for_bad_ones(
    spark: Any, open_until: ExitStack, tmp_path: Path
) -> None:
    tries = tmp_path / "tries"

    def in_another_order(frames: Any) -> Any:
        with tries.open("a") as out:
            out.write(".")
        turn = tries.stat().st_size
        for frame in frames:
            yield frame.iloc[[(place + turn) % len(frame) for place in range(len(frame))]]

    source = messages(spark, 5, bad=(3,), parts=1)
    moving = source.mapInPandas(in_another_order, source.schema)
    sieve = StatementRowSearch(statement("SELECT id, CAST(amount AS INT) AS amount FROM source"), {}, open_until)
    _, bad = sieve.split_failing(moving)
    assert bad is not None
    jvm = spark.sparkContext._jsc
    for number in list(jvm.getPersistentRDDs()):  # as when the executor is lost that had them
        jvm.sc().env().blockManager().master().removeRdd(number, True)
    with pytest.raises(Exception, match="Checkpoint block") as lost:
        bad.collect()
    assert row_error(lost.value) is None  # the micro-batch fails and is tried again, and no row is to blame


@pytest.mark.full
def test_a_join_and_an_aggregate_lose_only_the_bad_rows(spark: Any, open_until: ExitStack) -> None:
    for sql in (
        "SELECT a.id % 4 AS g, sum(CAST(b.amount AS INT)) AS total FROM source a JOIN source b ON a.id = b.id GROUP BY 1",
        "SELECT id % 4 AS g, sum(CAST(amount AS INT)) AS total FROM source GROUP BY 1",
        "SELECT DISTINCT id % 4 AS g, sum(CAST(amount AS INT)) OVER (PARTITION BY id % 4) AS total FROM source",
    ):
        aside = Aside()
        found = applied(transform(sql, policy=DROP), messages(spark, 20, bad=(3, 12)), open_until, sorter=aside)
        assert {row["id"] for row in aside.bad} == {3, 12}
        expected = {group: sum(n * 2 for n in range(20) if n % 4 == group and n not in (3, 12)) for group in range(4)}
        assert {row.g: row.total for row in found.collect()} == expected, sql


@pytest.mark.full
def test_an_aggregate_of_the_users_that_fails_on_a_row_loses_only_that(spark: Any, open_until: ExitStack) -> None:
    @udaf(args=("Int64",), state=("Int64",), returns="Int64", name="counted")
    class Counted:
        def __init__(self) -> None:
            self.seen = 0

        def update_batch(self, values: Any) -> None:
            if 9 in values.to_pylist():
                raise ValueError("nine")
            self.seen += len(values)

        def merge_batch(self, seen: Any) -> None:
            self.seen += pc.sum(seen).as_py() or 0

        def evaluate(self) -> Any:
            return pa.array([self.seen], type=pa.int64())

        def state(self) -> Any:
            return (pa.array([self.seen], type=pa.int64()),)

    aside = Aside()
    made = transform("SELECT counted(id) AS n FROM source", aggregate_udfs=(Counted,), policy=DLQ)
    assert rows(applied(made, messages(spark, 20), open_until, sorter=aside)) == [(19,)]
    assert [row["id"] for row in aside.bad] == [9]


@pytest.mark.full
def test_rows_that_fail_only_together_go_together(spark: Any, open_until: ExitStack) -> None:
    aside = Aside()
    frame = spark.createDataFrame([(1, 2**62), (2, 2**62), (3, 1)], "id BIGINT, v BIGINT").coalesce(1)
    made = transform("SELECT sum(v) AS s FROM source", policy=DLQ)
    found = applied(made, frame, open_until, sorter=aside)
    assert {row["id"] for row in aside.bad} == {1, 2, 3}
    assert "only together with 2 other row(s)" in aside.bad[0]["wrong"]
    assert rows(found) == [(None,)]


@pytest.mark.full
def test_a_batch_that_cannot_be_sorted_out_ends_with_a_sentence(spark: Any, open_until: ExitStack) -> None:
    sieve = StatementRowSearch(
        statement("SELECT sum(CAST(amount AS INT)) AS s FROM source"), {}, open_until, max_tries=5
    )
    with pytest.raises(
        DataError, match="more rows of this batch fail in the transform than can be separated in 5 tries"
    ):
        sieve.split_failing(messages(spark, 64, bad=range(0, 64, 2)))


@pytest.mark.full
def test_an_error_that_no_row_is_to_blame_for_is_never_swallowed(spark: Any, open_until: ExitStack) -> None:
    careless = udf(args=("Int64",), returns="Int64", name="careless")(lambda values: values.slice(1))
    with pytest.raises(Exception, match="careless returned an array of length"):
        applied(
            transform("SELECT careless(id) AS c FROM source", udfs=(careless,), policy=DLQ),
            messages(spark, 4),
            open_until,
            sorter=Aside(),
        )


@pytest.mark.full
def test_what_travels_with_a_row_goes_on_with_it_where_rows_stay_rows(orders: Any, open_until: ExitStack) -> None:
    def columns(sql: str, **fields: Any) -> list[str]:
        return list(
            applied(transform(sql, policy=DLQ, **fields), orders.where("id < 3"), open_until, sorter=Aside()).columns
        )

    assert transform("SELECT id FROM source").apply(orders, open_until).columns == ["id", "_source"]
    assert columns("SELECT id FROM source") == ["id", "_raw", "_source"]
    assert columns("SELECT s.id, picky(s.id) AS p FROM source s WHERE s.id > 0", udfs=(picky,)) == [
        "id",
        "p",
        "_raw",
        "_source",
    ]
    assert columns("SELECT * FROM source") == ["id", "amount", "_raw", "_source"]
    assert columns("SELECT id, _source FROM source") == ["id", "_source", "_raw"]
    assert columns("SELECT count(*) AS n FROM source") == ["n"]
    assert columns("SELECT try_sum(id) AS n FROM source") == ["n"]
    assert columns("SELECT id FROM source LIMIT 1") == ["id"]


@pytest.mark.full
def test_the_batches_of_a_streaming_query_are_transformed_in_its_own_session(spark: Any, tmp_path: Path) -> None:
    made = transform(
        "SELECT id % 2 AS g, vwap(picky(id), 1) AS v FROM source GROUP BY 1", udfs=(picky,), aggregate_udfs=(Vwap,)
    )
    seen: list[list[Any]] = []
    folder = str(tmp_path / "in")

    def batch(frame: Any, number: int) -> None:
        with ExitStack() as open_until:
            seen.append(rows(made.apply(frame, open_until)))

    for start in (0, 2):
        spark.range(start, start + 4).where("id % 8 <> 5").coalesce(1).write.mode("append").parquet(folder)
        query = spark.readStream.schema("id BIGINT").parquet(folder).writeStream.foreachBatch(batch)
        query.option("checkpointLocation", str(tmp_path / "state")).trigger(
            availableNow=True
        ).start().awaitTermination()
    assert seen == [[(0, 1.0), (1, 2.0)], [(0, 3.0), (1, 3.0)]]
