"""Calls the pipeline's function and resolves its answer to a source."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from ematix_flow.config.resolve import resolve
from ematix_flow.dataplane.lost_engine import lost_engine_error
from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.message import Message
from ematix_flow.declare.normalizers.normalizers import Derive
from ematix_flow.declare.pipeline import (
    PipelineSpec,
    connection_parameters,
    positional_parameters,
    takes_message,
    takes_window,
)
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.windows import DataWindow
from ematix_flow.engine.batch.windows import WindowChoice, not_windowed_error
from ematix_flow.engine.connections.connection import LiveConnection
from ematix_flow.engine.sql.sources import FrameSource, NoSource, QuerySource, ResolvedSource
from ematix_flow.foundation.errors import FlowError, PlanError, RunFailed, SqlError, UserError
from ematix_flow.foundation.location import Location
from ematix_flow.sql.expressions import quote, window_marks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

reads_until: ContextVar[ExitStack | None] = ContextVar("reads_until", default=None)
"""The exit stack of the run whose function is being called; what the function reads may stay open until then."""


fired_by: ContextVar[Message | None] = ContextVar("fired_by", default=None)
"""The message that triggered the current run; None for a run without one."""


@contextmanager
def triggered_by_message(message: Message | None) -> Iterator[None]:
    """Make the triggering message available to the function of the run."""
    token = fired_by.set(message)
    try:
        yield
    finally:
        fired_by.reset(token)


def resolve_source(
    spec: PipelineSpec, spark: Callable[[], SparkSession], open_until: ExitStack, choice: WindowChoice | None = None
) -> ResolvedSource:
    """Call the function with the arguments it declares, and return its result as a resolved source."""
    choice = choice or WindowChoice(spec)
    source = source_connection(spec)
    window = choice.claim() if takes_window(spec.function) else None
    if window is None and takes_window(spec.function):
        return NoSource(choice.nothing_new())
    resolved = _interpret_answer(spec, source, _call_with_arguments(spec, source, spark, open_until, window), choice)
    if (
        choice.is_backfill
        and window is None
        and not (isinstance(resolved, QuerySource) and resolved.window is not None)
    ):
        raise not_windowed_error(spec)
    return resolved


def _interpret_answer(spec: PipelineSpec, source: Any, answer: Any, choice: WindowChoice) -> ResolvedSource:
    if answer is None:
        if spec.source_table is None:
            raise PlanError(
                f"{spec.name} returned nothing",
                where=spec.where,
                hint='return SQL, or name the source: source_table="raw.customers"',
            )
        return QuerySource(source, table_query(spec, LiveConnection(source).dialect()))
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


def _query(spec: PipelineSpec, connection: Any, query: str, choice: WindowChoice) -> ResolvedSource:
    marks = window_marks(query)
    if not marks:
        return QuerySource(connection, query)
    if len(marks) == 1:
        present, missing = ("start", "end") if "start" in marks else ("end", "start")
        raise SqlError(
            f"the SQL of {spec.name} has {{{present}}} and no {{{missing}}}: its windows would overlap",
            where=spec.where,
            hint="for example: WHERE created_at >= {start} AND created_at < {end}",
        )
    window = choice.claim()
    return QuerySource(connection, query, window) if window is not None else NoSource(choice.nothing_new())


def source_connection(spec: PipelineSpec) -> Any:
    """Return the declared source connection; without one, that of the (first) target."""
    named = spec.source_connection
    if isinstance(named, (list, tuple)):
        named = named[0] if named else None
    return _declared(named if named is not None else spec.loads[0].connection)


def _declared(connection: Any) -> Any:
    return connection.declared if isinstance(connection, LiveConnection) else resolve(connection).connection


def _call_with_arguments(spec: PipelineSpec, source: Any, spark: Callable[[], SparkSession], open_until: ExitStack,
          window: DataWindow | None) -> Any:  # fmt: skip
    arguments: dict[str, Any] = {}
    if "spark" in positional_parameters(spec.function):
        arguments["spark"] = spark()
    if takes_message(spec.function):
        arguments["message"] = fired_by.get()
    if window is not None:
        arguments |= {"start": window.start, "end": window.end}
    connections = [source, _declared(spec.loads[0].connection)]
    for name, declared in zip(connection_parameters(spec.function), connections, strict=False):
        arguments[name] = open_until.enter_context(LiveConnection(declared))
    token = reads_until.set(open_until)
    try:
        return _call_function(spec, arguments)
    finally:
        reads_until.reset(token)


def call_plain_function(spec: PipelineSpec, choice: WindowChoice) -> Any:
    """Call a function of a pipeline without targets, and return its result."""
    window = choice.claim() if takes_window(spec.function) else None
    if window is None and takes_window(spec.function):
        return choice.nothing_new()
    arguments: dict[str, Any] = {"message": fired_by.get()} if takes_message(spec.function) else {}
    return _call_function(
        spec, arguments if window is None else {**arguments, "start": window.start, "end": window.end}
    )


def _call_function(spec: PipelineSpec, arguments: Mapping[str, Any]) -> Any:
    try:
        return await_result(spec.function(**arguments))
    except FlowError as exc:
        raise exc.at(_line_in(spec, exc) or spec.where) from exc
    except Exception as exc:
        lost = lost_engine_error(exc)
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
    location = None
    trace = exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == user_file:
            location = Location(str(user_file), trace.tb_lineno)
        trace = trace.tb_next
    return location


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


def await_result(answer: Any) -> Any:
    """Return the result of a coroutine, and any other value unchanged.

    If an event loop already runs, as in a notebook, the coroutine runs in a separate thread with its own loop.
    """
    if not inspect.iscoroutine(answer):
        return answer
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answer)
    with ThreadPoolExecutor(1, thread_name_prefix="coroutine") as pool:
        return pool.submit(copy_context().run, asyncio.run, answer).result()
