"""merge: insert new keys, update rows whose compared columns changed, delete or mark keys that are missing."""

from __future__ import annotations

from ematix_flow.contract.shape import DELETED_AT
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Deletes, Merge
from ematix_flow.families.sql.checks import check_deletes, check_keys
from ematix_flow.families.sql.differences import Differences, find_differences
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import Writing


def merge(session: SqlSession, writing: Writing, strategy: Merge, *, staged: int) -> Counts:
    """Bring the target to the state of the stage; return exact counts."""
    check_keys(session, writing, strategy.keys)
    match = writing.match(strategy.keys)
    deleted = _retire_missing(session, writing, strategy, match, staged=staged)
    found = find_differences(session, writing, on=match, changed=_is_changed(writing, strategy))
    updated = _update_changed(session, found, strategy, match)
    values = writing.from_stage(writing.declared) | writing.metadata()
    inserted = session.execute(found.writing.insert(values, where=found.absent))
    return Counts(
        read=staged, inserted=inserted, updated=updated, unchanged=staged - inserted - updated, deleted=deleted
    )


def _is_changed(writing: Writing, strategy: Merge) -> str:
    changed = writing.differ(strategy.compare)
    return f"{changed} OR {writing.t(DELETED_AT)} IS NOT NULL" if strategy.deletes is Deletes.SOFT else changed


def _update_changed(session: SqlSession, found: Differences, strategy: Merge, match: str) -> int:
    writing = found.writing
    sets = writing.from_stage(strategy.update) | writing.metadata()
    if strategy.deletes is Deletes.SOFT:
        sets[DELETED_AT] = "NULL"
    if not sets:  # all columns are keys
        return 0
    statement = writing.dialect.update_from(writing.target, writing.stage, on=match, sets=sets, where=found.changed)
    return session.execute(statement)


def _retire_missing(session: SqlSession, writing: Writing, strategy: Merge, match: str, *, staged: int) -> int:
    if strategy.deletes is None:
        return 0
    gone = f"NOT EXISTS (SELECT 1 FROM {writing.stage} AS s WHERE {match})"
    alive = f"{writing.t(DELETED_AT)} IS NULL" if strategy.deletes is Deletes.SOFT else "1 = 1"
    existing = int(session.scalar(f"SELECT COUNT(*) FROM {writing.target} WHERE {alive}"))
    missing = int(session.scalar(f"SELECT COUNT(*) FROM {writing.target} WHERE {alive} AND {gone}"))
    check_deletes(writing.job, staged=staged, existing=existing, missing=missing)
    if missing == 0:
        return 0
    if strategy.deletes is Deletes.HARD:
        return session.execute(f"DELETE FROM {writing.target} WHERE {gone}")
    sets = {DELETED_AT: writing.dialect.instant(writing.job.started_at)} | writing.metadata()
    assignments = ", ".join(f"{writing.dialect.quote(name)} = {value}" for name, value in sets.items())
    return session.execute(f"UPDATE {writing.target} SET {assignments} WHERE {alive} AND {gone}")
