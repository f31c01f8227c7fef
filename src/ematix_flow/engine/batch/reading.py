"""The source side of a run: plans the query and reads it from the watermark on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for, batch_refusal
from ematix_flow.contract.backend import Backend, BatchSource, DeclaredColumns, QueryStage, SparkSqlSource
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.parquet_stage import scratch_dir
from ematix_flow.dataplane.spark_session import is_sail_session
from ematix_flow.declare.engine import SAIL
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.strategy import Incremental
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Numeric
from ematix_flow.engine.batch.context import RunContext, TargetContext
from ematix_flow.engine.batch.prepare import prepare_frame
from ematix_flow.engine.batch.source import is_derived
from ematix_flow.engine.batch.transform_sql import TransformedSource, statement_of, transform_frame
from ematix_flow.engine.sail import sail_server
from ematix_flow.engine.session.engine_choice import choose_engine as engine_of
from ematix_flow.engine.sql.connection_references import ConnectionReferences
from ematix_flow.engine.sql.federation import FederatedSource, locate_tables
from ematix_flow.engine.sql.sources import FrameSource, QuerySource, ResolvedSource
from ematix_flow.engine.sql.suggestions import suggest_column, suggest_connection
from ematix_flow.foundation.errors import FlowError, MissingColumn, PlanError
from ematix_flow.planning.paths import CROSS_DB, PathChoice, choose_path, require_columns
from ematix_flow.sql.expressions import CannotRender, bind_window, normalized_select, quote
from ematix_flow.storage.paths import engine_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class PlannedSource:
    """The planned source: a query on one system or over several, or a dataframe."""

    backend: Backend | None
    connection: Any
    source: BatchSource | None
    plan: ReadPlan | None
    frame: DataFrame | None
    origin: str | None = None

    @property
    def query(self) -> str:
        """Return the source's SQL, empty for a dataframe."""
        return self.plan.query if self.plan else ""

    @property
    def estimated_rows(self) -> int | None:
        """Return the number of rows that the source reports, None if it is unknown."""
        return self.plan.estimated_rows if self.plan else None

    @property
    def kind(self) -> str:
        """Return the kind of the source: the backend's name, `federation` or `dataframe`."""
        if self.backend is None:
            return "dataframe" if self.plan is None else "federation"
        return self.backend.name

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns of the source."""
        if self.plan is not None:
            return self.plan.columns
        frame = self.frame
        return tuple(SourceColumn(name, kind, None) for name, kind in frame.dtypes) if frame is not None else ()


def plan_reading(context: RunContext, resolved: ResolvedSource, *, parallelism: int) -> PlannedSource:
    """Return the planned source, without reading rows."""
    if isinstance(resolved, FrameSource):
        return PlannedSource(None, None, None, None, transform_frame(context, resolved.frame))
    if not isinstance(resolved, QuerySource):
        raise AssertionError("a function that returned a dict has no source")
    try:
        hosts = ConnectionReferences.of(context.spec, resolved)
        resolved, joined = _located_query(resolved, hosts)
        if engine_of(context.spec.engine).engine == SAIL:
            for connection in joined or [resolved.connection]:
                sail_server.refuse_unsupported(backend_for(connection), connection)
        if joined:
            return _with_transform_sql(context, _federated(context, resolved, joined, parallelism=parallelism))
        return _with_transform_sql(context, _planned_source(context, resolved, hosts, parallelism=parallelism))
    except FlowError as exc:
        exc.at(sql_location(context))
        raise


def _located_query(query_source: QuerySource, hosts: ConnectionReferences) -> tuple[QuerySource, list[Any]]:
    """Return the located query, with the bounds of its window as literals of the dialect that compares them."""
    own = backend_for(query_source.connection).dialect
    located_query, joined = locate_tables(_bound(query_source, own), hosts)
    dialect = "spark" if joined else backend_for(located_query.connection).dialect
    return (located_query, joined) if dialect == own else locate_tables(_bound(query_source, dialect), hosts)


def _bound(query_source: QuerySource, dialect: str) -> QuerySource:
    window = query_source.window
    if window is None:
        return query_source
    return QuerySource(
        query_source.connection, bind_window(query_source.query, {"start": window.start, "end": window.end}, dialect)
    )


def _planned_source(
    context: RunContext, query_source: QuerySource, hosts: ConnectionReferences, *, parallelism: int
) -> PlannedSource:
    backend = backend_for(query_source.connection)
    if backend.batch_source is None:
        raise batch_refusal(backend, reading=True)
    context.session.others += (backend,)
    source = backend.batch_source(query_source.connection)
    if isinstance(source, DeclaredColumns) and _casts_alone(context.spec):
        source.declare(context.spec.loads[0].table.columns)
    query = _renamed_columns(context, query_source.query, backend.dialect)
    try:
        plan = _plan(context, backend, source, query, parallelism=parallelism)
    except FlowError as exc:
        if isinstance(exc, MissingColumn):
            suggest_column(exc, source, query, backend.dialect)
        elif isinstance(exc, PlanError):
            suggest_connection(exc, query, backend.dialect, hosts.connections)
        raise
    return PlannedSource(backend, query_source.connection, source, plan, None, query_source.connection.name)


def _casts_alone(spec: PipelineSpec) -> bool:
    """Return whether the source's columns are used only after they are cast to those of the one table."""
    compared = spec.transforms_pre or spec.transform_sql is not None or spec.incremental is not None
    return len(spec.loads) == 1 and not compared and not spec.column_map


