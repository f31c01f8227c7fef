"""The differences of a stage and its table: two conditions on the table, or the kept result of one join."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import Writing, keep

_NAME, _PRESENT = "flow_differences", "flow_present"


@dataclass(frozen=True)
class Differences:
    """Conditions on the rows `s` of `writing.stage`: differs from its table row (`changed`), has none (`absent`)."""

    writing: Writing
    changed: str
    absent: str
    is_exact: bool = False
    """Whether the stage holds only changed and absent rows."""


def find_differences(session: SqlSession, writing: Writing, *, on: str, changed: str) -> Differences:
    """Return the differences of stage and table.

    The joins of an update and of an insert cost more than their writes when little has changed. Where a row address
    shows the matches of an outer join, one join serves both; a database may run a query in parallel, unlike an update.
    """
    asked = writing.dialect.row_address(writing.target)
    address = session.scalar(asked) if asked else None
    if address is None:
        return Differences(writing, changed, f"NOT EXISTS (SELECT 1 FROM {writing.target} WHERE {on})")
    if session.scalar(f"SELECT 1 FROM {writing.target} LIMIT 1") is None:
        return Differences(writing, "1 = 0", "1 = 1", is_exact=True)
    names = ", ".join(writing.s(name) for name in writing.declared)
    there = f"{writing.target}.{address}"
    keep(
        session,
        writing.dialect,
        _NAME,
        f"SELECT {names}, {there} IS NOT NULL AS {_PRESENT} FROM {writing.stage} AS s "
        f"LEFT JOIN {writing.target} ON {on} WHERE {there} IS NULL OR {changed}",
    )
    narrowed = replace(writing, stage=writing.dialect.temporary(_NAME))
    return Differences(narrowed, f"s.{_PRESENT}", f"NOT s.{_PRESENT}", is_exact=True)
