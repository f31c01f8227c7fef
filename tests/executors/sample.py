"""A small project for workers to run: SQLite in, Parquet and Delta out, a function that tells where it ran, one that sleeps."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from ematix_flow.executors.protocol import DispatchHandle, DispatchSpec, Executor

PIPELINES = """
import os
import pathlib
import time

from ematix_flow import BigInt, DeltaLocalConnection, ObjectStoreLocalConnection, SQLiteConnection, Text, ematix
from ematix_flow.pipeline import register

HERE = pathlib.Path(__file__).parent
shop = SQLiteConnection(name="shop", path=str(HERE / "shop.db"))
files = ObjectStoreLocalConnection(name="files", path=str(HERE / "files"), format="parquet")
lake = DeltaLocalConnection(name="lake", path=str(HERE / "lake"))


@ematix.table(schema="raw")
class People:
    id: BigInt
    name: Text | None


@ematix.pipeline(target=People, target_connection=files, source_connection=shop, mode="append")
def people():
    return "SELECT id, name FROM people"


@ematix.pipeline(target=People, target_connection=lake, source_connection=shop, mode="append", force_lane="spark")
def people_in_delta():
    return "SELECT id, name FROM people"


@ematix.table(schema="raw")
class Facts:
    name: Text
    value: Text | None


@ematix.pipeline(target=Facts, target_connection=files, source_connection=shop, mode="truncate")
def facts(spark):
    context = spark.sparkContext
    told = {
        "master": context.master,
        "application": context.appName,
        "driver": str(os.getpid()),
        "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "task": spark.range(1).mapInArrow(where, "place STRING").collect()[0][0],
    }
    return spark.createDataFrame(list(told.items()), "name STRING, value STRING")


def where(batches):
    import pyarrow

    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"place": [str(os.getpid())]})


@register(name="ticks", schedule="* * * * *")
def ticks():
    return {"rows": 1}


@register(name="asleep", schedule=None)
def asleep():
    (HERE / ".asleep").write_text(str(os.getpid()))
    (HERE / ".asleep").rename(HERE / "asleep")
    time.sleep(600)
"""
PEOPLE = [(1, "ana"), (2, "bob"), (3, None)]


def write_project(folder: Path) -> None:
    """The module and its source."""
    (folder / "pipelines.py").write_text(PIPELINES)
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.execute("CREATE TABLE people (id INTEGER, name TEXT)")
        shop.executemany("INSERT INTO people VALUES (?, ?)", PEOPLE)
        shop.commit()


def people_in(folder: Path) -> list[tuple[int, str | None]]:
    """What was loaded, read without Spark; rows that were loaded twice are there twice."""
    return sorted((row["id"], row["name"]) for row in _rows(folder / "files" / "raw" / "people"))


def facts_in(folder: Path) -> dict[str, str]:
    return {row["name"]: row["value"] for row in _rows(folder / "files" / "raw" / "facts")}


def _rows(folder: Path) -> list[dict[str, Any]]:
    import pyarrow.dataset

    return pyarrow.dataset.dataset(folder, format="parquet", partitioning=None).to_table().to_pylist()


def spec_of(pipeline: str, folder: Path, **more: Any) -> DispatchSpec:
    """A run of the project in this folder, with a run log there."""
    return DispatchSpec(pipeline, str(folder / "pipelines.py"), run_log_url=str(folder / "run_log.db"), **more)


def await_end(executor: Executor, handle: DispatchHandle, *, seconds: float = 240) -> None:
    eventually(lambda: executor.has_ended(handle), seconds=seconds)


def eventually(is_so: Callable[[], object], *, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.1)
