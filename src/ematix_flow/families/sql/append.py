"""append and truncate; an incremental append loads a row at or before the watermark only if it is not there yet."""

from __future__ import annotations

from ematix_flow.contract.write import Counts
from ematix_flow.declare.types import Bytes, Column
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import Writing, keep


def append(session: SqlSession, writing: Writing, *, staged: int, watermark: str | None) -> Counts:
    """Insert the stage; with a watermark, only its new rows."""
    values = writing.from_stage(writing.declared) | writing.metadata()
    incremental = writing.job.incremental
    if incremental is None or watermark is None:
        inserted = session.execute(writing.insert(values))
        return Counts(read=staged, inserted=inserted)
    seen = _seen_before(writing, incremental.column, watermark)
    if writing.job.shape.declared.primary_key:
        inserted = session.execute(writing.insert(values, where=f"NOT ({seen} AND {_exists_by_key(writing)})"))
    else:
        inserted = session.execute(writing.insert(values, where=f"NOT {seen}"))
        inserted += _insert_new_copies(session, writing, seen)
    return Counts(read=staged, inserted=inserted, unchanged=staged - inserted)


def truncate(session: SqlSession, writing: Writing, *, staged: int) -> Counts:
    """Replace every row."""
    deleted = int(session.scalar(f"SELECT COUNT(*) FROM {writing.target}"))
    session.execute(writing.dialect.truncate(writing.target))
    inserted = session.execute(writing.insert(writing.from_stage(writing.declared) | writing.metadata()))
    return Counts(read=staged, inserted=inserted, deleted=deleted)


def _seen_before(writing: Writing, column: str, watermark: str) -> str:
    mark = writing.dialect.watermark_literal(watermark, writing.column(column).type)
    return f"({writing.s(column)} IS NULL OR {writing.s(column)} <= {mark})"


def _exists_by_key(writing: Writing) -> str:
    keys = writing.job.shape.declared.primary_key
    return f"EXISTS (SELECT 1 FROM {writing.target} WHERE {writing.match(keys)})"


def _insert_new_copies(session: SqlSession, writing: Writing, seen: str) -> int:
    """Insert as many copies of each row as the target lacks: without a key, equal rows are counted."""
    hashed = writing.row_hash(writing.declared)
    names = ", ".join(writing.s(name) for name in writing.declared)
    keep(
        session,
        writing.dialect,
        "flow_boundary",
        f"SELECT {names}, {hashed} AS flow_hash, ROW_NUMBER() OVER (PARTITION BY {hashed} ORDER BY {hashed}) AS flow_copy "
        f"FROM {writing.stage} AS s WHERE {seen}",
    )
    quote = writing.dialect.quote
    target_hash = writing.row_hash(writing.declared, alias=writing.target)
    keep(
        session,
        writing.dialect,
        "flow_present",
        f"SELECT {target_hash} AS flow_hash, COUNT(*) AS flow_copies FROM {writing.target} "
        f"WHERE {target_hash} IN (SELECT flow_hash FROM {writing.dialect.temporary('flow_boundary')}) GROUP BY {target_hash}",
        looked_up_by=[Column(Bytes(), name="flow_hash")],
    )
    values = {name: f"s.{quote(name)}" for name in writing.declared} | writing.metadata()
    present = (
        f"SELECT 1 FROM {writing.dialect.temporary('flow_present')} AS p "
        "WHERE p.flow_hash = s.flow_hash AND p.flow_copies >= s.flow_copy"
    )
    source = writing.dialect.temporary("flow_boundary")
    inserted = session.execute(writing.insert(values, source=source, where=f"NOT EXISTS ({present})"))
    for name in ("flow_boundary", "flow_present"):
        session.execute(writing.dialect.drop_temporary(name))
    return inserted
