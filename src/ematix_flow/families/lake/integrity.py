"""Integrity checks of staged rows before they are published, counted in one pass over the stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.types import Column
from ematix_flow.families.lake.columns import watermark_text
from ematix_flow.families.lake.observed import observed
from ematix_flow.families.violations import (
    SAMPLES,
    column_tests,
    duplicates_error,
    length_error,
    null_error,
    row_keys,
    samples_text,
)
from ematix_flow.foundation.errors import BadValue, DataError
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import LakePath, write_atomically

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXTS = ("text", "string", "json", "jsonb", "uuid")


@dataclass(frozen=True)
class StageFacts:
    """The facts of a stage: rows, rows that violate a constraint with sample keys, and the new watermark."""

    rows: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    watermark: str | None = None
    null_watermarks: int = 0
    earliest: str | None = None
    """The smallest value of the watermark's column; None where it is unknown."""
    samples: dict[str, list[list[str]]] = field(default_factory=dict)

    def write(self, path: LakePath) -> None:
        """Write the facts beside the stage."""
        write_atomically(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: LakePath) -> StageFacts:
        """Read the facts of a stage."""
        with translated_os_errors(path):
            return cls(**json.loads(path.read_text(encoding="utf-8")))


def gather_facts(
    frame: DataFrame, job: WriteJob, staged: Callable[[], DataFrame]
) -> tuple[DataFrame, Callable[[], StageFacts]]:
    """Return the same rows, counted while they are written, and a function that gives the facts afterwards."""
    counted, results = observed(frame, _questions(job), staged)
    return counted, lambda: _facts_from_row(results(), job)


def _questions(job: WriteJob) -> list[str]:
    tests = _tests(job)
    sums = [f"count_if({test}) AS `n{index}`" for index, (_, _, test) in enumerate(tests)]
    latest, earliest, nulls = "CAST(NULL AS STRING)", "CAST(NULL AS STRING)", "0L"
    if job.incremental is not None:
        column = job.shape.declared.column(job.incremental.column)
        latest, earliest = (watermark_text(f"{end}({quote(column.name)})", column.type) for end in ("max", "min"))
        nulls = f"count_if({quote(column.name)} IS NULL)"
    return ["count(*) AS `n`", *sums, f"{latest} AS `mark`", f"{nulls} AS `nulls`", f"{earliest} AS `earliest`"]


def _facts_from_row(row: Mapping[str, Any], job: WriteJob) -> StageFacts:
    broken = {f"{kind}:{column.name}": int(row[f"n{index}"]) for index, (kind, column, _) in enumerate(_tests(job))}
    return StageFacts(
        int(row["n"]), {name: count for name, count in broken.items() if count}, row["mark"], int(row["nulls"]),
        earliest=row["earliest"],
    )  # fmt: skip


def refuse_violations(facts: StageFacts, staged: Callable[[], DataFrame], job: WriteJob) -> None:
    """Raise a `DataError` for rows that violate a constraint; query the stage only if the facts have no samples."""
    for kind, column, test in _tests(job):
        name = f"{kind}:{column.name}"
        if facts.broken.get(name):
            keys = row_keys(job)
            known = facts.samples.get(name) or (_sampled(staged(), keys, test) if keys else [])
            raise _broken(job, kind, column, facts.broken[name], samples_text(keys, known))


def repeated_keys(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the keys of more than one row, each with the number of its rows."""
    names = [quote(key) for key in keys]
    return frame.selectExpr(*names).groupBy(*names).agg(f.expr("count(*) AS __flow_n")).where("__flow_n > 1")


def check_keys(frame: DataFrame, job: WriteJob, keys: Sequence[str]) -> None:
    """Raise `DuplicateKeys` if two rows of the batch have the same key."""
    twice = repeated_keys(frame, keys)
    repeated_rows = twice.limit(SAMPLES).collect()
    if not repeated_rows:
        return
    totals = twice.selectExpr("count(*) AS `keys`", "sum(__flow_n) AS `rows`").collect()[0]
    samples = [tuple(row)[:-1] for row in repeated_rows]
    raise duplicates_error(job, keys, samples, repeated=int(totals["keys"]), rows=int(totals["rows"]))


def _tests(job: WriteJob) -> list[tuple[str, Column, str]]:
    tests: list[tuple[str, Column, str]] = []
    for column in job.shape.declared.columns:
        name = quote(column.name)
        tests += column_tests(job, column, quote, "char_length({})".format)
        if column.name in (job.write_options.get("partition_by") or ()) and column.type.kind in _TEXTS:
            tests.append(("folder", column, f"{name} = ''"))
        if job.write_options.get("csv_null_value"):
            tests.append(
                ("marker", column, f"CAST({name} AS STRING) = {text_literal(job.write_options['csv_null_value'])}")
            )
    return tests


def _broken(job: WriteJob, kind: str, column: Column, count: int, samples: str) -> DataError:
    if kind in ("folder", "marker"):
        return _unwritable(job, kind, column, f"{job.shape.declared.qualified}.{column.name}{samples}", count)
    return (null_error if kind == "null" else length_error)(job, column, count, samples)


def _unwritable(job: WriteJob, kind: str, column: Column, where: str, count: int) -> DataError:
    """Return the error for values that would be read back as NULL."""
    if kind == "folder":
        return BadValue(
            f"{count} row(s) have an empty text in {where}, and a partition's folder cannot tell it from NULL; nothing was loaded",
            hint=f"turn it into NULL with empty_to_null(), or leave {column.name} out of partition_by",
        )
    marker = job.write_options["csv_null_value"]
    return BadValue(
        f"{count} row(s) have {marker!r} in {where}, which csv_null_value makes NULL; nothing was loaded",
        hint="choose a csv_null_value that no row has, or leave it out",
    )


def _sampled(frame: DataFrame, keys: Sequence[str], test: str) -> list[tuple[object, ...]]:
    examples = frame.where(test).selectExpr(*(quote(key) for key in keys)).limit(SAMPLES).collect()
    return [tuple(row) for row in examples]
