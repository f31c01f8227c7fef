"""Integrity checks that databases and lakes share: which rows violate a declaration, and the delete limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ematix_flow.contract.cdc import DELETE, KEPT, OPERATION
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.strategy import Changes, Merge, Scd2
from ematix_flow.declare.types import Column, String
from ematix_flow.foundation.errors import Brake, DataError, DuplicateKeys, NullViolation, TextTooLong

SAMPLES = 5
BRAKE_FROM_ROWS = 100

RowTest = tuple[str, Column, str]
"""The kind of a constraint, its column, and the condition that holds for rows that violate it."""


def row_tests(job: WriteJob, staged: Callable[[str], str], length: Callable[[str], str]) -> list[RowTest]:
    """Return the tests of NOT NULL and text lengths; `staged` gives a staged column as SQL, `length` that of a text."""
    tests: list[RowTest] = []
    event = job.strategy.event_time if isinstance(job.strategy, Scd2) else None
    for column in job.shape.declared.columns:
        value = staged(column.name)
        if not column.nullable or column.primary_key or column.name == event:
            unless_deleted = ""
            if isinstance(job.strategy, Changes) and column.name not in (*job.strategy.keys, OPERATION):
                # Deleted rows have only their key, and others may leave columns unchanged.
                unless_deleted = f" AND {staged(OPERATION)} <> '{DELETE}' AND {staged(KEPT)} IS NULL"
            tests.append(("null", column, f"{value} IS NULL{unless_deleted}"))
        if isinstance(column.type, String):
            tests.append(("long", column, f"{length(value)} > {column.type.length}"))
    return tests


def row_violation(job: WriteJob, kind: str, column: Column, count: int, samples: str) -> DataError:
    """Return the error for rows that violate NOT NULL (kind `null`) or the length of a text."""
    place = f"{job.shape.declared.qualified}.{column.name}"
    if kind == "null":
        return NullViolation(
            f"{count} row(s) have NULL in {place}, which is NOT NULL{samples}; nothing was loaded",
            hint=f'declare it `| None`, give it a default(...) or filter the rows: filter_where("{column.name} IS NOT NULL")',
            column=column.name,
            rows=count,
        )
    length = column.type.to_spec()["length"]
    return TextTooLong(
        f"{count} row(s) have more than {length} characters in {place}{samples}; nothing was loaded",
        hint=f"declare a longer String, or cut with truncate({length})",
        column=column.name,
        rows=count,
    )


def duplicate_keys(
    job: WriteJob, keys: Sequence[str], *, count: int, rows: int, examples: Sequence[Sequence[object]]
) -> DuplicateKeys:
    """Return the error for a batch in which `rows` rows have `count` keys."""
    return DuplicateKeys(
        f"{count} key(s) of {job.shape.declared.qualified} appear more than once in this batch ({rows} rows): "
        f"{keys_text(keys, examples)}; nothing was loaded",
        hint=f'keep one row per key: transforms_pre=[deduplicate_by({", ".join(repr(key) for key in keys)}, order_by="… desc")]',
        keys=count,
        rows=rows,
    )


def row_keys(job: WriteJob) -> tuple[str, ...]:
    """Return the columns that identify a row of this load."""
    return job.strategy.keys if isinstance(job.strategy, (Merge, Scd2, Changes)) else job.shape.declared.primary_key


def keys_text(keys: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the keys of some rows as a text for messages."""
    return "; ".join(", ".join(f"{key}={value}" for key, value in zip(keys, row, strict=True)) for row in rows)


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
