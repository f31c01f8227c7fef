"""Delta tables and folders of files as sources of streams: what is new, once, whole, and the same after a restart."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from ematix_flow import (
    BigInt,
    DeltaLocalConnection,
    DeltaS3Connection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
    SQLiteConnection,
    Text,
    run_streaming_pipeline,
)
from ematix_flow.backends import delta as delta_backend
from ematix_flow.backends import files as files_backend
from ematix_flow.backends import files_s3 as files_s3_backend
from ematix_flow.backends.delta.stream import DeltaStream
from ematix_flow.backends.files.stream import FilesStream
from ematix_flow.contract.stream import StreamRead
from ematix_flow.declare.strategy import Append, Truncate
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import BadValue, ConfigError, MissingTable, PlanError
from ematix_flow.messages.decode import ERROR, EVENT_TS, RAW, SOURCE, DecodingState, decode
from ematix_flow.storage.paths import LakeRoot
from tests.contract.lakes import Lake
from tests.contract.loading import declare
from tests.harness.buckets import TestBucket
from tests.services.object_stores import PLACE

DRAIN = {"drain": True, "settle_seconds": 0.5}


def twins(*names: str) -> list[Any]:
    """What shares its code with the one that always runs."""
    return [pytest.param(name, marks=pytest.mark.full("a twin")) for name in names]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("home")
    patch.setenv("EMATIX_FLOW_LOGS_DIR", str(home / "logs"))
    yield spark_session({"delta", "s3a"})
    patch.undo()


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Callable[..., list[list[Any]]]:
    """Drains what is there, micro-batch by micro-batch; the checkpoint stays."""

    def drained(source: Any, query: str, **fields: Any) -> list[list[Any]]:
        read = reading(tmp_path, query, **fields)
        source.check(read)
        batches: list[list[Any]] = []

        def keep(frame: Any, _: int) -> None:
            batches.append([row.asDict() for row in plain(source, frame).collect()])

        writer = source.frame(spark, read).writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(Path(read.checkpoint, "spark")))
        writer.trigger(availableNow=True).start().awaitTermination()
        return [rows for rows in batches if rows]

    return drained


def plain(source: Any, frame: Any) -> Any:
    """The rows of a micro-batch, without what the product adds to them."""
    if getattr(source, "are_messages", False):
        rows = source.with_folder_columns(decode(source.messages(frame), DecodingState("json")))
    else:
        rows = source.rows(frame)
    return rows.drop(ERROR, EVENT_TS, RAW, SOURCE)


def reading(folder: Path, query: str, **fields: Any) -> StreamRead:
    fields.setdefault("options", DRAIN)
    return StreamRead("watch", query, str(folder / fields.pop("checkpoint", "checkpoint")), **fields)


def ids(batches: list[list[Any]]) -> list[Any]:
    return sorted(row["id"] for rows in batches for row in rows)


def incoming(folder: Path, file_format: str) -> tuple[FilesStream, Path]:
    root = folder / "incoming"
    (root / "raw" / "events").mkdir(parents=True)
    connection = ObjectStoreLocalConnection("incoming", path=str(root), format=file_format)
    return FilesStream(connection), root / "raw" / "events"


def write(path: Path, file_format: str, numbers: list[int]) -> None:
    """As others write: under a name that readers pass over, then renamed."""
    draft = path.with_name(f".{path.name}")
    table = pa.table({"id": pa.array(numbers, pa.int64()), "word": [f"w{number}" for number in numbers]})
    if file_format == "parquet":
        pyarrow.parquet.write_table(table, draft)
    elif file_format == "orc":
        pyarrow.orc.write_table(table, draft)
    elif file_format == "csv":
        draft.write_text("id,word\n" + "".join(f"{number},w{number}\n" for number in numbers))
    else:
        draft.write_text("".join(json.dumps({"id": number, "word": f"w{number}"}) + "\n" for number in numbers))
    draft.rename(path)


@pytest.mark.parametrize("file_format", ["csv", *twins("parquet", "orc", "json_lines")])
def test_new_files_are_read_once_and_in_the_types_of_the_first(stream: Any, tmp_path: Path, file_format: str) -> None:
    source, folder = incoming(tmp_path, file_format)
    write(folder / "b.dat", file_format, [1, 2])
    write(folder / "a.dat", file_format, [3])
    assert ids(stream(source, "raw/events/")) == [1, 2, 3]
    assert stream(source, "raw/events/") == []
    (folder / "deeper").mkdir()
    write(folder / "deeper" / "c.dat", file_format, [4])
    again = FilesStream(source_connection(source, folder))
    ((row,),) = stream(again, "raw/events/")
    assert (row["id"], row["word"]) == (4, "w4")
    assert type(row["id"]) is int


def source_connection(source: FilesStream, folder: Path) -> ObjectStoreLocalConnection:
    return ObjectStoreLocalConnection("incoming", path=str(folder.parents[1]), format=source._format)


@pytest.mark.full
def test_a_file_that_is_still_written_is_left_alone(spark: Any, stream: Any, tmp_path: Path) -> None:
    source, folder = incoming(tmp_path, "csv")
    write(folder / "whole.csv", "csv", [1])
    os.utime(folder / "whole.csv", (time.time() - 60, time.time() - 60))
    (folder / "_hidden.csv").write_text("id,word\n7,x\n")
    (folder / ".draft.csv").write_text("id,word\n8,x\n")
    (folder / "other.csv.part").write_text("id,word\n9,x\n")
    (folder / "readme.json").write_text("{}")
    growing = folder / "growing.csv"
    growing.write_text("id,word\n")
    over = threading.Event()

    def grow() -> None:
        number = 100
        with growing.open("a") as file:
            while not over.is_set():
                file.write(f"{number},w\n")
                file.flush()
                number += 1
                time.sleep(0.05)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        assert ids(stream(source, "raw/events", options={"drain": True, "settle_seconds": 1.0})) == [1]
    finally:
        over.set()
        thread.join()
    time.sleep(1.1)
    expected = len(growing.read_text().splitlines()) - 1
    assert ids(stream(source, "raw/events", options={"drain": True, "settle_seconds": 1.0})) == [
        *range(100, 100 + expected)
    ]


@pytest.mark.full
def test_half_a_parquet_file_is_not_read(stream: Any, tmp_path: Path) -> None:
    source, folder = incoming(tmp_path, "parquet")
    write(folder / "whole.parquet", "parquet", [1])
    write(folder / "late.parquet", "parquet", [2])
    body = (folder / "late.parquet").read_bytes()
    (folder / "late.parquet").write_bytes(body[:-20])
    assert ids(stream(source, "raw/events")) == [1]
    (folder / "late.parquet").write_bytes(body)
    assert ids(stream(source, "raw/events")) == [2]


@pytest.mark.full
def test_a_stream_of_files_begins_at_its_start(stream: Any, tmp_path: Path) -> None:
    source, folder = incoming(tmp_path, "csv")
    for number, age in ((1, 3600), (2, 60)):
        write(folder / f"{number}.csv", "csv", [number])
        os.utime(folder / f"{number}.csv", (time.time() - age, time.time() - age))
    assert stream(source, "raw/events", start="latest", checkpoint="latest") == []
    write(folder / "3.csv", "csv", [3])
    assert ids(stream(source, "raw/events", start="latest", checkpoint="latest")) == [3]
    moment = datetime.now(timezone.utc) - timedelta(minutes=10)
    since = json.dumps(source.offsets_at(reading(tmp_path, "raw/events"), moment))
    assert ids(stream(source, "raw/events", start=since, checkpoint="since")) == [2, 3]
    with pytest.raises(ConfigError, match="cannot start at 'tomorrow'"):
        stream(source, "raw/events", start="tomorrow", checkpoint="never")
    with pytest.raises(MissingTable, match="is not there"):
        source.check(reading(tmp_path, "raw/nothing"))
    with pytest.raises(ConfigError, match="leads out of"):
        source.check(reading(tmp_path, "../other"))


@pytest.mark.full
def test_declared_fields_decide_and_missing_columns_are_null(stream: Any, tmp_path: Path) -> None:
    source, folder = incoming(tmp_path, "csv")
    with gzip.open(folder / "a.csv.gz", "wt") as out:
        out.write("id,word,zip\n1,x,01234\n")
    options = {**DRAIN, "fields": {"id": "BIGINT", "zip": "STRING", "more": "DOUBLE"}}
    assert stream(source, "raw/events", options=options) == [[{"id": 1, "zip": "01234", "more": None}]]


@pytest.mark.full
def test_a_batch_of_names_is_the_same_after_a_crash(spark: Any, tmp_path: Path) -> None:
    """The batch fails at its first try; whatever came meanwhile belongs to the next one."""
    source, folder = incoming(tmp_path, "csv")
    write(folder / "1.csv", "csv", [1])
    read = reading(tmp_path, "raw/events")
    seen: list[list[int]] = []

    def run(*, fails: bool) -> None:
        def work(frame: Any, _: int) -> None:
            seen.append(sorted(row["id"] for row in plain(source, frame).collect()))
            if fails:
                raise RuntimeError("on purpose")

        writer = source.frame(spark, read).writeStream.foreachBatch(work)
        writer = writer.option("checkpointLocation", str(Path(read.checkpoint, "spark"))).trigger(availableNow=True)
        with pytest.raises(Exception, match="on purpose") if fails else nullcontext():
            writer.start().awaitTermination()

    run(fails=True)
    write(folder / "2.csv", "csv", [2])
    run(fails=False)
    run(fails=False)  # of a source in Python, Spark drains no more than the batch that it does again
    assert [numbers for numbers in seen if numbers] == [[1], [1], [2]]
    assert [lag.seconds for lag in source.lag(read, {})] == [0.0]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["local", *twins("s3")])
def test_batches_of_a_table_of_ours_arrive_with_their_types(
    spark: Any, stream: Any, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "s3":
        fields = TestBucket.at(request.getfixturevalue("s3_url"), "rows").fields
        connection: Any = ObjectStoreS3Connection("lake", format="csv", **fields)
        backend = files_s3_backend.backend
    else:
        connection = ObjectStoreLocalConnection("lake", path=str(tmp_path / "lake"), format="csv")
        backend = files_backend.backend
    lake = Lake(backend, connection, LakeRoot.of(connection).root, spark)
    table = declare({"id": BigInt, "word": Text | None}, schema="raw", name="events")
    lake.load(table, Append(), [{"id": 1, "word": ""}, {"id": 2, "word": None}])
    source = FilesStream(connection)
    ((first, second),) = [sorted(rows, key=lambda row: row["id"]) for rows in stream(source, "raw.events")]
    assert [(row["id"], row["word"]) for row in (first, second)] == [(1, ""), (2, None)]
    assert stream(source, "raw.events") == []
    lake.load(table, Append(), [{"id": 3, "word": "x"}])
    staged = lake.open(table, Append())
    staged.stage([{"id": 4, "word": "not published"}])
    assert ids(stream(source, "raw/events")) == [3]
    lake.load(table, Truncate(), [{"id": 5, "word": "y"}])
    assert ids(stream(source, "raw.events")) == [5]


@pytest.mark.full
def test_objects_below_a_prefix_are_read_once(stream: Any, s3_url: str) -> None:
    there = TestBucket.at(s3_url, "objects")
    source = FilesStream(ObjectStoreS3Connection("bucket", format="json_lines", **there.fields))
    there.put("raw/options/1.jsonl", b'{"id": 1}\n{"id": 2}\n')
    assert ids(stream(source, "raw/options/")) == [1, 2]
    there.put("raw/options/2026/2.jsonl.gz", gzip.compress(b'{"id": 3}\n'))
    there.put("raw/options/_temporary/3.jsonl", b'{"id": 9}\n')
    there.put("raw/options-of-others/4.jsonl", b'{"id": 9}\n')
    assert ids(stream(source, "raw/options/")) == [3]


@pytest.fixture(params=["local", *twins("s3")])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, str, dict[str, str] | None]]:
    """A connection, the address of its root for the other library, and that library's login."""
    if request.param == "local":
        yield DeltaLocalConnection("lake", path=str(tmp_path / "lake")), str(tmp_path / "lake"), None
        return
    there = TestBucket.at(request.getfixturevalue("s3_url"), "stream")
    yield DeltaS3Connection("lake", **there.fields), f"s3://{PLACE}/{there.prefix}", there.storage_options


