"""The source side of a run: the planned query, restricted by the watermark, as a query or as a dataframe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for, not_for_batches
from ematix_flow.contract.backend import Backend, BatchSource
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.declare.engine import SAIL
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.strategy import Incremental
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Numeric
from ematix_flow.engine import sail
from ematix_flow.engine.ask import Asked, FrameSource, QuerySource, is_derived
from ematix_flow.engine.choice import choose as engine_of
from ematix_flow.engine.context import LoadContext, RunContext
from ematix_flow.engine.federate import FederatedSource, located
from ematix_flow.engine.hosts import Hosts
from ematix_flow.engine.prepare import prepare
from ematix_flow.engine.suggest import suggest_column, suggest_connection
from ematix_flow.engine.transformed import TransformedSource, statement_of, transformed_frame
from ematix_flow.expressions import CannotRender, bound, normalized_select, quote
from ematix_flow.foundation.errors import FlowError, MissingColumn, PlanError
from ematix_flow.planning.paths import CROSS_DB, PathChoice, choose_path, require_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Reading:
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


def plan_reading(context: RunContext, asked: Asked, *, parallelism: int) -> Reading:
    """Return the planned source, without reading rows."""
    if isinstance(asked, FrameSource):
        return Reading(None, None, None, None, transformed_frame(context, asked.frame))
    if not isinstance(asked, QuerySource):
        raise AssertionError("a function that returned a dict has no source")
    try:
        hosts = Hosts.of(context.spec, asked)
        asked, joined = _located(asked, hosts)
        if engine_of(context.spec.engine).engine == SAIL:
            for connection in joined or [asked.connection]:
                sail.refuse(backend_for(connection), connection)
        if joined:
            return _transformed(context, _federated(context, asked, joined, parallelism=parallelism))
        return _transformed(context, _planned(context, asked, hosts, parallelism=parallelism))
    except FlowError as exc:
        exc.at(sql_location(context))
        raise


def _located(asked: QuerySource, hosts: Hosts) -> tuple[QuerySource, list[Any]]:
    """Return the located query, with the bounds of its window as literals of the dialect that compares them."""
    own = backend_for(asked.connection).dialect
    found, joined = located(_bound(asked, own), hosts)
    dialect = "spark" if joined else backend_for(found.connection).dialect
    return (found, joined) if dialect == own else located(_bound(asked, dialect), hosts)


def _bound(asked: QuerySource, dialect: str) -> QuerySource:
    window = asked.window
    if window is None:
        return asked
    return QuerySource(asked.connection, bound(asked.query, {"start": window.start, "end": window.end}, dialect))


def _planned(context: RunContext, asked: QuerySource, hosts: Hosts, *, parallelism: int) -> Reading:
    backend = backend_for(asked.connection)
    if backend.batch_source is None:
        raise not_for_batches(backend, reading=True)
    context.others += (backend,)
    source = backend.batch_source(asked.connection)
    if hasattr(source, "declare") and _casts_alone(context.spec):
        source.declare(context.spec.loads[0].table.columns)
    query = _renamed(context, asked.query, backend.dialect)
    try:
        plan = _plan(context, backend, source, query, parallelism=parallelism)
    except FlowError as exc:
        if isinstance(exc, MissingColumn):
            suggest_column(exc, source, query, backend.dialect)
        elif isinstance(exc, PlanError):
            suggest_connection(exc, query, backend.dialect, hosts.connections)
        raise
    return Reading(backend, asked.connection, source, plan, None, asked.connection.name)


def _casts_alone(spec: PipelineSpec) -> bool:
    """Return whether the source's columns are used only after they are cast to those of the one table."""
    compared = spec.transforms_pre or spec.transform_sql is not None or spec.incremental is not None
    return len(spec.loads) == 1 and not compared and not spec.column_map


def _plan(context: RunContext, backend: Backend, source: Any, query: str, *, parallelism: int) -> ReadPlan:
    if backend.dialect == "spark":
        if hasattr(source, "plan_without_spark"):
            known: ReadPlan | None = source.plan_without_spark(query, parallelism=parallelism)
            if known is not None:
                return known
        if hasattr(source, "weighs_little"):
            context.is_little = source.weighs_little(query)
        context.spark()
    planned: ReadPlan = source.plan(query, parallelism=parallelism)
    return planned


