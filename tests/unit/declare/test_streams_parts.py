"""Windows, joins, change data, state, watermarks and lookups: what they accept and what they refuse, and where."""

from __future__ import annotations

from typing import Any

import pytest

from ematix_flow import (
    CDC,
    Aggregation,
    Join,
    KafkaConnection,
    Lookup,
    PostgresConnection,
    StateStore,
    Watermark,
    Window,
)
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.redact import mask

COUNT = Aggregation(agg="count", as_="n")
WAREHOUSE = PostgresConnection("warehouse", url="postgres://localhost/wh")


def window(**given: Any) -> Window:
    return Window(**{"kind": "tumbling", "duration_ms": 60_000, "aggregations": [COUNT], **given})


def session(**given: Any) -> Window:
    said = {"kind": "session", "gap_ms": 300_000, "max_session_duration_ms": 86_400_000, "group_by": ("user_id",)}
    return Window(**{**said, "aggregations": [COUNT], **given})


def join(**given: Any) -> Join:
    said = {"left_source": "orders", "right_source": "payments", "left_keys": ("id",), "right_keys": ("order_id",)}
    return Join(**{**said, "time_window_ms": 300_000, **given})


def test_a_refused_part_is_a_value_error_that_knows_the_users_line() -> None:
    with pytest.raises(ValueError, match="Window: hop_ms is required") as caught:
        window(kind="hopping")
    assert isinstance(caught.value, DeclarationError)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


# Aggregations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agg", ["count_col", "sum", "min", "max", "avg", "first", "last", "count_distinct"])
def test_every_aggregation_but_count_is_about_a_column(agg: str) -> None:
    assert Aggregation(agg=agg, as_="x", column="amount").column == "amount"
    with pytest.raises(ValueError, match=f"column is required with {agg}"):
        Aggregation(agg=agg, as_="x")


def test_count_counts_rows_and_takes_no_column() -> None:
    with pytest.raises(ValueError, match="column does not go with count") as caught:
        Aggregation(agg="count", as_="n", column="amount")
    assert "count_col" in str(caught.value)


def test_an_unknown_aggregation_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="agg does not take 'averge'") as caught:
        Aggregation(agg="averge", as_="x", column="amount")
    assert "did you mean 'avg'?" in str(caught.value) or "valid: count" in str(caught.value)


def test_distinct_values_are_counted_exactly_when_asked() -> None:
    made = Aggregation("count_distinct", "users", "user_id", mode="exact", max_distinct_values_per_group=1_000)
    assert made.mode == "exact"
    for wrong in (
        {"agg": "sum", "mode": "exact"},
        {"agg": "count_distinct", "mode": "roughly"},
        {"agg": "count_distinct", "max_distinct_values_per_group": 10},
        {"agg": "count_distinct", "mode": "exact", "max_distinct_values_per_group": 0},
    ):
        with pytest.raises(ValueError, match="Aggregation: m"):
            Aggregation(**{"as_": "x", "column": "user_id", **wrong})  # type: ignore[arg-type]


# Windows -------------------------------------------------------------------------------------------------------------


