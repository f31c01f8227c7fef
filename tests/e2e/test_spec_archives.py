"""The samples of the product's documents, or of their twins, that write to or read from an object store."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from ematix_flow import Source, Target, run_streaming_pipeline
from tests.e2e import documents
from tests.e2e.documents import early
from tests.e2e.names import ARCHIVE, PIVOT, PIVOT_TABLE, READ_OPTIONS, STREAM_FAN_OUT, TYPED, WRITE_OPTIONS
from tests.e2e.samples import Database, Page
from tests.e2e.streaming import (
    EVENTS,
    LEVELS,
    LOADED,
    has,
    keys_of,
    lake_at,
    lines_of,
    parquet,
    put,
    stopped,
    users,
)  # fmt: skip
from tests.e2e.words import worded

DOCUMENT = documents.NEWER
JARS = {"delta", "kafka", "avro", "s3a"}


@pytest.mark.full
@pytest.mark.usefixtures("spark", "topics")
def test_a_fan_out_writes_to_a_table_and_to_an_archive(reader: Page, database: Database, archive: Any) -> None:
    with stopped(lambda: has(database, "public.rides", 3)() and len(parquet(archive, "rides/kept")[0]) == 3):
        reader.run(TYPED, STREAM_FAN_OUT).rides_both_ways()
    rows, compressions = parquet(archive, "rides/kept")
    assert users(database) == LOADED
    columns = [worded(column) for column in EVENTS[0]]
    assert sorted(tuple(row[column] for column in columns) for row in rows) == LOADED
    assert compressions == {"ZSTD"}


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_many_rows_become_one_with_json(reader: Page, database: Database, archive: Any, s3_url: str) -> None:
    database.run("CREATE SCHEMA telemetry")
    database.run(reader.samples[PIVOT_TABLE].text)
    put(archive, "levels/incoming/today.csv", LEVELS)
    with stopped(has(database, "telemetry.dock_levels", 2)):
        reader.run(TYPED)
        reader.run(PIVOT, run_streaming_pipeline=run_streaming_pipeline, bay=lake_at(s3_url, file_format="csv"))
    found = database.rows(
        "SELECT to_char(at_minute AT TIME ZONE 'UTC', 'HH24:MI'), docks_json FROM telemetry.dock_levels ORDER BY 1"
    )
    keys = [worded(key) for key in ("dock", "bikes", "slots")]
    docks = [(minute, sorted(tuple(one[key] for key in keys) for one in told)) for minute, told in found]
    assert docks == [("14:30", [(4500, 1.25, 1.3), (4505, 0.95, 1.0)]), ("14:31", [(4500, 1.35, 1.4)])]
    assert {tuple(sorted(one)) for _, told in found for one in told} == {tuple(sorted(keys))}


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("the fan-out writes the same archive")
def test_the_archive_of_the_first_document_is_compressed(reader: Page, archive: Any) -> None:
    reader.run(TYPED, run_streaming_pipeline=run_streaming_pipeline)
    with stopped(lambda: len(parquet(archive, "rides/kept")[0]) == 3):
        reader.run_sample(early(ARCHIVE))
    assert parquet(archive, "rides/kept")[1] == {"ZSTD"}
    assert [key for key in keys_of(archive, "") if not key.startswith((worded("rides/kept/"), "_ematix_flow/"))] == []


@pytest.mark.usefixtures("spark", "topics")
@pytest.mark.full("the contract suite writes CSV with every option")
def test_the_printed_options_shape_an_archive_of_csv(reader: Page, archive: Any, s3_url: str) -> None:
    printed = ast.parse(reader.samples[WRITE_OPTIONS].text).body[1]
    call = compile(ast.Expression(printed.value), WRITE_OPTIONS, "eval")  # type: ignore[attr-defined]
    target = eval(call, {"Target": Target, worded("cellar"): lake_at(s3_url, file_format="csv")})
    mark, quote = target.csv_delimiter, target.csv_quote
    sql = f"SELECT ride_id, stop || '{mark}' AS stop, remark FROM source"
    source = reader.run(TYPED).ride_bus
    with stopped(lambda: len(lines_of(archive, "rides/table")) == 3):
        run_streaming_pipeline(
            name="csv", source=source, source_query=worded("rides"), targets=[target], transform_sql=worded(sql)
        )
    cells = (("1", "/start", "one"), ("2", "/start", "two"), ("3", "/end", target.csv_null_value))
    assert lines_of(archive, "rides/table") == [
        mark.join((ride, f"{quote}{stop}{mark}{quote}", remark)) for ride, stop, remark in cells
    ]


@pytest.mark.usefixtures("spark")
@pytest.mark.full("the contract suite reads CSV with every option")
def test_the_printed_options_read_an_archive_of_csv(
    reader: Page, database: Database, archive: Any, s3_url: str
) -> None:
    printed = ast.parse(reader.samples[READ_OPTIONS].text).body[0]
    call = compile(ast.Expression(printed.value), READ_OPTIONS, "eval")  # type: ignore[attr-defined]
    options = eval(call, {"Target": Target, worded("cellar"): "cellar"}).csv_read_options
    mark, quote, escape = (options[name] for name in ("delimiter", "quote", "escape"))
    nothing = [word for word in ("NA", "NULL", "gone", "void") if re.match(options["null_regex"], word)]
    assert len(nothing) == 2
    stops = (f"/st{mark}art", f"say {quote}hi{quote}")
    rows = [
        mark.join((str(ride), str(rider), f"{quote}{stop.replace(quote, escape + quote)}{quote}", nothing[ride - 1]))
        for ride, rider, stop in ((1, 7, stops[0]), (2, 8, stops[1]))
    ]
    head = (mark.join(EVENTS[0]), f"{options['comment']} left out")
    put(archive, "rides/table/one.csv", "\n".join((*head, *rows)) + "\n")
    lake = lake_at(s3_url, file_format="csv")
    with stopped(has(database, "public.rides", 2)):
        run_streaming_pipeline(
            name="read", sources=[Source(lake, worded("rides/table"), csv_read_options=options)], target=reader.run(TYPED).depot,
            target_table=("public", worded("rides")),
        )  # fmt: skip
    assert users(database) == [(1, 7, stops[0], None), (2, 8, stops[1], None)]
