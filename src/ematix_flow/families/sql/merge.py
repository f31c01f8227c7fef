"""merge: insert new keys, update rows whose compared columns changed, delete or mark keys that are missing."""

from __future__ import annotations

from ematix_flow.contract.shape import DELETED_AT
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Deletes, Merge
from ematix_flow.families.sql.differences import StageDifferences, find_differences
from ematix_flow.families.sql.integrity import check_keys
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql
from ematix_flow.families.violations import check_deletes


def merge(session: SqlSession, job_sql: JobSql, strategy: Merge, *, staged: int) -> Counts:
    """Bring the target to the state of the stage; return exact counts."""
    check_keys(session, job_sql, strategy.keys)
    match = job_sql.match(strategy.keys)
    deleted = _retire_missing(session, job_sql, strategy, match, staged=staged)
    differences = find_differences(session, job_sql, on=match, changed=_is_changed(job_sql, strategy))
    updated = _update_changed(session, differences, strategy, match)
    values = job_sql.from_stage(job_sql.declared) | job_sql.metadata()
    inserted = session.execute(differences.writing.insert(values, where=differences.absent))
    return Counts(
        read=staged, inserted=inserted, updated=updated, unchanged=staged - inserted - updated, deleted=deleted
    )


def _is_changed(job_sql: JobSql, strategy: Merge) -> str:
    changed = job_sql.differ(strategy.compare)
    return f"{changed} OR {job_sql.t(DELETED_AT)} IS NOT NULL" if strategy.deletes is Deletes.SOFT else changed


def _update_changed(session: SqlSession, differences: StageDifferences, strategy: Merge, match: str) -> int:
    writing = differences.writing
    sets = writing.from_stage(strategy.update) | writing.metadata()
    if strategy.deletes is Deletes.SOFT:
        sets[DELETED_AT] = "NULL"
    if not sets:  # all columns are keys
        return 0
    statement = writing.dialect.update_from(
        writing.target, writing.stage, on=match, sets=sets, where=differences.changed
    )
    return session.execute(statement)


def _retire_missing(session: SqlSession, job_sql: JobSql, strategy: Merge, match: str, *, staged: int) -> int:
    if strategy.deletes is None:
        return 0
    gone = f"NOT EXISTS (SELECT 1 FROM {job_sql.stage} AS s WHERE {match})"
    alive = f"{job_sql.t(DELETED_AT)} IS NULL" if strategy.deletes is Deletes.SOFT else "1 = 1"
    existing = int(session.scalar(f"SELECT COUNT(*) FROM {job_sql.target} WHERE {alive}"))
    missing = int(session.scalar(f"SELECT COUNT(*) FROM {job_sql.target} WHERE {alive} AND {gone}"))
    check_deletes(job_sql.job, staged=staged, existing=existing, missing=missing)
    if missing == 0:
        return 0
    if strategy.deletes is Deletes.HARD:
        return session.execute(f"DELETE FROM {job_sql.target} WHERE {gone}")
    sets = {DELETED_AT: job_sql.dialect.instant(job_sql.job.started_at)} | job_sql.metadata()
    assignments = ", ".join(f"{job_sql.dialect.quote(name)} = {value}" for name, value in sets.items())
    return session.execute(f"UPDATE {job_sql.target} SET {assignments} WHERE {alive} AND {gone}")