def _plan(context: RunContext, backend: Backend, source: BatchSource, query: str, *, parallelism: int) -> ReadPlan:
    if isinstance(source, SparkSqlSource):
        known = source.plan_without_spark(query, parallelism=parallelism)
        if known is not None:
            return known
        context.session.is_little = source.weighs_little(query)
    if backend.is_lake:
        context.spark()
    return source.plan(query, parallelism=parallelism)


def _federated(
    context: RunContext, query_source: QuerySource, joined: Sequence[Any], *, parallelism: int
) -> PlannedSource:
    context.session.add_systems(joined)
    source = FederatedSource(ConnectionReferences({item.name: item for item in joined}, required=True), context.spark)
    plan = source.plan(_renamed_columns(context, query_source.query, "spark"), parallelism=parallelism)
    return PlannedSource(None, None, source, plan, None, " + ".join(item.name for item in joined))


def _with_transform_sql(context: RunContext, reading: PlannedSource) -> PlannedSource:
    """Return the read followed by the pipeline's `transform_sql`, which Spark runs."""
    statement = statement_of(context)
    if statement is None or reading.source is None or reading.plan is None:
        return reading
    source = TransformedSource(reading.source, statement, context.spark)
    return replace(reading, source=source, plan=source.around(reading.plan))


def sql_location(context: RunContext) -> Any:
    """Return the location to show for an error in the source's SQL: the function."""
    from ematix_flow.foundation.location import Location, is_ours

    code = getattr(context.spec.function, "__code__", None)
    if code is None or is_ours(code.co_filename):
        return context.spec.where
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return Location(code.co_filename, max(lines)) if lines else context.spec.where


def _renamed_columns(context: RunContext, query: str, dialect: str) -> str:
    """Return the query with the renames of column_map; a query of a source table already contains them."""
    if not context.spec.column_map or context.spec.source_table:
        return query
    table = context.spec.loads[0].table
    names = [column.name for column in table.columns if not is_derived(column)]
    mapped = context.spec.column_map
    chosen = ", ".join(f"{quote(mapped.get(name, name), dialect)} AS {quote(name, dialect)}" for name in names)
    return f"SELECT {chosen} FROM (\n{query.strip().rstrip(';')}\n) AS renamed"


@dataclass(frozen=True)
class TargetSource:
    """The way in which one target gets its rows: the chosen path, and the query inside the database."""

    choice: PathChoice
    query: str | None = None
    columns: tuple[SourceColumn, ...] = ()


