"""Functions on connections, tables, SQL functions and dead letters, under the names that older code imports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.api.connect import LiveConnection as Connection
from ematix_flow.api.connect import connect as _connect
from ematix_flow.api.functions import apply_udaf_to_batch, apply_udf_to_batch
from ematix_flow.declare.table import ManagedTable, TableSpec
from ematix_flow.declare.table_data import table_from
from ematix_flow.declare.udfs import PythonAggregateUdfHandle, PythonScalarUdfHandle, aggregate_udf, scalar_udf
from ematix_flow.foundation.location import caller
from ematix_flow.foundation.packages import __version__
from ematix_flow.streaming.python_api import run_pipeline

if TYPE_CHECKING:
    from ematix_flow.declare.streams.spec import StreamSpec
    from ematix_flow.streaming.dlq.dead_letter import LetterSelection
    from ematix_flow.streaming.runtime.runner import StreamOutcome


def connect(url: str) -> Connection:
    """Return a connection by its URL; a server is contacted at once."""
    return _connect(url=url)


def core_version() -> str:
    """Return the version of this package."""
    return __version__


def create_table_sql(spec: TableSpec | type[ManagedTable] | Mapping[str, Any] | str) -> str:
    """Return the CREATE TABLE statement of a declared table for PostgreSQL."""
    from ematix_flow.backends.catalog import backend_of_kind

    maker = backend_of_kind("postgres").sql
    if maker is None:
        raise AssertionError("PostgreSQL is a database")
    table, sql = table_from(spec), maker(None)
    relation = sql.relation(table.schema, table.name)
    return sql.create_table(relation, table.columns, primary_key=table.primary_key, unique=table.unique)


def make_python_udf(
    name: str,
    callable: Callable[..., Any],  # noqa: A002  the documented name
    arg_types: Sequence[str],
    return_type: str,
) -> PythonScalarUdfHandle:
    """Return the handle that `@udf` creates."""
    return scalar_udf(callable, args=arg_types, returns=return_type, name=name, where=caller())


def make_python_udaf(
    name: str, accumulator_class: type, arg_types: Sequence[str], state_types: Sequence[str], return_type: str
) -> PythonAggregateUdfHandle:
    """Return the handle that `@udaf` creates."""
    return aggregate_udf(
        accumulator_class, args=arg_types, state=state_types, returns=return_type, name=name, where=caller()
    )


def _apply_python_udf_to_batch(
    handle: PythonScalarUdfHandle, batch: Any, arg_columns: Sequence[str], output_column: str = "result"
) -> Any:
    return apply_udf_to_batch(handle, batch, arg_columns, output_column=output_column)


def _apply_python_udaf_to_batch(
    handle: PythonAggregateUdfHandle, batch: Any, arg_columns: Sequence[str], output_column: str = "result"
) -> Any:
    return apply_udaf_to_batch(handle, batch, arg_columns, output_column=output_column)


def run_pipeline_from_path(
    path: str | os.PathLike[str],
    metrics_port: int | None = None,
    udfs: Sequence[Any] | None = None,
    aggregate_udfs: Sequence[Any] | None = None,
) -> StreamOutcome:
    """Run the stream of a TOML file until it is stopped."""
    return run_pipeline(config=path, metrics_port=metrics_port, udfs=udfs, aggregate_udfs=aggregate_udfs)


def run_pipeline_from_toml_str(
    toml_str: str,
    metrics_port: int | None = None,
    udfs: Sequence[Any] | None = None,
    aggregate_udfs: Sequence[Any] | None = None,
) -> StreamOutcome:
    """Run the stream of a TOML text until it is stopped."""
    return run_pipeline(config_str=toml_str, metrics_port=metrics_port, udfs=udfs, aggregate_udfs=aggregate_udfs)


def dlq_records(toml_str: str, status: str | None = None, page: int = 0, page_size: int = 50) -> list[dict[str, Any]]:
    """Return one page of a stream's dead letters, the newest first; pages count from 0."""
    from ematix_flow.streaming.dlq import service

    letters = service.list_letters(_stream(toml_str), status, limit=page_size, offset=page * page_size, bodies=True)
    return [letter.to_dict() for letter in letters]


def dlq_record_by_id(toml_str: str, record_id: str) -> dict[str, Any] | None:
    """Return one dead letter with its full content; None when there is none of that id."""
    from ematix_flow.streaming.dlq import service

    letter = service.find_letter(_stream(toml_str), record_id)
    return letter.to_dict(preview=None) if letter is not None else None


def dlq_stats(toml_str: str, now_ms: int) -> dict[str, Any]:
    """Return the numbers of a stream's dead letters by status and stage, and of recent arrivals as of `now_ms`."""
    from datetime import datetime, timezone

    from ematix_flow.streaming.dlq import service

    return service.letter_stats(_stream(toml_str), datetime.fromtimestamp(now_ms / 1000, timezone.utc))


def dlq_replay(toml_str: str, selection_json: str, max_attempts: int | None = None) -> dict[str, Any]:
    """Replay dead letters through their stream; return the counts of the results."""
    from ematix_flow.run_log.default import default_run_log
    from ematix_flow.streaming.dlq import service

    spec, selection = _stream(toml_str), _selection(selection_json)
    return service.replay_letters(spec, selection, most_attempts=max_attempts, run_log=default_run_log()).to_dict()


def dlq_park(toml_str: str, selection_json: str) -> int:
    """Exclude dead letters from replays; return their number."""
    from ematix_flow.streaming.dlq import service

    return service.park_letters(_stream(toml_str), _selection(selection_json))


def dlq_purge(toml_str: str, selection_json: str) -> int:
    """Delete dead letters; return their number."""
    from ematix_flow.streaming.dlq import service

    return service.purge_letters(_stream(toml_str), _selection(selection_json))


def stream_rewind(toml_str: str, target_json: str, confirm_state_reset: bool) -> dict[str, Any]:
    """Make a stream start from another position; `confirm_state_reset` accepts lost state and duplicate rows."""
    from ematix_flow.run_log.default import default_run_log
    from ematix_flow.streaming.admin.rewind import RewindTarget, rewind_stream

    spec = _stream(toml_str)
    plan = rewind_stream(
        spec, RewindTarget.from_dict(json.loads(target_json)), confirmed=confirm_state_reset, run_log=default_run_log()
    )
    return {**plan.to_dict(), "state_cleared": bool(spec.processing), "sources": plan.to_dict()["parts"]}


def _stream(toml_str: str) -> StreamSpec:
    from ematix_flow.config.stream_connections import with_resolved_connections
    from ematix_flow.config.stream_toml import stream_from_text

    return with_resolved_connections(stream_from_text(toml_str))


def _selection(selection_json: str) -> LetterSelection:
    from ematix_flow.streaming.dlq.dead_letter import LetterSelection

    return LetterSelection.from_dict(json.loads(selection_json))