@pytest.mark.full
def test_a_delta_table_is_read_as_it_is_and_then_commit_by_commit(stream: Any, tmp_path: Path, lake: Any) -> None:
    connection, root, login = lake

    def append(*numbers: int) -> None:
        write_deltalake(f"{root}/raw/orders", pa.table({"id": list(numbers)}), mode="append", storage_options=login)

    append(1, 2)
    append(3)
    source, read = DeltaStream(connection), reading(tmp_path, "raw.orders")
    assert ids(stream(source, "raw.orders", options={})) == [1, 2, 3]
    assert stream(source, "raw.orders", options={}) == []
    append(4)
    assert ids(stream(source, "raw/orders", options={})) == [4]
    append(5, 6)
    (lag,) = source.lag(read, {"reservoirVersion": 3})
    assert lag.rows == 2
    assert lag.seconds is not None
    assert source.lost(read, {"reservoirVersion": 3}) == ()
    assert stream(source, "raw.orders", start="latest", checkpoint="latest", options={}) == []
    assert ids(stream(source, "raw.orders", start='{"version": 2}', checkpoint="v2", options={})) == [4, 5, 6]
    assert source.offsets_at(read, datetime(2020, 1, 1, tzinfo=timezone.utc)) == {"version": 0}
    assert source.offsets_at(read, datetime(2100, 1, 1, tzinfo=timezone.utc)) == {"version": "latest"}
    with pytest.raises(MissingTable, match=r"raw\.order is not a Delta table"):
        source.check(reading(tmp_path, "raw.order"))