def test_windows_of_the_three_kinds_are_accepted_and_lists_become_tuples() -> None:
    made = window(group_by=["user_id"], max_groups_per_window=10)
    assert (made.group_by, made.aggregations) == (("user_id",), (COUNT,))
    assert window(kind="hopping", hop_ms=10_000).hop_ms == 10_000
    assert session(late_data="reopen", allowed_lateness_ms=0).allowed_lateness_ms == 0
    assert window(late_data="dlq").late_data == "dlq"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "sliding"}, "kind does not take 'sliding'"),
        ({"duration_ms": 0}, "duration_ms is required"),
        ({"duration_ms": -1}, "duration_ms must be at least 0"),
        ({"duration_ms": 1.5}, "duration_ms is a whole number"),
        ({"duration_ms": True}, "duration_ms is a whole number"),
        ({"hop_ms": 10}, 'hop_ms goes with kind="hopping"'),
        ({"gap_ms": 10}, 'gap_ms goes with kind="session"'),
        ({"max_session_duration_ms": 10}, "max_session_duration_ms goes with"),
        ({"kind": "hopping", "hop_ms": 0}, "hop_ms must be positive"),
        ({"kind": "hopping", "hop_ms": 60_001}, "hop_ms is longer than duration_ms"),
        ({"late_data": "keep"}, "late_data does not take 'keep'"),
        ({"late_data": "reopen"}, "allowed_lateness_ms is required"),
        ({"allowed_lateness_ms": 10}, "allowed_lateness_ms goes with"),
        ({"late_data": "dlq", "allowed_lateness_ms": 10}, "allowed_lateness_ms goes with"),
        ({"max_groups_per_window": 0}, "max_groups_per_window must be positive"),
        ({"aggregations": []}, "aggregations is empty"),
        ({"aggregations": ["count"]}, "aggregations is a list of Aggregation"),
        ({"group_by": (1,)}, "group_by is a list of column names"),
        ({"event_time_column": ""}, "event_time_column is a text"),
        ({"group_by": ("n",)}, "would write the column 'n' twice"),
        ({"group_by": ("window_start",)}, "would write the column 'window_start' twice"),
        ({"window_end_column": "window_start"}, "would write the column 'window_start' twice"),
        ({"aggregations": [COUNT, COUNT]}, "would write the column 'n' twice"),
    ],
)
def test_a_window_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        window(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gap_ms": None}, "gap_ms is required"),
        ({"max_session_duration_ms": None}, "max_session_duration_ms is required"),
        ({"max_session_duration_ms": 300_000}, "max_session_duration_ms must be longer than gap_ms"),
        ({"group_by": ()}, "group_by is required"),
        ({"duration_ms": 60_000}, "duration_ms does not go with"),
        ({"hop_ms": 60_000}, "hop_ms does not go with"),
        ({"aggregations": [Aggregation("count", "session_id")]}, "would write the column 'session_id' twice"),
    ],
)
def test_a_session_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        session(**given)


# Joins ---------------------------------------------------------------------------------------------------------------


def test_joins_are_symmetric_or_between_two_deltas() -> None:
    assert join(kind="left_outer").kind == "left_outer"
    assert join(time_window_ms=0, min_delta_ms=-60_000, max_delta_ms=300_000).min_delta_ms == -60_000
    assert join(late_data="reopen", allowed_lateness_ms=10_000, left_keys="id").left_keys == ("id",)


def test_the_old_name_of_the_inner_join_still_works() -> None:
    assert join(kind="stream_stream_join") == join()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "cross"}, "kind does not take 'cross'"),
        ({"right_source": "orders"}, "right_source must be another"),
        ({"left_source": ""}, "left_source is a text"),
        ({"left_keys": (), "right_keys": ()}, "right_keys must name as many"),
        ({"left_keys": ("a", "b")}, "right_keys must name as many"),
        ({"time_window_ms": 0}, "time_window_ms is required"),
        ({"time_window_ms": -1}, "time_window_ms must be at least 0"),
        ({"min_delta_ms": 0}, "max_delta_ms is missing"),
        ({"max_delta_ms": 0}, "min_delta_ms is missing"),
        ({"time_window_ms": 0, "min_delta_ms": 5, "max_delta_ms": 5}, "min_delta_ms must be smaller"),
        ({"min_delta_ms": 0, "max_delta_ms": 5}, "time_window_ms excludes"),
        ({"late_data": "dlq"}, "late_data does not take 'dlq'"),
        ({"late_data": "reopen"}, "allowed_lateness_ms is required"),
        ({"right_column_prefix": "left_"}, "right_column_prefix must differ"),
    ],
)
def test_a_join_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        join(**given)


# Change data ---------------------------------------------------------------------------------------------------------


