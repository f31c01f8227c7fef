"""Checks of an existing table, after a load or at any other time: `quality.run_expectations`."""

from __future__ import annotations

import logging
import uuid
import warnings
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from ematix_flow.alerters.dispatch import Alerts
from ematix_flow.alerters.event import QUALITY_FAILED, AlertEvent
from ematix_flow.alerters.settings import requested_alerters
from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.backend import Backend
from ematix_flow.contract.shape import IS_CURRENT, ROW_HASH, VALID_FROM, TargetShape
from ematix_flow.contract.write import WriteJob
from ematix_flow.dataplane.spark_session import start_session_with
from ematix_flow.declare import registry
from ematix_flow.declare.quality.checks import Check
from ematix_flow.declare.quality.expectations import FAIL, POLICIES, checks_of, promises_of
from ematix_flow.declare.strategy import Truncate
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.table_data import table_from
from ematix_flow.engine.batch.quality import (
    ERRED,
    FAILED,
    QualityAssertion,
    QualityOutcome,
    assertion_of,
    enforce_policy,
    is_skipped,
    outcome_of,
    unrunnable_assertion,
    verdict_of,
)
from ematix_flow.engine.connections.connection import LiveConnection
from ematix_flow.engine.session import session
from ematix_flow.families.expectations import StagedRows, run_checks
from ematix_flow.families.sql.sink import SqlSink
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import (
    DeclarationError,
    FlowError,
    MissingDriver,
    QualityDependencyMissing,
    QualityError,
    QualityUnrunnable,
    Unsupported,
)
from ematix_flow.foundation.location import caller
from ematix_flow.foundation.redact import mask
from ematix_flow.sql.expressions import quote

_log = logging.getLogger(__name__)
_VERSIONS = frozenset({VALID_FROM, IS_CURRENT, ROW_HASH})
"""The columns that identify a table with a history of its rows."""