@pytest.mark.full
def test_commits_that_the_log_dropped_stop_the_stream(tmp_path: Path) -> None:
    root, shop = str(tmp_path / "lake"), SQLiteConnection("shop", path=str(tmp_path / "shop.db"))
    lake = DeltaLocalConnection("lake", path=root)

    def go(**options: Any) -> Any:
        return run_streaming_pipeline(
            name="orders", source=lake, source_query="raw.orders", target=shop, target_table=("main", "orders"),
            checkpoint=str(tmp_path / "checkpoint"), once=True, **options,
        )  # fmt: skip

    def append(number: int) -> None:
        write_deltalake(f"{root}/raw/orders", pa.table({"id": [number]}), mode="append")

    append(0)
    assert go().total_rows == 1
    for number in range(1, 6):
        append(number)
    DeltaTable(f"{root}/raw/orders").create_checkpoint()
    for version in range(5):
        Path(root, "raw", "orders", "_delta_log", f"{version:020}.json").unlink()
    with pytest.raises(
        PlanError, match=r"no longer keeps messages that orders has not read \(raw.orders: .* kept from 5 on"
    ):
        go(restart_on_error=True)


def orders_of(folder: Path) -> tuple[str, Callable[..., Any], Callable[..., None]]:
    """A Delta table, a stream of it into a table that drains what is there, and a commit."""
    root, shop = str(folder / "a lake"), SQLiteConnection("shop", path=str(folder / "shop.db"))

    def go(query: str = "raw.orders", **options: Any) -> Any:
        return run_streaming_pipeline(
            name="orders", source=DeltaLocalConnection("lake", path=root), source_query=query, target=shop,
            target_table=("main", "orders"), checkpoint=str(folder / "checkpoint"), once=True,
            restart_on_error=True, initial_backoff_ms=1, **options,
        )  # fmt: skip

    def append(*numbers: int, **options: Any) -> None:
        write_deltalake(f"{root}/raw/orders", pa.table({"id": list(numbers)}), mode="append", **options)

    return f"{root}/raw/orders", go, append


