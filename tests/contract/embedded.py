"""SQLite and DuckDB by their capabilities: a file of its own, whole loads and reads, and the client that comes with it."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import duckdb

from ematix_flow import BigInt, DuckDBConnection, Numeric, SQLiteConnection, Text, pk
from ematix_flow.contract.backend import Backend
from ematix_flow.contract.ddl import CreateTable
from ematix_flow.contract.shape import TargetShape, shape_of
from ematix_flow.contract.write import WriteJob, WriteResult
from ematix_flow.declare.strategy import Strategy
from ematix_flow.declare.table import TableSpec
from ematix_flow.engine.session.spark_errors import translate
from tests.contract.loading import declare, frame
from tests.harness.base import Row


@dataclass
class System:
    """One embedded database in a file of its own, with the client that comes with it."""

    backend: Backend
    path: Path

    @property
    def connection(self) -> Any:
        kind = SQLiteConnection if self.backend.name == "sqlite" else DuckDBConnection
        return kind(name="embedded", path=str(self.path))

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """By the system's own client."""
        if self.backend.name == "sqlite":
            with closing(sqlite3.connect(self.path, isolation_level=None)) as client:
                return client.execute(sql).fetchall()
        with duckdb.connect(str(self.path)) as client:
            client.execute("SET TimeZone = 'UTC'")
            return client.execute(sql).fetchall()

    def name(self, spec: TableSpec, suffix: str = "") -> str:
        joint = "_" if self.backend.name == "sqlite" else "."
        return f"{spec.schema}{joint}{spec.name}{suffix}"

    def sink(self) -> Any:
        assert self.backend.batch_sink is not None
        return self.backend.batch_sink(self.connection)

    def source(self) -> Any:
        assert self.backend.batch_source is not None
        return self.backend.batch_source(self.connection)

    def ddl(self) -> Any:
        assert self.backend.ddl is not None
        return self.backend.ddl(self.connection)


def job_of(shape: TargetShape, strategy: Strategy, **more: Any) -> WriteJob:
    started = more.pop("started_at", datetime.now(timezone.utc))
    return WriteJob(str(uuid.uuid4()), "load", "load/target", shape, strategy, started, **more)


def perform(system: System, spark: Any, table: Any, strategy: Strategy, rows: list[Row], **more: Any) -> WriteResult:
    shape = shape_of(table.spec(), strategy)
    sink, job = system.sink(), job_of(shape, strategy, **more)
    system.ddl().apply(shape, [CreateTable(shape.table)])
    opening = sink.begin(job)
    try:
        result = sink.publish(job, sink.stage(job, frame(spark, shape.declared, rows)), opening)
    except Exception as exc:
        error = translate(exc)
        sink.settle(job, opening, None, error.what)
        raise error from exc
    sink.settle(job, opening, result, None)
    return result


def read(system: System, spark: Any, query: str) -> list[Row]:
    source = system.source()
    with ExitStack() as open_until:
        try:
            found = source.read(source.plan(query, parallelism=2), spark, open_until).toArrow()
        except Exception as exc:
            raise translate(exc) from exc
    rows: list[Row] = found.to_pylist()
    return rows


def people() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "name": Text | None, "price": Numeric[20, 3] | None})


def person(number: int, name: str | None, price: str | None = "1.500") -> Row:
    return {"id": number, "name": name, "price": Decimal(price) if price else None}
