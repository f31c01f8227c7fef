"""Connections and file options of the product's 0.3.0 document, as printed; and no batch sample of it is left out."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ematix_flow import (
    KafkaConnection,
    ObjectStoreLocalConnection,
    PostgresConnection,
    SchemaRegistryConnection,
    Target,
    config,
    connect,
    get_connection,
)
from ematix_flow.foundation.errors import DeclarationError
from tests.e2e import documents
from tests.e2e.names import AVRO, BATCH, DECORATOR, FORMATS, INSTANCE, READ_OPTIONS, REGISTRY, STREAMING, WRITE_OPTIONS
from tests.e2e.samples import Database, Page

DOCUMENT = "readme-0.3.0.txt"
pytestmark = pytest.mark.skipif(not (documents.FOLDER / DOCUMENT).is_file(), reason=documents.MISSING)


def test_every_batch_sample_of_the_document_has_a_test() -> None:
    python = {name: sample for name, sample in documents.fenced(DOCUMENT).items() if sample.language == "python"}
    batch = {name for name, sample in python.items() if not any(word in sample.text for word in STREAMING)}
    assert batch == BATCH


def test_decorated_connections_are_typed_registered_and_open(page: Page) -> None:
    found = page.run(DECORATOR)
    assert isinstance(found.warehouse, PostgresConnection)
    assert isinstance(found.kafka_prod, KafkaConnection)
    assert get_connection("warehouse") is found.warehouse
    assert found.kafka_prod.resolved().bootstrap_servers == "broker.example:9092"
    with connect("warehouse") as by_name, config.connect(found.warehouse) as by_reference:
        assert by_name.fetch_scalar_int("SELECT 41 + 1") == 42
        assert by_reference.ping()
    assert config.check_connection("warehouse")[0]


def test_no_way_of_printing_a_connection_shows_its_secrets(page: Page, database: Database) -> None:
    found = page.run(DECORATOR)
    password = database.url.split("//", 1)[1].split("@")[0].partition(":")[2]
    shown = [repr(found.kafka_prod), repr(found.kafka_prod.resolved()), repr(found.warehouse.resolved())]
    shown += [str(connect("warehouse")), repr(config.list_connections()), config.check_connection("warehouse")[1]]
    assert "kafka-geheim" not in "".join(shown)
    assert not password or f":{password}@" not in "".join(shown)


def test_a_typed_instance_is_registered_under_its_name(page: Page) -> None:
    found = page.run(INSTANCE)
    assert get_connection("warehouse") is found.warehouse
    assert found.warehouse.url == "postgres://localhost/wh"


@pytest.mark.parametrize("sample", [REGISTRY, AVRO])
def test_a_schema_registry_is_referred_to_by_name(page: Page, sample: str) -> None:
    found = page.run(DECORATOR, REGISTRY, sample)
    assert isinstance(found.sr_prod, SchemaRegistryConnection)
    assert (found.kafka_avro.payload_format, found.kafka_avro.schema_registry) == ("avro", "sr_prod")


def test_an_inline_url_opens_a_connection(page: Page, database: Database) -> None:
    with config.connect(url=database.url) as conn:
        assert conn.query("SELECT name FROM raw.events WHERE event_id = 1")["rows"] == [["login"]]


def test_formats_are_told_from_paths(page: Page) -> None:
    found = page.run(FORMATS)
    told = [line.split("#")[1] for line in page.samples[FORMATS].text.splitlines() if "→" in line]
    paths = ("s3://bucket/year=2026/events.csv.gz", "logs.ndjson", "data.parquet")
    assert [f'→ "{found.format_from_path(path)}"' for path in paths] == [text.strip() for text in told]


@pytest.mark.parametrize("sample", [WRITE_OPTIONS, READ_OPTIONS])
def test_file_options_are_accepted_for_a_lake_by_name(page: Page, sample: str) -> None:
    page.run(sample, Target=Target, lake="lake")


@pytest.mark.parametrize("sample", [WRITE_OPTIONS, READ_OPTIONS])
def test_file_options_are_checked_against_the_format_of_a_typed_lake(page: Page, tmp_path: Path, sample: str) -> None:
    made = {name: ObjectStoreLocalConnection(name, path=str(tmp_path), format=name) for name in ("parquet", "csv")}
    for statement in ast.parse(page.samples[sample].text).body:
        call = compile(ast.Expression(statement.value), sample, "eval")  # type: ignore[attr-defined]
        fits, refuses = ("csv", "parquet") if "csv" in ast.unparse(statement) else ("parquet", "csv")
        assert eval(call, {"Target": Target, "lake": made[fits]}).connection is made[fits]
        with pytest.raises(DeclarationError, match=f"this connection holds {refuses}"):
            eval(call, {"Target": Target, "lake": made[refuses]})