def choose_path_for(
    context: RunContext, target: TargetContext, reading: PlannedSource, *, read_once: bool
) -> TargetSource:
    """Return the path: inside the database if source and target share it and nothing needs Spark.

    With `read_once`, another target of a fan-out needs the rows outside the database, so that all share one read.
    """
    spec, table = context.spec, target.load.table
    derived = {column.name for column in table.columns if is_derived(column)}
    names = [column.name for column in reading.columns()]
    require_columns(names, table.columns, derived=derived, table=table.qualified, where=spec.where)
    obstacle, query, columns = _inside_database(context, target, reading, read_once=read_once)
    same = obstacle is None and _same_system(reading, target)
    stored = {column.name: target.ddl.stored_type(target.shape, column) for column in table.columns} if same else {}
    choice = choose_path(
        force=spec.force_path, same_system=same, obstacle=obstacle, source=columns, columns=table.columns, stored=stored
    )
    return TargetSource(choice, query if choice.path != CROSS_DB else None, columns)


def _same_system(reading: PlannedSource, target: TargetContext) -> bool:
    if reading.backend is None or reading.backend is not target.backend or target.backend.identity is None:
        return False
    return target.backend.identity(reading.connection) == target.backend.identity(target.connection)


def _inside_database(
    context: RunContext, target: TargetContext, reading: PlannedSource, *, read_once: bool
) -> tuple[str | None, str | None, tuple[SourceColumn, ...]]:
    """Return the obstacle to a load inside the database, or the query it would run and its columns."""
    if context.spec.fan_out and (read_once or not context.is_one_database):
        return "the source is read once for several targets", None, ()
    if reading.plan is None or reading.source is None:
        return "the source is a dataframe", None, ()
    if context.spec.transform_sql is not None:
        return "transform_sql runs in Spark", None, ()
    if reading.backend is None:
        return "the source is several systems", None, ()
    if not isinstance(target.sink, QueryStage):
        return f"{target.backend.title} is filled from outside", None, ()
    if not _same_system(reading, target):
        return "source and target are different systems", None, ()
    try:
        kinds = {column.name: column.type.kind for column in reading.plan.columns if column.type is not None}
        query = normalized_query(
            target.load.table, reading.query, context.spec.transforms_pre, reading.backend.dialect, kinds
        )
    except CannotRender as exc:
        return str(exc), None, ()
    if query == reading.query:
        return None, query, reading.plan.columns
    return None, query, reading.source.plan(query, parallelism=1).columns


def normalized_query(table: TableSpec, query: str, pre_transforms: Any, dialect: str, kinds: Mapping[str, str]) -> str:
    """Return the source's query with the table's normalizers and the pre-transforms in the database's SQL."""
    if not pre_transforms and not any(column.normalizers for column in table.columns):
        return query
    columns = [(column.name, column.normalizers) for column in table.columns]
    return normalized_select(columns, query, pre_transforms=pre_transforms, dialect=dialect, kinds=kinds)


