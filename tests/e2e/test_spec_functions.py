"""The samples with functions of the user's run as printed, against the servers they name."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import ObjectStoreS3Connection
from ematix_flow._core import run_pipeline_from_toml_str
from tests.e2e import documents
from tests.e2e.names import PIVOT, PIVOT_TABLE, SQL, TYPED, UDAF, UDF
from tests.e2e.samples import Database, Page
from tests.e2e.streaming import BUCKET, fill, has, stopped
from tests.e2e.test_spec_streams import DOCUMENT, JARS, archive
from tests.services.kafka import Kafka
from tests.streams import readme_functions

__all__ = ["JARS", "archive"]
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not (documents.FOLDER / DOCUMENT).is_file(), reason=documents.MISSING),
]

_DEFINED = (ast.FunctionDef, ast.ClassDef)
OPTIONS = """ts,strike,bid,ask,spot,vol,rate,expiry
2026-03-02T14:30:01Z,4500,1.25,1.30,4500,0.2,0.05,0.25
2026-03-02T14:30:40Z,4600,0.95,1.00,4500,0.2,0.05,0.25
2026-03-02T14:31:00Z,4500,1.35,1.40,4510,0.2,0.05,0.25
"""
QUOTES = [
    {"ts": "2026-03-02T14:30:01Z", "price": 100.0, "qty": 10},
    {"ts": "2026-03-02T14:30:40Z", "price": 110.0, "qty": 5},
    {"ts": "2026-03-02T14:31:00Z", "price": 105, "qty": 15},
    {"ts": "2026-03-02T14:32:00Z", "price": 105.5, "qty": 0},
]


def delta(strike: float, spot: float) -> float:
    d1 = (math.log(spot / strike) + (0.05 + 0.02) * 0.25) / (0.2 * math.sqrt(0.25))
    return 0.5 * (1 + math.erf(d1 / math.sqrt(2)))


@pytest.mark.usefixtures("spark")
def test_a_function_is_called_inside_of_json(reader: Page, database: Database, archive: Any, s3_url: str) -> None:
    database.run("CREATE SCHEMA marketdata")
    database.run(reader.samples[PIVOT_TABLE].text)
    archive.put_object(Bucket=BUCKET, Key="raw/options/today.csv", Body=OPTIONS.encode())
    s3 = ObjectStoreS3Connection(
        name="s3", endpoint=s3_url, bucket=BUCKET, region="us-east-1", access_key_id="${AWS_ACCESS_KEY_ID}",
        secret_access_key="${AWS_SECRET_ACCESS_KEY}", format="csv",
    )  # fmt: skip
    with stopped(has(database, "marketdata.option_chain_snapshots", 2)):
        reader.run(TYPED)
        reader.run(UDF, s3=s3)
    found = database.rows(
        "SELECT to_char(minute AT TIME ZONE 'UTC', 'HH24:MI'), item->'strike', item->'bid', item->'ask', item->'delta'"
        " FROM marketdata.option_chain_snapshots, jsonb_array_elements(strikes_json) AS item ORDER BY 1, 2"
    )
    assert found == [
        ("14:30", 4500, 1.25, 1.3, pytest.approx(delta(4500, 4500))),
        ("14:30", 4600, 0.95, 1.0, pytest.approx(delta(4600, 4500))),
        ("14:31", 4500, 1.35, 1.4, pytest.approx(delta(4500, 4510))),
    ]


@pytest.mark.usefixtures("spark")
def test_a_class_aggregates_the_messages_of_a_batch(reader: Page, database: Database, kafka: Kafka) -> None:
    fill(kafka, "quotes", [json.dumps(quote).encode() for quote in QUOTES])
    with stopped(has(database, "marketdata.vwap_per_minute", 3)):
        found = reader.run(TYPED)
        reader.run(UDAF, kafka_quotes=found.kafka_prod)
    found = database.rows(
        "SELECT to_char(minute AT TIME ZONE 'UTC', 'HH24:MI'), vwap FROM marketdata.vwap_per_minute ORDER BY 1"
    )
    assert found == [("14:30", pytest.approx(1550 / 15)), ("14:31", 105.0), ("14:32", None)]


@pytest.mark.usefixtures("spark")
def test_the_stream_of_a_text_is_given_functions(reader: Page, database: Database, kafka: Kafka) -> None:
    fill(kafka, "quotes", [json.dumps(quote).encode() for quote in QUOTES])
    text = f"""
pipeline_name = "vwap"
source_query = "quotes"
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
sql = "SELECT sum(price) AS total, vwap(price, qty) AS vwap FROM source"
"""
    with stopped(has(database, "public.vwap", 1)):
        run_pipeline_from_toml_str(text, aggregate_udfs=[readme_functions.Vwap])
    assert database.rows("SELECT total, vwap FROM public.vwap") == [(420.5, pytest.approx(3125 / 30))]


def test_the_copies_that_other_tests_use_say_what_is_printed(page: Page) -> None:
    copied = Path(readme_functions.__file__).read_text(encoding="utf-8")
    kept = {node.name: ast.dump(node) for node in ast.parse(copied).body if isinstance(node, _DEFINED)}
    printed = [ast.parse(page.samples[name].text) for name in (UDF, UDAF, PIVOT, SQL)]
    defined = {node.name: ast.dump(node) for tree in printed for node in tree.body if isinstance(node, _DEFINED)}
    said = [
        " ".join(str(keyword.value.value).split())
        for tree in printed
        for keyword in ast.walk(tree)
        if isinstance(keyword, ast.keyword)
        and keyword.arg == "transform_sql"
        and isinstance(keyword.value, ast.Constant)
    ]
    assert kept == defined
    assert said == [
        " ".join(text.split())
        for text in (readme_functions.WITH_GREEKS, readme_functions.VWAP_PER_MINUTE, readme_functions.SNAPSHOTS,
                     readme_functions.CLEANED)
    ]  # fmt: skip
