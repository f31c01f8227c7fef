"""Integrity checks of a stage before it is published: NOT NULL, text lengths, keys."""

from __future__ import annotations

from collections.abc import Sequence

from ematix_flow.declare.types import Column
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql
from ematix_flow.families.violations import (
    SAMPLES,
    column_tests,
    duplicates_error,
    length_error,
    null_error,
    row_keys,
    samples_text,
)
from ematix_flow.foundation.errors import DataError

_WHOLE = ("small_int", "integer", "big_int")


def check_rows(session: SqlSession, job_sql: JobSql) -> int:
    """Count the staged rows in one pass; raise a `DataError` for rows that violate NOT NULL or a text length."""
    job, length = job_sql.job, job_sql.dialect.length
    tests = [test for column in job.shape.declared.columns for test in column_tests(job, column, job_sql.s, length)]
    sums = "".join(f", SUM(CASE WHEN {test} THEN 1 ELSE 0 END)" for _, _, test in tests)
    total, *broken = session.rows(f"SELECT COUNT(*){sums} FROM {job_sql.stage} AS s")[0]
    for (kind, column, test), count in zip(tests, broken, strict=True):
        if count:
            raise _broken(session, job_sql, kind, column, test, int(count))
    return int(total)


def _broken(session: SqlSession, job_sql: JobSql, kind: str, column: Column, test: str, count: int) -> DataError:
    error = null_error if kind == "null" else length_error
    return error(job_sql.job, column, count, _sample_keys(session, job_sql, test))


def _sample_keys(session: SqlSession, job_sql: JobSql, test: str) -> str:
    keys = row_keys(job_sql.job)
    if not keys:
        return ""
    names = ", ".join(job_sql.s(key) for key in keys)
    rows = session.rows(f"SELECT {names} FROM {job_sql.stage} AS s WHERE {test} LIMIT {SAMPLES}")
    return samples_text(keys, rows)


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
    samples = [row[:-1] for row in duplicates]
    raise duplicates_error(job_sql.job, keys, samples, repeated=int(keys_twice), rows=int(rows))


def _are_all_distinct(session: SqlSession, job_sql: JobSql, keys: Sequence[str]) -> bool:
    """Return whether a COUNT(DISTINCT) proves the keys distinct; tried only for one integer key, where it is faster."""
    if not job_sql.dialect.sorts_numbers_faster or len(keys) > 1 or job_sql.column(keys[0]).type.kind not in _WHOLE:
        return False
    total, apart = session.rows(f"SELECT COUNT(*), COUNT(DISTINCT {job_sql.s(keys[0])}) FROM {job_sql.stage} AS s")[0]
    return bool(total == apart)