def vacuum(spark: Any, table: str) -> None:
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(check, "false")
    spark.sql(f"VACUUM delta.`file:{table}` RETAIN 0 HOURS")
    spark.conf.unset(check)


@pytest.mark.full
def test_files_that_were_vacuumed_before_they_were_read_stop_the_stream(spark: Any, tmp_path: Path) -> None:
    table, go, append = orders_of(tmp_path)
    append(0)
    assert go().total_rows == 1
    append(1, 2)
    append(3)
    DeltaTable(table).optimize.compact()
    append(4)
    vacuum(spark, table)
    with pytest.raises(
        PlanError, match=r"orders has not read \(raw.orders: 3 message\(s\) from 1, kept from 3 on\)"
    ) as stopped:
        go()
    assert "flow stream rewind orders --to earliest" in str(stopped.value.hint)


@pytest.mark.full
def test_files_that_were_vacuumed_in_the_middle_of_a_first_read_stop_the_stream(spark: Any, tmp_path: Path) -> None:
    table, go, append = orders_of(tmp_path)
    for number in range(3):
        append(number)
    with pytest.raises(BadValue, match="on purpose"):
        go(transform_sql="SELECT IF(id = 1, raise_error('on purpose'), id) AS id FROM source", max_rows_per_batch=1)
    DeltaTable(table).optimize.compact()
    vacuum(spark, table)
    with pytest.raises(PlanError, match=r"raw.orders: .*message\(s\) from part-[\w.-]+\.parquet, kept from nowhere on"):
        go(max_rows_per_batch=1)