def _federated(context: RunContext, asked: QuerySource, joined: Sequence[Any], *, parallelism: int) -> Reading:
    context.others += tuple(backend_for(connection) for connection in joined)
    context.joined += tuple(joined)
    source = FederatedSource(Hosts({item.name: item for item in joined}, required=True), context.spark)
    plan = source.plan(_renamed(context, asked.query, "spark"), parallelism=parallelism)
    return Reading(None, None, source, plan, None, " + ".join(item.name for item in joined))


def _transformed(context: RunContext, reading: Reading) -> Reading:
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


def _renamed(context: RunContext, query: str, dialect: str) -> str:
    """Return the query with the renames of column_map; a query of a source table already contains them."""
    if not context.spec.column_map or context.spec.source_table:
        return query
    table = context.spec.loads[0].table
    names = [column.name for column in table.columns if not is_derived(column)]
    mapped = context.spec.column_map
    chosen = ", ".join(f"{quote(mapped.get(name, name), dialect)} AS {quote(name, dialect)}" for name in names)
    return f"SELECT {chosen} FROM (\n{query.strip().rstrip(';')}\n) AS renamed"


@dataclass(frozen=True)
class LoadReading:
    """The way in which one target gets its rows: the chosen path, and the query inside the database."""

    choice: PathChoice
    query: str | None = None
    columns: tuple[SourceColumn, ...] = ()


def choose(context: RunContext, target: LoadContext, reading: Reading) -> LoadReading:
    """Return the path: inside the database if source and target share it and nothing needs Spark."""
    spec, table = context.spec, target.load.table
    derived = {column.name for column in table.columns if is_derived(column)}
    names = [column.name for column in reading.columns()]
    require_columns(names, table.columns, derived=derived, table=table.qualified, where=spec.where)
    obstacle, query, columns = _inside(context, target, reading)
    same = obstacle is None and _same_system(reading, target)
    stored = {column.name: target.ddl.stored_type(target.shape, column) for column in table.columns} if same else {}
    choice = choose_path(
        force=spec.force_path, same_system=same, obstacle=obstacle, source=columns, columns=table.columns, stored=stored
    )
    return LoadReading(choice, query if choice.path != CROSS_DB else None, columns)


def _same_system(reading: Reading, target: LoadContext) -> bool:
    if reading.backend is None or reading.backend is not target.backend or target.backend.identity is None:
        return False
    return target.backend.identity(reading.connection) == target.backend.identity(target.connection)


def _inside(
    context: RunContext, target: LoadContext, reading: Reading
) -> tuple[str | None, str | None, tuple[SourceColumn, ...]]:
    """Return the obstacle to a load inside the database, or the query it would run and its columns."""
    if context.spec.fan_out and (context.read_once or not context.is_one_database):
        return "the source is read once for several targets", None, ()
    if reading.plan is None or reading.source is None:
        return "the source is a dataframe", None, ()
    if context.spec.transform_sql is not None:
        return "transform_sql runs in Spark", None, ()
    if reading.backend is None:
        return "the source is several systems", None, ()
    if not hasattr(target.sink, "stage_query"):
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


def earliest(marks: Sequence[str | None], spec: PipelineSpec) -> str | None:
    """Return the earliest watermark for a read that serves several targets; None if one of them needs all rows."""
    known = [mark for mark in marks if mark is not None]
    if spec.incremental is None or not known or len(known) < len(marks):
        return None
    kind = spec.loads[0].table.column(spec.incremental.column).type.kind
    numbers = kind in ("small_int", "integer", "big_int", "numeric", "float", "double")
    return min(known, key=Decimal) if numbers else min(known)


