"""Files as others read and write them: formats, options, partitions, and Spark SQL over folders."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Annotated

import duckdb
import pyarrow.orc
import pyarrow.parquet
import pytest

from ematix_flow import BigInt, Double, Integer, Numeric, String, Text, TimestampTZ, pk
from ematix_flow.backends import delta as delta_backend
from ematix_flow.backends import files as files_backend
from ematix_flow.contract.ddl import AddColumn
from ematix_flow.contract.shape import shape_of
from ematix_flow.declare.strategy import Append, Truncate
from ematix_flow.foundation.errors import (
    BadValue,
    DeclarationError,
    DriftError,
    MissingTable,
    PlanError,
    RunFailed,
    SqlError,
    Unsupported,
)
from tests.contract.lakes import Files, Lake, Row
from tests.contract.loading import columns, day, declare

pytest_plugins = ("tests.contract.lake_fixtures",)
FORMATS = ("parquet", "csv", "orc", "json_lines")


ODD = ["", " lead", "trail ", 'a,"b"', "new\nline", "cr\r\n", "back\\", '\\"', "\\N", "#c", "'", "😀", None]


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_are_what_their_own_readers_expect(files: Files, file_format: str) -> None:
    lake = files(file_format)
    table = declare({"id": Annotated[Integer, pk()], "word": Text | None, "price": Numeric[12, 2] | None})
    rows = [{"id": number, "word": word, "price": None} for number, word in enumerate(ODD)]
    assert lake.counts(table, Append(), rows[:5]) == {"inserted": 5}
    assert lake.counts(table, Append(), rows[5:]) == {"inserted": 8}
    expected = columns(rows, ("id", "word"))
    assert lake.rows(table, "id", "word") == expected
    folder = lake.root / table.__schema__ / table.__tablename__
    assert columns(_read_alone(file_format, folder), ("id", "word")) == expected
    batches = [path.name.partition("=")[2] for path in folder.glob("flow_batch=*")]
    assert {row["_batch_id"] for row in lake.query(f"SELECT _batch_id FROM {table.spec().qualified}")} == set(batches)
    assert lake.counts(table, Truncate(), rows[:1]) == {"inserted": 1, "deleted": 13}
    assert lake.rows(table, "id") == [(0,)]
    assert sorted(path.name for path in folder.parent.iterdir()) == [table.__tablename__]


def _read_alone(file_format: str, folder: Path) -> list[Row]:
    """The files by readers that know nothing of this product."""
    if file_format == "parquet":
        return pyarrow.parquet.read_table(folder).to_pylist()  # type: ignore[no-any-return]
    if file_format == "orc":
        return [row for path in folder.rglob("*.orc") for row in pyarrow.orc.read_table(path).to_pylist()]
    options = (
        "all_varchar = true, header = true, quote = '\"', escape = '\"', allow_quoted_nulls = false"
        if file_format == "csv"
        else "format = 'newline_delimited'"
    )
    reader, ending = ("read_csv", "csv") if file_format == "csv" else ("read_json", "json")
    found = duckdb.connect().execute(f"SELECT * FROM {reader}('{folder}/*/*.{ending}', {options})")
    names = [item[0] for item in found.description or ()]
    return [{**dict(zip(names, row, strict=True)), "id": int(row[0])} for row in found.fetchall()]


def test_csv_options_partitions_and_new_columns_read_back(files: Files) -> None:
    lake = files("csv")
    options = {"partition_by": ["region"], "csv_delimiter": ";", "csv_header": False, "csv_quote": "'", "csv_escape": "\\",
               "csv_null_value": "NIL"}  # fmt: skip
    first = {"id": Annotated[BigInt, pk()], "region": String[9] | None, "word": Text | None}
    table = declare(first, schema="raw", name="words")
    rows = [{"id": number, "region": "eu/🌍" if number % 2 else None, "word": word} for number, word in enumerate(ODD)]
    lake.load(table, Append(), rows, write_options=options)
    wider = declare({**first, "age": Integer | None}, schema="raw", name="words")
    shape = shape_of(wider.spec(), Append())
    lake.backend.ddl(lake.connection).apply(shape, [AddColumn(wider.spec().column("age"))])
    lake.load(wider, Append(), [{"id": 99, "region": "us", "word": "new", "age": 7}], write_options=options)
    expected = [{**row, "age": None} for row in rows] + [{"id": 99, "region": "us", "word": "new", "age": 7}]
    assert lake.rows(wider) == columns(expected, wider.spec().column_names)
    with pytest.raises(DriftError, match=r"csv_delimiter=';'.*no options"):
        lake.load(wider, Append(), rows[:0])
    with pytest.raises(BadValue, match=r"have 'NIL' in raw\.words\.word"):
        lake.load(wider, Append(), [{"id": 1, "region": "x", "word": "NIL", "age": 1}], write_options=options)
    with pytest.raises(BadValue, match="cannot tell it from NULL"):
        lake.load(wider, Append(), [{"id": 1, "region": "", "word": "x", "age": 1}], write_options=options)
    lake.load(wider, Truncate(), [{"id": 1, "region": "", "word": "NIL", "age": 1}])
    assert lake.rows(wider, "region", "word", "age") == [("", "NIL", 1)]


def test_parquet_partitions_and_compression_are_as_asked(files: Files) -> None:
    lake, table = files("parquet"), declare({"id": BigInt, "region": Text}, schema="raw", name="sales")
    options = {"partition_by": ("region",), "parquet_compression": "zstd"}
    lake.load(table, Append(), [{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}], write_options=options)
    written = list((lake.root / "raw" / "sales").rglob("*.parquet"))
    assert {path.parent.name for path in written} == {"region=eu", "region=us"}
    assert {pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0).compression for path in written} == {
        "ZSTD"
    }
    assert lake.rows(table) == [(1, "eu"), (2, "us")]
    with pytest.raises(Unsupported, match="a Double cannot be the name of a folder"):
        lake.load(declare({"x": Double}), Append(), [], write_options={"partition_by": ["x"]})


def test_a_folder_of_another_program_is_not_written_into(files: Files) -> None:
    lake = files("csv")
    (lake.root / "raw" / "events").mkdir(parents=True)
    (lake.root / "raw" / "events" / "a.csv").write_text("id\n1\n")
    with pytest.raises(PlanError, match=r"did not write: a\.csv"):
        lake.load(declare({"id": BigInt}, schema="raw", name="events"), Append(), [{"id": 1}])


@pytest.fixture
def incoming(files: Files) -> Lake:
    lake = files("csv")
    (lake.root / "raw" / "events").mkdir(parents=True)
    (lake.root / "raw" / "events" / "1.csv").write_text(
        'id,zip,at,day,ok,price,word\n1,01234,2026-01-01T10:00:00Z,2026-01-01,true,1.50,"a ""b""\nc"\n'
    )
    (lake.root / "raw" / "events" / "2.csv").write_text(
        'id,zip,at,day,ok,price,word\n2,98765,,2026-01-02,false,NaN,""\n3,,,,,,\n'
    )
    with gzip.open(lake.root / "customers.csv.gz", "wt") as out:
        out.write("id,name\n1,Ana\n2,Bo\n")
    return lake


def test_sql_over_folders_and_files_keeps_what_was_written(incoming: Lake) -> None:
    found = incoming.query(
        """
        WITH events AS (SELECT * FROM lake.raw.events)  -- the name of a common table stands before a table's
        SELECT e.id, zip, at, day, ok, price, word, customers.name, 'raw.events' AS text
        FROM events AS e LEFT JOIN customers ON customers.id = e.id AND customers.id IN (SELECT raw.events.id FROM raw.events)
        ORDER BY e.id;
        """
    )
    assert [(row["id"], row["zip"], row["ok"], row["word"], row["name"], row["text"]) for row in found] == [
        (1, "01234", True, 'a "b"\nc', "Ana", "raw.events"), (2, "98765", False, "", "Bo", "raw.events"),
        (3, None, None, None, None, "raw.events"),
    ]  # fmt: skip
    source = incoming.backend.batch_source(incoming.connection)
    plan = source.plan("SELECT * FROM raw.events", parallelism=2)
    assert {column.name: str(column.type) for column in plan.columns} == {
        "id": "BigInt", "zip": "Text", "at": "TimestampTZ", "day": "Date", "ok": "Boolean", "price": "Double", "word": "Text",
    }  # fmt: skip
    assert not [table for table in incoming.spark.catalog.listTables() if table.name.startswith("flow_")]


def test_a_table_that_is_not_there_is_named_with_the_nearest(incoming: Lake, delta: Lake) -> None:
    with pytest.raises(MissingTable, match=r"raw\.event is not a folder or file of csv") as caught:
        incoming.query("SELECT * FROM raw.event")
    assert caught.value.hint == "did you mean 'raw.events'?"
    delta.load(declare({"id": BigInt}, schema="raw", name="orders"), Append(), [])
    with pytest.raises(MissingTable, match=r"raw\.order is not a Delta table") as caught:
        delta.query("SELECT * FROM raw.order")
    assert caught.value.hint == "did you mean 'raw.orders'?"
    for wrong, error in [("DROP TABLE raw.orders", SqlError), ("SELECT 1; SELECT 2", SqlError), ("SELECT (", SqlError)]:
        with pytest.raises(error):
            delta.query(wrong)


def test_csv_read_options_are_followed(incoming: Lake) -> None:
    (incoming.root / "odd.csv").write_text("# made by hand\n1;'it\\'s';NA\n2;'#2'\n3;\\N;4\n")
    options = {"has_header": False, "delimiter": ";", "quote": "'", "escape": "\\", "comment": "#", "null_regex": r"^(NA|\\N)$",
               "truncated_rows_ok": True, "schema_infer_max_records": 100}  # fmt: skip
    found = incoming.query("SELECT _c0, _c1, _c2 FROM odd ORDER BY _c0", **options)
    assert [tuple(row.values()) for row in found] == [(1, "it's", None), (2, "#2", None), (3, None, 4)]
    with pytest.raises(BadValue):
        incoming.query("SELECT * FROM odd", **{**options, "truncated_rows_ok": False})
    with pytest.raises(DeclarationError, match="does not know 'delimitre'"):
        incoming.query("SELECT * FROM odd", delimitre=";")


def test_json_lines_keep_their_documents(files: Files) -> None:
    lake = files("json_lines")
    lake.root.mkdir()
    (lake.root / "events.jsonl").write_text(
        '{"id": 1, "who": {"name": "Ana", "tags": ["x"]}}\n{"id": 2, "more": 2.5}\n'
    )
    expected = [(1, '{"name":"Ana","tags":["x"]}', None), (2, None, 2.5)]
    for options in ({}, {"schema_infer_max_records": 2, "batch_size": 10}):
        found = lake.query("SELECT id, who, more FROM events ORDER BY id", **options)
        assert [tuple(row.values()) for row in found] == expected
    (lake.root / "broken.jsonl").write_text('{"id": 1}\n{"id": \n')
    with pytest.raises((BadValue, RunFailed)):
        lake.query("SELECT * FROM broken")


@pytest.mark.full
def test_people_may_ask_and_change_delta_tables_by_name(delta: Lake, files: Files) -> None:
    table = declare({"id": BigInt, "name": Text | None}, schema="raw", name="people")
    delta.load(table, Append(), [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    client = delta_backend.backend.client(delta.connection)  # type: ignore[misc]
    assert client.execute("UPDATE raw.people SET name = 'x' WHERE people.id = 2") == 1
    assert client.query("SELECT id, name FROM raw.people ORDER BY id", limit=1) == (["id", "name"], [(1, "a")])
    assert client.query("SELECT name FROM raw.people WHERE id = 2")[1] == [("x",)]
    with pytest.raises(MissingTable, match=r"raw\.person"):
        client.execute("DELETE FROM raw.person")
    with pytest.raises(SqlError, match="only INSERT, UPDATE"):
        client.execute("DROP TABLE raw.people")
    with pytest.raises(Unsupported):
        files_backend.backend.client(files("csv").connection).execute("DELETE FROM raw.people")  # type: ignore[misc]


def test_a_read_from_a_watermark_keeps_rows_without_one(delta: Lake) -> None:
    table = declare({"id": BigInt, "at": TimestampTZ | None})
    delta.load(table, Append(), [{"id": 1, "at": day(1)}, {"id": 2, "at": day(2)}, {"id": 3, "at": None}])
    source = delta.backend.batch_source(delta.connection)
    plan = source.plan(f"SELECT * FROM {table.spec().qualified}", parallelism=2)
    assert plan.estimated_rows == 3
    column = next(item for item in plan.columns if item.name == "at")
    found = delta.query(source.since(plan.query, column, "2026-01-02 00:00:00.000000+00:00"))
    assert columns(found, ("id",)) == [(2,), (3,)]
