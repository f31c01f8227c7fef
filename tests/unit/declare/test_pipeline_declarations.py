"""`@ematix.pipeline`: keywords, functions and modes that go together, and those that do not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, String, Target, Text, TimestampTZ, ematix, pk
from ematix_flow.declare.pipeline import PipelineOptions
from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.strategy import Append, Merge, Scd2, Truncate
from ematix_flow.foundation.errors import DeclarationError, UnknownKeyword
from ematix_flow.transforms import deduplicate_by, filter_where


@ematix.table(schema="analytics")
class Customers:
    customer_id: Annotated[BigInt, pk()]
    email: String[256] | None
    name: Text | None
    updated_at: TimestampTZ


@ematix.table(schema="raw")
class Keyless:
    name: Text


def declared(**options: Any) -> Any:
    def load(conn: Any) -> str:
        return "SELECT 1"

    return ematix.pipeline(**options)(load)


# Keywords ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("shedule", "schedule"),
        ("compare_column", "compare_columns"),
        ("continue_on_target_failur", "continue_on_target_failure"),
        ("watermark_columm", "watermark_column"),
        ("tll_seconds", "ttl_seconds"),
    ],
)
def test_an_unknown_keyword_is_a_type_error_that_names_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=f"no keyword '{wrong}'") as caught:
        ematix.pipeline(**{"target": Customers, "mode": "append", wrong: 1})
    assert isinstance(caught.value, UnknownKeyword)
    assert caught.value.hint == f"did you mean {nearest}=?"


def test_a_keyword_like_no_other_says_where_all_of_them_are() -> None:
    with pytest.raises(TypeError) as caught:
        ematix.pipeline(zzz=1)
    assert "docs/pipelines.md" in str(caught.value)


def test_an_override_of_a_run_is_checked_like_a_keyword() -> None:
    load = declared(target=Customers, mode="append")
    with pytest.raises(TypeError, match="no keyword 'key'"):
        load.spec.overridden({"key": ("customer_id",)})
    changed = load.spec.overridden({"mode": "merge", "keys": ("email",)})
    assert changed.loads[0].strategy.keys == ("email",)
    assert changed.name == load.name
    assert load.spec.overridden({"continue_on_target_failure": True}).continue_on_failure
    assert isinstance(load.spec.loads[0].strategy, Append)


def test_every_documented_and_shipped_keyword_is_accepted() -> None:
    load = declared(
        target=Customers, target_connection="warehouse", source_connection="raw_db", name="sync_customers",
        schedule="0 * * * *", timezone="Europe/Berlin", mode="scd2", keys=("customer_id",),
        compare_columns=["email", "name"], event_timestamp_column="updated_at", ttl=timedelta(days=30),
        depends_on=["ingest"], upstream_freshness_secs=3600, retry={"max_attempts": 3}, on_drift="evolve",
        force_path="cross_db", continue_on_failure=True, continue_on_failure_post=True,
        transforms_pre=[filter_where("name IS NOT NULL")], transforms_post=["ANALYZE analytics.customers"],
        column_map={"email": "mail"}, expectations=None, on_quality_failure="warn", freshness_sla="1h",
        freshness_column="updated_at", alert_on_quality_warn=False, max_delete_fraction=0.2,
    )  # fmt: skip
    spec = load.spec
    assert (spec.name, spec.schedule, spec.timezone) == ("sync_customers", "0 * * * *", "Europe/Berlin")
    assert (spec.source_connection, spec.loads[0].connection) == ("raw_db", "warehouse")
    assert (spec.depends_on, spec.upstream_freshness_secs) == (("ingest",), 3600)
    assert (spec.on_drift, spec.force_path) == ("evolve", "cross_db")
    assert spec.loads[0].strategy == Scd2(("customer_id",), ("email", "name"), "updated_at", timedelta(days=30))
    assert spec.loads[0].max_delete_fraction == 0.2


def test_job_is_another_word_for_pipeline() -> None:
    @ematix.job(target=Customers, mode="append")
    def load(conn: Any) -> str:
        return "SELECT 1"

    assert load.name == "load"
    assert load.target == "analytics.customers"
    assert repr(load).startswith("<pipeline load at ")


def test_one_alone_counts_as_a_list_of_one() -> None:
    spec = declared(
        target=Customers, mode="merge", keys="customer_id", depends_on="ingest", transforms_post="ANALYZE x",
        transforms_pre=deduplicate_by("customer_id"),
    ).spec  # fmt: skip
    assert spec.depends_on == ("ingest",)
    assert spec.transforms_post == ("ANALYZE x",)
    assert len(spec.transforms_pre) == 1
    assert spec.loads[0].strategy.keys == ("customer_id",)


def test_both_spellings_of_retry_mean_the_same() -> None:
    documented = declared(
        target=Customers, mode="append", retry={"max_attempts": 5, "backoff_seconds": 30, "backoff_factor": 2.0}
    ).spec.retry
    shipped = declared(
        target=Customers, mode="append", retry={"max_attempts": 5, "backoff": "exponential", "base_secs": 30}
    ).spec.retry
    assert documented == shipped
    assert [documented.wait_after(attempt) for attempt in (1, 2, 3)] == [30, 60, 120]


def test_no_wait_is_longer_than_the_maximum_and_jobs_that_failed_together_still_spread() -> None:
    policy = RetryPolicy.parse({"max_attempts": 9, "backoff": "exponential", "base_secs": 30, "max_backoff_secs": 100})
    for attempt in (2, 3, 9):
        waits = [policy.wait_after(attempt, of=f"job {number}") for number in range(50)]
        assert max(waits) <= 100
        assert min(waits) >= 0.9 * min(policy.wait_after(attempt), 100)
        assert len(set(waits)) > 40


# Functions -----------------------------------------------------------------------------------------------------------


def _none() -> str:
    return "SELECT 1"


def _one(conn: Any) -> str:
    return "SELECT 1"


def _two(source: Any, target: Any) -> str:
    return "SELECT 1"


def _spark(spark: Any) -> Any:
    return spark.range(1)


def _conn_and_spark(conn: Any, spark: Any) -> Any:
    return spark.range(1)


def _two_and_spark(source: Any, target: Any, spark: Any) -> Any:
    return spark.range(1)


async def _coroutine(conn: Any) -> str:
    return "SELECT 1"


@pytest.mark.parametrize("function", [_none, _one, _two, _spark, _conn_and_spark, _two_and_spark, _coroutine])
def test_a_function_takes_none_one_or_two_connections_and_may_take_spark(function: Callable[..., Any]) -> None:
    load = ematix.pipeline(target=Customers, mode="append")(function)
    assert load.name == function.__name__
    assert load.__wrapped__ is function


def test_a_function_of_three_connections_is_a_type_error() -> None:
    def three(one: Any, two: Any, other: Any) -> str:
        return "SELECT 1"

    with pytest.raises(TypeError, match="three takes 3 arguments"):
        ematix.pipeline(target=Customers, mode="append")(three)


def test_a_function_without_arguments_that_returns_nothing_needs_a_source_table() -> None:
    def empty() -> None:
        pass

    def only_words() -> None:
        """Says something and does nothing."""

    for function in (empty, only_words):
        with pytest.raises(TypeError, match="takes no argument and returns nothing") as caught:
            ematix.pipeline(target=Customers, mode="append")(function)
        assert "source_table=" in str(caught.value)
        assert ematix.pipeline(target=Customers, mode="append", source_table="raw.customers")(function)


def test_a_function_that_returns_what_it_closes_over_returns_something() -> None:
    query = "SELECT 1"
    assert ematix.pipeline(target=Customers, mode="append")(lambda: query)


def test_something_that_is_no_function_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="goes on a function"):
        ematix.pipeline(target=Customers, mode="append")("SELECT 1")  # type: ignore[arg-type]


# Targets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "append"}, "exactly one of target= and targets="),
        ({"mode": "append", "target": Customers, "targets": [Target(table=Customers)]}, "exactly one of"),
        ({"mode": "append", "targets": []}, "targets= is empty"),
        ({"mode": "append", "target": dict}, "is not a table"),
        ({"target": Customers}, "mode= is missing"),
    ],
)
def test_targets_that_cannot_be_are_type_errors(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        declared(**options)


def test_every_target_of_a_fan_out_has_its_own_strategy_and_connection() -> None:
    spec = declared(
        targets=[
            Target(table=Customers, connection="warehouse"),
            ematix.target(Customers, mode="scd2", target_connection="lake", compare_columns=["name"]),
            Target(table=Keyless, connection="files", mode="truncate"),
        ],
        mode="merge",
        continue_on_target_failure=True,
    ).spec
    assert [load.connection for load in spec.loads] == ["warehouse", "lake", "files"]
    assert [type(load.strategy) for load in spec.loads] == [Merge, Scd2, Truncate]
    assert spec.fan_out
    assert spec.continue_on_failure
    assert spec.writer(spec.loads[0]) == "load::analytics.customers"


def test_a_pipeline_without_a_connection_goes_to_default() -> None:
    spec = declared(target=Customers, mode="append").spec
    assert spec.loads[0].connection == "default"
    assert spec.writer(spec.loads[0]) == "load"


# Places --------------------------------------------------------------------------------------------------------------


def test_a_declaration_remembers_the_line_of_its_decorator() -> None:
    line = _line() + 1
    load = ematix.pipeline(target=Customers, mode="append")(_one)
    assert (load.spec.where.file, load.spec.where.line) == (__file__, line)
    assert str(load.spec.where) in repr(load)
    assert Customers.spec().where.file == __file__  # type: ignore[union-attr]


def test_a_wrong_file_option_is_shown_at_the_target_that_has_it() -> None:
    with pytest.raises(DeclarationError) as caught:
        Target(connection="lake", parquet_compression="zstdd")
    assert caught.value.hint == "did you mean 'zstd'?"
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_every_keyword_has_a_default_so_that_parsing_knows_them_all() -> None:
    assert PipelineOptions.parse({}, None) == PipelineOptions()


def _line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno
