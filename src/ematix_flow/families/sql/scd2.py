"""scd2 by processing time: a version starts when the load detects the change."""

from __future__ import annotations

from ematix_flow.contract.shape import IS_CURRENT, ROW_HASH, VALID_FROM, VALID_TO
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Deletes, Scd2
from ematix_flow.families.sql.checks import check_deletes, check_forgotten, check_keys
from ematix_flow.families.sql.differences import find_differences
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import Writing


def scd2(session: SqlSession, writing: Writing, strategy: Scd2, *, staged: int) -> Counts:
    """Close changed versions, insert new ones and update the columns that are not compared."""
    check_keys(session, writing, strategy.keys)
    match = writing.match(strategy.keys)
    current = f"{match} AND {_is_current(writing)}"
    closed, deleted = _retire_missing(session, writing, strategy, match, staged=staged)
    refreshed = _refresh(session, writing, strategy, current)
    found = find_differences(session, writing, on=current, changed=writing.differ(strategy.compare))
    closed += session.execute(
        writing.dialect.update_from(
            writing.target, found.writing.stage, on=current, sets=_closing(writing), where=found.changed
        )
    )
    every = found.is_exact and strategy.ttl is None
    where = None if every else _needs_version(writing, strategy, current)
    inserted = session.execute(found.writing.insert(_opening(writing, strategy), where=where))
    closed += expire(session, writing, strategy)
    unchanged = max(staged - inserted - refreshed, 0)
    return Counts(
        read=staged, inserted=inserted, updated=refreshed, unchanged=unchanged, closed=closed, deleted=deleted
    )


def expire(session: SqlSession, writing: Writing, strategy: Scd2) -> int:
    """Close the versions that are older than their TTL, each at the moment its TTL ended; return their number."""
    if strategy.ttl is None:
        return 0
    ends = writing.dialect.plus(writing.t(VALID_FROM), strategy.ttl)
    now = writing.dialect.instant(writing.job.started_at)
    quote = writing.dialect.quote
    return session.execute(
        f"UPDATE {writing.target} SET {quote(VALID_TO)} = {ends}, {quote(IS_CURRENT)} = {writing.dialect.boolean(False)} "
        f"WHERE {_is_current(writing)} AND {ends} <= {now}"
    )


def missing_keys(session: SqlSession, writing: Writing, strategy: Scd2, *, staged: int) -> int:
    """Return the number of rows that are to be closed or deleted for missing keys; raise `Brake` if it is too large."""
    gone = f"NOT EXISTS (SELECT 1 FROM {writing.stage} AS s WHERE {writing.match(strategy.keys)})"
    current = _is_current(writing)

    def count(*conditions: str) -> int:
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return int(session.scalar(f"SELECT COUNT(*) FROM {writing.target}{where}"))

    if strategy.deletes is Deletes.SOFT:
        missing = count(current, gone)
        check_deletes(writing.job, staged=staged, existing=count(current) if missing else 0, missing=missing)
        return missing
    deleted = count(gone)
    if deleted:
        check_forgotten(
            writing.job, staged=staged, current=lambda: count(current), missing=count(current, gone),
            versions=count, deleted=deleted,
        )  # fmt: skip
    return deleted


def _is_current(writing: Writing) -> str:
    return f"{writing.t(IS_CURRENT)} = {writing.dialect.boolean(True)}"


def _closing(writing: Writing) -> dict[str, str]:
    return {VALID_TO: writing.dialect.instant(writing.job.started_at), IS_CURRENT: writing.dialect.boolean(False)}


def _opening(writing: Writing, strategy: Scd2) -> dict[str, str]:
    versioned = {
        VALID_FROM: writing.dialect.instant(writing.job.started_at),
        VALID_TO: "NULL",
        IS_CURRENT: writing.dialect.boolean(True),
        ROW_HASH: writing.row_hash(strategy.compare),
    }
    return writing.from_stage(writing.declared) | versioned | writing.metadata()


def _needs_version(writing: Writing, strategy: Scd2, current: str) -> str:
    absent = f"NOT EXISTS (SELECT 1 FROM {writing.target} WHERE {current})"
    if strategy.ttl is None:
        return absent
    # A version closed only by its TTL is opened again when its values change, not because the source still has the row.
    ended = writing.dialect.plus(f"l.{writing.dialect.quote(VALID_FROM)}", strategy.ttl)
    quote = writing.dialect.quote
    expired = (
        f"SELECT 1 FROM {writing.target} AS l WHERE {writing.match(strategy.keys, left='l')} "
        f"AND l.{quote(VALID_TO)} = {ended} AND NOT ({writing.differ(strategy.compare, left='l')}) "
        f"AND NOT EXISTS (SELECT 1 FROM {writing.target} AS n WHERE {writing.match(strategy.keys, left='n')} "
        f"AND n.{quote(VALID_FROM)} > l.{quote(VALID_FROM)})"
    )
    return f"{absent} AND NOT EXISTS ({expired})"


def _refresh(session: SqlSession, writing: Writing, strategy: Scd2, current: str) -> int:
    others = [name for name in writing.declared if name not in (*strategy.keys, *strategy.compare)]
    if not others:
        return 0
    where = f"NOT ({writing.differ(strategy.compare)}) AND ({writing.differ(others)})"
    sets = writing.from_stage(others) | writing.metadata()
    return session.execute(
        writing.dialect.update_from(writing.target, writing.stage, on=current, sets=sets, where=where)
    )


def _retire_missing(
    session: SqlSession, writing: Writing, strategy: Scd2, match: str, *, staged: int
) -> tuple[int, int]:
    if strategy.deletes is None:
        return 0, 0
    gone = f"NOT EXISTS (SELECT 1 FROM {writing.stage} AS s WHERE {match})"
    missing = missing_keys(session, writing, strategy, staged=staged)
    if missing == 0:
        return 0, 0
    if strategy.deletes is Deletes.HARD:
        return 0, session.execute(f"DELETE FROM {writing.target} WHERE {gone}")
    current = _is_current(writing)
    sets = ", ".join(f"{writing.dialect.quote(name)} = {value}" for name, value in _closing(writing).items())
    return session.execute(f"UPDATE {writing.target} SET {sets} WHERE {current} AND {gone}"), 0
