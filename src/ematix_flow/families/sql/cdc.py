"""CDC: row changes applied by key (write, delete, mark as deleted) unless the target has applied newer ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ematix_flow.contract.cdc import (
    DELETE,
    EVENT_MS,
    EVENTS,
    KEPT,
    KEY,
    OPERATION,
    POSITION,
    READ,
    kept_columns_condition,
    stale_sql,
    written_columns,
)
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Changes
from ematix_flow.families.sql.integrity import check_keys
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql
from ematix_flow.foundation.clock import now


def apply_changes(
    session: SqlSession, job_sql: JobSql, strategy: Changes, *, cdc_watermarks: str, staged: int
) -> Counts:
    """Apply the last change of each key and record it in the CDC watermark table `gate`, in the same transaction."""
    check_keys(session, job_sql, strategy.keys)
    work = _ChangeStatements(session, job_sql, strategy, cdc_watermarks)
    rows, stale, late, contradicted = work.counted()
    gone, kept = work.kinds()
    work = replace(work, kept=kept)
    fresh = work.fresh() if rows else "1 = 1"
    deleted = work.delete(fresh) if gone else 0
    updated, inserted = work.update(fresh), work.insert(fresh)
    work.remember()
    rest = staged - rows - inserted - updated - deleted
    return Counts(
        staged, inserted, updated, unchanged=rest, deleted=deleted, stale=stale, late=late, contradicted=contradicted
    )


@dataclass(frozen=True)
class _ChangeStatements:
    session: SqlSession
    writing: JobSql
    strategy: Changes
    gate: str
    kept: tuple[str, ...] = ()
    """The sets of columns that staged rows leave unchanged."""

    @property
    def _match(self) -> str:
        return self.writing.match(self.strategy.keys)

    def _is(self, operation: str) -> str:
        return f"{self.writing.s(OPERATION)} = '{operation}'"

    def _not(self, operation: str) -> str:
        return f"{self.writing.s(OPERATION)} <> '{operation}'"

    def _same_key(self, cdc_watermarks: str) -> str:
        """Return the condition that a row of the CDC watermark table has the key of a staged row."""
        own = self.writing.dialect.text_literal(self.strategy.gate)
        return f"{cdc_watermarks}.pipeline_name = {own} AND {cdc_watermarks}.pk_json = {self.writing.s(KEY)}"

    def _stale(self, cdc_watermarks: str) -> str:
        """Return the condition that the CDC watermark table holds a newer change."""
        known = (f"{cdc_watermarks}.last_seen_ts_ms", f"{cdc_watermarks}.source_position")
        return stale_sql(*known, self.writing.s(EVENT_MS), self.writing.s(POSITION))

    def counted(self) -> tuple[int, int, int, int]:
        """Return the numbers of stale staged rows, of their changes, of late changes, of changes with a later clock."""
        w, most = self.writing, self.strategy.tolerance_ms
        late = f"CASE WHEN g.last_seen_ts_ms - {w.s(EVENT_MS)} > {most} THEN {w.s(EVENTS)} ELSE 0 END"
        later = f"CASE WHEN {w.s(EVENT_MS)} - g.last_seen_ts_ms > {most} THEN {w.s(EVENTS)} ELSE 0 END"
        counts = self.session.rows(
            f"SELECT COUNT(*), SUM({w.s(EVENTS)}), SUM({late}), SUM({later}) FROM {w.stage} AS s "
            f"JOIN {self.gate} AS g ON {self._same_key('g')} WHERE {self._stale('g')}"
        )[0]
        rows, stale, older, contradicted = (int(value or 0) for value in counts)
        return rows, stale, older, contradicted

    def kinds(self) -> tuple[int, tuple[str, ...]]:
        """Return the number of staged deletes and the sets of columns that other staged rows leave unchanged."""
        w = self.writing
        gone, kept = self.session.rows(
            f"SELECT COUNT(CASE WHEN {self._is(DELETE)} THEN 1 END), COUNT({w.s(KEPT)}) FROM {w.stage} AS s"
        )[0]
        if not kept:
            return int(gone), ()
        rows = self.session.rows(f"SELECT DISTINCT {w.s(KEPT)} FROM {w.stage} AS s WHERE {w.s(KEPT)} IS NOT NULL")
        return int(gone), tuple(str(one) for (one,) in rows)

    def _keeps(self, name: str) -> str | None:
        """Return the condition that a staged row leaves the column unchanged; None where no row does."""
        sets = kept_columns_condition(self.kept, name)
        listed = ", ".join(map(self.writing.dialect.text_literal, sets))
        return f"coalesce({self.writing.s(KEPT)}, '') IN ({listed})" if sets else None

    def _new_values(self, columns: Sequence[str]) -> dict[str, str]:
        w = self.writing
        return {
            name: w.dialect.either(keeps, w.t(name), w.s(name), w.column(name))
            if (keeps := self._keeps(name))
            else w.s(name)
            for name in columns
        }

    def _differ(self, columns: Sequence[str]) -> str:
        plain = [name for name in columns if self._keeps(name) is None]
        tests = [
            f"NOT ({self._keeps(name)}) AND ({self.writing.differ([name])})" for name in columns if name not in plain
        ]
        return " OR ".join([self.writing.differ(plain), *(f"({test})" for test in tests)])

    def fresh(self) -> str:
        """Return the condition that a staged row is not stale."""
        stale = f"{self._same_key('g')} AND {self._stale('g')}"
        return f"NOT EXISTS (SELECT 1 FROM {self.gate} AS g WHERE {stale})"

    def delete(self, fresh: str) -> int:
        """Delete the rows, or set their deletion time; return their number."""
        w, soft = self.writing, self.strategy.soft
        where = f"{self._is(DELETE)} AND {fresh}"
        if soft is None:
            return self.session.execute(w.dialect.delete_from(w.target, w.stage, on=self._match, where=where))
        where += f" AND {w.dialect.differs(w.t(soft), w.s(soft), w.column(soft))}"
        sets = w.from_stage([soft]) | w.metadata()
        return self.session.execute(w.dialect.update_from(w.target, w.stage, on=self._match, sets=sets, where=where))

    def update(self, fresh: str) -> int:
        """Update existing rows that differ, which also undeletes rows marked as deleted; return their number."""
        w, soft = self.writing, [self.strategy.soft] if self.strategy.soft else []
        sets = self._new_values([*self.strategy.update, *soft])
        if not sets:  # all columns are keys
            return 0
        differ = self._differ([*self.strategy.compare, *soft])
        where = f"{self._not(DELETE)} AND {fresh} AND ({differ})"
        statement = w.dialect.update_from(w.target, w.stage, on=self._match, sets=sets | w.metadata(), where=where)
        return self.session.execute(statement)

    def insert(self, fresh: str) -> int:
        """Insert the missing rows, also those that the source sent as updates; return their number."""
        w = self.writing
        values = w.from_stage(written_columns(w.job.shape)) | w.metadata()
        absent = f"NOT EXISTS (SELECT 1 FROM {w.target} WHERE {self._match})"
        return self.session.execute(w.insert(values, where=f"{self._not(DELETE)} AND {fresh} AND {absent}"))

    def remember(self) -> None:
        """Record the newest change of each key, except snapshot rows, whose time is not that of a change."""
        w, d = self.writing, self.writing.dialect
        with_time = f"({w.s(EVENT_MS)} IS NOT NULL OR {w.s(POSITION)} IS NOT NULL) AND {self._not(READ)}"
        values = {
            "last_seen_ts_ms": f"coalesce({w.s(EVENT_MS)}, 0)",
            "source_position": w.s(POSITION),
            "updated_at": d.instant(now()),
        }
        newer = f"{with_time} AND NOT coalesce({self._stale(self.gate)}, 1 = 0)"
        self.session.execute(d.update_from(self.gate, w.stage, on=self._same_key(self.gate), sets=values, where=newer))
        values = {"pipeline_name": d.text_literal(self.strategy.gate), "pk_json": w.s(KEY), **values}
        known = f"SELECT 1 FROM {self.gate} AS g WHERE {self._same_key('g')}"
        self.session.execute(
            f"INSERT INTO {self.gate} ({d.names(tuple(values))}) SELECT {', '.join(values.values())} "
            f"FROM {w.stage} AS s WHERE {with_time} AND NOT EXISTS ({known})"
        )
