"""The samples with functions of the user's run as printed, against the servers they name."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ematix_flow._core import run_pipeline_from_toml_str
from tests.e2e import documents
from tests.e2e.names import PIVOT_TABLE, TYPED, UDAF, UDF
from tests.e2e.samples import Database, Page
from tests.e2e.streaming import fill, has, lake_at, put, stopped
from tests.e2e.words import worded
from tests.services.kafka import Kafka
from tests.streams.sample_functions import Vwap

JARS = {"delta", "kafka", "avro", "s3a"}
DOCUMENT = documents.NEWER
pytestmark = pytest.mark.full

LEVELS = """seen_at,dock,bikes,slots,capacity,tilt,rust,years
2026-03-02T14:30:01Z,4500,1.25,1.30,4500,0.2,0.05,0.25
2026-03-02T14:30:40Z,4600,0.95,1.00,4500,0.2,0.05,0.25
2026-03-02T14:31:00Z,4500,1.35,1.40,4510,0.2,0.05,0.25
"""
QUOTES = [
    {"seen_at": "2026-03-02T14:30:01Z", "grade": 100.0, "headcount": 10},
    {"seen_at": "2026-03-02T14:30:40Z", "grade": 110.0, "headcount": 5},
    {"seen_at": "2026-03-02T14:31:00Z", "grade": 105, "headcount": 15},
    {"seen_at": "2026-03-02T14:32:00Z", "grade": 105.5, "headcount": 0},
]


@pytest.mark.usefixtures("spark")
def test_a_function_is_called_inside_of_json(reader: Page, database: Database, archive: Any, s3_url: str) -> None:
    database.run("CREATE SCHEMA telemetry")
    database.run(reader.samples[PIVOT_TABLE].text)
    put(archive, "levels/incoming/today.csv", LEVELS)
    with stopped(has(database, "telemetry.dock_levels", 2)):
        reader.run(TYPED)
        function = reader.run(UDF, bay=lake_at(s3_url, file_format="csv")).strain_of
    found = database.rows(
        "SELECT to_char(at_minute AT TIME ZONE 'UTC', 'HH24:MI'), item->'dock', item->'bikes', item->'slots', item->'strain'"
        " FROM telemetry.dock_levels, jsonb_array_elements(docks_json) AS item ORDER BY 1, 2"
    )
    docks, rooms = pa.array([4500.0, 4600.0, 4500.0]), pa.array([4500.0, 4500.0, 4510.0])
    by_hand = function(docks, rooms, *(pa.array([value] * 3) for value in (0.2, 0.05, 0.25))).to_pylist()
    assert len(set(by_hand)) == 3
    assert found == [
        ("14:30", 4500, 1.25, 1.3, pytest.approx(by_hand[0])),
        ("14:30", 4600, 0.95, 1.0, pytest.approx(by_hand[1])),
        ("14:31", 4500, 1.35, 1.4, pytest.approx(by_hand[2])),
    ]


@pytest.mark.usefixtures("spark")
def test_a_class_aggregates_the_messages_of_a_batch(reader: Page, database: Database, kafka: Kafka) -> None:
    fill(kafka, "grades", [json.dumps(quote).encode() for quote in QUOTES])
    with stopped(has(database, "telemetry.grade_by_minute", 3)):
        found = reader.run(TYPED)
        reader.run(UDAF, grade_bus=found.ride_bus)
    found = database.rows(
        "SELECT to_char(at_minute AT TIME ZONE 'UTC', 'HH24:MI'), weighted_grade FROM telemetry.grade_by_minute ORDER BY 1"
    )
    assert found == [("14:30", pytest.approx(1550 / 15)), ("14:31", 105.0), ("14:32", None)]


@pytest.mark.usefixtures("spark")
def test_the_stream_of_a_text_is_given_functions(reader: Page, database: Database, kafka: Kafka) -> None:
    fill(kafka, "grades", [json.dumps(quote).encode() for quote in QUOTES])
    topic, grade, heads = (worded(word) for word in ("grades", "grade", "headcount"))
    text = f"""
pipeline_name = "vwap"
source_query = "{topic}"
[source]
kind = "kafka"
bootstrap_servers = "{kafka.open}"
[target]
kind = "postgres"
url = "{database.url}"
[target.table]
schema = "public"
name = "vwap"
[transform]
sql = "SELECT sum({grade}) AS total, vwap({grade}, {heads}) AS vwap FROM source"
"""
    with stopped(has(database, "public.vwap", 1)):
        run_pipeline_from_toml_str(text, aggregate_udfs=[Vwap])
    assert database.rows("SELECT total, vwap FROM public.vwap") == [(420.5, pytest.approx(3125 / 30))]
