"""Every streaming sample of the product's documents runs as printed, against the servers it names.

Only what a reader replaces is replaced: hosts, ports and logins. A stream is stopped by SIGTERM once its rows are there.
`...` in a sample stands for the keywords of a stream, which are given here. Samples with state are in
test_spec_stateful.py, those with functions in test_spec_functions.py.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ematix_flow
from ematix_flow import Lookup, Source, Target, run_streaming_pipeline
from ematix_flow.cli import main
from ematix_flow.config.stream_toml import stream_from_text
from ematix_flow.declare.streams import registry as streams
from tests.e2e import documents
from tests.e2e.documents import Sample
from tests.e2e.names import (
    AVRO,
    CONNECTIONS_FILE,
    ERRORS,
    FILE,
    FILE_BY_COMMAND,
    FILE_BY_PYTHON,
    NOTEBOOK,
    PIVOT,
    PIVOT_TABLE,
    READ_OPTIONS,
    REGISTRY,
    SQL,
    STREAM_FAN_OUT,
    STREAMING,
    STREAMS,
    SUMMARY,
    TYPED,
    TYPED_BY_COMMAND,
    WATERMARK,
    WRITE_OPTIONS,
)  # fmt: skip
from tests.e2e.samples import Database, Page, parsed_command
from tests.e2e.streaming import (
    BUCKET,
    EVENTS,
    LOADED,
    OPTIONS,
    SECONDS,
    USERS,
    bucket,
    eventually,
    fill,
    has,
    keys_of,
    lake_at,
    lines_of,
    metrics,
    parquet,
    stopped,
    users,
)  # fmt: skip
from tests.services.kafka import PASSWORD, USER, Kafka
from tests.services.object_stores import S3_ACCESS

DOCUMENT, FIRST = "readme-0.3.0.txt", "readme-0.1.2.txt"
JARS = {"delta", "kafka", "avro", "s3a"}
pytestmark = pytest.mark.skipif(not (documents.FOLDER / DOCUMENT).is_file(), reason=documents.MISSING)


@pytest.fixture
def topics(kafka: Kafka) -> Kafka:
    """The broker, whose topic `events` holds three of them."""
    fill(kafka, "events")
    return kafka


@pytest.fixture
def archive(reader: Page, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bucket that the documents name."""
    for name, value in S3_ACCESS.items():
        monkeypatch.setenv(name, value)
    reader.values["https://s3.amazonaws.com"] = s3_url
    return bucket(s3_url)


def filled(sample: Sample, **keywords: str) -> Sample:
    """A sample whose `...` stands for the keywords of a stream."""
    said = ", ".join(f"{name}={value}" for name, value in keywords.items())
    assert "\n    ...,\n" in sample.text
    return sample.saying({"\n    ...,\n": f"\n    {said},\n"})


def test_every_streaming_sample_of_the_document_has_a_test() -> None:
    python = {name: sample for name, sample in documents.fenced(DOCUMENT).items() if sample.language == "python"}
    assert {name for name, sample in python.items() if any(word in sample.text for word in STREAMING)} == STREAMS


# Three doors ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark", "topics")
def test_the_printed_file_is_run_by_python(reader: Page, database: Database) -> None:
    Path("pipeline.toml").write_text(reader.samples[FILE].saying(reader.values).text)
    told: list[str] = []

    def is_there() -> bool:
        told.append(metrics(reader.values["9100"]))
        return 'rows_written_total{pipeline="events-to-pg"} 3' in told[-1]

    with stopped(is_there):
        reader.run(FILE_BY_PYTHON)
    assert users(database) == LOADED
    assert 'ematix_streaming_rows_consumed_total{pipeline="events-to-pg"} 3' in told[-1]