def test_change_data_of_known_envelopes_needs_nothing_else() -> None:
    assert CDC() == CDC(envelope="debezium")
    assert CDC(envelope="maxwell", delete_mode="soft", soft_delete_column="deleted_at").delete_mode == "soft"


def test_an_envelope_of_ones_own_says_its_fields() -> None:
    said = {"op_field": "action", "after_field": "new", "key_field": "new.id", "op_map": {"INSERT": "c", "DELETE": "d"}}
    assert CDC(envelope="custom", **said).op_map == {"INSERT": "c", "DELETE": "d"}  # type: ignore[arg-type]
    for missing in said:
        with pytest.raises(ValueError, match=f"{missing} is required"):
            CDC(envelope="custom", **{key: value for key, value in said.items() if key != missing})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"envelope": "debezum"}, "did you mean 'debezium'"),
        ({"delete_mode": "never"}, "delete_mode does not take"),
        ({"delete_mode": "soft"}, "soft_delete_column is required"),
        ({"soft_delete_column": "deleted_at"}, "soft_delete_column goes with"),
        ({"schema_evolution": "evolve"}, "schema_evolution does not take"),
        ({"out_of_order_tolerance_ms": -1}, "out_of_order_tolerance_ms must be at least 0"),
        ({"op_map": {"INSERT": "insert"}}, "op_map maps 'INSERT' to 'insert'"),
        ({"op_map": ["c"]}, "op_map is a mapping"),
    ],
)
def test_change_data_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        CDC(**given)
    assert said in str(caught.value)


# State, watermarks, lookups ------------------------------------------------------------------------------------------


def test_a_state_store_never_shows_its_password() -> None:
    store = StateStore(kind="postgres", url="postgres://ana:sehr-geheim@db/state")
    assert "geheim" not in repr(store)
    assert "postgres://ana:***@db/state" in repr(store)
    assert mask("it said sehr-geheim") == "it said ***"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "rocksdb"}, "kind does not take 'rocksdb'"),
        ({"kind": "postgres"}, "url is required"),
        ({"kind": "postgres", "url": "mysql://db/state"}, "url does not begin with postgres://"),
        ({"kind": "in_memory", "url": "postgres://db/state"}, "url does not go with"),
        ({"kind": "in_memory", "checkpoint_interval_ms": 0}, "checkpoint_interval_ms must be positive"),
        ({"kind": "in_memory", "schema": ""}, "schema is a text"),
    ],
)
def test_a_state_store_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        StateStore(**given)


def test_the_url_of_a_state_store_may_be_a_reference() -> None:
    assert StateStore(kind="postgres", url="${STATE_URL}").url == "${STATE_URL}"


def test_a_watermark_is_not_negative() -> None:
    assert Watermark() == Watermark(lateness_ms=None)
    assert Watermark(lateness_ms=0, source_idleness_ms=120_000).source_idleness_ms == 120_000
    with pytest.raises(ValueError, match="lateness_ms must be at least 0"):
        Watermark(lateness_ms=-1)


def test_a_lookup_is_a_table_or_a_query() -> None:
    assert Lookup(WAREHOUSE, "users", "public", 30_000).schema == "public"
    assert Lookup(connection="warehouse", query="SELECT 1 AS x", refresh_interval_ms=60_000).table is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give exactly one of the two"),
        ({"table": "users", "query": "SELECT 1"}, "give exactly one of the two"),
        ({"query": "SELECT 1", "schema": "public"}, "schema goes with table"),
        ({"query": " "}, "query is a text"),
        ({"table": "users", "refresh_interval_ms": 0}, "refresh_interval_ms must be positive"),
        ({"table": "users", "connection": None}, "connection is a connection or the name of one"),
        ({"table": "users", "connection": KafkaConnection("k", bootstrap_servers="h:9092")}, "which has no tables"),
    ],
)
def test_a_lookup_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Lookup(**{"connection": WAREHOUSE, **given})
