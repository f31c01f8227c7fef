"""Python and TOML take the same: every keyword has a key, and survives being written and read again."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.config.stream_texts import KAFKA, TARGET, TOP, failed, keywords, line_of

from ematix_flow import (
    CDC,
    Aggregation,
    DeltaLocalConnection,
    Join,
    KinesisConnection,
    Lookup,
    ObjectStoreLocalConnection,
    PostgresConnection,
    RabbitMQConnection,
    Source,
    StateStore,
    Target,
    Watermark,
    Window,
)
from ematix_flow.config import stream_toml
from ematix_flow.config.stream_render import render
from ematix_flow.config.stream_toml import stream_from_text
from ematix_flow.declare.streams.options import ALIASES, StreamOptions

CSV = ObjectStoreLocalConnection("incoming", path="/data/in", format="csv")
JSON = ObjectStoreLocalConnection("logs", path="/data/logs", format="json_lines")
WAREHOUSE = PostgresConnection("warehouse", url="postgres://localhost/wh")
STATE = StateStore("postgres", "postgres://localhost/state")
COUNT = [Aggregation("count", "n")]
EVENTS = {"source": KAFKA, "source_query": "events"}
TO_TABLE = {"target": WAREHOUSE, "target_table": ("public", "events")}
BASE = {"name": "x", **EVENTS, **TO_TABLE}
SQL = {**BASE, "transform_sql": "SELECT * FROM source"}
TO_DELTA = {
    "name": "x",
    **EVENTS,
    "target": DeltaLocalConnection("lake", path="/data/lake"),
    "target_table": ("a", "b"),
}
DECLARED = {"name": "x", **EVENTS, "target_connection": WAREHOUSE}
FUNCTIONS = "toml_functions"

# What each keyword is said beside, and a value that is not its default; `@` names a thing of the module below.
SAID: dict[str, tuple[dict[str, Any], Any]] = {
    "name": ({**EVENTS, **TO_TABLE}, "another"),
    "source": ({"name": "x", **TO_TABLE}, Source(CSV, "orders", csv_read_options={"delimiter": ";", "quote": "'"})),
    "source_query": ({"name": "x", "source": KAFKA, **TO_TABLE}, "others"),
    "sources": ({"name": "x", **TO_TABLE}, [
        Source(CSV, "orders", csv_read_options={"has_header": False, "null_regex": "^NA$", "comment": "#"}),
        Source(JSON, "logs", json_read_options={"schema_infer_max_records": 10}),
    ]),
    "target": ({"name": "x", **EVENTS}, Target(CSV, prefix="a", csv_read_options={"delimiter": ";"}, csv_header=False)),
    "target_connection": ({"name": "x", **EVENTS, "target": ("a", "b")}, "elsewhere"),
    "target_table": ({"name": "x", **EVENTS, "target": WAREHOUSE}, ("", "events")),
    "target_topic": ({"name": "x", **EVENTS, "target": KAFKA}, "clean"),
    "target_queue": (
        {"name": "x", **EVENTS, "target": RabbitMQConnection("mq", amqp_url="amqp://ana:${PW}@mq/%2f")}, "clean",
    ),
    "target_partition_key_prefix": ({"name": "x", **EVENTS, "target": KinesisConnection("k", stream_name="s")}, "eu"),
    "target_prefix": ({"name": "x", **EVENTS, "target": CSV}, "a/b"),
    "target_message_key_column": ({"name": "x", **EVENTS, "target": KAFKA, "target_topic": "clean"}, "id"),
    "target_partition_by": (TO_DELTA, ["day"]),
    "target_primary_key": (BASE, ["id"]),
    "targets": ({"name": "x", **EVENTS}, [
        Target(WAREHOUSE, table=("a", "b"), mode="merge", keys=["id"], update_columns=["n"]),
        Target(CSV, prefix="a", partition_by=["day"], csv_delimiter=";", csv_quote="'", csv_escape="\\",
               csv_null_value="-", csv_header=False),
        Target(JSON, prefix="a", json_read_options={"batch_size": 5}, csv_read_options={"delimiter": ";"}),
        Target(KAFKA, topic="clean", message_key_column="id"),
    ]),
    "mode": ({**BASE, "keys": ["id"]}, "merge"),
    "keys": (BASE, ["id"]),
    "update_columns": ({**BASE, "mode": "merge", "keys": ["id"]}, ["n"]),
    "compare_columns": ({**BASE, "mode": "scd2", "keys": ["id"]}, ["n"]),
    "event_timestamp_column": ({**BASE, "mode": "scd2", "keys": ["id"]}, "at"),
    "column_map": ({**DECLARED, "target": "@Events"}, {"id": "key"}),
    "transform_sql": (BASE, "SELECT 1\n  AS n FROM source -- 'quoted' \\"),
    "dialect": (SQL, "duckdb"),
    "lookups": (SQL, {"c": Lookup(WAREHOUSE, "customers", "public", 60_000), "d": Lookup("named", query="SELECT 1")}),
    "udfs": (SQL, ["@twice"]),
    "aggregate_udfs": (SQL, ["@Total"]),
    "window": (
        {**BASE, "transform_on_error": "dlq"},
        Window("hopping", COUNT, 60_000, 30_000, group_by=("id",), late_data="dlq"),
    ),
    "join": (
        {"name": "x", "sources": [Source(KAFKA, "a"), Source(KAFKA, "b")], **TO_TABLE, "state_store": STATE},
        Join("a", "b", ("id",), ("a_id",), kind="left_outer", min_delta_ms=-5, max_delta_ms=5),
    ),
    "cdc": ({**TO_DELTA, "target_primary_key": ["id"]}, CDC("maxwell", delete_mode="soft", soft_delete_column="gone")),
    "state_store": (
        {**BASE, "window": Window("session", COUNT, gap_ms=5, max_session_duration_ms=9, group_by=("id",))},
        StateStore("postgres", "postgres://localhost/state", "s", 7),
    ),
    "watermark": ({**BASE, "window": Window("tumbling", COUNT, 60_000)}, Watermark(5_000, 120_000)),
    "transform_on_error": (BASE, "drop"),
    "dead_letter_topic": (BASE, "failed"),
    "dlq_store": (BASE, "table"),
    "dlq_max_attempts": (BASE, 7),
    "max_bad_fraction": (BASE, 0.25),
    "delivery": (BASE, "at_least_once"),
    "payload": (BASE, "raw_bytes"),
    "fields": (BASE, {"id": "BIGINT"}),
    "start": (BASE, {"events": {"0": 5}}),
    "max_rows_per_batch": (BASE, 1_000),
    "idle_pause_ms": (BASE, 5),
    "trigger": (BASE, "5s"),
    "checkpoint": (BASE, Path("/srv/checkpoints")),
    "continue_on_target_failure": (BASE, True),
    "on_drift": (BASE, "warn"),
    "restart_on_error": (BASE, True),
    "initial_backoff_ms": (BASE, 10),
    "max_backoff_ms": (BASE, 90_000),
    "max_restarts": (BASE, 3),
    "metrics_port": (BASE, 9_100),
    "engine": (BASE, "local"),
    "peers": ({**BASE, "engine": "distributed"}, ["spark://head:7077"]),
}  # fmt: skip


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with a table and functions, which TOML can name."""
    (tmp_path / f"{FUNCTIONS}.py").write_text(
        "from ematix_flow import Annotated, BigInt, ematix, pk, udaf, udf\n"
        '@ematix.table(schema="public")\nclass Events:\n    id: Annotated[BigInt, pk()]\n'
        '@udf(args=("Int64",), returns="Int64")\ndef twice(numbers):\n    return numbers\n'
        '@udaf(args=("Int64",), state=("Int64",), returns="Int64", name="total")\nclass Total:\n'
        "    def update_batch(self, numbers): ...\n    def merge_batch(self, states): ...\n"
        "    def evaluate(self): ...\n    def state(self): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, FUNCTIONS, raising=False)
    return __import__(FUNCTIONS)


def found(said: Any, things: Any) -> Any:
    """The same, with things of the module in place of their names."""
    if isinstance(said, str) and said.startswith("@"):
        return getattr(things, said[1:])
    return [found(item, things) for item in said] if isinstance(said, list) else said


def test_every_keyword_is_tried() -> None:
    assert {field.name for field in dataclasses.fields(StreamOptions)} == SAID.keys()


@pytest.mark.parametrize("keyword", SAID)
def test_a_keyword_survives_being_written_and_read(keyword: str, things: Any) -> None:
    beside, value = SAID[keyword]
    said = {name: found(item, things) for name, item in {**beside, keyword: value}.items()}
    made = keywords(**said)
    assert stream_from_text(render(made)) == made
    if beside in (BASE, SQL):
        assert made != keywords(**beside), "a value that changes nothing proves nothing"


@pytest.mark.parametrize("alias", ALIASES)
def test_another_name_of_a_keyword_is_one_in_both_forms(alias: str) -> None:
    beside, value = SAID[ALIASES[alias]]
    made = keywords(**{**beside, alias: value})
    text = {"true": "true"}.get(str(value).lower(), f'"{value}"')
    top = TOP if alias != "pipeline_name" else 'source_query = "events"\n'
    read = stream_from_text(f'{alias} = {text}\n{top}[source]\nkind = "kafka"\nbootstrap_servers = "h:1"\n{TARGET}')
    name = ALIASES[alias]
    assert getattr(read, name) == getattr(made, name)
    assert alias in stream_toml.TOP


SOURCE = """
pipeline_name = "x"
source_query = "orders"
[source]
kind = "object_store_local"
path = "/data/in"
format = "csv"
"""
SOURCES = SOURCE.replace('source_query = "orders"\n', "").replace("[source]", '[[sources]]\nquery = "orders"')


@pytest.mark.parametrize("block", [SOURCE, SOURCES], ids=["source", "sources"])
@pytest.mark.parametrize(
    "said",
    [
        'csv_read_options = { delimiter = ";", has_header = false }\n',
        "csv_read_options = { delimiter = 59, has_header = false }\n",
        'read_options.csv = { delimiter = ";", has_header = false }\n',
    ],
)
def test_a_file_says_how_files_are_read(block: str, said: str) -> None:
    (source,) = stream_from_text(block + said + TARGET).sources
    assert (source.query, source.csv_read_options) == ("orders", {"delimiter": ";", "has_header": False})


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ('csv_read_options = { delimeter = ";" }\n', "does not know 'delimeter'"),
        ('csv_read_options = ";"\n', "source.csv_read_options is not a table"),
        ("read_options.xml = {}\n", "has no key 'xml'"),
        ("csv_read_options = {}\nread_options.csv = {}\n", "says again"),
        (
            "json_read_options = { batch_size = 5 }\n",
            "json_read_options is for json_lines files, and 'orders' holds csv",
        ),
    ],
)
def test_how_files_are_read_is_checked(said: str, what: str) -> None:
    error = failed(SOURCE + said + TARGET)
    assert what in error.what
    assert line_of(error) >= 4
