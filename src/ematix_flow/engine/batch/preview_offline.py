"""The plan of a run from its declarations alone, where a system cannot be queried."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any, NoReturn

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.backend import Backend
from ematix_flow.contract.ddl import CreateTable
from ematix_flow.contract.shape import shape_of
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.pipeline import (
    PipelineSpec,
    as_tuple,
    connection_parameters,
    positional_parameters,
    takes_message,
)
from ematix_flow.declare.strategy import Merge, Scd2
from ematix_flow.engine.batch import post_load
from ematix_flow.engine.batch.preview_plan import Preview, TargetPlan
from ematix_flow.engine.batch.reading import normalized_query
from ematix_flow.engine.batch.source import table_query
from ematix_flow.foundation.errors import FlowError, Unreachable
from ematix_flow.foundation.redact import mask
from ematix_flow.planning.paths import CROSS_DB, SAME_DB
from ematix_flow.sql.expressions import CannotRender

_NOT_ASKED = "by the names of the connections: no system was contacted"


class _OfflineConnection:
    """A placeholder for the connection passed to the user's function; every access raises Unreachable."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name: str) -> NoReturn:
        raise Unreachable(f"{self._name} cannot be asked")


def preview_offline_plan(spec: PipelineSpec, error: FlowError) -> Preview:
    """Return the plan derived from the declarations, with notes about everything that could not be looked up."""
    notes = [f"not asked: {mask(error.what)}"]
    source = as_tuple(spec.source_connection)[0] if spec.source_connection else spec.loads[0].connection
    query = _query(spec, source, notes)
    notes.append("not known: the source's columns and rows, and whether the target is there and as declared")
    return Preview(
        pipeline_name=spec.name,
        schedule=spec.schedule,
        mode=None if spec.fan_out else spec.loads[0].mode,
        source_connection_name=_name(source),
        source_kind=backend.name if (backend := _backend(source)) else "unknown",
        source_sql=query,
        source_columns=(),
        estimated_rows=None,
        reads=1,
        reads_reason="not asked",
        targets=tuple(_target(load, source) for load in spec.loads),
        notes=notes,
        transforms_post=[post_load.plan_of_transform(transform) for transform in spec.transforms_post],
    )


def _query(spec: PipelineSpec, source: Any, notes: list[str]) -> str:
    backend = _backend(source)
    dialect = backend.dialect if backend else "postgres"
    if "spark" in positional_parameters(spec.function):
        notes.append("not asked: the function makes a dataframe in Spark")
        return ""
    arguments: dict[str, Any] = {
        name: _OfflineConnection(_name(source)) for name in connection_parameters(spec.function)
    }
    if takes_message(spec.function):
        arguments["message"] = None
    query: Any = ""
    try:
        answer = None if spec.source_table else spec.function(**arguments)
        query = table_query(spec, dialect) if answer is None and spec.source_table else getattr(answer, "query", answer)
        if not isinstance(query, str):
            notes.append("not known: the source, which is no SQL")
            return ""
        return query if spec.fan_out else normalized_query(spec.loads[0].table, query, spec.transforms_pre, dialect, {})
    except CannotRender:
        return str(query)
    except Exception as exc:
        notes.append(f"not known: the source's SQL, {mask(str(getattr(exc, 'what', exc)))}")
        return ""


def _target(load: LoadSpec, source: Any) -> TargetPlan:
    backend, strategy = _backend(load.connection), load.strategy
    shape = shape_of(load.table, strategy)
    inside = _name(source) == _name(load.connection)
    statements: list[str] = []
    if backend is not None and backend.ddl is not None:
        with suppress(Exception), ExitStack():  # some backends query the server even for this
            statements = backend.ddl(resolve(load.connection).connection).statements(shape, (CreateTable(shape.table),))
    keyed = isinstance(strategy, (Merge, Scd2))
    return TargetPlan(
        schema_qualified_name=load.table.qualified,
        mode=strategy.mode,
        path=SAME_DB if inside else CROSS_DB,
        path_reason=_NOT_ASKED,
        lane="",
        lane_reason=_NOT_ASKED,
        target_connection_name=_name(load.connection),
        target_kind=backend.name if backend else "unknown",
        exists=None,
        rows=None,
        declared_columns=shape.stored_columns,
        augmented_columns=tuple(column.name for column in shape.added),
        merge_keys=strategy.keys if keyed else (),  # type: ignore[union-attr]
        merge_keys_reason=load.keys_reason,
        compare_columns=strategy.compare if keyed else (),  # type: ignore[union-attr]
        compare_columns_reason=load.compare_reason,
        plan_sql=tuple(statements),
        checks=tuple(str(check) for check in load.checks),
    )


def _backend(named: Any) -> Backend | None:
    try:
        return backend_for(getattr(named, "declared", None) or resolve(named).connection)
    except FlowError:
        return None


def _name(named: Any) -> str:
    return named if isinstance(named, str) else str(getattr(named, "name", named))
