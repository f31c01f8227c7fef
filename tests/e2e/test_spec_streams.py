"""Every streaming sample of the product's documents, or of their twins, runs as printed against the servers it names.

Only what a reader replaces is replaced: hosts, ports and logins. A stream is stopped by SIGTERM once its rows are there.
`...` in a sample stands for the keywords of a stream, which are given here. Samples with state are in
test_spec_stateful.py, those with functions in test_spec_functions.py, those with files in test_spec_archives.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ematix_flow
from ematix_flow import Lookup, run_streaming_pipeline
from ematix_flow.cli import main
from ematix_flow.config.stream_toml import stream_from_text
from ematix_flow.declare.streams import registry as streams
from tests.e2e import documents
from tests.e2e.documents import Sample, early
from tests.e2e.names import (
    AVRO,
    CONNECTIONS_FILE,
    CONSUME_FILE,
    EARLY_NOTEBOOK,
    ERRORS,
    FILE,
    FILE_BY_COMMAND,
    FILE_BY_PYTHON,
    KNOBS,
    NOTEBOOK,
    REGISTRY,
    RUN_FILE,
    SQL,
    STREAM_FILE,
    STREAMING,
    STREAMS,
    SUMMARY,
    TYPED,
    TYPED_BY_COMMAND,
    TYPED_STREAM,
    WATERMARK,
)  # fmt: skip
from tests.e2e.samples import MODULE, Database, Page, parsed_command
from tests.e2e.streaming import (
    EVENTS,
    GROUP,
    LOADED,
    SECONDS,
    USERS,
    eventually,
    fill,
    has,
    metrics,
    stopped,
    users,
)  # fmt: skip
from tests.e2e.words import worded
from tests.services.kafka import PASSWORD, USER, Kafka

DOCUMENT, FIRST = documents.NEWER, documents.FIRST
JARS = {"delta", "kafka", "avro", "s3a"}


def filled(sample: Sample, **keywords: str) -> Sample:
    """A sample whose `...` stands for the keywords of a stream."""
    said = ", ".join(f"{name}={worded(value)}" for name, value in keywords.items())
    assert "\n    ...,\n" in sample.text
    return sample.saying({"\n    ...,\n": f"\n    {said},\n"})


def test_every_streaming_sample_of_the_document_has_a_test() -> None:
    python = {name: sample for name, sample in documents.fenced(DOCUMENT).items() if sample.language == "python"}
    assert {name for name, sample in python.items() if any(word in sample.text for word in STREAMING)} == STREAMS


# Three doors ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark", "topics")
def test_the_printed_file_is_run_by_python(reader: Page, database: Database) -> None:
    Path(worded("rides.toml")).write_text(reader.samples[FILE].saying(reader.values).text)
    told: list[str] = []
    name = worded("rides-to-depot")

    def is_there() -> bool:
        told.append(metrics(reader.values[worded("9464")]))
        return f'rows_written_total{{pipeline="{name}"}} 3' in told[-1]

    with stopped(is_there):
        reader.run(FILE_BY_PYTHON)
    assert users(database) == LOADED
    assert f'ematix_streaming_rows_consumed_total{{pipeline="{name}"}} 3' in told[-1]


@pytest.fixture
def project(reader: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed file and the printed module stand in the working directory."""
    monkeypatch.delitem(sys.modules, MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path(worded("rides.toml")).write_text(reader.samples[FILE].saying(reader.values).text)
    Path(f"{MODULE}.py").write_text(reader.samples[TYPED].saying(reader.values).text)


COMMANDS = [(FILE_BY_COMMAND, worded("rides-to-depot")), (TYPED_BY_COMMAND, worded("rides_to_depot"))]


@pytest.mark.usefixtures("spark", "topics", "project")
@pytest.mark.parametrize(("sample", "name"), COMMANDS)
def test_the_printed_command_runs_a_stream(
    reader: Page, database: Database, capsys: pytest.CaptureFixture[str], sample: str, name: str
) -> None:
    command = reader.samples[sample].saying(reader.values).commands()[0]
    with stopped(has(database, "public.rides", 3)):
        assert main(command) == 0
    assert capsys.readouterr().out == f"{name}  3 rows in 1 batches\n"
    assert users(database) == LOADED


@pytest.mark.usefixtures("project")
def test_the_printed_command_lists_the_streams(reader: Page, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(reader.samples[TYPED_BY_COMMAND].commands()[1]) == 0
    assert capsys.readouterr().out == worded("rides_to_depot  rides (ride_bus) → public.rides (depot)\n")


@pytest.mark.full
def test_the_summary_of_commands_names_the_same(page: Page) -> None:
    told = [" ".join(command) for command in page.samples[SUMMARY].commands() if command[0].startswith("consume")]
    ways = ["consume <toml>", f"consume --module {MODULE} <name>", f"consume-list --module {MODULE}"]
    assert told == ways


@pytest.mark.usefixtures("topics", "project")
@pytest.mark.parametrize(("sample", "name"), COMMANDS)
@pytest.mark.full("the same command runs inside of the tests")
def test_a_process_of_the_printed_command_ends_when_it_is_stopped(
    reader: Page, database: Database, sample: str, name: str
) -> None:
    command = reader.samples[sample].saying(reader.values).commands()[0]
    process = subprocess.Popen(
        [sys.executable, "-m", "ematix_flow.cli", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(ematix_flow.__file__).parents[1]), "NO_COLOR": "1"},
    )  # fmt: skip
    try:
        eventually(lambda: process.poll() is not None or has(database, "public.rides", 3)())
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err.count("Traceback")) == (0, 0), err
    assert out == f"{name}  3 rows in 1 batches\n"
    assert users(database) == LOADED


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("the same stream runs by its command")
def test_the_printed_function_is_called(reader: Page, database: Database) -> None:
    with stopped(has(database, "public.rides", 3)):
        outcome = reader.run(TYPED).rides_to_depot()
    assert dict(outcome) == {"total_rows": 3, "iterations": 1, "shutdown_triggered": True, "restarts": 0}
    assert users(database) == LOADED


