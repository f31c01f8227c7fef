"""Resolution of a pipeline's source: calls the user's function and interprets its return value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.config.resolve import resolve
from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.message import Message
from ematix_flow.declare.normalizers import Derive
from ematix_flow.declare.pipeline import (
    PipelineSpec,
    connection_parameters,
    positional_parameters,
    takes_message,
    takes_window,
)
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.windows import Window
from ematix_flow.engine.coroutines import awaited
from ematix_flow.engine.handle import Connection
from ematix_flow.engine.window import WindowChoice, not_windowed
from ematix_flow.expressions import marks_in, quote
from ematix_flow.families.lost_engine import lost_engine
from ematix_flow.foundation.errors import FlowError, PlanError, RunFailed, SqlError, UserError
from ematix_flow.foundation.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

reads_until: ContextVar[ExitStack | None] = ContextVar("reads_until", default=None)
"""The exit stack of the run whose function is being called; what the function reads may stay open until then."""


fired_by: ContextVar[Message | None] = ContextVar("fired_by", default=None)
"""The message that triggered the current run; None for a run without one."""


@dataclass(frozen=True)
class QuerySource:
    """SQL on one connection; if it contains `{start}` and `{end}`, `window` holds their values."""

    connection: Any
    query: str
    window: Window | None = None


@dataclass(frozen=True)
class FrameSource:
    """A dataframe that the function returned."""

    frame: DataFrame


@dataclass(frozen=True)
class NoSource:
    """The dict of a function that did the work itself, so that there is nothing to read."""

    value: Mapping[str, Any]


Asked = QuerySource | FrameSource | NoSource


@contextmanager
def firing(message: Message | None) -> Iterator[None]:
    """Make the triggering message available to the function of the run."""
    token = fired_by.set(message)
    try:
        yield
    finally:
        fired_by.reset(token)


def ask(
    spec: PipelineSpec, spark: Callable[[], SparkSession], open_until: ExitStack, choice: WindowChoice | None = None
) -> Asked:
    """Call the function with the arguments it declares, and return its result as a resolved source."""
    choice = choice or WindowChoice(spec)
    source = source_connection(spec)
    window = choice.take() if takes_window(spec.function) else None
    if window is None and takes_window(spec.function):
        return NoSource(choice.nothing_new())
    asked = _understood(spec, source, _call(spec, source, spark, open_until, window), choice)
    if choice.is_backfill and window is None and not (isinstance(asked, QuerySource) and asked.window is not None):
        raise not_windowed(spec)
    return asked


def _understood(spec: PipelineSpec, source: Any, answer: Any, choice: WindowChoice) -> Asked:
    if answer is None:
        if spec.source_table is None:
            raise PlanError(
                f"{spec.name} returned nothing",
                where=spec.where,
                hint='return SQL, or name the source: source_table="raw.customers"',
            )
        return QuerySource(source, table_query(spec, Connection(source).dialect()))
    if isinstance(answer, str):
        return _query(spec, source, answer, choice)
    if isinstance(answer, Source):
        return _query(spec, _declared(answer.connection), answer.query, choice)
    if isinstance(answer, Mapping):
        return NoSource(answer)
    if hasattr(answer, "sparkSession") and hasattr(answer, "mapInArrow"):
        return FrameSource(answer)
    raise RunFailed(
        f"{spec.name} returned {type(answer).__name__}",
        where=spec.where,
        hint="return SQL, a Source or a Spark DataFrame",
    )


def _query(spec: PipelineSpec, connection: Any, query: str, choice: WindowChoice) -> Asked:
    marks = marks_in(query)
    if not marks:
        return QuerySource(connection, query)
    if len(marks) == 1:
        there, missing = ("start", "end") if "start" in marks else ("end", "start")
        raise SqlError(
            f"the SQL of {spec.name} has {{{there}}} and no {{{missing}}}: its windows would overlap",
            where=spec.where,
            hint="for example: WHERE created_at >= {start} AND created_at < {end}",
        )
    window = choice.take()
    return QuerySource(connection, query, window) if window is not None else NoSource(choice.nothing_new())


def source_connection(spec: PipelineSpec) -> Any:
    """Return the declared source connection; without one, that of the (first) target."""
    named = spec.source_connection
    if isinstance(named, (list, tuple)):
        named = named[0] if named else None
    return _declared(named if named is not None else spec.loads[0].connection)


def _declared(connection: Any) -> Any:
    return connection.declared if isinstance(connection, Connection) else resolve(connection).connection


def _call(spec: PipelineSpec, source: Any, spark: Callable[[], SparkSession], open_until: ExitStack,
          window: Window | None) -> Any:  # fmt: skip
    given: dict[str, Any] = {}
    if "spark" in positional_parameters(spec.function):
        given["spark"] = spark()
    if takes_message(spec.function):
        given["message"] = fired_by.get()
    if window is not None:
        given |= {"start": window.start, "end": window.end}
    connections = [source, _declared(spec.loads[0].connection)]
    for name, declared in zip(connection_parameters(spec.function), connections, strict=False):
        given[name] = open_until.enter_context(Connection(declared))
    token = reads_until.set(open_until)
    try:
        return _answer(spec, given)
    finally:
        reads_until.reset(token)


def plain_answer(spec: PipelineSpec, choice: WindowChoice) -> Any:
    """Call a function of a pipeline without targets, and return its result."""
    window = choice.take() if takes_window(spec.function) else None
    if window is None and takes_window(spec.function):
        return choice.nothing_new()
    given: dict[str, Any] = {"message": fired_by.get()} if takes_message(spec.function) else {}
    return _answer(spec, given if window is None else {**given, "start": window.start, "end": window.end})


def _answer(spec: PipelineSpec, given: Mapping[str, Any]) -> Any:
    try:
        return awaited(spec.function(**given))
    except FlowError as exc:
        raise exc.at(_line_in(spec, exc) or spec.where) from exc
    except Exception as exc:
        lost = lost_engine(exc)
        if lost is not None:
            raise lost.at(spec.where) from exc
        raise UserError(
            f"{spec.name} raised {type(exc).__name__}: {exc}",
            raised=exc,
            where=_line_in(spec, exc) or spec.where,
            hint="look at that line",
        ) from exc


def _line_in(spec: PipelineSpec, exc: BaseException) -> Location | None:
    """Return the last line of the function's file in the traceback, None when it does not occur there."""
    user_file = getattr(getattr(spec.function, "__code__", None), "co_filename", None)
    found = None
    trace = exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == user_file:
            found = Location(str(user_file), trace.tb_lineno)
        trace = trace.tb_next
    return found


def table_query(spec: PipelineSpec, dialect: str) -> str:
    """Return the SELECT of a pipeline whose source is a table."""
    table: TableSpec = spec.loads[0].table
    wanted = {column.name for load in spec.loads for column in load.table.columns if not is_derived(column)}
    unknown = set(spec.column_map) - set(table.column_names)
    if unknown:
        raise PlanError(
            f"column_map names {sorted(unknown)}, which {table.qualified} does not declare", where=spec.where
        )
    names = [name for load in spec.loads for name in load.table.column_names if name in wanted]
    chosen = [
        f"{quote(spec.column_map.get(name, name), dialect)} AS {quote(name, dialect)}" for name in dict.fromkeys(names)
    ]
    relation = ".".join(quote(part, dialect) for part in (spec.source_table or "").split("."))
    if spec.transform_sql is not None:  # the transform itself selects the columns
        return f"SELECT * FROM {relation}"
    return f"SELECT {', '.join(chosen)} FROM {relation}"


def is_derived(column: Any) -> bool:
    """Return whether the column is computed by derive(...), so that the source need not have it."""
    return bool(column.normalizers) and isinstance(column.normalizers[0], Derive)