def threshold(incremental: Incremental, watermark: str, kind: str) -> str:
    """Return the start of an incremental read: the watermark minus the lookback."""
    if incremental.lookback is None:
        return watermark
    if kind == "date":
        days = timedelta(days=-(-incremental.lookback.total_seconds() // 86400))
        return (date.fromisoformat(watermark) - days).isoformat()
    if kind in ("timestamp", "timestamp_tz"):
        return (datetime.fromisoformat(watermark) - incremental.lookback).isoformat(sep=" ", timespec="microseconds")
    return watermark


def earliest_watermark(marks: Sequence[str | None], spec: PipelineSpec) -> str | None:
    """Return the earliest watermark for a read that serves several targets; None if one of them needs all rows."""
    known = [mark for mark in marks if mark is not None]
    if spec.incremental is None or not known or len(known) < len(marks):
        return None
    kind = spec.loads[0].table.column(spec.incremental.column).type.kind
    numbers = kind in ("small_int", "integer", "big_int", "numeric", "float", "double")
    return min(known, key=Decimal) if numbers else min(known)


def restricted_query(
    spec: PipelineSpec, table: TableSpec, reading: PlannedSource, inside: TargetSource, mark: str
) -> str:
    """Return the same-database query restricted to rows from the watermark on."""
    query, incremental = inside.query or "", spec.incremental
    if incremental is None or reading.source is None:
        return query
    column = next(item for item in inside.columns if item.name == incremental.column)
    kind = table.column(incremental.column).type.kind
    start = as_source_value(threshold(incremental, mark, kind), kind, column)
    limited = reading.source.since(query, column, start) if start is not None else None
    return limited or query


def compares_alike(context: RunContext, reading: PlannedSource, incremental: Incremental) -> bool:
    """Return whether the source itself can filter out exactly the rows before a watermark."""
    declared = context.spec.loads[0].table.column(incremental.column)
    column = next((item for item in reading.columns() if item.name == incremental.column), None)
    if column is None or column.type is None or declared.normalizers:
        return False
    if isinstance(declared.type, Numeric) and isinstance(column.type, Numeric):
        return declared.type.scale >= column.type.scale  # otherwise rounding could move a value past the watermark
    return _same_order(declared.type.kind, column.type.kind)


def _same_order(kind: str, source_kind: str) -> bool:
    integers, moments = ("small_int", "integer", "big_int"), ("timestamp", "timestamp_tz")
    return source_kind == kind or {source_kind, kind} <= set(integers) or {source_kind, kind} <= set(moments)


def as_source_value(value: str, kind: str, column: SourceColumn) -> str | None:
    """Return a watermark as a value of the source column's type; None if the two types compare differently."""
    source_kind = column.type.kind if column.type else ""
    integers = ("small_int", "integer", "big_int")
    if source_kind == kind or (source_kind in integers and kind in integers):
        return value
    if (kind, source_kind) == (
        "timestamp_tz",
        "timestamp",
    ):  # a value without a zone is UTC, here and in the later cast
        return (
            datetime.fromisoformat(value)
            .astimezone(timezone.utc)
            .replace(tzinfo=None)
            .isoformat(sep=" ", timespec="microseconds")
        )
    if (kind, source_kind) == ("timestamp", "timestamp_tz"):
        return f"{value}+00:00"
    return None


def source_frame(context: RunContext, reading: PlannedSource, mark: str | None) -> DataFrame:
    """Return the source's rows as a lazy dataframe, restricted in the source where that is exact."""
    spark = context.spark()
    if reading.plan is None or reading.source is None:
        if reading.frame is None:
            raise AssertionError("a reading is a plan or a frame")
        return reading.frame
    return reading.source.read(restricted_plan(context, reading, mark), spark, context.open_until)


def restricted_plan(context: RunContext, reading: PlannedSource, mark: str | None) -> ReadPlan:
    """Return the read restricted to rows from a watermark on, where the source can filter exactly."""
    plan, incremental = reading.plan, context.spec.incremental
    if plan is None or reading.source is None:
        raise AssertionError("a dataframe has no plan")
    if mark is not None and incremental is not None and compares_alike(context, reading, incremental):
        limited = _pushed_down(context, reading, incremental, mark)
        if limited is not None:
            return reading.source.plan(limited, parallelism=plan.splits)
    return plan


def _pushed_down(context: RunContext, reading: PlannedSource, incremental: Incremental, mark: str) -> str | None:
    column = next((item for item in reading.columns() if item.name == incremental.column), None)
    if column is None or reading.source is None:
        return None
    kind = context.spec.loads[0].table.column(incremental.column).type.kind
    start = as_source_value(threshold(incremental, mark, kind), kind, column)
    return reading.source.since(reading.query, column, start) if start is not None else None


def prepared_frame(context: RunContext, target: TargetContext, frame: DataFrame, mark: str | None) -> DataFrame:
    """Return exactly the declared columns of one target, without rows before the watermark."""
    ready = prepare_frame(frame, target.load.table, context.spec.transforms_pre, context.open_until)
    incremental = context.spec.incremental
    if mark is None or incremental is None:
        return ready
    from ematix_flow.dataplane.type_mapping import spark_type

    column = target.load.table.column(incremental.column)
    start = threshold(incremental, mark, column.type.kind).replace("'", "''")
    name = f"`{column.name}`"
    return ready.where(f"{name} IS NULL OR {name} >= CAST('{start}' AS {spark_type(column.type)})")


def persisted_for_targets(frame: DataFrame, open_until: ExitStack) -> DataFrame:
    """Return the rows persisted for several readers; on Sail, which cannot persist dataframes, written to files."""
    if is_sail_session(frame.sparkSession):
        where = engine_uri(scratch_dir(open_until) / "rows")
        frame.write.parquet(where)
        return frame.sparkSession.read.schema(frame.schema).parquet(where)
    held = frame.persist()
    open_until.callback(held.unpersist)
    return held