def restricted_query(
    target: LoadContext, reading: Reading, inside: LoadReading, incremental: Incremental, mark: str | None
) -> str:
    """Return the same-database query restricted to rows from the watermark on."""
    query = inside.query or ""
    if mark is None or reading.source is None:
        return query
    column = next(item for item in inside.columns if item.name == incremental.column)
    kind = target.load.table.column(incremental.column).type.kind
    start = as_source_value(threshold(incremental, mark, kind), kind, column)
    limited = reading.source.since(query, column, start) if start is not None else None
    return limited or query


def compares_alike(context: RunContext, reading: Reading, incremental: Incremental) -> bool:
    """Return whether the source itself can filter out exactly the rows before a watermark."""
    declared = context.spec.loads[0].table.column(incremental.column)
    found = next((item for item in reading.columns() if item.name == incremental.column), None)
    if found is None or found.type is None or declared.normalizers:
        return False
    if isinstance(declared.type, Numeric) and isinstance(found.type, Numeric):
        return declared.type.scale >= found.type.scale  # otherwise rounding could move a value past the watermark
    return _same_order(declared.type.kind, found.type.kind)


def _same_order(kind: str, given: str) -> bool:
    integers, moments = ("small_int", "integer", "big_int"), ("timestamp", "timestamp_tz")
    return given == kind or {given, kind} <= set(integers) or {given, kind} <= set(moments)


def as_source_value(value: str, kind: str, column: SourceColumn) -> str | None:
    """Return a watermark as a value of the source column's type; None if the two types compare differently."""
    given = column.type.kind if column.type else ""
    integers = ("small_int", "integer", "big_int")
    if given == kind or (given in integers and kind in integers):
        return value
    if (kind, given) == ("timestamp_tz", "timestamp"):  # a value without a zone is UTC, here and in the later cast
        return (
            datetime.fromisoformat(value)
            .astimezone(timezone.utc)
            .replace(tzinfo=None)
            .isoformat(sep=" ", timespec="microseconds")
        )
    if (kind, given) == ("timestamp", "timestamp_tz"):
        return f"{value}+00:00"
    return None


def source_frame(context: RunContext, reading: Reading, mark: str | None) -> DataFrame:
    """Return the source's rows as a lazy dataframe, restricted in the source where that is exact."""
    spark = context.spark()
    if reading.plan is None or reading.source is None:
        if reading.frame is None:
            raise AssertionError("a reading is a plan or a frame")
        return reading.frame
    return reading.source.read(restricted_plan(context, reading, mark), spark, context.open_until)


def restricted_plan(context: RunContext, reading: Reading, mark: str | None) -> ReadPlan:
    """Return the read restricted to rows from a watermark on, where the source can filter exactly."""
    plan, incremental = reading.plan, context.spec.incremental
    if plan is None or reading.source is None:
        raise AssertionError("a dataframe has no plan")
    if mark is not None and incremental is not None and compares_alike(context, reading, incremental):
        limited = _pushed(context, reading, incremental, mark)
        if limited is not None:
            return reading.source.plan(limited, parallelism=plan.splits)
    return plan


def _pushed(context: RunContext, reading: Reading, incremental: Incremental, mark: str) -> str | None:
    found = next((item for item in reading.columns() if item.name == incremental.column), None)
    if found is None or reading.source is None:
        return None
    kind = context.spec.loads[0].table.column(incremental.column).type.kind
    start = as_source_value(threshold(incremental, mark, kind), kind, found)
    return reading.source.since(reading.query, found, start) if start is not None else None


def prepared_frame(context: RunContext, target: LoadContext, frame: DataFrame, mark: str | None) -> DataFrame:
    """Return exactly the declared columns of one target, without rows before the watermark."""
    ready = prepare(frame, target.load.table, context.spec.transforms_pre, context.open_until)
    incremental = context.spec.incremental
    if mark is None or incremental is None:
        return ready
    from ematix_flow.families.frames import spark_type

    column = target.load.table.column(incremental.column)
    start = threshold(incremental, mark, column.type.kind).replace("'", "''")
    name = f"`{column.name}`"
    return ready.where(f"{name} IS NULL OR {name} >= CAST('{start}' AS {spark_type(column.type)})")
