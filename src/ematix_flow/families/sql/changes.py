"""Changes of rows, applied by key: written, deleted or marked as deleted, unless the target knows newer ones."""

from __future__ import annotations

from dataclasses import dataclass

from ematix_flow.contract.changes import DELETE, EVENT_MS, EVENTS, KEY, OPERATION, POSITION, READ, written_columns
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Changes
from ematix_flow.families.sql.checks import check_keys
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import Writing
from ematix_flow.foundation.clock import now


def changes(session: SqlSession, writing: Writing, strategy: Changes, *, gate: str, staged: int) -> Counts:
    """Apply the last change of each key, and remember it in the same transaction; `gate` is the table of what was."""
    check_keys(session, writing, strategy.keys)
    work = _Applying(session, writing, strategy, gate)
    rows, stale, late, gone = work.counted()
    fresh = work.fresh() if rows else "1 = 1"
    deleted = work.delete(fresh) if gone else 0
    updated, inserted = work.update(fresh), work.insert(fresh)
    work.remember()
    rest = staged - rows - inserted - updated - deleted
    return Counts(staged, inserted, updated, unchanged=rest, deleted=deleted, stale=stale, late=late)


@dataclass(frozen=True)
class _Applying:
    session: SqlSession
    writing: Writing
    strategy: Changes
    gate: str

    @property
    def _match(self) -> str:
        return self.writing.match(self.strategy.keys)

    def _is(self, operation: str) -> str:
        return f"{self.writing.s(OPERATION)} = '{operation}'"

    def _not(self, operation: str) -> str:
        return f"{self.writing.s(OPERATION)} <> '{operation}'"

    def _same_key(self, gate: str) -> str:
        """A row of the gate is about the key of a staged row."""
        own = self.writing.dialect.text_literal(self.strategy.gate)
        return f"{gate}.pipeline_name = {own} AND {gate}.pk_json = {self.writing.s(KEY)}"

    def _stale(self, gate: str) -> str:
        """The gate knows something newer; of one moment, whatever is known to be older in the source's log."""
        moment, place = self.writing.s(EVENT_MS), self.writing.s(POSITION)
        return (
            f"({gate}.last_seen_ts_ms > {moment} "
            f"OR ({gate}.last_seen_ts_ms = {moment} AND {gate}.source_position > {place}))"
        )

    def counted(self) -> tuple[int, int, int, int]:
        """Staged rows that are stale, their changes, those that are too late, and rows of the stage that are to go."""
        w = self.writing
        late = f"CASE WHEN g.last_seen_ts_ms - {w.s(EVENT_MS)} > {self.strategy.tolerance_ms} THEN {w.s(EVENTS)} ELSE 0 END"
        found = self.session.rows(
            f"SELECT COUNT(*), SUM({w.s(EVENTS)}), SUM({late}) FROM {w.stage} AS s "
            f"JOIN {self.gate} AS g ON {self._same_key('g')} WHERE {self._stale('g')}"
        )[0]
        gone = self.session.scalar(f"SELECT COUNT(*) FROM {w.stage} AS s WHERE {self._is(DELETE)}")
        rows, stale, older = (int(value or 0) for value in found)
        return rows, stale, older, int(gone or 0)

    def fresh(self) -> str:
        """A staged row is news."""
        stale = f"{self._same_key('g')} AND {self._stale('g')}"
        return f"NOT EXISTS (SELECT 1 FROM {self.gate} AS g WHERE {stale})"

    def delete(self, fresh: str) -> int:
        """Remove rows, or say when they were deleted."""
        w, soft = self.writing, self.strategy.soft
        where = f"{self._is(DELETE)} AND {fresh}"
        if soft is None:
            return self.session.execute(w.dialect.delete_from(w.target, w.stage, on=self._match, where=where))
        where += f" AND {w.dialect.differs(w.t(soft), w.s(soft), w.column(soft))}"
        sets = w.from_stage([soft]) | w.metadata()
        return self.session.execute(w.dialect.update_from(w.target, w.stage, on=self._match, sets=sets, where=where))

    def update(self, fresh: str) -> int:
        """Rows that are there and differ; one that was marked as deleted lives again."""
        w, soft = self.writing, [self.strategy.soft] if self.strategy.soft else []
        sets = w.from_stage([*self.strategy.update, *soft])
        if not sets:  # a table of keys
            return 0
        differ = w.differ([*self.strategy.compare, *soft])
        where = f"{self._not(DELETE)} AND {fresh} AND ({differ})"
        statement = w.dialect.update_from(w.target, w.stage, on=self._match, sets=sets | w.metadata(), where=where)
        return self.session.execute(statement)

    def insert(self, fresh: str) -> int:
        """Rows that are not there yet, also those of which the source tells an update."""
        w = self.writing
        values = w.from_stage(written_columns(w.job.shape)) | w.metadata()
        absent = f"NOT EXISTS (SELECT 1 FROM {w.target} WHERE {self._match})"
        return self.session.execute(w.insert(values, where=f"{self._not(DELETE)} AND {fresh} AND {absent}"))

    def remember(self) -> None:
        """The newest change of each key. A snapshot tells when it looked and not when a row became so: what it says is
        applied, and keeps out nothing that comes after it."""
        w, d = self.writing, self.writing.dialect
        told = f"{w.s(EVENT_MS)} IS NOT NULL AND {self._not(READ)}"
        values = {
            "last_seen_ts_ms": w.s(EVENT_MS),
            "source_position": w.s(POSITION),
            "updated_at": d.instant(now()),
        }
        newer = f"{told} AND NOT coalesce({self._stale(self.gate)}, 1 = 0)"
        self.session.execute(d.update_from(self.gate, w.stage, on=self._same_key(self.gate), sets=values, where=newer))
        values = {"pipeline_name": d.text_literal(self.strategy.gate), "pk_json": w.s(KEY), **values}
        known = f"SELECT 1 FROM {self.gate} AS g WHERE {self._same_key('g')}"
        self.session.execute(
            f"INSERT INTO {self.gate} ({d.names(tuple(values))}) SELECT {', '.join(values.values())} "
            f"FROM {w.stage} AS s WHERE {told} AND NOT EXISTS ({known})"
        )
