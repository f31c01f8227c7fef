"""Streams of files: columns that come later, keys that come twice, lines that cannot be read, files that are gone."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from ematix_flow import ObjectStoreLocalConnection, Source, SQLiteConnection, run_streaming_pipeline
from ematix_flow.backends.files.folder_listing import WatchedFolder
from ematix_flow.backends.files.new_file_source import NewFileSettings, NewFilesReader
from ematix_flow.foundation.errors import BadValue, DeclarationError, DriftError, PlanError

FORMATS = ["csv", *(pytest.param(name, marks=pytest.mark.full("a twin")) for name in ("json_lines", "parquet"))]
Record = Mapping[str, Any] | str


class Inbox:
    """A folder that other programs write files into, and a stream from it into a table."""

    def __init__(self, folder: Path, file_format: str) -> None:
        self.format, self.folder = file_format, folder / "incoming"
        self.folder.mkdir()
        self.source = ObjectStoreLocalConnection("incoming", path=str(self.folder), format=file_format)
        self.shop, self.checkpoint = folder / "shop.db", folder / "checkpoint"

    def put(self, name: str, records: Sequence[Record], *, at: float = 1_750_000_000) -> Path:
        """One file that has come to rest; a record that is a text is written as it is."""
        path = self.folder / "events" / f"{name}.{'jsonl' if self.format == 'json_lines' else self.format}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.format == "parquet":
            pyarrow.parquet.write_table(pa.Table.from_pylist(records), path)
        elif self.format == "csv":
            lines = [one if isinstance(one, str) else ",".join(map(str, one.values())) for one in records]
            path.write_text("\n".join([",".join(records[0]), *lines]) + "\n")
        else:
            path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in records))
        os.utime(path, (at, at))
        return path

    def drain(self, **options: Any) -> Any:
        options.setdefault("source", self.source)
        if not isinstance(options["source"], Source):
            options["source_query"] = "events"
        return run_streaming_pipeline(
            name="inbox", target=SQLiteConnection("shop", path=str(self.shop)), target_table=("main", "rows"), once=True,
            checkpoint=str(self.checkpoint), **options,
        )  # fmt: skip

    def rows(self, query: str = "SELECT * FROM rows ORDER BY id") -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.shop)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_column_that_comes_later_is_a_column_of_the_table(tmp_path: Path, file_format: str) -> None:
    inbox = Inbox(tmp_path, file_format)
    inbox.put("a", [{"id": 1}])
    inbox.drain()
    inbox.put("b", [{"id": 2, "extra": "precious"}])
    inbox.put("c", [{"id": 3}])
    inbox.put("d", [{"id": 4, "extra": "dear", "more": 5}])
    inbox.drain()
    inbox.put("e", [{"id": 5}])
    inbox.drain()
    empty = {"extra": None, "more": None}
    assert inbox.rows() == [
        {"id": 1, **empty}, {"id": 2, "extra": "precious", "more": None}, {"id": 3, **empty},
        {"id": 4, "extra": "dear", "more": 5}, {"id": 5, **empty},
    ]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("file_format", FORMATS)
def test_a_column_that_the_target_refuses_stops_the_stream(tmp_path: Path, file_format: str) -> None:
    inbox = Inbox(tmp_path, file_format)
    inbox.put("a", [{"id": 1}])
    inbox.drain(on_drift="error")
    inbox.put("b", [{"id": 2, "extra": "precious"}])
    for _ in range(2):  # the batch that is done again has the column, too
        with pytest.raises(DriftError, match="has no column extra"):
            inbox.drain(on_drift="error")
    assert inbox.rows() == [{"id": 1}]


@pytest.mark.full
def test_types_of_files_that_differ_are_the_wider_one(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, "parquet")
    inbox.put("a", [{"id": 1, "size": 1}])
    inbox.put("b", [{"id": 2, "size": 2.5}])
    inbox.put("c", [{"id": 3, "size": "three"}])
    inbox.drain()
    assert [row["size"] for row in inbox.rows()] == ["1", "2.5", "three"]


@pytest.mark.full
@pytest.mark.parametrize("file_format", FORMATS)
def test_the_last_row_of_a_key_wins_and_folders_are_columns(tmp_path: Path, file_format: str) -> None:
    inbox = Inbox(tmp_path, file_format)
    inbox.put("day=2026-01-01/b", [{"id": 1, "v": "old"}, {"id": 2, "v": "new"}, {"id": 1, "v": "new"}])
    inbox.put("day=2026-01-02/a", [{"id": 3, "v": "new"}])  # as old as the one before, and its path is later
    inbox.put("day=2026-01-01/a", [{"id": 2, "v": "old"}, {"id": 3, "v": "old"}], at=1_740_000_000)
    inbox.drain(mode="merge", keys=["id"])
    assert [(row["id"], row["v"], row["day"][:10]) for row in inbox.rows()] == [
        (1, "new", "2026-01-01"), (2, "new", "2026-01-01"), (3, "new", "2026-01-02"),
    ]  # fmt: skip
    assert set(inbox.rows()[0]) == {"id", "v", "day"}


@pytest.mark.full
def test_where_a_row_came_from_can_be_asked_for(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, "csv")
    path = inbox.put("a", [{"id": 1}, {"id": 2}])
    inbox.drain(transform_sql="SELECT id, _source.topic, _source.message_id, _source.timestamp AS at FROM source")
    first, second = inbox.rows()
    assert first["topic"] == second["topic"] == f"file:{path}"
    assert first["message_id"] < second["message_id"]
    assert first["at"].startswith("2025-06-15")


BAD = {"json_lines": ["{not json", '{"id": 4} {"id": 5}', "[1]"], "csv": ["three,c", "4,d,e", "5"]}


@pytest.mark.parametrize("file_format", ["csv", pytest.param("json_lines", marks=pytest.mark.full("a twin"))])
def test_lines_that_cannot_be_read_are_set_aside_as_they_are(tmp_path: Path, file_format: str) -> None:
    inbox, kept = Inbox(tmp_path, file_format), {"transform_on_error": "dlq", "dlq_store": "table"}
    inbox.put("a", [{"id": 1, "v": "a"}])
    inbox.drain(**kept)
    path = inbox.put("b", [{"id": 2, "v": "b"}, *BAD[file_format]])
    with pytest.raises(BadValue, match="cannot be decoded"):
        inbox.drain()
    assert inbox.drain(**kept).total_rows == 4
    assert [row["id"] for row in inbox.rows()] == [1, 2]
    letters = inbox.rows("SELECT * FROM ematix_flow_dlq_records")
    assert sorted(bytes(letter["payload"]).decode() for letter in letters) == sorted(BAD[file_format])
    assert {(letter["stage"], letter["source_id"]) for letter in letters} == {("decode", f"file:{path}")}


@pytest.mark.full
def test_rows_that_no_table_takes_are_set_aside_as_json(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, "parquet")
    inbox.put("a", [{"id": 1, "v": 1}])
    inbox.drain()
    inbox.put("b", [{"id": 2, "v": 2}, {"id": 3, "v": None}])
    inbox.put("c", [{"id": 4, "v": "four"}])
    inbox.drain(transform_on_error="dlq", dlq_store="table")
    assert [row["id"] for row in inbox.rows()] == [1, 2, 3]
    (letter,) = inbox.rows("SELECT * FROM ematix_flow_dlq_records")
    assert (letter["stage"], json.loads(letter["payload"])) == ("write", {"id": 4, "v": "four"})


@pytest.mark.full
def test_a_file_that_is_gone_before_it_was_read_stops_the_stream(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, "json_lines")
    inbox.put("a", [{"id": 1}])
    path = inbox.put("b", ["{"])
    with pytest.raises(BadValue):
        inbox.drain()
    path.unlink()
    with pytest.raises(PlanError, match=r"1 file\(s\).*gone.*the first is b\.jsonl"):
        inbox.drain(restart_on_error=True)
    path.write_text('{"id": 2}\n')
    inbox.drain()
    assert [row["id"] for row in inbox.rows()] == [1, 2]


@pytest.mark.full
def test_read_options_of_lines_are_applied_or_refused(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, "json_lines")
    inbox.put("a", [{"id": 1}, {"id": 2, "late": "x"}])
    inbox.drain(source=Source(inbox.source, "events", json_read_options={"schema_infer_max_records": 1}))
    assert inbox.rows() == [{"id": 1, "late": None}, {"id": 2, "late": "x"}]
    with pytest.raises(DeclarationError, match="batch_size"):
        inbox.drain(source=Source(inbox.source, "events", json_read_options={"batch_size": 10}))


@pytest.mark.full
@pytest.mark.parametrize("file_format", ["csv", "json_lines", "parquet"])
def test_a_batch_has_no_more_rows_than_it_may(tmp_path: Path, file_format: str) -> None:
    """Lines are counted with the one that a header may be."""
    inbox = Inbox(tmp_path, file_format)
    for number, size in enumerate((4, 4, 30, 4, 4)):
        inbox.put(f"{number}", [{"id": one} for one in range(size)], at=1_750_000_000 + number)
    folder = WatchedFolder(inbox.folder / "events", file_format, is_ours=False)
    reader = NewFilesReader(NewFileSettings(folder, tmp_path / "ledger", is_new=True, max_rows=12))
    ends = [reader.initialOffset(), *(reader.latestOffset() for _ in range(4))]
    batches = [[name for part in reader.partitions(*span) for (name,) in reader.read(part)] for span in pairwise(ends)]
    assert [[Path(name).stem for name in names] for names in batches] == [["0", "1"], ["2"], ["3", "4"], []]


@pytest.mark.full
def test_a_run_that_drains_has_no_more_rows_in_a_batch_than_it_may(tmp_path: Path) -> None:
    """Also where a batch is done again; files that come meanwhile are left to the next run."""
    inbox = Inbox(tmp_path, "csv")
    for number, size in enumerate((4, 4, 30, 4)):
        inbox.put(f"{number}", [{"id": 100 * number + one} for one in range(size)], at=1_750_000_000 + number)
    bounded = {"max_rows_per_batch": 12}
    with pytest.raises(BadValue, match="on purpose"):
        inbox.drain(transform_sql="SELECT IF(id = 200, raise_error('on purpose'), id) AS id FROM source", **bounded)
    assert [row["id"] for row in inbox.rows()] == [*range(4), *range(100, 104)]
    inbox.put("4", [{"id": 400}], at=1_750_000_004)
    done = inbox.drain(**bounded)
    assert (done.total_rows, done.iterations) == (35, 2)
    assert [row["id"] for row in inbox.rows()] == [*range(4), *range(100, 104), *range(200, 230), *range(300, 304), 400]
    planned = [json.loads(path.read_text()) for path in sorted((inbox.checkpoint / "arrivals").glob("0*.json"))]
    assert planned == [[], ["0.csv", "1.csv"], ["2.csv"], ["3.csv", "4.csv"]]
    assert inbox.drain(**bounded).total_rows == 0


@pytest.mark.full
def test_a_run_that_drains_ends_with_the_files_that_it_found(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, "json_lines")
    for number in range(2):
        inbox.put(f"{number}", [{"id": number}], at=1_750_000_000 + number)
    events = inbox.folder / "events"
    folder = WatchedFolder(events, "json_lines", is_ours=False)
    watched = NewFileSettings(folder, tmp_path / "ledger", is_new=True, max_rows=1, drains=True, run="one")
    assert NewFilesReader(watched).latestOffset() == {"batch": 1}
    inbox.put("2", [{"id": 2}], at=1_750_000_002)
    for planned, end in ((1, 2), (1, 2), (2, 2)):
        reader = NewFilesReader(replace(watched, is_new=False, planned=planned))
        assert reader.latestOffset() == {"batch": end}
    assert NewFilesReader(replace(watched, is_new=False, planned=2, run="two")).latestOffset() == {"batch": 3}