@pytest.fixture
def project(reader: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed file and the printed module stand in the working directory."""
    monkeypatch.delitem(sys.modules, "my_pipelines")
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("pipeline.toml").write_text(reader.samples[FILE].saying(reader.values).text)
    Path("my_pipelines.py").write_text(reader.samples[TYPED].saying(reader.values).text)


COMMANDS = [(FILE_BY_COMMAND, "events-to-pg"), (TYPED_BY_COMMAND, "events_to_pg")]


@pytest.mark.usefixtures("spark", "topics", "project")
@pytest.mark.parametrize(("sample", "name"), COMMANDS)
def test_the_printed_command_runs_a_stream(
    reader: Page, database: Database, capsys: pytest.CaptureFixture[str], sample: str, name: str
) -> None:
    command = reader.samples[sample].saying(reader.values).commands()[0]
    with stopped(has(database, "public.events", 3)):
        assert main(command) == 0
    assert capsys.readouterr().out == f"{name}  3 rows in 1 batches\n"
    assert users(database) == LOADED


@pytest.mark.usefixtures("project")
def test_the_printed_command_lists_the_streams(reader: Page, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(reader.samples[TYPED_BY_COMMAND].commands()[1]) == 0
    assert capsys.readouterr().out == "events_to_pg  events (kafka_prod) → public.events (warehouse)\n"


@pytest.mark.full
def test_the_summary_of_commands_names_the_same(page: Page) -> None:
    told = [" ".join(command) for command in page.samples[SUMMARY].commands() if command[0].startswith("consume")]
    ways = ["consume <toml>", "consume --module my_pipelines <name>", "consume-list --module my_pipelines"]
    assert told == ways


@pytest.mark.usefixtures("topics", "project")
@pytest.mark.parametrize(("sample", "name"), COMMANDS)
@pytest.mark.full("the same command runs inside of the tests")
def test_a_process_of_the_printed_command_ends_when_it_is_told_to(
    reader: Page, database: Database, sample: str, name: str
) -> None:
    command = reader.samples[sample].saying(reader.values).commands()[0]
    process = subprocess.Popen(
        [sys.executable, "-m", "ematix_flow.cli", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(ematix_flow.__file__).parents[1]), "NO_COLOR": "1"},
    )  # fmt: skip
    try:
        eventually(lambda: process.poll() is not None or has(database, "public.events", 3)())
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err.count("Traceback")) == (0, 0), err
    assert out == f"{name}  3 rows in 1 batches\n"
    assert users(database) == LOADED


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("the same stream runs by its command")
def test_the_printed_function_is_called(reader: Page, database: Database) -> None:
    with stopped(has(database, "public.events", 3)):
        outcome = reader.run(TYPED).events_to_pg()
    assert dict(outcome) == {"total_rows": 3, "iterations": 1, "shutdown_triggered": True, "restarts": 0}
    assert users(database) == LOADED


@pytest.mark.full
def test_the_first_document_prints_the_same_file_and_the_same_module(reader: Page) -> None:
    first = documents.between(FIRST, first="# pipeline.toml", end="2. Run from Python:")
    assert stream_from_text(first.text) == stream_from_text(reader.samples[FILE].text)
    printed = documents.unindented(FIRST, after="2. Run from Python:", first="from ematix_flow import run_pipeline")
    assert printed.text == reader.samples[FILE_BY_PYTHON].text
    now = reader.run(TYPED).events_to_pg.spec
    streams.clear()
    module = reader.run_sample(
        documents.unindented(
            FIRST, after="Or skip the TOML entirely (Π.3 typed-Python form)", first="# my_pipelines.py"
        )
    )
    assert module.events_to_pg.spec == now


# What a stream does ---------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.usefixtures("spark", "topics")
def test_a_fan_out_writes_to_a_table_and_to_an_archive(reader: Page, database: Database, archive: Any) -> None:
    with stopped(lambda: has(database, "public.events", 3)() and len(parquet(archive, "events/raw")[0]) == 3):
        reader.run(TYPED, STREAM_FAN_OUT).events_fanout()
    rows, compressions = parquet(archive, "events/raw")
    assert users(database) == LOADED
    assert sorted((row["event_id"], row["user_id"], row["page"], row["payload"]) for row in rows) == LOADED
    assert compressions == {"ZSTD"}


@pytest.mark.usefixtures("spark", "topics")
def test_sql_joins_a_lookup(reader: Page, database: Database) -> None:
    database.run(USERS)
    with stopped(has(database, "public.events_clean", 3)):
        reader.run(TYPED)
        reader.run(SQL, run_streaming_pipeline=run_streaming_pipeline, Lookup=Lookup)
    found = database.rows("SELECT user_id, _event_ts IS NOT NULL, tier FROM public.events_clean ORDER BY 1")
    assert found == [(7, True, "gold"), (7, True, "gold"), (8, True, None)]


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_many_rows_become_one_with_json(reader: Page, database: Database, archive: Any, s3_url: str) -> None:
    database.run("CREATE SCHEMA marketdata")
    database.run(reader.samples[PIVOT_TABLE].text)
    archive.put_object(Bucket=BUCKET, Key="raw/options/today.csv", Body=OPTIONS.encode())
    with stopped(has(database, "marketdata.option_chain_snapshots", 2)):
        reader.run(TYPED)
        reader.run(PIVOT, run_streaming_pipeline=run_streaming_pipeline, s3=lake_at(s3_url, file_format="csv"))
    found = database.rows(
        "SELECT to_char(minute AT TIME ZONE 'UTC', 'HH24:MI'), strikes_json FROM marketdata.option_chain_snapshots"
        " ORDER BY 1"
    )
    strikes = [(minute, sorted(json, key=lambda one: one["strike"])) for minute, json in found]
    assert strikes == [
        ("14:30", [{"strike": 4500, "bid": 1.25, "ask": 1.3}, {"strike": 4505, "bid": 0.95, "ask": 1.0}]),
        ("14:31", [{"strike": 4500, "bid": 1.35, "ask": 1.4}]),
    ]


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_bad_message_goes_to_the_dead_letters(reader: Page, database: Database, kafka: Kafka) -> None:
    from tests.streams.kafka_topics import everything

    fill(kafka, "events-failed", [])
    fill(kafka, "events", [b'{"event_id": 1}', b"no json", b'{"event_id": 2}'])
    sample = filled(
        reader.samples[ERRORS], name="'policy'", source="kafka_prod", source_query="'events'", target="warehouse",
        target_table="('public', 'events')",
    )  # fmt: skip
    reader.run(TYPED, run_streaming_pipeline=run_streaming_pipeline)
    with stopped(has(database, "public.events", 2)):
        reader.run_sample(sample)
    assert database.rows("SELECT event_id FROM public.events ORDER BY 1") == [(1,), (2,)]
    (letter,) = everything(kafka, "events-failed")
    assert letter.value() == b"no json"


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("a watermark without a window changes nothing")
def test_a_watermark_is_taken_by_a_stream_without_windows(reader: Page, database: Database) -> None:
    sample = filled(
        reader.samples[WATERMARK], name="'slack'", source="kafka_prod", source_query="'events'", target="warehouse",
        target_table="('public', 'events')",
    )  # fmt: skip
    reader.run(TYPED, run_streaming_pipeline=run_streaming_pipeline)
    with stopped(has(database, "public.events", 3)):
        reader.run_sample(sample)
    assert users(database) == LOADED


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("its policy and its SQL are run by other samples")
def test_the_knobs_of_the_first_document_are_taken(reader: Page, database: Database, kafka: Kafka) -> None:
    fill(kafka, "events-failed", [])
    reader.run(TYPED, run_streaming_pipeline=run_streaming_pipeline)
    knobs = documents.unindented(FIRST, after="Advanced knobs (Π.1)", first="from ematix_flow import Watermark")
    with stopped(has(database, "public.events", 3)):
        reader.run_sample(knobs)
    assert database.rows("SELECT user_id, payload FROM public.events ORDER BY 2") == [(7, "one"), (8, "two"), (7, None)]


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("the fan-out writes the same archive")
def test_the_archive_of_the_first_document_is_compressed(reader: Page, archive: Any) -> None:
    reader.run(TYPED, run_streaming_pipeline=run_streaming_pipeline)
    sample = documents.unindented(
        FIRST, after="Object-store target with compression (Π.1.4)",
        first="from ematix_flow import ObjectStoreS3Connection, Target",
    )  # fmt: skip
    with stopped(lambda: len(parquet(archive, "events/raw")[0]) == 3):
        reader.run_sample(sample)
    assert parquet(archive, "events/raw")[1] == {"ZSTD"}
    assert [key for key in keys_of(archive, "") if not key.startswith(("events/raw/", "_ematix_flow/"))] == []


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("the contract suite writes CSV with every option")
def test_the_printed_options_shape_an_archive_of_csv(reader: Page, archive: Any, s3_url: str) -> None:
    printed = ast.parse(reader.samples[WRITE_OPTIONS].text).body[1]
    call = compile(ast.Expression(printed.value), WRITE_OPTIONS, "eval")  # type: ignore[attr-defined]
    target = eval(call, {"Target": Target, "lake": lake_at(s3_url, file_format="csv")})
    source = reader.run(TYPED).kafka_prod
    with stopped(lambda: len(lines_of(archive, "events/csv")) == 3):
        run_streaming_pipeline(
            name="csv", source=source, source_query="events", targets=[target],
            transform_sql="SELECT event_id, page || ';' AS page, payload FROM source",
        )  # fmt: skip
    assert lines_of(archive, "events/csv") == ["1;'/start;';one", "2;'/start;';two", "3;'/end;';\\N"]


@pytest.mark.usefixtures("spark")
@pytest.mark.full("the contract suite reads CSV with every option")
def test_the_printed_options_read_an_archive_of_csv(
    reader: Page, database: Database, archive: Any, s3_url: str
) -> None:
    printed = ast.parse(reader.samples[READ_OPTIONS].text).body[0]
    call = compile(ast.Expression(printed.value), READ_OPTIONS, "eval")  # type: ignore[attr-defined]
    options = eval(call, {"Target": Target, "lake": "lake"}).csv_read_options
    body = 'event_id,user_id,page,payload\n# a remark\n1,7,"/st,art",NA\n2,8,"say \\"hi\\"",NULL\n'
    archive.put_object(Bucket=BUCKET, Key="events/csv/one.csv", Body=body.encode())
    lake = lake_at(s3_url, file_format="csv")
    with stopped(has(database, "public.events", 2)):
        run_streaming_pipeline(
            name="read", sources=[Source(lake, "events/csv", csv_read_options=options)], target=reader.run(TYPED).warehouse,
            target_table=("public", "events"),
        )  # fmt: skip
    assert users(database) == [(1, 7, "/st,art", None), (2, 8, 'say "hi"', None)]


@pytest.mark.full
@pytest.mark.usefixtures("spark", "topics")
def test_a_stream_finds_the_connections_of_the_printed_file(
    reader: Page, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.values["postgres://user:${WAREHOUSE_PASSWORD}@host/wh"] = database.url
    (Path.home() / ".ematix-flow").mkdir()
    text = reader.samples[CONNECTIONS_FILE].saying(reader.values).text
    (Path.home() / ".ematix-flow" / "connections.toml").write_text(text, encoding="utf-8")
    with stopped(has(database, "public.events", 3)):
        run_streaming_pipeline(
            name="named",
            source="kafka_prod",
            source_query="events",
            target="warehouse",
            target_table=("public", "events"),
        )
    assert users(database) == LOADED


@pytest.mark.full
def test_the_first_document_prints_the_words_of_the_same_command(reader: Page) -> None:
    first = documents.between(FIRST, first="cargo run --release --bin flow -- consume pipeline.toml \\",
                              end="Or skip the TOML entirely (Π.3 typed-Python form)")  # fmt: skip
    words = first.text.replace("\\\n", " ").split(" -- ")[1].split()
    assert words[0] == "consume"
    assert parsed_command(words)["metrics_port"] == 9100


# Schemas, and by hand -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sample", [REGISTRY, AVRO])
@pytest.mark.full("tests/streams reads Avro by every registry")
def test_avro_is_read_by_the_registry_that_is_named(
    reader: Page, database: Database, kafka: Kafka, schema_registry: str, monkeypatch: pytest.MonkeyPatch, sample: str
) -> None:
    monkeypatch.setenv("SR_URL", schema_registry)
    _fill_with_avro(kafka, schema_registry)
    found = reader.run(TYPED, REGISTRY)
    found = reader.run(sample)
    with stopped(has(database, "public.events", 3)):
        run_streaming_pipeline(
            name="avro", source=found.kafka_avro, source_query="events", target=found.warehouse,
            target_table=("public", "events"),
        )  # fmt: skip
    assert users(database) == LOADED


@pytest.mark.full
@pytest.mark.parametrize(
    "document", [DOCUMENT, pytest.param(FIRST, marks=pytest.mark.full("the other document prints the same"))]
)
def test_the_printed_notebook_reads_every_batch(
    reader: Page, kafka: Kafka, schema_registry: str, document: str
) -> None:
    from tests.streams.kafka_topics import group_offsets

    _fill_with_avro(kafka, schema_registry)
    batches: list[Any] = []
    reader.values |= {"localhost:9092": kafka.logins, "http://localhost:8081": schema_registry, '"alice"': f'"{USER}"'}
    reader.values['"secret"'] = f'"{PASSWORD}"'
    reader.run(process=batches.append)
    reader.run_sample(
        reader.samples[NOTEBOOK]
        if document == DOCUMENT
        else documents.unindented(
            FIRST,
            after="Python API: streaming backends from a notebook",
            first="from ematix_flow._core import KafkaBackend",
        )
    )
    reader.module.backend.close()  # a reader that is still there keeps the group from being emptied
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == LOADED
    assert group_offsets(kafka, "ematix-flow") == {"events-0": 3}


def _fill_with_avro(kafka: Kafka, registry: str) -> None:
    import pyarrow as pa

    from ematix_flow._core import KafkaBackend

    fill(kafka, "events", [])
    backend = KafkaBackend.open(kafka.open, payload_format="avro", schema_registry_url=registry)
    backend.write_arrow_stream("events", [pa.RecordBatch.from_pylist(EVENTS)])
