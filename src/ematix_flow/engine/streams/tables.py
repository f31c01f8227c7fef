"""A table as the target of a stream: shape, DDL, and one publish per micro-batch through the batch write path."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.backend import Backend, BatchSink, DdlPlanner
from ematix_flow.contract.shape import TargetShape, shape_of
from ematix_flow.contract.write import Fence, WriteJob, WriteResult
from ematix_flow.declare.loads import Wishes, strategy_for
from ematix_flow.declare.strategy import Merge, Scd2, Strategy
from ematix_flow.declare.streams.spec import StreamSpec, TableTarget
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import JSONB, Column, Text
from ematix_flow.families.lake.types import type_of
from ematix_flow.foundation import fault
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import DriftError, LeaseHeld, MissingColumn, PlanError, Unsupported
from ematix_flow.planning.drift import plan_ddl, settle_drift

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_NAMESPACE = uuid.UUID("7c3bb7b4-5f0c-4b8c-9d9a-2f6a0f5f1f11")
HIDDEN = "_source"


@dataclass
class TableWriter:
    """One table target of a stream that runs."""

    spec: StreamSpec
    target: TableTarget
    generation: str
    since: int | None = None
    """The number of the generation, for a fence; None for those who write beside the stream."""
    backend: Backend = field(init=False)
    sink: BatchSink = field(init=False)
    ddl: DdlPlanner = field(init=False)
    notes: list[str] = field(default_factory=list)
    _shape: TargetShape | None = None
    _strategy: Strategy | None = None
    _seen: str = ""

    def __post_init__(self) -> None:
        connection = resolve(self.target.connection).connection
        self.backend = backend_for(connection)
        if self.backend.batch_sink is None or self.backend.ddl is None or self.target.mode not in self.offered:
            raise Unsupported(
                f"{self.backend.title} does not offer mode={self.target.mode!r}",
                hint=f"it offers {', '.join(sorted(self.offered)) or 'nothing'}",
            )
        self.sink, self.ddl = self.backend.batch_sink(connection), self.backend.ddl(connection)

    @property
    def offered(self) -> frozenset[str]:
        """Strategies a stream may use here: whatever can be said of a part of the rows."""
        return self.backend.strategies - {"truncate"} | (
            {"scd1"} if "merge" in self.backend.strategies else frozenset()
        )

    @property
    def writer(self) -> str:
        """Who writes, as tokens know it."""
        return self.spec.writer(self.target, self.generation)

    @property
    def keys(self) -> tuple[str, ...]:
        """What a row is known by, where only the last of several counts; known once the shape is."""
        wanted = self._strategy
        if isinstance(wanted, Merge) or (isinstance(wanted, Scd2) and wanted.event_time is None):
            return wanted.keys
        return ()

    def shape_for(self, schema: StructType) -> TargetShape:
        """The table for rows of this schema; brought to its shape whenever the rows' schema is a new one."""
        said = schema.simpleString()
        if self._shape is None or said != self._seen:
            self._shape = self._ensured(schema)
            self._seen = said
        return self._shape

    def _ensured(self, schema: StructType) -> TargetShape:
        load = self.target.load
        if load is not None:
            self._strategy = load.strategy
            shape = shape_of(load.table, load.strategy)
        else:
            shape = self._found(schema)
        plan = plan_ddl(shape, self.ddl.inspect(shape), self.ddl.stored_type)
        steps, warned = settle_drift(plan, self.spec.on_drift, table=shape.declared.qualified, where=self.spec.where)
        self.ddl.apply(shape, steps)
        self.notes += [str(step) for step in steps] + [f"drift: {text}" for text in warned]
        return shape

    def _found(self, schema: StructType) -> TargetShape:
        """The table as it stands, with what the rows add; for a new one the rows say everything."""
        given = columns_of(schema, self.target.primary_key)
        wanted = TableSpec(self.target.schema, self.target.table, given, where=self.spec.where)
        self._strategy = self._strategy or strategy_for(wanted, self._wishes(), self.spec.where)[0]
        state = self.ddl.inspect(TargetShape(wanted, wanted))
        if state is None:
            return TargetShape(wanted, wanted)
        there = {column.name: column for column in state.columns}
        known = [
            Column(
                there[item.name].type or Text(), there[item.name].nullable, item.name in state.primary_key, item.name
            )
            for item in given
            if item.name in there
        ]
        new = [item for item in given if item.name not in there]
        if new and self.spec.on_drift == "error":
            raise DriftError(
                f"{wanted.qualified} has no column {', '.join(item.name for item in new)}",
                hint='leave it out with transform_sql=, add it to the table, or say on_drift="evolve"',
            )
        declared = replace(wanted, columns=tuple(known + (new if self.spec.on_drift == "evolve" else [])))
        untouched = [
            Column(item.type or Text(), item.nullable, item.name in state.primary_key, item.name)
            for item in state.columns
            if item.name not in declared.column_names
        ]
        return TargetShape(declared, replace(declared, columns=declared.columns + tuple(untouched)))

    def _wishes(self) -> Wishes:
        options = self.target.options
        return Wishes(
            mode=self.target.mode,
            keys=options.get("keys") or self.target.primary_key or None,
            update_columns=options.get("update_columns"),
            compare_columns=options.get("compare_columns"),
            event_timestamp_column=options.get("event_timestamp_column"),
        )

    def _job(self, number: int) -> WriteJob:
        """What the sink is told about one micro-batch; the same in every try."""
        shape = self._shape
        if self._strategy is None or shape is None:
            raise AssertionError("the shape comes first")
        return WriteJob(
            run_id=str(uuid.uuid5(_NAMESPACE, f"{self.writer}/{number}")),
            pipeline=self.spec.name,
            writer=self.writer,
            shape=shape,
            strategy=self._strategy,
            started_at=now(),
            write_options={name: value for name, value in self.target.options.items() if name in _FILE_OPTIONS},
            batch=number,
            fence=Fence(f"{self.spec.name}::{self.target.name}", self.since) if self.since is not None else None,
        )

    def refuse_older(self, batch: int, token: int | None) -> None:
        """A target that has more than this micro-batch would take the next ones for those it has, and lose their rows."""
        if token is not None and token > batch + 1:
            raise PlanError(
                f"{self.target.name} has batch {token - 1} of {self.spec.name}, and the checkpoint is at batch {batch}: it is "
                "older than the target, and rows would be lost",
                hint=f"bring the right checkpoint back, or begin anew: flow stream rewind {self.spec.name} --preview",
            )

    def last_sequence(self) -> int | None:
        """The token of the last micro-batch that the target has."""
        return self.sink.last_sequence(self.writer)

    def has(self, number: int) -> bool:
        """Whether an earlier try of this micro-batch was published; the shape comes first."""
        return self.sink.begin(self._job(number)).recovered is not None

    def rehearsal(self, number: int) -> WriteJob:
        """The micro-batch once more, beside itself and only for show."""
        job = self._job(number)
        return replace(job, rehearsal=True, run_id=str(uuid.uuid5(_NAMESPACE, f"{job.run_id}/rehearsal")))

    def write(self, number: int, rows: DataFrame, staged: Callable[[], None] = lambda: None) -> WriteResult:
        """Stage and publish exactly once; rows have the declared columns in their types, `staged` may object."""
        job = self._job(number)
        opening = self.sink.begin(job)
        if opening.recovered is not None:
            self.refuse_older(number, opening.recovered.commit.sequence)
            return opening.recovered
        stage = self.sink.stage(job, rows)
        staged()
        fault.point("before_publish")
        try:
            result = self.sink.publish(job, stage, opening)
        except LeaseHeld:  # the token is there: another try of this very batch was quicker
            again = self.sink.begin(job)
            if again.recovered is None:
                raise
            return again.recovered
        fault.point("after_publish")
        self.sink.settle(job, opening, result, None)
        return result


_FILE_OPTIONS = (
    "partition_by", "parquet_compression", "csv_delimiter", "csv_header", "csv_quote", "csv_escape", "csv_null_value",
)  # fmt: skip


def columns_of(schema: StructType, primary_key: tuple[str, ...]) -> tuple[Column, ...]:
    """The columns that rows of this schema have in a table; documents are JSONB."""
    missing = [name for name in primary_key if name not in schema.fieldNames()]
    if missing:
        raise MissingColumn(f"primary_key names {missing[0]!r}, which the rows do not have")
    made = []
    for item in schema.fields:
        if item.name == HIDDEN:
            continue
        nested = item.dataType.typeName() in ("struct", "array", "map", "variant")
        kind = JSONB() if nested else type_of(item.dataType, item.metadata) or Text()
        made.append(Column(kind, item.name not in primary_key, item.name in primary_key, item.name))
    return tuple(made)
