"""Where the rows of a stream go: what may be said of targets, and what is refused."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from tests.unit.declare.stream_samples import (
    CSV,
    DELTA,
    KAFKA,
    KINESIS,
    LAKE,
    PUBSUB,
    RABBIT,
    WAREHOUSE,
    Customers,
    only_target,
    stream,
)

from ematix_flow import (
    BigInt,
    KafkaConnection,
    ManagedTable,
    ObjectStoreLocalConnection,
    PostgresConnection,
    SchemaRegistryConnection,
    Target,
    pk,
)
from ematix_flow.declare.streams.spec import BrokerTarget, TableTarget
from ematix_flow.foundation.errors import DeclarationError

# Targets -------------------------------------------------------------------------------------------------------------


def test_a_table_may_be_named_in_many_ways() -> None:
    wanted = TableTarget("public.events", WAREHOUSE, None, "public", "events")
    assert only_target(target=("public", "events"), target_connection=WAREHOUSE) == wanted
    assert only_target(target=WAREHOUSE, target_table="public.events") == wanted
    assert only_target(target=Target(connection=WAREHOUSE, table=("public", "events"))) == wanted
    assert only_target(target=..., targets=[Target(connection=WAREHOUSE, table=("public", "events"))]) == wanted
    assert only_target(target="warehouse", target_table=("public", "events")).connection == "warehouse"
    assert only_target(target=WAREHOUSE, target_table="events").name == "events"


def test_a_declared_table_brings_its_columns_and_keys() -> None:
    found = only_target(target=Customers, target_connection=WAREHOUSE, mode="merge")
    assert (found.name, found.schema, found.table, found.mode) == ("mirror.customers", "mirror", "customers", "merge")
    assert found.primary_key == ("id",)
    assert found.load.strategy.keys == ("id",)
    assert found.load.connection == WAREHOUSE
    assert only_target(target=Customers, target_connection=WAREHOUSE).mode == "append"
    assert only_target(target=WAREHOUSE, target_table=Customers, mode="scd2").load.strategy.mode == "scd2"
    assert only_target(target=Customers).connection == "default"
    assert only_target(target=..., targets=[Customers], target_connection=LAKE).connection == LAKE


def test_a_declared_table_is_a_subclass_of_managed_table_too() -> None:
    class Events(ManagedTable):
        __schema__ = "public"
        id: Annotated[BigInt, pk()]

    assert only_target(target=Events, target_connection="warehouse").name == "public.events"


def test_a_table_that_is_not_declared_is_merged_by_the_given_keys() -> None:
    merged = {"target": WAREHOUSE, "target_table": ("public", "events"), "mode": "merge"}
    assert only_target(**merged, keys="id").options == {"keys": ("id",)}
    assert only_target(**merged, target_primary_key=["id"]).primary_key == ("id",)
    assert only_target(**{**merged, "mode": "scd1"}, keys=["id"]).mode == "merge"
    assert only_target(**{**merged, "mode": "scd2"}, keys=["id"], event_timestamp_column="at").options == {
        "keys": ("id",),
        "event_timestamp_column": "at",
    }
    with pytest.raises(ValueError, match="mode='merge' needs keys"):
        only_target(**merged)


@pytest.mark.parametrize(
    ("connection", "keyword", "place"),
    [
        (KAFKA, "topic", "clean"),
        (PUBSUB, "topic", "clean"),
        (RABBIT, "queue", "clean"),
        (KINESIS, "partition_key_prefix", "clean"),
    ],
)
def test_a_broker_takes_messages_at_its_own_sort_of_place(connection: Any, keyword: str, place: str) -> None:
    found = only_target(target=connection, **{f"target_{keyword}": place}, target_message_key_column="id")
    assert found == BrokerTarget("clean", connection, "clean", "id", "json")
    assert only_target(target="by_name", **{f"target_{keyword}": place}) == BrokerTarget("clean", "by_name", "clean")


def test_messages_are_written_as_the_connection_says() -> None:
    avro = KafkaConnection("k", bootstrap_servers="h:9092", payload_format="avro", schema_registry="sr")
    assert only_target(target=avro, target_topic="t").payload == "avro"
    assert only_target(target=KAFKA, target_topic="t", payload="raw_bytes").payload == "raw_bytes"


def test_a_stream_of_kinesis_needs_no_place() -> None:
    assert only_target(target=KINESIS) == BrokerTarget("kinesis", KINESIS, "")


def test_a_folder_of_files_is_named_by_its_prefix() -> None:
    found = only_target(target=LAKE, target_prefix="/events/raw/", target_partition_by=["day"])
    assert (found.name, found.schema, found.table) == ("events/raw", "events", "raw")
    assert found.options == {"partition_by": ("day",)}
    assert only_target(target=LAKE, target_prefix="events").schema == ""
    written = only_target(target=..., targets=[Target(connection=CSV, prefix="e", csv_delimiter=";", csv_header=False)])
    assert written.options == {"csv_delimiter": ";", "csv_header": False}


def test_files_are_written_as_the_target_says_that_they_are_read() -> None:
    reading = {"delimiter": ";", "escape": "\\", "comment": "#", "schema_infer_max_records": 10}
    both = {"csv_read_options": reading, "json_read_options": {"batch_size": 5}}
    found = only_target(target=..., targets=[Target(connection=CSV, prefix="e", csv_header=False, **both)])
    assert found.options == {"csv_delimiter": ";", "csv_header": False, "csv_escape": "\\"}
    logs = ObjectStoreLocalConnection("logs", path="data/logs", format="json_lines")
    assert only_target(target=..., targets=[Target(connection=logs, prefix="e", **both)]).options == {}
    with pytest.raises(ValueError, match="cannot read back"):
        Target(connection=CSV, prefix="e", csv_delimiter=",", csv_read_options=reading)


def test_a_fan_out_has_a_name_for_every_target() -> None:
    second = PostgresConnection("second", url="postgres://localhost/two")
    made = stream(
        target=...,
        targets=[
            Target(connection=WAREHOUSE, table=("public", "events")),
            Target(connection=LAKE, prefix="events/raw", parquet_compression="zstd"),
            Target(connection=second, table=("public", "events")),
        ],
    )
    assert [target.name for target in made.targets] == ["public.events", "events/raw", "second:public.events"]
    with pytest.raises(ValueError, match=r"two targets write to public\.events of warehouse"):
        stream(target=..., targets=[Target(connection=WAREHOUSE, table=("public", "events"))] * 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": ...}, "exactly one of target= and targets="),
        ({"targets": [Target(connection=LAKE, prefix="a")]}, "exactly one of target= and targets="),
        ({"target": ..., "targets": []}, "targets= is empty"),
        ({"target": ..., "targets": ["warehouse"]}, "targets= takes Target"),
        ({"target": ..., "targets": [Customers], "target_table": ("a", "b")}, "target_table= goes with target="),
        ({"target": Target(connection=LAKE, prefix="a"), "target_prefix": "b"}, "which says prefix= itself"),
        ({"target": Customers, "target_table": ("a", "b")}, "both name a table"),
        ({"target": WAREHOUSE, "target_connection": WAREHOUSE}, "one too many"),
        ({"target": 5}, "target= takes a connection"),
        ({"target": WAREHOUSE}, "a postgres target needs its table"),
        ({"target": "by_name"}, "does not say where its rows go"),
        ({"target": WAREHOUSE, "target_topic": "t"}, "a postgres target has no topic"),
        ({"target": KAFKA, "target_table": ("a", "b")}, "a kafka target has no table"),
        ({"target": RABBIT, "target_topic": "t"}, "a rabbitmq target has no topic"),
        ({"target": LAKE, "target_table": ("a", "b")}, "a object_store_local target has no table"),
        ({"target": DELTA, "target_prefix": "a"}, "a delta_local target has no prefix"),
        ({"target": KAFKA, "target_topic": "t", "target_prefix": "p"}, "one place, not topic and prefix"),
        ({"target": KAFKA, "target_topic": " "}, "the topic of a target is a text"),
        ({"target": LAKE, "target_prefix": 5}, "the prefix of a target is a text"),
        ({"target": Target(connection=WAREHOUSE, table=Customers, column_map=5)}, "column_map maps columns"),  # type: ignore[arg-type]
        ({"target": WAREHOUSE, "target_table": 5}, "does not name a table"),
        ({"target": WAREHOUSE, "target_table": ("a", "b", "c")}, "does not name a table"),
        ({"target": WAREHOUSE, "target_table": ("a", "")}, "does not name a table"),
        ({"target": LAKE, "target_prefix": "a/../b"}, "is no prefix of a folder"),
        ({"target": LAKE, "target_prefix": "/"}, "is no prefix of a folder"),
        ({"target": KAFKA, "target_topic": "t", "mode": "append"}, "mode= is for tables"),
        ({"target": KAFKA, "target_topic": "t", "target_partition_by": ["a"]}, "partition_by is for tables and files"),
        ({"mode": "truncate"}, "a stream does not truncate"),
        ({"mode": "upsert"}, "mode='upsert' is not known"),
        ({"event_timestamp_column": "at"}, "goes with mode='scd2'"),
        ({"column_map": {"a": "b"}}, "column_map is for declared tables"),
        ({"target_message_key_column": "id"}, "message_key_column is for brokers"),
        ({"target_partition_by": ["day"]}, "partition_by is for files and Delta"),
        ({"target": Customers, "target_primary_key": ["id"]}, "primary_key is for tables that are not declared"),
        ({"target": LAKE, "target_prefix": "a", "target_primary_key": ["id"]}, "this target is a folder"),
        ({"target": SchemaRegistryConnection("r", url="http://h"), "target_topic": "t"}, "is no target"),
        ({"keys": []}, "keys is a list of column names"),
        (
            {"target": Target(connection=WAREHOUSE, table=Customers, mode="merge", handle_deletes="hard")},
            "needs the full source",
        ),
        (
            {"target": Target(connection=WAREHOUSE, table=("a", "b"), parquet_compression="zstd")},
            "parquet_compression is for files",
        ),
    ],
)
def test_targets_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        stream(**given)