@pytest.mark.full
def test_the_first_document_prints_the_same_file_and_the_same_module(reader: Page) -> None:
    assert stream_from_text(early(STREAM_FILE).text) == stream_from_text(reader.samples[FILE].text)
    assert early(RUN_FILE).text == reader.samples[FILE_BY_PYTHON].text
    now = reader.run(TYPED).rides_to_depot.spec
    streams.clear()
    module = reader.run_sample(early(TYPED_STREAM))
    assert module.rides_to_depot.spec == now


# What a stream does ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark", "topics")
def test_sql_joins_a_lookup(reader: Page, database: Database) -> None:
    database.run(USERS)
    with stopped(has(database, "public.rides_with_plans", 3)):
        reader.run(TYPED)
        reader.run(SQL, run_streaming_pipeline=run_streaming_pipeline, Lookup=Lookup)
    found = database.rows("SELECT rider_id, _event_ts IS NOT NULL, plan FROM public.rides_with_plans ORDER BY 1")
    assert found == [(7, True, "gold"), (7, True, "gold"), (8, True, None)]


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_bad_message_goes_to_the_dead_letters(reader: Page, database: Database, kafka: Kafka) -> None:
    from tests.streams.kafka_topics import everything

    fill(kafka, "rides-refused", [])
    fill(kafka, "rides", [b'{"ride_id": 1}', b"no json", b'{"ride_id": 2}'])
    sample = filled(
        reader.samples[ERRORS], name="'policy'", source="ride_bus", source_query="'rides'", target="depot",
        target_table="('public', 'rides')",
    )  # fmt: skip
    reader.run(TYPED, run_streaming_pipeline=run_streaming_pipeline)
    with stopped(has(database, "public.rides", 2)):
        reader.run_sample(sample)
    assert database.rows("SELECT ride_id FROM public.rides ORDER BY 1") == [(1,), (2,)]
    (letter,) = everything(kafka, worded("rides-refused"))
    assert letter.value() == b"no json"


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("a watermark without a window changes nothing")
def test_a_watermark_is_taken_by_a_stream_without_windows(reader: Page, database: Database) -> None:
    sample = filled(
        reader.samples[WATERMARK], name="'slack'", source="ride_bus", source_query="'rides'", target="depot",
        target_table="('public', 'rides')",
    )  # fmt: skip
    reader.run(TYPED, run_streaming_pipeline=run_streaming_pipeline)
    with stopped(has(database, "public.rides", 3)):
        reader.run_sample(sample)
    assert users(database) == LOADED


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("its policy and its SQL are run by other samples")
def test_the_knobs_of_the_first_document_are_taken(reader: Page, database: Database, kafka: Kafka) -> None:
    fill(kafka, "rides-refused", [])
    reader.run(TYPED, run_streaming_pipeline=run_streaming_pipeline)
    with stopped(has(database, "public.rides", 3)):
        reader.run_sample(early(KNOBS))
    assert database.rows("SELECT rider_id, remark FROM public.rides ORDER BY 2") == [(7, "one"), (8, "two"), (7, None)]


