"""Quality checks on a stage by SQL: one SELECT of aggregates, one per uniqueness check, one for failing examples."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from ematix_flow.contract.checks import CheckResult
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.quality.checks import (
    Between,
    Check,
    Fresh,
    Matches,
    NotNull,
    OneOf,
    RowCheck,
    RowCount,
    Unique,
)
from ematix_flow.declare.strategy import Truncate
from ematix_flow.declare.types import ColumnType
from ematix_flow.families.violations import SAMPLES, row_keys
from ematix_flow.foundation.redact import REDACTED, is_secret_name, mask
from ematix_flow.sql.expressions import quote
from ematix_flow.sql.expressions.check_conditions import failing_condition, grouping_key, newest_value

_ROW_CHECKS = (NotNull, Between, Matches, OneOf)
_LONGEST_VALUE = 80
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?)?")
_KEYS_OF_DOORS = frozenset({"api", "access", "private", "secret", "encryption", "signing"})


@dataclass(frozen=True)
class StagedRows:
    """The staged rows of one load, and how to query them."""

    job: WriteJob
    ask: Callable[[str], Sequence[Sequence[Any]]]
    """A function that runs a query; every session is in UTC."""
    dialect: str
    relation: str
    """The relation to put behind FROM."""
    newest_there: Callable[[str], Any]
    """A function that returns the newest value of a column in the existing table, as text; None when there is none."""

    def column(self, name: str) -> str:
        """Return a column of the stage as SQL."""
        return f"s.{quote(name, self.dialect)}"

    def type_of(self, name: str) -> ColumnType:
        """Return the column's declared type."""
        return self.job.shape.declared.column(name).type

    def breaks(self, check: RowCheck) -> str:
        """Return a condition that holds for rows that violate the check."""
        return failing_condition(check, self.column(check.column), self.type_of(check.column), self.dialect)


def run_checks(staged: StagedRows, checks: Sequence[Check]) -> list[CheckResult]:
    """Run the checks and return one finding for each."""
    wanted = [_aggregate(staged, check) for check in checks]
    queries = [sql for sql in wanted if sql is not None]
    rows, *answers = staged.ask(f"SELECT {', '.join(['COUNT(*)', *queries])} FROM {staged.relation} AS s")[0]
    left = iter(answers)
    results = [
        _finding(staged, check, int(rows), next(left) if sql is not None else None)
        for check, sql in zip(checks, wanted, strict=True)
    ]
    return _with_examples(staged, results)


def _aggregate(staged: StagedRows, check: Check) -> str | None:
    match check:
        case NotNull() | Between() | Matches() | OneOf():
            return f"SUM(CASE WHEN {staged.breaks(check)} THEN 1 ELSE 0 END)"
        case Fresh(column):
            return newest_value(staged.column(column), staged.dialect)
    return None


def _finding(staged: StagedRows, check: Check, rows: int, answer: Any) -> CheckResult:
    match check:
        case NotNull() | Between() | Matches() | OneOf():
            failing = int(answer or 0)
            return CheckResult(check, passed=not failing, rows=rows, failing=failing)
        case RowCount(least, most):
            fits = (least is None or rows >= least) and (most is None or rows <= most)
            return CheckResult(check, passed=fits, rows=rows)
        case Unique():
            return _uniqueness(staged, check, rows)
        case Fresh():
            return _freshness(staged, check, rows, _moment(answer))


def _uniqueness(staged: StagedRows, check: Unique, rows: int) -> CheckResult:
    keys = [grouping_key(staged.column(name), staged.type_of(name), staged.dialect) for name in check.columns]
    named = ", ".join(f"{key} AS flow_key_{number}" for number, key in enumerate(keys))
    known = "" if check.is_group else f" WHERE {staged.column(check.columns[0])} IS NOT NULL"
    grouped = (
        f"SELECT {named}, COUNT(*) AS flow_rows FROM {staged.relation} AS s{known} "
        f"GROUP BY {', '.join(keys)} HAVING COUNT(*) > 1"
    )
    repeated, failing = staged.ask(f"SELECT COUNT(*), SUM(flow_rows) FROM ({grouped}) AS d")[0]
    if not repeated:
        return CheckResult(check, passed=True, rows=rows)
    duplicates = staged.ask(f"{grouped} LIMIT {SAMPLES}")
    samples = tuple(_example_text(check.columns, row[:-1]) for row in duplicates)
    return CheckResult(
        check, passed=False, rows=rows, failing=int(failing or 0), repeated=int(repeated), samples=samples
    )


def _freshness(staged: StagedRows, check: Fresh, rows: int, latest: datetime | None) -> CheckResult:
    """Check the newest value; query the target only if the load alone fails: a load without new rows is not stale."""
    oldest = staged.job.started_at - check.within
    replaces = isinstance(staged.job.strategy, Truncate)
    if (latest is None or latest < oldest) and not replaces:
        table_newest = _moment(staged.newest_there(check.column))
        latest = max((moment for moment in (latest, table_newest) if moment is not None), default=None)
    return CheckResult(check, passed=latest is not None and latest >= oldest, rows=rows, newest=latest)


def _with_examples(staged: StagedRows, findings: list[CheckResult]) -> list[CheckResult]:
    """Add the keys of some failing rows to the findings of row checks, all by one query."""
    keys = row_keys(staged.job)
    names = ", ".join(f"{staged.column(key)} AS flow_key_{number}" for number, key in enumerate(keys))
    queries = [
        f"SELECT * FROM (SELECT {place} AS flow_check, {names} FROM {staged.relation} AS s "
        f"WHERE {staged.breaks(finding.check)} LIMIT {SAMPLES}) AS e{place}"
        for place, finding in enumerate(findings)
        if keys and finding.failing and isinstance(finding.check, _ROW_CHECKS)
    ]
    if not queries:
        return findings
    examples: dict[int, list[str]] = {}
    for place, *values in staged.ask(" UNION ALL ".join(queries)):
        examples.setdefault(int(place), []).append(_example_text(keys, values))
    return [
        replace(finding, samples=tuple(examples[place])) if place in examples else finding
        for place, finding in enumerate(findings)
    ]


def _example_text(names: Sequence[str], values: Sequence[Any]) -> str:
    return ", ".join(f"{name}={_value(name, value)}" for name, value in zip(names, values, strict=True))


def _value(name: str, value: Any) -> str:
    if _is_secret(name):
        return REDACTED
    if isinstance(value, (bytes, bytearray, memoryview)):  # MySQL groups texts by their bytes
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError:
            value = bytes(value).hex()
    text = mask(str(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _is_secret(name: str) -> bool:
    """Return whether a column's name denotes a secret: `api_key` does, `order_key` does not."""
    words = re.split(r"[\W_]+", name.lower())
    others = [word for word in words if word != "key"]
    return is_secret_name("_".join(others)) or ("key" in words and not _KEYS_OF_DOORS.isdisjoint(others))


def _moment(text: Any) -> datetime | None:
    """Return the instant of the text that every engine gives for a date or a UTC time; None if it is not one."""
    match = _MOMENT.match(str(text)) if text is not None else None
    if match is None:
        return None
    clock = f"{match[2] or '00:00:00'}.{(match[3] or '').ljust(6, '0')}"
    return datetime.fromisoformat(f"{match[1]} {clock}").replace(tzinfo=timezone.utc)
