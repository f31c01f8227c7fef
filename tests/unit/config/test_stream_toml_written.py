"""Streams written as TOML, so that the same stream is read again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tests.unit.config.stream_texts import (
    keywords,
)

from ematix_flow import (
    Aggregation,
    DeltaS3Connection,
    KafkaConnection,
    KinesisConnection,
    Lookup,
    MySQLConnection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
    PostgresConnection,
    PubSubConnection,
    RabbitMQConnection,
    SchemaRegistryConnection,
    SnowflakeConnection,
    Source,
    StateStore,
    Target,
    Watermark,
    Window,
    streaming,
)
from ematix_flow.config.stream_render import render
from ematix_flow.config.stream_toml import stream_from_text
from ematix_flow.foundation.errors import DeclarationError


def test_a_declared_stream_is_written_as_toml() -> None:
    streaming.register_streaming_pipeline(
        "events_to_pg",
        {
            "source": KafkaConnection("kafka_prod", bootstrap_servers="${KAFKA_BOOTSTRAP}", sasl_plain_username="ana",
                                      sasl_plain_password="${KAFKA_PASS}"),
            "source_query": "events",
            "target": "warehouse",
            "target_table": ("public", "events"),
            "transform_sql": "SELECT id\nFROM source",
        },
    )  # fmt: skip
    assert streaming.render_streaming_pipeline_toml("events_to_pg") == (
        'pipeline_name = "events_to_pg"\nsource_query = "events"\n\n'
        '[source]\nkind = "kafka"\nname = "kafka_prod"\nbootstrap_servers = "${KAFKA_BOOTSTRAP}"\n'
        'sasl_plain_username = "ana"\nsasl_plain_password = "${KAFKA_PASS}"\n\n'
        '[target]\nconnection = "warehouse"\n\n[target.table]\nschema = "public"\nname = "events"\n\n'
        "[transform]\nsql = '''\nSELECT id\nFROM source'''\n"
    )


@pytest.mark.filterwarnings("ignore:.* does nothing without them")
def test_no_secret_is_written_and_a_variable_takes_its_place() -> None:
    made = keywords(
        name="x",
        source=KafkaConnection("kafka-prod", bootstrap_servers="h:9092", sasl_plain_username="ana",
                               sasl_plain_password="sehr-geheim", tls_cert_path="a.pem", tls_key_path="a.key"),
        source_query="events",
        targets=[
            Target(connection=PostgresConnection("wh", url="postgres://ana:auch-geheim@db/x"), table=("a", "b")),
            Target(connection=RabbitMQConnection("mq", amqp_url="amqp://ana:mehr-geheim@mq/%2f"), queue="q"),
        ],
        state_store=StateStore("postgres", "postgres://ana:state-geheim@db/state"),
    )  # fmt: skip
    text = render(made)
    assert "geheim" not in text
    for variable in ("KAFKA_PROD_SASL_PLAIN_PASSWORD", "WH_URL_PASSWORD", "MQ_AMQP_URL_PASSWORD"):
        assert f"${{{variable}}}" in text
        assert variable in text.splitlines()[0]
    again = stream_from_text(text)
    assert again.targets[0].connection.url == "postgres://ana:${WH_URL_PASSWORD}@db/x"
    assert again.sources[0].connection.tls_key_path == "a.key"
    assert again.state_store is not None
    assert again.state_store.url == "postgres://ana:${STATE_STORE_URL_PASSWORD}@db/state"


def test_what_stands_in_no_module_cannot_be_written() -> None:
    from ematix_flow import udf

    made = keywords(
        name="x", source="k", source_query="events", target="w", target_table="t", transform_sql="SELECT f(a) FROM source",
        udfs=[udf(args=("Int64",), returns="Int64", name="f")(lambda numbers: numbers)],
    )  # fmt: skip
    with pytest.raises(DeclarationError, match="the function f cannot be named in TOML"):
        render(made)


def test_a_set_is_written_and_declared_in_the_same_order_by_every_process() -> None:
    made = keywords(
        name="x", source="k", source_query="events", target="w", target_table="t", mode="merge",
        keys=set("hgfedcba"), update_columns=frozenset("zyxwvuts"), target_primary_key=set("hgfedcba"),
    )  # fmt: skip
    text = render(made)
    listed = '["a", "b", "c", "d", "e", "f", "g", "h"]'
    assert f"keys = {listed}" in text
    assert f"primary_key = {listed}" in text
    assert 'update_columns = ["s", "t", "u", "v", "w", "x", "y", "z"]' in text
    assert made.targets[0].primary_key == tuple("abcdefgh")
    assert stream_from_text(text) == made


# Any stream ----------------------------------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)
names = st.from_regex(r"[a-z][a-z0-9_.\- ]{0,12}", fullmatch=True)
columns = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
column_lists = st.lists(columns, min_size=1, max_size=3, unique=True)
numbers = st.integers(1, 10_000_000)
references = st.sampled_from(["${SECRET}", "${vault:shop#password}", "${A}${B}"])


def some(required: dict[str, Any], **optional: Any) -> Any:
    """A mapping with all of the required and some of the optional entries."""
    return st.fixed_dictionaries(required, optional=optional)


registries = st.one_of(
    st.just("sr_prod"),
    st.builds(SchemaRegistryConnection, names, url=st.just("http://localhost:8081"), basic_auth_user=st.just("ana"),
              basic_auth_password=references),
)  # fmt: skip
kafkas = some(
    {"name": names, "bootstrap_servers": st.just("h:9092")},
    group_id=words,
    payload_format=st.sampled_from(["json", "avro"]),
    schema_registry=registries,
    tls_ca_path=words,
).map(lambda said: KafkaConnection(**said))
scram = st.builds(
    KafkaConnection, names, bootstrap_servers=st.just("${B}"), sasl_scram_username=words, sasl_scram_password=references,
    sasl_scram_mechanism=st.just("sha-512"),
)  # fmt: skip
written_by_schemas = {"payload_format": st.just("avro"), "schema_registry": st.one_of(st.none(), registries)}
brokers = st.one_of(
    kafkas,
    scram,
    st.builds(RabbitMQConnection, names, amqp_url=st.just("amqp://ana:${PW}@mq/%2f"), **written_by_schemas),
    st.builds(
        PubSubConnection, names, project_id=words, endpoint=words, anonymous_auth=st.booleans(), **written_by_schemas
    ),
    st.builds(
        KinesisConnection,
        names,
        stream_name=words,
        access_key_id=references,
        secret_access_key=references,
        **written_by_schemas,
    ),
)
buckets = {"endpoint": st.just("http://h:1"), "bucket": words, "region": words, "access_key_id": references,
           "secret_access_key": references, "prefix": st.one_of(st.just(""), words)}  # fmt: skip
folders = st.one_of(
    st.builds(ObjectStoreLocalConnection, names, path=words, format=st.just("csv")),
    st.builds(ObjectStoreS3Connection, names, format=st.just("parquet"), **buckets),
)
databases = st.one_of(
    names,
    st.builds(PostgresConnection, names, url=st.just("postgres://ana:${PW}@db/x"), connect_timeout=numbers),
    st.builds(MySQLConnection, names, host=words, port=st.integers(1, 65_535), password=references),
    st.builds(SnowflakeConnection, names, account=words, user=words, password=references, schema=words),
)
PLACES = {"kafka": "topic", "pubsub": "topic", "rabbitmq": "queue", "kinesis": "partition_key_prefix"}
tables = some(
    {"connection": databases, "table": st.tuples(st.one_of(st.just(""), columns), columns), "mode": st.just("merge"),
     "keys": column_lists},
    primary_key=column_lists, update_columns=column_lists,
).map(lambda said: Target(**said))  # fmt: skip
deltas = st.builds(
    lambda connection, table, by: Target(connection=connection, table=table, partition_by=by),
    st.builds(DeltaS3Connection, names, **buckets), st.tuples(columns, columns), st.one_of(st.none(), column_lists),
)  # fmt: skip
files = st.builds(
    lambda connection, parts, options: Target(
        connection=connection, prefix="/".join(parts), **(options if connection.format == "csv" else {})
    ),
    folders,
    st.lists(columns, min_size=1, max_size=3),
    some({}, csv_delimiter=st.just(";"), csv_header=st.booleans(), csv_null_value=words,
         csv_read_options=some({}, delimiter=st.just(";"), null_regex=words)),
)  # fmt: skip
topics = st.builds(
    lambda connection, place, column: Target(
        connection=connection, message_key_column=column, **{PLACES[connection.kind]: place}
    ),
    brokers, words, st.one_of(st.none(), columns),
)  # fmt: skip
targets = st.lists(st.one_of(tables, deltas, files, topics), min_size=1, max_size=3)
lookups = st.one_of(
    st.builds(lambda at, table, schema, often: Lookup(at, table, schema, often), databases, words,
              st.one_of(st.just(""), words), st.one_of(st.none(), numbers)),
    st.builds(lambda at, query: Lookup(at, query=query), databases, words),
)  # fmt: skip
aggregations = st.one_of(
    st.builds(Aggregation, st.just("count"), st.just("n")),
    st.builds(Aggregation, st.just("count_distinct"), st.just("n"), columns, st.just("exact"), numbers),
)
windows = st.one_of(
    st.builds(lambda one, size: Window("tumbling", [one], size), aggregations, numbers),
    st.builds(
        lambda one, size: Window("hopping", [one], size + 1, size, late_data="reopen", allowed_lateness_ms=size),
        aggregations,
        numbers,
    ),
    st.builds(lambda one, size: Window("tumbling", [one], size, late_data="reopen", allowed_lateness_ms=size),
              aggregations, numbers),
)  # fmt: skip
options = some(
    {"name": names},
    transform_on_error=st.sampled_from(["fail", "drop", "dlq"]),
    dlq_store=st.sampled_from(["auto", "table"]),
    dlq_max_attempts=numbers,
    max_bad_fraction=st.floats(0, 1),
    delivery=st.sampled_from(["auto", "at_least_once", "exactly_once"]),
    payload=st.sampled_from(["json", "raw_bytes"]),
    fields=st.dictionaries(words, words, min_size=1, max_size=3),
    start=st.one_of(st.sampled_from(["earliest", "latest"]), st.just({"events": {"0": 5}})),
    max_rows_per_batch=numbers,
    idle_pause_ms=numbers,
    trigger=st.sampled_from(["once", "5s", "10 minutes"]),
    checkpoint=words,
    continue_on_target_failure=st.booleans(),
    on_drift=st.sampled_from(["error", "warn", "evolve"]),
    restart_on_error=st.booleans(),
    initial_backoff_ms=st.integers(1, 1000),
    max_restarts=numbers,
    metrics_port=st.integers(0, 65_535),
    watermark=st.builds(Watermark, st.one_of(st.none(), numbers), st.one_of(st.none(), numbers)),
    engine=st.sampled_from(["auto", "local", "datafusion"]),
    window=windows,
)
sql = some({"transform_sql": words | st.text(max_size=60).filter(str.strip)},
           dialect=st.sampled_from(["spark", "duckdb", "postgres"]),
           lookups=st.dictionaries(columns.filter(lambda name: name != "source"), lookups, max_size=2))  # fmt: skip
csv_files = st.builds(
    Source, st.builds(ObjectStoreLocalConnection, names, path=words, format=st.just("csv")), words.map(str.strip),
    csv_read_options=some({}, has_header=st.booleans(), delimiter=st.just("\t"), null_regex=words),
)  # fmt: skip
sources = st.lists(
    st.one_of(st.builds(Source, st.one_of(names, brokers, folders), words.map(str.strip)), csv_files),
    min_size=1, max_size=2,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.* does nothing without them")
@settings(max_examples=100)
@given(sources, targets, options, st.one_of(st.just({}), sql))
def test_any_stream_is_written_so_that_the_same_stream_is_read_again(
    read: list[Source], written: list[Target], more: dict[str, Any], statement: dict[str, Any]
) -> None:
    said = {"sources": read, "targets": written, **more, **statement}
    try:
        made = keywords(**said)
    except DeclarationError:  # the same place twice, and the like
        reject()
    again = stream_from_text(render(made))
    assert again == made
    assert render(again) == render(made)


def test_the_files_in_the_documentation_declare_streams() -> None:
    page = (Path(__file__).parents[3] / "docs" / "streaming.md").read_text(encoding="utf-8")
    made = [stream_from_text(block) for block in re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    assert [stream.name for stream in made] == ["orders", "orders_of_customers"]
