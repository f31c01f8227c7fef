"""Streams from keywords: what every door accepts, the specification it becomes, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.unit.declare import stream_samples
from tests.unit.declare.stream_samples import (
    CSV,
    DELTA,
    JOIN,
    KAFKA,
    KINESIS,
    LAKE,
    PUBSUB,
    RABBIT,
    SESSION,
    STATE,
    TUMBLING,
    TWO,
    WAREHOUSE,
    Customers,
    Vwap,
    function,
    stream,
)

from ematix_flow import (
    CDC,
    KafkaConnection,
    Lookup,
    SchemaRegistryConnection,
    Source,
    SQLiteConnection,
    StateStore,
    Watermark,
)
from ematix_flow.declare.streams.spec import BadRows, Restarts, StreamSpec, TableTarget
from ematix_flow.foundation.errors import DeclarationError, UnknownKeyword, WrongType

# Keywords ------------------------------------------------------------------------------------------------------------


def test_the_shortest_stream_has_every_default() -> None:
    assert stream() == StreamSpec(
        name="events_to_pg",
        sources=(Source(KAFKA, "events"),),
        targets=(TableTarget("public.events", WAREHOUSE, None, "public", "events"),),
    )


def test_all_other_keywords_find_their_place() -> None:
    made = stream(
        transform_sql="SELECT a, b, f(a) AS c FROM source JOIN users USING (a)",
        dialect="duckdb",
        lookups={"users": Lookup(WAREHOUSE, table="users")},
        udfs=[function("f")],
        aggregate_udfs=[Vwap],
        transform_on_error="dlq",
        dead_letter_topic="events-failed",
        dlq_store="topic",
        dlq_max_attempts=5,
        max_bad_fraction=0.25,
        delivery="at_least_once",
        payload="avro",
        fields={"a": "BIGINT"},
        start="latest",
        max_rows_per_batch=10_000,
        idle_pause_ms=0,
        trigger="5s",
        checkpoint=Path("/srv/checkpoints"),
        continue_on_target_failure=True,
        on_drift="error",
        restart_on_error=True,
        initial_backoff_ms=10,
        max_backoff_ms=1_000,
        max_restarts=3,
        metrics_port=9100,
        window=TUMBLING,
        watermark=Watermark(lateness_ms=5_000),
        engine="distributed",
        peers=["spark://head:7077"],
    )
    assert made.bad_rows == BadRows("dlq", "topic", "events-failed", 5, 0.25)
    assert made.restarts == Restarts(True, 10, 1_000, 3)
    assert (made.dialect, made.delivery, made.payload, made.start) == ("duckdb", "at_least_once", "avro", "latest")
    assert (made.max_rows_per_batch, made.idle_pause_ms, made.trigger) == (10_000, 0, "5 seconds")
    assert (made.checkpoint, made.continue_on_target_failure, made.on_drift) == ("/srv/checkpoints", True, "error")
    assert (made.metrics_port, made.watermark, made.fields) == (9100, Watermark(lateness_ms=5_000), {"a": "BIGINT"})
    assert (made.engine.engine, made.engine.peers) == ("distributed", ("spark://head:7077",))
    assert [one.name for one in (*made.udfs, *made.aggregate_udfs)] == ["f", "vwap"]
    assert set(made.lookups) == {"users"}


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("source_qery", "source_query"),
        ("target_tabel", "target_table"),
        ("transfrom_sql", "transform_sql"),
        ("dead_letter_topics", "dead_letter_topic"),
        ("continue_on_failur", "continue_on_failure"),
        ("idle_pause", "idle_pause_ms"),
    ],
)
def test_an_unknown_keyword_is_a_type_error_that_names_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=f"no keyword '{wrong}'") as caught:
        stream(**{wrong: 1})
    assert isinstance(caught.value, UnknownKeyword)
    assert isinstance(caught.value, ValueError)
    assert caught.value.hint == f"did you mean {nearest}=?"


def test_two_spellings_of_one_keyword_do_not_go_together() -> None:
    assert stream(payload_format="json").payload == "json"
    with pytest.raises(TypeError, match="the same keyword"):
        stream(payload_format="json", payload="json")


def test_what_was_given_is_kept_and_what_was_not_is_left_out() -> None:
    made = stream(transform_sql=None, metrics_port=9100)
    assert set(made.captured) == {"name", "source", "source_query", "target", "target_table", "metrics_port"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": ...}, "the stream has no name"),
        ({"name": "a/b"}, "cannot be the name of a stream"),
        ({"name": "../up"}, "cannot be the name of a stream"),
        ({"name": ""}, "cannot be the name of a stream"),
        ({"dialect": "oracle"}, "dialect='oracle' is not known"),
        ({"delivery": "twice"}, "delivery='twice' is not known"),
        ({"payload": "xml"}, "payload='xml' is not known"),
        ({"on_drift": "ignore"}, "on_drift='ignore' is not known"),
        ({"transform_on_error": "skip"}, "transform_on_error='skip' is not known"),
        ({"dlq_store": "file"}, "dlq_store='file' is not known"),
        ({"dlq_max_attempts": 0}, "dlq_max_attempts is a whole number of at least 1"),
        ({"max_bad_fraction": 1.5}, "max_bad_fraction is a share"),
        ({"max_bad_fraction": True}, "max_bad_fraction is a share"),
        ({"idle_pause_ms": -1}, "idle_pause_ms is a whole number of at least 0"),
        ({"idle_pause_ms": 0.5}, "idle_pause_ms is a whole number"),
        ({"metrics_port": 70_000}, "metrics_port is a whole number from 0 to 65535"),
        ({"max_rows_per_batch": 0}, "max_rows_per_batch is a whole number of at least 1"),
        ({"trigger": "soon"}, "trigger='soon' is no interval"),
        ({"trigger": "0 seconds"}, "is no interval"),
        ({"trigger": 5}, "is no interval"),
        ({"start": "yesterday"}, "is no place to begin at"),
        ({"start": "[1]"}, "is no place to begin at"),
        ({"fields": {"a": 1}}, "fields maps columns"),
        ({"checkpoint": ""}, "checkpoint is the name of a folder"),
        ({"continue_on_target_failure": "yes"}, "continue_on_target_failure is True or False"),
        ({"restart_on_error": 1}, "restart_on_error is True or False"),
        ({"initial_backoff_ms": 5_000, "max_backoff_ms": 1_000}, "max_backoff_ms is shorter"),
        ({"engine": "rust"}, "engine='rust' is not known"),
        ({"engine": "local", "peers": ["spark://head:7077"]}, "has no peers"),
        ({"window": {"kind": "tumbling"}}, "window= takes Window"),
        ({"watermark": 5}, "watermark= takes Watermark"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said) as caught:
        stream(**given)
    assert caught.value.where is not None
    assert caught.value.where.file == stream_samples.__file__


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("once", "once"),
        ("available_now", "once"),
        ("5 seconds", "5 seconds"),
        ("500 ms", "500 milliseconds"),
        ("1 minute", "1 minutes"),
        ("2h", "2 hours"),
        ("3min", "3 minutes"),
    ],
)
def test_a_trigger_is_an_interval_or_once(said: str, means: str) -> None:
    assert stream(trigger=said).trigger == means


def test_an_engine_inside_this_process_has_two_names() -> None:
    assert stream(engine="datafusion").engine == stream(engine="local").engine


# Sources -------------------------------------------------------------------------------------------------------------


def test_a_source_is_a_connection_with_a_query_or_several_sources() -> None:
    assert stream(source="kafka_prod").sources == (Source("kafka_prod", "events"),)
    assert stream(source=Source(KAFKA, "events"), source_query=...).sources == (Source(KAFKA, "events"),)
    assert stream(source=..., source_query=..., sources=TWO).sources == tuple(TWO)
    assert stream(source_query=["a", "b"]).sources[0].query == "a,b"


@pytest.mark.parametrize("connection", [KAFKA, RABBIT, PUBSUB, KINESIS, LAKE, DELTA, "by_name"])
def test_what_can_be_read_on_and_on_is_a_source(connection: Any) -> None:
    assert stream(source=connection).sources[0].connection == connection


@pytest.mark.parametrize(
    "connection",
    [WAREHOUSE, SQLiteConnection("s", path="a.db"), SchemaRegistryConnection("r", url="http://localhost:8081")],
)
def test_a_database_is_no_source_of_a_stream(connection: Any) -> None:
    with pytest.raises(ValueError, match="is no source of a stream"):
        stream(source=connection)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"source": ...}, "give source= or sources="),
        ({"sources": TWO}, "give source= or sources="),
        ({"source_query": ...}, "source= needs source_query="),
        ({"source_query": " "}, "a source's query is the name"),
        ({"source_query": 5}, "a source's query is the name"),
        ({"source": Source(KAFKA, "events")}, "which says query= itself"),
        ({"source": ..., "sources": TWO}, "source_query= goes with source="),
        ({"source": ..., "source_query": ..., "sources": []}, "sources= is empty"),
        ({"source": ..., "source_query": ..., "sources": ["orders"]}, "sources= takes Source"),
        ({"source": ..., "source_query": ..., "sources": [TWO[0], TWO[0]]}, "names 'orders' twice"),
        ({"source": 5}, "source= takes a connection or the name of one"),
    ],
)
def test_sources_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        stream(**given)


def test_a_stream_begins_at_its_start_else_at_that_of_its_connection() -> None:
    latest = KafkaConnection("k", bootstrap_servers="h:9092", auto_offset_reset="latest")
    assert stream().start == "earliest"
    assert stream(source=latest).start == "latest"
    assert stream(source=latest, start="earliest").start == "earliest"
    assert stream(start={"events": {"0": 12}}).start == '{"events": {"0": 12}}'
    assert stream(start='{"events":{"0":12}}').start == '{"events": {"0": 12}}'
    earliest = KafkaConnection("l", bootstrap_servers="h:9092", auto_offset_reset="earliest")
    with pytest.raises(ValueError, match="begin at different places"):
        stream(source=..., source_query=..., sources=[Source(latest, "a"), Source(earliest, "b")])


# Transforms, bad rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"transform_sql": " "}, "transform_sql is no statement"),
        ({"lookups": {"users": Lookup(WAREHOUSE, "users")}}, "lookups= is used by transform_sql="),
        ({"udfs": [function("f")]}, "udfs= is used by transform_sql="),
        ({"aggregate_udfs": [Vwap]}, "aggregate_udfs= is used by transform_sql="),
    ],
)
def test_what_sql_uses_needs_sql(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        stream(**given)


@pytest.mark.parametrize(
    ("given", "said", "kind"),
    [
        ({"lookups": {"source": Lookup(WAREHOUSE, "users")}}, "cannot be called source", DeclarationError),
        ({"lookups": {"dim users": Lookup(WAREHOUSE, "users")}}, "is no name that SQL can use", DeclarationError),
        ({"lookups": {"users": "dim_users"}}, "is not a Lookup", WrongType),
        ({"lookups": ["users"]}, "maps names to Lookup", WrongType),
        ({"udfs": [len]}, "udfs", DeclarationError),
        ({"udfs": [Vwap]}, "udfs", DeclarationError),
        ({"udfs": [function("f"), function("F")]}, "two functions are called 'F'", DeclarationError),
        ({"udfs": [function("vwap")], "aggregate_udfs": [Vwap]}, "two functions are called 'vwap'", DeclarationError),
    ],
)
def test_lookups_and_functions_have_names_of_their_own(given: Any, said: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=said):
        stream(transform_sql="SELECT 1 AS x FROM source", **given)


def test_a_place_for_bad_rows_means_that_they_go_there() -> None:
    assert stream().bad_rows.policy == "fail"
    assert stream(dead_letter_topic="failed").bad_rows.policy == "dlq"
    assert stream(dlq_store="table").bad_rows.policy == "dlq"
    assert stream(dead_letter_topic="failed", transform_on_error="drop").bad_rows.policy == "drop"
    assert stream(transform_on_error="dlq").bad_rows == BadRows("dlq", "auto")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dlq_store": "topic"}, 'dlq_store="topic" needs dead_letter_topic='),
        ({"dlq_store": "table", "dead_letter_topic": "failed"}, "does not go with dlq_store"),
        ({"dead_letter_topic": ""}, "is the name of a topic"),
        ({"source": CSV, "dead_letter_topic": "failed"}, "a topic of the source's broker"),
    ],
)
def test_dead_letters_have_a_place_that_is_there(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        stream(**given)


# Windows, joins, change data -----------------------------------------------------------------------------------------


def test_windows_joins_and_change_data_are_accepted_with_what_they_need() -> None:
    assert stream(window=TUMBLING, transform_sql="SELECT user_id, _event_ts FROM source").processing == ("window",)
    assert stream(window=SESSION, state_store=STATE).state_store == STATE
    joined = stream(source=..., source_query=..., sources=TWO, join=JOIN, state_store=STATE)
    assert joined.processing == ("join",)
    mirrored = stream(target=Customers, target_connection=WAREHOUSE, cdc=CDC(envelope="debezium"))
    assert (mirrored.processing, mirrored.targets[0].mode) == (("cdc",), "merge")  # type: ignore[union-attr]
    assert stream().processing == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window": TUMBLING, "cdc": CDC()}, "window= excludes cdc="),
        ({"join": JOIN, "cdc": CDC(), "state_store": STATE}, "join= excludes cdc="),
        ({"window": SESSION}, "a session window needs state_store="),
        ({"window": TUMBLING, "state_store": STATE}, "a tumbling window takes no state_store="),
        ({"join": JOIN, "state_store": STATE}, "names the source 'orders' as its left_source, and no source"),
        ({"target": LAKE, "target_prefix": "a", "cdc": CDC()}, "which brokers and folders of files cannot do"),
        ({"target": KAFKA, "target_topic": "a", "cdc": CDC()}, "which brokers and folders of files cannot do"),
        ({"target": DELTA, "target_table": ("a", "b"), "cdc": CDC()}, "needs the table's key"),
        ({"cdc": CDC(), "transform_sql": "SELECT * FROM source"}, "would see envelopes, and not rows"),
        ({"cdc": CDC(), "mode": "append"}, "which mode='append' does not"),
        ({"cdc": CDC(), "on_drift": "evolve"}, "does not add columns of changes"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        stream(**given)


def test_several_sources_without_a_join_are_one_stream() -> None:
    union = stream(source=..., source_query=..., sources=[*TWO, Source(KAFKA, "refunds")])
    assert union.is_union
    assert (union.processing, len(union.sources)) == ((), 3)
    assert not stream().is_union
    assert stream(source=..., source_query=..., sources=TWO, window=TUMBLING).is_union
    assert not stream(source=..., source_query=..., sources=TWO, join=JOIN, state_store=STATE).is_union


OTHER_KAFKA = KafkaConnection("other", bootstrap_servers="other:9092")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sources": [*TWO, TWO[0]]}, "names 'orders' twice"),
        (
            {"target": Customers, "target_connection": WAREHOUSE, "target_table": ..., "cdc": CDC()},
            "cdc= takes one source",
        ),
        (
            {"target": KAFKA, "target_table": ..., "target_topic": "all", "delivery": "exactly_once"},
            "offsets of one source",
        ),
        (
            {
                "sources": [TWO[0], Source(OTHER_KAFKA, "orders")],
                "transform_on_error": "dlq",
                "dead_letter_topic": "bad",
            },
            "is a topic of one broker, and the sources are of several connections",
        ),
    ],
)
def test_what_a_union_cannot_keep_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        stream(**{"source": ..., "source_query": ..., "sources": TWO, **given})


def test_a_join_takes_two_sources_a_state_store_and_no_sql() -> None:
    said: dict[str, Any] = {"source": ..., "source_query": ..., "sources": TWO, "join": JOIN}
    with pytest.raises(ValueError, match="join needs state_store="):
        stream(**said)
    with pytest.raises(ValueError, match="do not go together"):
        stream(**said, state_store=STATE, transform_sql="SELECT * FROM source")
    with pytest.raises(ValueError, match="join= takes two sources, and there are 3"):
        stream(**{**said, "sources": [*TWO, Source(KAFKA, "refunds")]}, state_store=STATE)


def test_state_in_memory_is_warned_of_at_the_users_line() -> None:
    with pytest.warns(UserWarning, match="keeps its state in memory") as caught:
        stream(window=SESSION, state_store=StateStore(kind="in_memory"))
    assert caught[0].filename == stream_samples.__file__


def test_what_needs_a_window_or_a_join_does_nothing_without_and_says_so() -> None:
    """The documentation says watermark= of any stream, so it is no error."""
    for keyword, value in {"watermark": Watermark(lateness_ms=5_000), "state_store": STATE}.items():
        with pytest.warns(
            UserWarning, match=f"{keyword}= is for window= and join=, and does nothing without"
        ) as caught:
            assert getattr(stream(**{keyword: value}), keyword) == value
        assert caught[0].filename == stream_samples.__file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream(window=TUMBLING, watermark=Watermark(lateness_ms=5_000))
        stream(window=SESSION, watermark=Watermark(lateness_ms=5_000), state_store=STATE)


def test_exactly_once_waits_for_no_target() -> None:
    with pytest.raises(ValueError, match="exclude each other: a target that failed would get its batch later"):
        stream(target=KAFKA, target_topic="clean", delivery="exactly_once", continue_on_failure=True)


# Names of writers ----------------------------------------------------------------------------------------------------


def test_a_new_checkpoint_is_a_new_writer() -> None:
    made = stream()
    assert made.writer(made.targets[0], "g1") == "events_to_pg@g1::public.events"
    assert made.writer(made.targets[0], "g1") != made.writer(made.targets[0], "g2")
