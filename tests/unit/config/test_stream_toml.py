"""Streams read from TOML: every block finds its keywords."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from tests.unit.config.stream_texts import (
    SHORT,
    SOURCE,
    TARGET,
    TOP,
    failed,
    keywords,
    line_of,
)

from ematix_flow import (
    CDC,
    Aggregation,
    Join,
    KafkaConnection,
    Lookup,
    ObjectStoreLocalConnection,
    PostgresConnection,
    Source,
    StateStore,
    Watermark,
    Window,
)
from ematix_flow.config import stream_toml
from ematix_flow.config.stream_render import render
from ematix_flow.config.stream_toml import stream_from_file, stream_from_text
from ematix_flow.declare.streams.options import StreamOptions
from ematix_flow.declare.streams.spec import BadRows, BrokerTarget, Restarts, TableTarget


def test_the_documented_file_is_the_stream_that_keywords_declare(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(SHORT)
    made = stream_from_file(file)
    assert made == keywords(
        name="events-to-pg",
        source=KafkaConnection("source", bootstrap_servers="localhost:9092", group_id="ematix-flow"),
        source_query="events",
        target=PostgresConnection("target", url="postgres://localhost/mydb"),
        target_table=("public", "events"),
        idle_pause_ms=500,
    )
    assert str(made.where).endswith("pipeline.toml:2")


@pytest.mark.filterwarnings("ignore:.* does nothing without them")
def test_every_block_finds_its_keywords() -> None:
    made = stream_from_text("""
        pipeline_name = "all"
        delivery = "at_least_once"
        engine = "distributed"
        peers = ["spark://head:7077"]
        on_drift = "warn"
        start = "latest"
        payload_format = "json"
        max_rows_per_batch = 1000
        trigger = "5 seconds"
        checkpoint = "/srv/checkpoints"
        continue_on_target_failure = true
        metrics_port = 9100
        mode = "merge"
        keys = ["id"]

        [fields]
        id = "BIGINT"

        [source]
        connection = "kafka_prod"
        query = "events"

        [target]
        connection = "warehouse"
        table = "public.events"

        [transform]
        sql = "SELECT id FROM source JOIN users USING (id)"
        dialect = "duckdb"
        on_error = "dlq"

        [transform.lookups.users]
        kind = "postgres"
        url = "postgres://localhost/ref"
        schema = "public"
        table = "users"
        refresh_interval_ms = 30000

        [transform.lookups.tiers]
        connection = "warehouse"
        query = "SELECT 1 AS id"

        [dlq]
        store = "topic"
        topic = "events-failed"
        max_attempts = 5
        max_bad_fraction = 0.1

        [restart]
        on_error = true
        initial_backoff_ms = 10
        max_backoff_ms = 1000
        max_restarts = 3

        [watermark]
        lateness_ms = 5000
        source_idleness_ms = 120000

        [state_store]
        kind = "postgres"
        url = "${STATE_URL}"
        schema = "state"
        checkpoint_interval_ms = 1000
    """)
    assert made.sources == (Source("kafka_prod", "events"),)
    assert made.targets == (
        TableTarget("public.events", "warehouse", None, "public", "events", mode="merge", options={"keys": ("id",)}),
    )
    assert made.lookups == {
        "users": Lookup(PostgresConnection("users", url="postgres://localhost/ref"), "users", "public", 30_000),
        "tiers": Lookup("warehouse", query="SELECT 1 AS id"),
    }
    assert made.bad_rows == BadRows("dlq", "topic", "events-failed", 5, 0.1)
    assert made.restarts == Restarts(True, 10, 1_000, 3)
    assert made.watermark == Watermark(5_000, 120_000)
    assert made.state_store == StateStore("postgres", "${STATE_URL}", "state", 1_000)
    assert (made.delivery, made.dialect, made.trigger, made.start) == ("at_least_once", "duckdb", "5 seconds", "latest")
    assert (made.checkpoint, made.metrics_port, made.on_drift) == ("/srv/checkpoints", 9100, "warn")
    assert (made.payload, made.max_rows_per_batch, made.fields) == ("json", 1_000, {"id": "BIGINT"})
    assert made.continue_on_target_failure is True
    assert (made.engine.engine, made.engine.peers) == ("distributed", ("spark://head:7077",))


def test_a_window_a_join_and_change_data_have_tables_of_their_own() -> None:
    windowed = stream_from_text(
        TOP
        + SOURCE
        + TARGET
        + """
        [transform]
        sql = "SELECT user_id, amount, _event_ts FROM source"
        [transform.window]
        kind = "tumbling"
        duration_ms = 60000
        group_by = ["user_id"]
        [[transform.window.aggregations]]
        agg = "count"
        as = "n"
        [[transform.window.aggregations]]
        agg = "count_distinct"
        column = "amount"
        as = "amounts"
        mode = "exact"
        max_distinct_values_per_group = 100
    """
    )
    exact = Aggregation("count_distinct", "amounts", "amount", "exact", 100)
    assert windowed.window == Window("tumbling", [Aggregation("count", "n"), exact], 60_000, group_by=("user_id",))
    mirrored = stream_from_text(
        TOP
        + SOURCE
        + TARGET
        + """
        [transform.cdc]
        envelope = "custom"
        op_field = "action"
        after_field = "new"
        key_field = "new.id"
        op_map = { INSERT = "c", DELETE = "d" }
    """
    )
    assert mirrored.cdc == CDC("custom", "action", after_field="new", key_field="new.id",
                               op_map={"INSERT": "c", "DELETE": "d"})  # fmt: skip


@pytest.mark.parametrize("names", [("orders", "payments"), ("left", "right")])
def test_a_join_calls_its_sources_by_query_or_by_name(names: tuple[str, str]) -> None:
    made = stream_from_text(
        f"""
        name = "joined"
        [[sources]]
        name = "left"
        query = "orders"
        kind = "kafka"
        bootstrap_servers = "localhost:9092"
        [[sources]]
        name = "right"
        connection = "kafka_prod"
        query = "payments"
        [transform.join]
        kind = "stream_stream_join"
        left_source = "{names[0]}"
        right_source = "{names[1]}"
        left_keys = ["id"]
        right_keys = ["order_id"]
        time_window_ms = 300000
        [state_store]
        kind = "postgres"
        url = "postgres://localhost/state"
    """
        + TARGET
    )
    assert made.join == Join("orders", "payments", ("id",), ("order_id",), 300_000)
    assert [source.query for source in made.sources] == ["orders", "payments"]
    assert made.sources[1].connection == "kafka_prod"


def test_a_fan_out_is_a_list_of_targets() -> None:
    made = stream_from_text(
        TOP
        + SOURCE
        + """
        [[targets]]
        connection = "warehouse"
        [[targets.table]]
        schema = "public"
        name = "events"
        primary_key = ["id"]

        [[targets]]
        kind = "object_store_local"
        path = "/data/lake"
        format = "csv"
        prefix = "events/raw"
        csv_delimiter = ";"
        partition_by = ["day"]
        [targets.read_options.csv]
        has_header = true
        delimiter = 59

        [[targets]]
        kind = "kafka"
        bootstrap_servers = "localhost:9092"
        topic = "clean"
        message_key_column = "id"

        [[targets]]
        kind = "delta_s3"
        endpoint = "http://localhost:9000"
        bucket = "b"
        region = "r"
        access_key_id = "${KEY}"
        secret_access_key = "${SECRET}"
        prefix = "tables"
        table = { schema = "public", name = "events" }
    """
    )
    table, folder, topic, delta = made.targets
    assert (table.name, getattr(table, "primary_key", None)) == ("public.events", ("id",))
    assert folder == TableTarget(
        "events/raw", ObjectStoreLocalConnection("target_2", path="/data/lake", format="csv"), None, "events", "raw",
        options={
            "partition_by": ("day",), "csv_delimiter": ";", "csv_header": True,
        },
    )  # fmt: skip
    assert topic == BrokerTarget(
        "clean", KafkaConnection("target_3", bootstrap_servers="localhost:9092"), "clean", "id"
    )
    assert (delta.name, delta.connection.prefix) == ("target_4:public.events", "tables")


def test_a_dead_letter_topic_may_stand_beside_its_broker() -> None:
    made = stream_from_text(TOP + SOURCE + 'dead_letter_topic = "failed"\n' + TARGET)
    assert made.bad_rows == BadRows("dlq", "auto", "failed")


def test_tables_and_functions_of_a_module_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toml_shop.py").write_text(
        "from ematix_flow import Annotated, BigInt, ematix, pk, udf\n"
        '@ematix.table(schema="public")\nclass Events:\n    id: Annotated[BigInt, pk()]\n'
        '@udf(args=("Int64",), returns="Int64")\ndef twice(numbers):\n    return numbers\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (
        TOP
        + 'mode = "merge"\n'
        + SOURCE
        + """
        [target]
        connection = "warehouse"
        table = { class = "toml_shop:Events" }
        [transform]
        sql = "SELECT twice(id) AS id FROM source"
        udfs = ["toml_shop:twice"]
    """
    )
    made = stream_from_text(text)
    shop = sys.modules["toml_shop"]
    assert made.udfs == (shop.twice,)
    assert made.targets[0].name == "public.events"
    again = stream_from_text(render(made))
    assert again == made
    for wrong, said in (
        ("toml_shop:Evnts", "has no Evnts"),
        ("nowhere_at_all:Events", "cannot be imported"),
        ("Events", "is no reference to Python"),
    ):
        error = failed(text.replace("toml_shop:Events", wrong))
        assert said in error.what
        assert line_of(error) == 10


def test_every_keyword_can_be_written_in_a_file() -> None:
    said = {*stream_toml.TOP.values(), *stream_toml.TRANSFORM.values(), *stream_toml.DLQ.values()}
    said |= {*stream_toml.RESTART.values(), *stream_toml.PARTS, *stream_toml.TRANSFORM_PARTS, *stream_toml.FUNCTIONS}
    said |= {"source", "sources", "target", "targets", "lookups"}
    said |= {f"target_{name}" for name in ("connection", *stream_toml.TARGET)}
    assert {field.name for field in dataclasses.fields(StreamOptions)} - said == set()