@pytest.mark.full
def test_changes_that_were_vacuumed_before_they_were_read_stop_the_stream(spark: Any, tmp_path: Path) -> None:
    table, go, append = orders_of(tmp_path)
    append(0, 1, configuration={"delta.enableChangeDataFeed": "true"})
    assert go("changes:raw.orders").total_rows == 2
    spark.sql(f"UPDATE delta.`file:{table}` SET id = 7 WHERE id = 0")
    vacuum(spark, table)
    with pytest.raises(
        PlanError, match=r"raw.orders: .*message\(s\) from _change_data/cdc-[\w.-]+\.parquet, kept from"
    ):
        go("changes:raw.orders")


@pytest.mark.full
def test_the_last_row_of_a_key_in_a_delta_table_wins(tmp_path: Path) -> None:
    root, shop = str(tmp_path / "lake"), tmp_path / "shop.db"
    lake = DeltaLocalConnection("lake", path=root)

    def append(**values: str) -> None:
        rows = pa.table({"id": list(values), "v": list(values.values())})
        write_deltalake(f"{root}/raw/orders", rows, mode="append")

    def go() -> list[Any]:
        run_streaming_pipeline(
            name="orders", source=lake, source_query="raw.orders", target=SQLiteConnection("shop", path=str(shop)),
            target_table=("main", "orders"), mode="merge", keys=["id"], checkpoint=str(tmp_path / "checkpoint"),
            once=True,
        )  # fmt: skip
        with closing(sqlite3.connect(shop)) as connection:
            return list(connection.execute("SELECT * FROM orders ORDER BY id"))

    for number in range(4):
        append(a=f"a{number}", b=f"b{number}")
    append(b="b4")
    assert go() == [("a", "a3"), ("b", "b4")]
    append(a="a5")
    append(a="a6", b="b6")
    append(b="b7")
    assert go() == [("a", "a6"), ("b", "b7")]


@pytest.mark.full
def test_changes_are_read_from_the_change_feed_and_stop_a_plain_stream(spark: Any, stream: Any, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    write_deltalake(str(root / "people"), pa.table({"id": [1, 2], "name": ["a", "b"]}))
    connection = DeltaLocalConnection("lake", path=str(root))
    source = DeltaStream(connection)
    with pytest.raises(PlanError, match="keeps no change feed"):
        stream(source, "changes:people", checkpoint="feed", options={})
    path = f"delta.`file:{root}/people`"
    spark.sql(f"ALTER TABLE {path} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    assert ids(stream(source, "people", checkpoint="plain", options={})) == [1, 2]
    assert ids(stream(source, "changes:people", checkpoint="feed", options={})) == [1, 2]
    client = delta_backend.backend.client(connection)  # type: ignore[misc]
    client.execute("UPDATE people SET name = 'B' WHERE id = 2")
    client.execute("DELETE FROM people WHERE id = 1")
    changed = [row for rows in stream(source, "changes:people", checkpoint="feed", options={}) for row in rows]
    assert sorted((row["id"], row["name"], row["_change_type"]) for row in changed) == [
        (1, "a", "delete"), (2, "B", "update_postimage"), (2, "b", "update_preimage"),
    ]  # fmt: skip
    with pytest.raises(Exception, match="DELTA_SOURCE"):
        stream(source, "people", checkpoint="plain", options={})
