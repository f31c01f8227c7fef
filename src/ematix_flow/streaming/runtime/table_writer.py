"""The writer of a stream to a table: shape, DDL, and one publish per micro-batch through the batch write path."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.backend import Backend, BatchSink, DdlPlanner
from ematix_flow.contract.cdc import STAGED, staged_shape
from ematix_flow.contract.shape import TargetShape, shape_of
from ematix_flow.contract.write import Fence, Stage, WriteJob, WriteResult, WriteSession
from ematix_flow.dataplane.spark_types import DECLARED, type_of
from ematix_flow.declare.loads import LoadOptions, strategy_for
from ematix_flow.declare.strategy import Changes, Merge, Scd2, Strategy
from ematix_flow.declare.streams.parts import CDC
from ematix_flow.declare.streams.spec import StreamSpec, TableTarget
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import JSONB, Column, Text, type_from_spec
from ematix_flow.families.sql.sink import SqlSink
from ematix_flow.foundation import fault
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import DriftError, LeaseHeld, MissingColumn, PlanError, Unsupported
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.planning.drift import apply_drift_policy, plan_ddl
from ematix_flow.streaming.dlq.commit_coverage import EVERYTHING, NOTHING, CommitCoverage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_NAMESPACE = uuid.UUID("7c3bb7b4-5f0c-4b8c-9d9a-2f6a0f5f1f11")
HIDDEN = "_source"
_log = logging.getLogger(__name__)


@dataclass
class TableWriter:
    """One table target of a running stream."""

    spec: StreamSpec
    target: TableTarget
    generation: str
    since: int | None = None
    """The number of the generation, for a fence; None for a writer beside the stream."""
    backend: Backend = field(init=False)
    sink: BatchSink = field(init=False)
    ddl: DdlPlanner = field(init=False)
    notes: list[str] = field(default_factory=list)
    _shape: TargetShape | None = None
    _strategy: Strategy | None = None
    _seen: str = ""
    _existing: tuple[Column, ...] = ()
    """The columns of an undeclared table, as they are in the database."""
    _left_out: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        connection = resolve(self.target.connection).connection
        self.backend = backend_for(connection)
        if self.backend.batch_sink is None or self.backend.ddl is None or self.target.mode not in self.offered:
            raise Unsupported(
                f"{self.backend.title} does not offer mode={self.target.mode!r}",
                hint=f"it offers {', '.join(sorted(self.offered)) or 'nothing'}",
            )
        if self.spec.cdc is not None and not self.backend.takes_changes:
            raise Unsupported(
                f"{self.backend.title} cannot take changes of rows",
                hint="use a database or a Delta table",
                where=self.spec.where,
            )
        self.sink, self.ddl = self.backend.batch_sink(connection), self.backend.ddl(connection)
        if self.since is not None and isinstance(self.sink, SqlSink):
            self.sink.keep_session()

    def close(self) -> None:
        """Close the resources that the sink holds between micro-batches."""
        if isinstance(self.sink, SqlSink):
            self.sink.release_session()

    @property
    def offered(self) -> frozenset[str]:
        """Return the strategies that a stream may use here: all that work with a part of the rows."""
        return self.backend.strategies - {"truncate"} | (
            {"scd1"} if "merge" in self.backend.strategies else frozenset()
        )

    @property
    def writer(self) -> str:
        """Return the writer's name in commit tokens."""
        return self.spec.writer(self.target, self.generation)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of which only the last row counts; known after `shape_for`."""
        wanted = self._strategy
        if isinstance(wanted, Merge) or (isinstance(wanted, Scd2) and wanted.event_time is None):
            return wanted.keys
        return ()

    @property
    def changes(self) -> Changes | None:
        """Return how changes are applied, for change data; known after `shape_for`."""
        return self._strategy if isinstance(self._strategy, Changes) else None

    @property
    def staged_table(self) -> TableSpec:
        """Return the columns that are staged: the declared ones, and those that changes add."""
        return self._job(0).shape.declared

    def shape_for(self, schema: StructType, learn: Callable[[], StructType] | None = None) -> TargetShape:
        """Return the table for rows of this schema, after DDL where the schema is new; `learn` finds missing types."""
        schema_text = schema.simpleString()
        if self._shape is None or schema_text != self._seen or self._has_grown(self._shape):
            self._shape = self._ensured(schema, learn)
            self._seen = schema_text
        return self._shape

    def _has_grown(self, shape: TargetShape) -> bool:
        """Return whether another process added to the table a column that is left out of the rows."""
        if not self._left_out or self.target.load is not None:
            return False
        state = self.ddl.inspect(shape)
        new_columns = self._left_out & {column.name for column in (state.columns if state is not None else ())}
        self._left_out -= new_columns
        return bool(new_columns)

    def _ensured(self, schema: StructType, learn: Callable[[], StructType] | None) -> TargetShape:
        load = self.target.load
        if self.spec.cdc is not None:
            shape = self._of_changes(self.spec.cdc, schema, learn or (lambda: schema))
        elif load is not None:
            self._strategy = load.strategy
            shape = shape_of(load.table, load.strategy)
        else:
            shape = self._existing_shape(schema)
        plan = plan_ddl(shape, self.ddl.inspect(shape), self.ddl.stored_type)
        steps, warned = apply_drift_policy(
            plan, self.spec.on_drift, table=shape.declared.qualified, where=self.spec.where
        )
        self.ddl.apply(shape, steps)
        self.notes += [str(step) for step in steps] + [f"drift: {text}" for text in warned]
        return shape

    def _existing_shape(self, schema: StructType) -> TargetShape:
        """Return the existing table with the columns that the rows add; the rows define a new table."""
        columns = columns_of(schema, self.target.primary_key)
        wanted = TableSpec(self.target.schema, self.target.table, columns, where=self.spec.where)
        self._strategy = self._strategy or strategy_for(wanted, self._load_options(), self.spec.where)[0]
        if isinstance(self._strategy, Scd2) and not self._strategy.keeps_event_time:
            raise MissingColumn(
                f"event_timestamp_column names {self._strategy.event_time!r}, which the rows do not have",
                where=self.spec.where, hint=did_you_mean(str(self._strategy.event_time), wanted.column_names),
            )  # fmt: skip
        state = self.ddl.inspect(TargetShape(wanted, wanted))
        if state is None:
            return TargetShape(wanted, wanted)
        existing = {column.name: column for column in state.columns}
        known = [
            Column(
                existing[item.name].type or Text(),
                existing[item.name].nullable,
                item.name in state.primary_key,
                item.name,
            )
            for item in columns
            if item.name in existing
        ]
        new = [item for item in columns if item.name not in existing]
        if new and self.spec.on_drift == "error":
            raise DriftError(
                f"{wanted.qualified} has no column {', '.join(item.name for item in new)}",
                hint='leave it out with transform_sql=, add it to the table, or say on_drift="evolve"',
            )
        if self.spec.on_drift != "evolve":
            self._left_out.update(item.name for item in new)
        declared = replace(wanted, columns=tuple(known + (new if self.spec.on_drift == "evolve" else [])))
        untouched = [
            Column(item.type or Text(), item.nullable, item.name in state.primary_key, item.name)
            for item in state.columns
            if item.name not in declared.column_names
        ]
        return TargetShape(declared, replace(declared, columns=declared.columns + tuple(untouched)))

    def _of_changes(self, cdc: CDC, schema: StructType, learn: Callable[[], StructType]) -> TargetShape:
        """Return the table for changes; columns of their rows that it lacks are left out, or raise DriftError."""
        load = self.target.load
        if load is not None:
            table, strategy = load.table, load.strategy
        else:
            table = self._existing_for_changes(schema, learn)
            keys = table.primary_key or self.target.primary_key
            strategy = strategy_for(
                table, replace(self._load_options(), keys=self._load_options().keys or keys or None), self.spec.where
            )[0]
        if not isinstance(strategy, Merge):
            raise AssertionError("change data is merged")
        soft = cdc.soft_delete_column
        compare, update = (
            tuple(name for name in names if name != soft) for names in (strategy.compare, strategy.update)
        )
        name = f"{self.spec.name}::{self.target.name}"
        self._strategy = Changes(strategy.keys, compare, update, name, soft, cdc.out_of_order_tolerance_ms)
        self._refuse_unknown(
            cdc, [name for name in schema.fieldNames() if name not in (*table.column_names, soft)], table
        )
        shape = shape_of(table, self._strategy)
        if load is None:  # a table of another owner: only columns that were asked for are added
            own = {*table.column_names, soft}
            columns = tuple(column for column in shape.table.columns if column.name in own)
            shape = replace(shape, table=replace(shape.table, columns=columns + self._untouched(table, soft)))
        return shape

    def _existing_for_changes(self, schema: StructType, learn: Callable[[], StructType]) -> TableSpec:
        """Return the existing table's columns that rows have; the first rows define a table that is missing."""
        empty = TableSpec(self.target.schema, self.target.table, (), where=self.spec.where)
        state = self.ddl.inspect(TargetShape(empty, empty))
        keys = self.target.primary_key or tuple(self.target.options.get("keys") or ())
        if state is None:
            if not keys:
                raise PlanError(
                    f"{empty.qualified} is not there, and no key is declared for it",
                    hint='add target_primary_key=["id"], or declare the table as a class',
                    where=self.spec.where,
                )
            return replace(empty, columns=columns_of(learn(), keys))
        known = set(schema.fieldNames()) | set(keys or state.primary_key)
        self._existing = tuple(
            Column(item.type or Text(), item.nullable, item.name in (keys or state.primary_key), item.name)
            for item in state.columns
        )
        return replace(empty, columns=tuple(column for column in self._existing if column.name in known))

    def _untouched(self, table: TableSpec, soft: str | None) -> tuple[Column, ...]:
        return tuple(column for column in self._existing if column.name not in (*table.column_names, soft))

    def _refuse_unknown(self, cdc: CDC, unknown: list[str], table: TableSpec) -> None:
        if unknown and cdc.schema_evolution == "fail":
            raise DriftError(
                f"{table.qualified} has no column {', '.join(unknown)}, which the changes have",
                hint='add it to the table, or say schema_evolution="skip" to leave it out',
                where=self.spec.where,
            )
        new = [name for name in unknown if name not in self._left_out]
        if new:
            self._left_out.update(new)
            _log.warning("%s has no column %s, which the changes have: it is left out", table.qualified, ", ".join(new))

    def _load_options(self) -> LoadOptions:
        options = self.target.options
        return LoadOptions(
            mode=self.target.mode,
            keys=options.get("keys") or self.target.primary_key or None,
            update_columns=options.get("update_columns"),
            compare_columns=options.get("compare_columns"),
            event_timestamp_column=options.get("event_timestamp_column"),
        )

    def _job(self, number: int) -> WriteJob:
        """Return the sink's job for one micro-batch; the same in every try."""
        shape = self._shape
        if self._strategy is None or shape is None:
            raise AssertionError("the shape comes first")
        if isinstance(self._strategy, Changes):
            shape = staged_shape(shape, self._strategy)
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
        """Raise for a target newer than the micro-batch: it would skip the next ones as known, and lose their rows."""
        if token is not None and token > batch + 1:
            raise PlanError(
                f"{self.target.name} has batch {token - 1} of {self.spec.name}, and the checkpoint is at batch {batch}: it is "
                "older than the target, and rows would be lost",
                hint=f"bring the right checkpoint back, or begin anew: flow stream rewind {self.spec.name} --preview",
            )

    def last_sequence(self) -> int | None:
        """Return the token of the last micro-batch that the target has."""
        return self.sink.last_sequence(self.writer)

    def dry_run_job(self, number: int) -> WriteJob:
        """Return the micro-batch's job as a dry run, with a run id of its own."""
        job = self._job(number)
        return replace(job, dry_run=True, run_id=str(uuid.uuid5(_NAMESPACE, f"{job.run_id}/rehearsal")))

    def begin(self, number: int) -> TableWrite:
        """Begin a micro-batch, or find that an earlier try of it was published; call `shape_for` first."""
        job = self._job(number)
        session = self.sink.begin(job)
        if session.recovered is not None:
            self.refuse_older(number, session.recovered.commit.sequence)
        return TableWrite(self.sink, job, session)


