"""Integrity checks of a stage before it is published: NOT NULL, text lengths, keys."""

from __future__ import annotations

from collections.abc import Sequence

from ematix_flow.families.integrity import SAMPLES, duplicate_keys, keys_text, row_keys, row_tests, row_violation
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql

_WHOLE = ("small_int", "integer", "big_int")


def check_rows(session: SqlSession, job_sql: JobSql) -> int:
    """Count the staged rows in one pass; raise a `DataError` for rows that violate NOT NULL or a text length."""
    tests = row_tests(job_sql.job, job_sql.s, job_sql.dialect.length)
    sums = "".join(f", SUM(CASE WHEN {test} THEN 1 ELSE 0 END)" for _, _, test in tests)
    total, *broken = session.rows(f"SELECT COUNT(*){sums} FROM {job_sql.stage} AS s")[0]
    for (kind, column, test), count in zip(tests, broken, strict=True):
        if count:
            raise row_violation(job_sql.job, kind, column, int(count), _sample_keys(session, job_sql, test))
    return int(total)


def _sample_keys(session: SqlSession, job_sql: JobSql, test: str) -> str:
    keys = row_keys(job_sql.job)
    if not keys:
        return ""
    names = ", ".join(job_sql.s(key) for key in keys)
    rows = session.rows(f"SELECT {names} FROM {job_sql.stage} AS s WHERE {test} LIMIT {SAMPLES}")
    return f" (for example {keys_text(keys, rows)})"


def check_keys(session: SqlSession, job_sql: JobSql, keys: Sequence[str]) -> None:
    """Raise `DuplicateKeys` if two rows of the batch have the same key."""
    if _are_all_distinct(session, job_sql, keys):
        return
    names = ", ".join(job_sql.s(key) for key in keys)
    grouped = f"SELECT {names}, COUNT(*) AS n FROM {job_sql.stage} AS s GROUP BY {names} HAVING COUNT(*) > 1"
    duplicates = session.rows(f"{grouped} LIMIT {SAMPLES}")
    if not duplicates:
        return
    keys_twice, rows = session.rows(f"SELECT COUNT(*), SUM(n) FROM ({grouped}) AS d")[0]
    raise duplicate_keys(
        job_sql.job, keys, count=int(keys_twice), rows=int(rows), examples=[row[:-1] for row in duplicates]
    )


def _are_all_distinct(session: SqlSession, job_sql: JobSql, keys: Sequence[str]) -> bool:
    """Return whether a COUNT(DISTINCT) proves the keys distinct; tried only for one integer key, where it is faster."""
    if not job_sql.dialect.sorts_numbers_faster or len(keys) > 1 or job_sql.column(keys[0]).type.kind not in _WHOLE:
        return False
    total, apart = session.rows(f"SELECT COUNT(*), COUNT(DISTINCT {job_sql.s(keys[0])}) FROM {job_sql.stage} AS s")[0]
    return bool(total == apart)