Length = str | int | float | timedelta
RunQuery = Callable[[str], Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class _CheckedTable:
    """An existing table that can be queried in the SQL of its system."""

    ask: RunQuery
    dialect: str
    relation: str


def run_expectations(*, target_connection: Any, pipeline_name: str, target_cls: Any | None = None,
                     expectations: Callable[[Any], None] | None = None, freshness_column: str | None = None,
                     freshness_sla: Length | None = None) -> QualityOutcome | None:  # fmt: skip
    """Check an existing table and return the outcome; None if EMATIX_SKIP_QUALITY is set or nothing is to be checked.

    The checks are those that the declaration implies (columns without NULL, unique keys), those of `expectations`, and
    the freshness of `freshness_column`. Of a table that keeps versions the current rows are checked. Without
    `target_cls` the table is the target of the pipeline with that name.

    Raise QualityUnrunnable when the table cannot be queried, QualityDependencyMissing when a package for it is not
    installed, and DeclarationError for checks that do not fit the table. Rows that violate a check raise nothing.
    """
    if freshness_column is not None and freshness_sla is None:
        raise DeclarationError("freshness_column needs freshness_sla", hint='for example freshness_sla="24h"')
    table = _table_of(pipeline_name, target_cls)
    if is_skipped() or (table is None and expectations is None and freshness_column is None):
        return None
    if table is None:
        raise QualityUnrunnable(
            f"no table is known for {pipeline_name}, whose rows could be checked", hint="pass target_cls="
        )
    checks = checks_of(table, expectations, freshness_column, freshness_sla, caller(), promises_of(table))
    began = now()
    with _quality_errors(), _open_table(target_connection, table) as opened:
        assertions = _run_checks(opened, pipeline_name, table, checks)
    outcome = outcome_of(pipeline_name, table, verdict_of(assertions), assertions, began)
    return replace(outcome, is_loaded=True)


def run_quality_stage(*, target_connection: Any, pipeline_name: str, target_cls: Any | None = None,
                      expectations: Callable[[Any], None] | None = None, on_quality_failure: str = "warn",
                      freshness_column: str | None = None, freshness_sla: Length | None = None,
                      sync_result: MutableMapping[str, Any] | None = None,
                      alert_on_warn: bool = False) -> QualityOutcome | None:  # fmt: skip
    """Check a table as `run_expectations` does, apply the policy, and return the outcome.

    Under "fail" rows that violate a check raise QualityCheckFailed, and checks that cannot be run raise
    QualityUnrunnable. Under "warn" alerters are notified of rows that violate a check (`quality_failed`), and with
    `alert_on_warn` also of checks that cannot be run; a table that cannot be queried at all causes a warning, and the
    result is None. The outcome is put into `sync_result["quality"]` before anything is raised.
    """
    if on_quality_failure not in POLICIES:
        raise DeclarationError(f"on_quality_failure={on_quality_failure!r} is not known", hint='use "warn" or "fail"')
    try:
        outcome = run_expectations(
            target_connection=target_connection, pipeline_name=pipeline_name, target_cls=target_cls,
            expectations=expectations, freshness_column=freshness_column, freshness_sla=freshness_sla,
        )  # fmt: skip
    except QualityError as error:
        if on_quality_failure == FAIL:
            raise
        warnings.warn(f"the checks of {pipeline_name} were not asked: {mask(error.what)}", stacklevel=2)
        return None
    if outcome is None:
        return None
    outcome = replace(outcome, policy=on_quality_failure, alert=alert_on_warn)
    if sync_result is not None:
        sync_result["quality"] = outcome.to_dict()
    enforce_policy(outcome, ())
    alerting = (FAILED, ERRED) if alert_on_warn else (FAILED,)
    if any(item.verdict in alerting for item in outcome.assertions):
        _alert(outcome)
    return outcome


def _table_of(pipeline: str, value: Any) -> TableSpec | None:
    """Return the table to check; None where neither an argument nor a declaration names one."""
    if value is not None:
        return table_from(value)
    declared = registry.pipelines().get(pipeline)
    loads = declared.spec.loads if declared is not None else ()
    return loads[0].table if len(loads) == 1 else None


@contextmanager
def _quality_errors() -> Iterator[None]:
    """Raise every FlowError of the block as a QualityError."""
    try:
        yield
    except QualityError:
        raise
    except FlowError as exc:
        if isinstance(exc, MissingDriver) or isinstance(exc.__cause__, ImportError):
            raise QualityDependencyMissing(exc.what, hint=exc.hint) from exc
        raise QualityUnrunnable(f"the checks cannot be asked: {exc.what}", hint=exc.hint) from exc


@contextmanager
def _open_table(connection_given: Any, table: TableSpec) -> Iterator[_CheckedTable]:
    """Yield the table in a session of its own; a table of a lake is queried through Spark."""
    connection = (
        connection_given.declared
        if isinstance(connection_given, LiveConnection)
        else resolve(connection_given).connection
    )
    backend = backend_for(connection)
    if backend.batch_sink is None or backend.client is None or backend.ddl is None:
        raise Unsupported(f"{backend.title} has no tables whose rows could be checked")
    sink = backend.batch_sink(connection)
    if isinstance(sink, SqlSink):
        with sink.connect() as held:
            dialect, relation = sink.dialect, sink.dialect.relation(table.schema, table.name)
            current = f"{dialect.quote(IS_CURRENT)} = {dialect.boolean(True)}"
            yield _CheckedTable(held.rows, dialect.name, _rows_of(backend, connection, table, relation, current))
        return
    with start_session_with(lambda: session.spark_session(backend.jars)), closing(backend.client(connection)) as client:
        relation = ".".join(quote(part, backend.dialect) for part in (table.schema, table.name) if part)
        current = f"{quote(IS_CURRENT, backend.dialect)} = true"
        rows = _rows_of(backend, connection, table, relation, current)
        yield _CheckedTable(lambda sql: client.query(sql)[1], backend.dialect, rows)


def _rows_of(backend: Backend, connection: Any, table: TableSpec, relation: str, current: str) -> str:
    """Return the SQL for FROM: the table, or its current rows if it keeps versions of them."""
    if backend.ddl is None:
        raise AssertionError("asked before")
    state = backend.ddl(connection).inspect(TargetShape(table, table))
    if state is None:
        raise QualityUnrunnable(f"{table.qualified} is not there, and cannot be checked", hint="load it first")
    added = {column.name for column in state.columns} - set(table.column_names)
    return f"(SELECT * FROM {relation} WHERE {current})" if added >= _VERSIONS else relation


def _run_checks(
    opened: _CheckedTable, pipeline: str, table: TableSpec, checks: Sequence[Check]
) -> tuple[QualityAssertion, ...]:
    if not checks:
        return ()
    at = now()
    job = WriteJob(str(uuid.uuid4()), pipeline, pipeline, TargetShape(table, table), Truncate(), at)
    rows = StagedRows(job, opened.ask, opened.dialect, opened.relation, lambda _: None)
    opened.ask(f"SELECT COUNT(*) FROM {opened.relation} AS s")  # fails if the table or its system cannot be queried
    try:
        return tuple(assertion_of(finding, at, "table") for finding in run_checks(rows, checks))
    except FlowError as exc:
        _log.debug("asking one check after the other: %s", mask(exc.what))
    return tuple(_run_check(rows, check) for check in checks)


def _run_check(rows: StagedRows, check: Check) -> QualityAssertion:
    """Return the result of a single check: separate queries let the others run if one check's column is missing."""
    try:
        return assertion_of(run_checks(rows, [check])[0], rows.job.started_at, "table")
    except FlowError as exc:
        return unrunnable_assertion(check, exc)


def _alert(outcome: QualityOutcome) -> None:
    alerters = requested_alerters(warn=lambda text: _log.warning("%s", text))
    Alerts(alerters).notify(
        AlertEvent(
            kind=QUALITY_FAILED,
            pipeline=outcome.pipeline,
            timestamp=outcome.finished_at or now(),
            error_message="\n".join(map(str, outcome.wrong)),
        )
    )
