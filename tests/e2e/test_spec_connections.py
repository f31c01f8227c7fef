"""Connections and file options of the product's 0.3.0 document, as printed; and no batch sample of it is left out."""

from __future__ import annotations

import ast
import re
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
from tests.e2e.words import worded

DOCUMENT, DEPOT = documents.NEWER, worded("depot")


def test_every_batch_sample_of_the_document_has_a_test() -> None:
    python = {name: sample for name, sample in documents.fenced(DOCUMENT).items() if sample.language == "python"}
    batch = {name for name, sample in python.items() if not any(word in sample.text for word in STREAMING)}
    assert batch == BATCH


def test_decorated_connections_are_typed_registered_and_open(page: Page) -> None:
    found = page.run(DECORATOR)
    assert isinstance(found.depot, PostgresConnection)
    assert isinstance(found.ride_bus, KafkaConnection)
    assert get_connection(DEPOT) is found.depot
    assert found.ride_bus.resolved().bootstrap_servers == "broker.example:9092"
    with connect(DEPOT) as by_name, config.connect(found.depot) as by_reference:
        assert by_name.fetch_scalar_int("SELECT 41 + 1") == 42
        assert by_reference.ping()
    assert config.check_connection(DEPOT)[0]


def test_no_way_of_printing_a_connection_shows_its_secrets(page: Page, database: Database) -> None:
    found = page.run(DECORATOR)
    password = database.url.split("//", 1)[1].split("@")[0].partition(":")[2]
    shown = [repr(found.ride_bus), repr(found.ride_bus.resolved()), repr(found.depot.resolved())]
    shown += [str(connect(DEPOT)), repr(config.list_connections()), config.check_connection(DEPOT)[1]]
    assert "kafka-geheim" not in "".join(shown)
    assert not password or f":{password}@" not in "".join(shown)


def test_a_typed_instance_is_registered_under_its_name(page: Page) -> None:
    found = page.run(INSTANCE)
    assert get_connection(DEPOT) is found.depot
    assert found.depot.url == worded("postgres://127.0.0.1/depot")


@pytest.mark.parametrize("sample", [REGISTRY, AVRO])
def test_a_schema_registry_is_referred_to_by_name(page: Page, sample: str) -> None:
    found = page.run(DECORATOR, REGISTRY, sample)
    assert isinstance(found.ride_shapes, SchemaRegistryConnection)
    assert found.ride_bus_avro.payload_format == "avro"
    assert found.ride_bus_avro.schema_registry == worded("ride_shapes")


def test_an_inline_url_opens_a_connection(page: Page, database: Database) -> None:
    with config.connect(url=database.url) as conn:
        assert conn.query(worded("SELECT station FROM intake.rides WHERE ride_id = 1"))["rows"] == [["login"]]


def test_formats_are_derived_from_paths(page: Page) -> None:
    found = page.run(FORMATS)
    told = dict(re.findall(r'^format_from_path\("(.*)"\) +# → "(.*)"$', page.samples[FORMATS].text, re.MULTILINE))
    assert {"csv", "json_lines", "parquet"} <= set(told.values())
    assert {path: found.format_from_path(path) for path in told} == told


@pytest.mark.parametrize("sample", [WRITE_OPTIONS, READ_OPTIONS])
def test_file_options_are_accepted_for_a_lake_by_name(page: Page, sample: str) -> None:
    page.run(sample, Target=Target, cellar="cellar")


@pytest.mark.parametrize("sample", [WRITE_OPTIONS, READ_OPTIONS])
def test_file_options_are_checked_against_the_format_of_a_typed_lake(page: Page, tmp_path: Path, sample: str) -> None:
    made = {name: ObjectStoreLocalConnection(name, path=str(tmp_path), format=name) for name in ("parquet", "csv")}
    for statement in ast.parse(page.samples[sample].text).body:
        call = compile(ast.Expression(statement.value), sample, "eval")  # type: ignore[attr-defined]
        fits, refuses = ("csv", "parquet") if "csv" in ast.unparse(statement) else ("parquet", "csv")
        assert eval(call, {"Target": Target, worded("cellar"): made[fits]}).connection is made[fits]
        with pytest.raises(DeclarationError, match=f"this connection holds {refuses}"):
            eval(call, {"Target": Target, worded("cellar"): made[refuses]})