@pytest.mark.full
@pytest.mark.usefixtures("spark", "topics")
def test_a_stream_finds_the_connections_of_the_printed_file(
    reader: Page, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    (printed,) = re.findall(r'url = "(.*)"', reader.samples[CONNECTIONS_FILE].text)
    reader.values[printed] = database.url
    (Path.home() / ".ematix-flow").mkdir()
    text = reader.samples[CONNECTIONS_FILE].saying(reader.values).text
    (Path.home() / ".ematix-flow" / "connections.toml").write_text(text, encoding="utf-8")
    with stopped(has(database, "public.rides", 3)):
        run_streaming_pipeline(
            name="named",
            source=worded("ride_bus"),
            source_query=worded("rides"),
            target=worded("depot"),
            target_table=("public", worded("rides")),
        )
    assert users(database) == LOADED


@pytest.mark.full
def test_the_first_document_prints_the_words_of_the_same_command(reader: Page) -> None:
    words = early(CONSUME_FILE).text.replace("\\\n", " ").split()
    parsed = parsed_command(words[words.index("consume") :])
    assert (str(parsed["metrics_port"]), parsed["restart_on_error"]) == (worded("9464"), True)


# Schemas, and by hand -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sample", [REGISTRY, AVRO])
@pytest.mark.full("tests/streams reads Avro by every registry")
def test_avro_is_read_by_the_registry_that_is_named(
    reader: Page, database: Database, kafka: Kafka, schema_registry: str, monkeypatch: pytest.MonkeyPatch, sample: str
) -> None:
    monkeypatch.setenv(worded("SHAPES_URL"), schema_registry)
    _fill_with_avro(kafka, schema_registry)
    found = reader.run(TYPED, REGISTRY)
    found = reader.run(sample)
    with stopped(has(database, "public.rides", 3)):
        run_streaming_pipeline(
            name="avro", source=found.ride_bus_avro, source_query=worded("rides"), target=found.depot,
            target_table=("public", worded("rides")),
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
    said = {"127.0.0.1:19092": kafka.logins, "http://127.0.0.1:18081": schema_registry}
    said |= {'"pedal"': f'"{USER}"', '"hush"': f'"{PASSWORD}"'}
    reader.values |= {worded(printed): value for printed, value in said.items()}
    reader.run(note=batches.append)
    reader.run_sample(reader.samples[NOTEBOOK] if document == DOCUMENT else early(EARLY_NOTEBOOK))
    reader.module.backend.close()  # a reader that is still there keeps the group from being emptied
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == LOADED
    assert group_offsets(kafka, GROUP) == {f"{worded('rides')}-0": 3}


def _fill_with_avro(kafka: Kafka, registry: str) -> None:
    import pyarrow as pa

    from ematix_flow._core import KafkaBackend

    fill(kafka, "rides", [])
    backend = KafkaBackend.open(kafka.open, payload_format="avro", schema_registry_url=registry)
    rows = [{worded(name): value for name, value in event.items()} for event in EVENTS]
    backend.write_arrow_stream(worded("rides"), [pa.RecordBatch.from_pylist(rows)])
