"""Integrity checks of a stage before it is published: NOT NULL, text lengths, keys, the delete limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ematix_flow.contract.cdc import DELETE, KEPT, OPERATION
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.strategy import Changes, Merge, Scd2
from ematix_flow.declare.types import Column, String
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql
from ematix_flow.foundation.errors import Brake, DataError, DuplicateKeys, NullViolation, TextTooLong

BRAKE_FROM_ROWS = 100
_SAMPLES = 5
_WHOLE = ("small_int", "integer", "big_int")


def check_rows(session: SqlSession, job_sql: JobSql) -> int:
    """Count the staged rows in one pass; raise a `DataError` for rows that violate NOT NULL or a text length."""
    tests: list[tuple[str, Column, str]] = []
    for column in job_sql.job.shape.declared.columns:
        name = job_sql.s(column.name)
        required = not column.nullable or column.primary_key or _is_event_time(job_sql.job, column.name)
        if required:
            tests.append(("null", column, f"{name} IS NULL{_unless_deleted(job_sql, column)}"))
        if isinstance(column.type, String):
            tests.append(("long", column, f"{job_sql.dialect.length(name)} > {column.type.length}"))
    sums = "".join(f", SUM(CASE WHEN {test} THEN 1 ELSE 0 END)" for _, _, test in tests)
    total, *broken = session.rows(f"SELECT COUNT(*){sums} FROM {job_sql.stage} AS s")[0]
    for (kind, column, test), count in zip(tests, broken, strict=True):
        if count:
            raise _broken(session, job_sql, kind, column, test, int(count))
    return int(total)


def _unless_deleted(job_sql: JobSql, column: Column) -> str:
    """Return a condition that skips deleted rows, which have only their key, and rows that leave columns unchanged."""
    strategy = job_sql.job.strategy
    if not isinstance(strategy, Changes) or column.name in (*strategy.keys, OPERATION):
        return ""
    return f" AND {job_sql.s(OPERATION)} <> '{DELETE}' AND {job_sql.s(KEPT)} IS NULL"


def _is_event_time(job: WriteJob, name: str) -> bool:
    return isinstance(job.strategy, Scd2) and job.strategy.event_time == name


def _broken(session: SqlSession, job_sql: JobSql, kind: str, column: Column, test: str, count: int) -> DataError:
    table = job_sql.job.shape.declared.qualified
    samples = _sample_keys(session, job_sql, test)
    if kind == "null":
        return NullViolation(
            f"{count} row(s) have NULL in {table}.{column.name}, which is NOT NULL{samples}; nothing was loaded",
            hint=f'declare it `| None`, give it a default(...) or filter the rows: filter_where("{column.name} IS NOT NULL")',
            column=column.name,
            rows=count,
        )
    length = column.type.to_spec()["length"]
    return TextTooLong(
        f"{count} row(s) have more than {length} characters in {table}.{column.name}{samples}; nothing was loaded",
        hint=f"declare a longer String, or cut with truncate({length})",
        column=column.name,
        rows=count,
    )


def _sample_keys(session: SqlSession, job_sql: JobSql, test: str) -> str:
    keys = _keys(job_sql.job) or job_sql.job.shape.declared.primary_key
    if not keys:
        return ""
    names = ", ".join(job_sql.s(key) for key in keys)
    rows = session.rows(f"SELECT {names} FROM {job_sql.stage} AS s WHERE {test} LIMIT {_SAMPLES}")
    return f" (for example {_keys_text(keys, rows)})"


def check_keys(session: SqlSession, job_sql: JobSql, keys: Sequence[str]) -> None:
    """Raise `DuplicateKeys` if two rows of the batch have the same key."""
    if _are_all_distinct(session, job_sql, keys):
        return
    names = ", ".join(job_sql.s(key) for key in keys)
    grouped = f"SELECT {names}, COUNT(*) AS n FROM {job_sql.stage} AS s GROUP BY {names} HAVING COUNT(*) > 1"
    duplicates = session.rows(f"{grouped} LIMIT {_SAMPLES}")
    if not duplicates:
        return
    keys_twice, rows = session.rows(f"SELECT COUNT(*), SUM(n) FROM ({grouped}) AS d")[0]
    table = job_sql.job.shape.declared.qualified
    raise DuplicateKeys(
        f"{keys_twice} key(s) of {table} appear more than once in this batch ({int(rows)} rows): "
        f"{_keys_text(keys, [row[:-1] for row in duplicates])}; nothing was loaded",
        hint=f'keep one row per key: transforms_pre=[deduplicate_by({", ".join(repr(key) for key in keys)}, order_by="… desc")]',
        keys=int(keys_twice),
        rows=int(rows),
    )


def _are_all_distinct(session: SqlSession, job_sql: JobSql, keys: Sequence[str]) -> bool:
    """Return whether a COUNT(DISTINCT) proves the keys distinct; tried only for one integer key, where it is faster."""
    if not job_sql.dialect.sorts_numbers_faster or len(keys) > 1 or job_sql.column(keys[0]).type.kind not in _WHOLE:
        return False
    total, apart = session.rows(f"SELECT COUNT(*), COUNT(DISTINCT {job_sql.s(keys[0])}) FROM {job_sql.stage} AS s")[0]
    return bool(total == apart)


def check_deletes(job: WriteJob, *, staged: int, existing: int, missing: int, planned: int | None = None) -> None:
    """Raise `Brake` when the source is empty or too large a share of the target would be deleted.

    `planned` is the number of rows to accept, where it is more than the `missing` ones that the share is about.
    """
    planned = missing if planned is None else planned
    if missing == 0 or job.accept_deletes == planned:
        return
    table = job.shape.declared.qualified
    accept = f"if that is meant: flow run … --accept-deletes {planned}"
    if staged == 0:
        raise Brake(f"the source is empty, and {planned} row(s) of {table} would be deleted; nothing was changed",
                    hint=accept, planned=planned)  # fmt: skip
    if existing >= BRAKE_FROM_ROWS and missing > job.max_delete_fraction * existing:
        share = round(100 * missing / existing)
        raise Brake(
            f"{missing} of {existing} rows ({share} %) of {table} would be deleted, more than "
            f"max_delete_fraction={job.max_delete_fraction:g} allows; nothing was changed",
            hint=accept,
            planned=planned,
        )


def check_forgotten(
    job: WriteJob, *, staged: int, current: Callable[[], int], missing: int, versions: Callable[[], int], deleted: int
) -> None:
    """Raise `Brake` when too large a share of a history's current versions, or of all its versions, would be deleted.

    The `missing` ones are current, and of their keys and of keys without a current version, `deleted` versions go.
    """
    check_deletes(job, staged=staged, existing=current() if missing else 0, missing=missing, planned=deleted)
    if deleted > missing:
        check_deletes(job, staged=staged, existing=versions(), missing=deleted)


def _keys(job: WriteJob) -> tuple[str, ...]:
    return job.strategy.keys if isinstance(job.strategy, (Merge, Scd2, Changes)) else ()


def _keys_text(keys: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "; ".join(", ".join(f"{key}={value}" for key, value in zip(keys, row, strict=True)) for row in rows)