@dataclass(frozen=True)
class TableWrite:
    """A micro-batch that was begun at its table; to be staged, unless `recovered` is the result of an earlier try."""

    sink: BatchSink
    job: WriteJob
    session: WriteSession

    @property
    def recovered(self) -> WriteResult | None:
        """Return the result of an earlier try."""
        return self.session.recovered

    def coverage(self) -> CommitCoverage:
        """Return everything where an earlier try was published: a table takes a micro-batch as a whole."""
        return NOTHING if self.recovered is None else EVERYTHING

    def stage(self, rows: DataFrame) -> StagedTableWrite:
        """Stage rows, which have the declared columns in their types."""
        return StagedTableWrite(self, self.sink.stage(self.job, rows))


@dataclass(frozen=True)
class StagedTableWrite:
    """A micro-batch whose rows are staged beside its table."""

    write: TableWrite
    stage: Stage

    def publish(self) -> WriteResult:
        """Make the rows visible, with the commit token; return the result of another try that was faster."""
        sink, job, session = self.write.sink, self.write.job, self.write.session
        fault.point("before_publish")
        try:
            result = sink.publish(job, self.stage, session)
        except LeaseHeld:  # the token exists: another try of this very batch was faster
            again = sink.begin(job)
            if again.recovered is None:
                raise
            return again.recovered
        fault.point("after_publish")
        return result

    def settle(self, result: WriteResult) -> None:
        """Drop the stage; that of another try is left to its process."""
        if not result.repeated:
            self.write.sink.settle(self.write.job, self.write.session, result, None)


def without_staged_columns(table: TableSpec) -> TableSpec:
    """Return the table without the columns that are staged beside a row."""
    own = {column.name for column in STAGED}
    return replace(table, columns=tuple(column for column in table.columns if column.name not in own))


_FILE_OPTIONS = (
    "partition_by", "parquet_compression", "csv_delimiter", "csv_header", "csv_quote", "csv_escape", "csv_null_value",
)  # fmt: skip


def columns_of(schema: StructType, primary_key: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the columns that rows of this schema have in a table; documents are JSONB."""
    missing = [name for name in primary_key if name not in schema.fieldNames()]
    if missing:
        raise MissingColumn(f"primary_key names {missing[0]!r}, which the rows do not have")
    columns = []
    for item in schema.fields:
        if item.name == HIDDEN:
            continue
        nested = item.dataType.typeName() in ("struct", "array", "map", "variant")
        declared = type_from_spec(item.metadata.get(DECLARED) or {})
        kind = declared or (JSONB() if nested else type_of(item.dataType, item.metadata) or Text())
        columns.append(Column(kind, item.name not in primary_key, item.name in primary_key, item.name))
    return tuple(columns)
