"""Lakes in folders of their own, loaded step by step through the capabilities of their backends."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from ematix_flow import BigInt, Text, pk
from ematix_flow.backends.files.source import FilesSource
from ematix_flow.contract.backend import Backend
from ematix_flow.contract.ddl import CreateTable
from ematix_flow.contract.shape import shape_of
from ematix_flow.contract.write import Stage, WriteJob, WriteResult, WriteSession
from ematix_flow.declare.strategy import Merge, Strategy
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError
from tests.contract.loading import columns, declare, frame

Row = dict[str, Any]
Files = Callable[[str], "Lake"]


@dataclass
class Lake:
    """A lake in a folder of its own, loaded through the capabilities of its backend."""

    backend: Backend
    connection: Any
    root: Path
    spark: Any

    def open(self, table: Any, strategy: Strategy, **options: Any) -> Load:
        spec = table.spec()
        shape = shape_of(spec, strategy)
        started = options.pop("at", None) or now()
        job = WriteJob(str(uuid.uuid4()), "load", options.pop("writer", "load"), shape, strategy, started, **options)
        ddl = self.backend.ddl(self.connection)
        if ddl.inspect(shape) is None:
            ddl.apply(shape, [CreateTable(shape.table)])
        sink = self.backend.batch_sink(self.connection)
        return Load(self, sink, job, sink.begin(job))

    def load(self, table: Any, strategy: Strategy, rows: list[Row], **options: Any) -> WriteResult:
        return self.open(table, strategy, **options).run(rows)

    def counts(self, table: Any, strategy: Strategy, rows: list[Row], **options: Any) -> dict[str, int]:
        made = self.load(table, strategy, rows, **options).counts
        return {name: count for name, count in vars(made).items() if count and name != "read"}

    def query(self, sql: str, **options: Any) -> list[Row]:
        source = FilesSource(self.connection, options) if options else self.backend.batch_source(self.connection)
        with ExitStack() as open_until:
            found = source.read(source.plan(sql, parallelism=2), self.spark, open_until)
            return [row.asDict() for row in found.collect()]

    def rows(self, table: Any, *names: str) -> list[tuple[Any, ...]]:
        return columns(self.query(f"SELECT * FROM {table.spec().qualified}"), names or table.spec().column_names)

    def history(self, table: Any) -> list[Any]:
        """What the table's log says about its commits, newest first."""
        log = self.root / table.__schema__ / table.__tablename__ / "_delta_log"
        return [_commit(file) for file in sorted(log.glob("[0-9]*.json"), reverse=True)]


@dataclass
class Load:
    """One run that a test can stop anywhere."""

    lake: Lake
    sink: Any
    job: WriteJob
    opening: WriteSession

    def stage(self, rows: list[Row]) -> Stage:
        return self.sink.stage(self.job, frame(self.lake.spark, self.job.shape.declared, rows))  # type: ignore[no-any-return]

    def publish(self, rows: list[Row]) -> WriteResult:
        return self.sink.publish(self.job, self.stage(rows), self.opening)  # type: ignore[no-any-return]

    def run(self, rows: list[Row]) -> WriteResult:
        try:
            result = self.publish(rows)
        except FlowError as error:
            self.sink.settle(self.job, self.opening, None, error.what)
            raise
        self.sink.settle(self.job, self.opening, result, None)
        return result


def _commit(file: Path) -> SimpleNamespace:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    info = next(line["commitInfo"] for line in lines if "commitInfo" in line)
    return SimpleNamespace(version=int(file.stem), operation=info["operation"], userMetadata=info.get("userMetadata"))


def people() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "name": Text | None, "note": Text | None})


def person(key: int | None, name: str | None, note: str | None = None) -> Row:
    return {"id": key, "name": name, "note": note}


def merging(**options: Any) -> Merge:
    chosen = {"keys": ("id",), "compare": ("name", "note"), "update": ("name", "note"), **options}
    return Merge(**chosen)


def naive(moment: datetime) -> datetime:
    return moment.astimezone().replace(tzinfo=None)
