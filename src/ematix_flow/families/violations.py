"""What refuses a load before it is published: the errors of rows that violate a constraint, and the delete limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ematix_flow.contract.cdc import DELETE, KEPT, OPERATION
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.strategy import Changes, Merge, Scd2
from ematix_flow.declare.types import Column, String
from ematix_flow.foundation.errors import Brake, DataError, DuplicateKeys, NullViolation, TextTooLong

SAMPLES = 5
BRAKE_FROM_ROWS = 100


def row_keys(job: WriteJob) -> tuple[str, ...]:
    """Return the columns that identify a row of this load."""
    return tuple(
        job.strategy.keys if isinstance(job.strategy, (Merge, Scd2, Changes)) else job.shape.declared.primary_key
    )


def column_tests(
    job: WriteJob, column: Column, sql_name: Callable[[str], str], sql_length: Callable[[str], str]
) -> list[tuple[str, Column, str]]:
    """Return what rows can violate in a column, each with the condition that holds for such rows."""
    name, tests, strategy = sql_name(column.name), [], job.strategy
    is_event_time = isinstance(strategy, Scd2) and strategy.event_time == column.name
    if not column.nullable or column.primary_key or is_event_time:
        has_all = not isinstance(strategy, Changes) or column.name in (*strategy.keys, OPERATION)
        # Deleted rows have only their key, and other changes may leave columns out.
        unless = "" if has_all else f" AND {sql_name(OPERATION)} <> '{DELETE}' AND {sql_name(KEPT)} IS NULL"
        tests.append(("null", column, f"{name} IS NULL{unless}"))
    if isinstance(column.type, String):
        tests.append(("long", column, f"{sql_length(name)} > {column.type.length}"))
    return tests


def samples_text(keys: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the sample keys of a message, empty without any key column."""
    return f" (for example {_keys_text(keys, rows)})" if keys else ""


def null_error(job: WriteJob, column: Column, count: int, samples: str) -> DataError:
    """Return the error for rows with NULL in a required column."""
    return NullViolation(
        f"{count} row(s) have NULL in {job.shape.declared.qualified}.{column.name}, which is NOT NULL{samples}; nothing was loaded",
        hint=f'declare it `| None`, give it a default(...) or filter the rows: filter_where("{column.name} IS NOT NULL")',
        column=column.name,
        rows=count,
    )


def length_error(job: WriteJob, column: Column, count: int, samples: str) -> DataError:
    """Return the error for rows with a text that is longer than its column."""
    length, where = column.type.to_spec()["length"], f"{job.shape.declared.qualified}.{column.name}"
    return TextTooLong(
        f"{count} row(s) have more than {length} characters in {where}{samples}; nothing was loaded",
        hint=f"declare a longer String, or cut with truncate({length})",
        column=column.name,
        rows=count,
    )


def duplicates_error(
    job: WriteJob, keys: Sequence[str], samples: Sequence[Sequence[object]], *, repeated: int, rows: int
) -> DuplicateKeys:
    """Return the error for a batch in which `repeated` keys have several rows, in all `rows`."""
    return DuplicateKeys(
        f"{repeated} key(s) of {job.shape.declared.qualified} appear more than once in this batch ({rows} rows): "
        f"{_keys_text(keys, samples)}; nothing was loaded",
        hint=f'keep one row per key: transforms_pre=[deduplicate_by({", ".join(repr(key) for key in keys)}, order_by="… desc")]',
        keys=repeated,
        rows=rows,
    )


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


def _keys_text(keys: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "; ".join(", ".join(f"{key}={value}" for key, value in zip(keys, row, strict=True)) for row in rows)
