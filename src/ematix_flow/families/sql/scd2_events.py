"""scd2 by event time: the table is a pure function of the set of observations, which are stored beside it.

Every distinct observation (all declared columns) is kept in `<table>__observations`. For the keys of a batch all
versions are recomputed: one observation per instant (the largest hash wins a tie), equal neighbours are merged, a
version ends where the next begins. So order, repetition and batching of events do not affect the result.
"""

from __future__ import annotations

from dataclasses import replace

from ematix_flow.contract.shape import IS_CURRENT, ROW_HASH, VALID_FROM, VALID_TO, TargetShape
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Deletes, Scd2
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Boolean, Bytes, Column, TimestampTZ
from ematix_flow.families.sql.scd2 import expire_versions, missing_keys
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql, create_temporary_result

OBSERVED = "_observed_at"
GONE = "_gone"
HASH = "_hash"
_VERSIONS = "flow_versions"
_TOUCHED = "flow_touched"


def observations_of(shape: TargetShape) -> TableSpec:
    """Return the table that stores the observations."""
    columns = tuple(replace(column, nullable=True, primary_key=False) for column in shape.declared.columns)
    extra = (
        Column(TimestampTZ(), nullable=False, name=OBSERVED),
        Column(Boolean(), nullable=False, name=GONE),
        Column(Bytes(), nullable=False, name=HASH),
    )
    return TableSpec(shape.declared.schema, f"{shape.declared.name}__observations", (*columns, *extra))


def seed_observations(job_sql: JobSql) -> str:
    """Return SQL that inserts the versions of an existing target as observations at their valid_from."""
    d, spec = job_sql.dialect, observations_of(job_sql.job.shape)
    names = (*job_sql.declared, OBSERVED, GONE, HASH)
    kept = job_sql.job.shape.stored_columns
    selected = [f"{job_sql.t(name if name in kept else VALID_FROM)} AS {d.quote(name)}" for name in job_sql.declared]
    seen = f"SELECT {', '.join(selected)}, {job_sql.t(VALID_FROM)} AS {d.quote(OBSERVED)} FROM {job_sql.target}"
    columns = d.names((*job_sql.declared, OBSERVED))
    return (
        f"INSERT INTO {d.relation(spec.schema, spec.name)} ({d.names(names)}) "
        f"SELECT {columns}, {d.boolean(False)}, {job_sql.row_hash(job_sql.declared)} FROM ({seen}) AS s"
    )


def scd2_events(session: SqlSession, job_sql: JobSql, strategy: Scd2, *, staged: int) -> Counts:
    """Store new observations, recompute the versions of their keys and write the versions that differ."""
    observed = _ObservationStatements(job_sql, strategy)
    keys = job_sql.columns(strategy.keys)
    create_temporary_result(session, job_sql.dialect, _TOUCHED, observed.new_rows(), looked_up_by=keys)
    missing = missing_keys(session, job_sql, strategy, staged=staged) if strategy.deletes is not None else 0
    new = session.execute(observed.remember())
    hard_deleted = 0
    if strategy.deletes is Deletes.SOFT and missing:
        session.execute(observed.remember_deleted())
    elif strategy.deletes is Deletes.HARD and missing:
        hard_deleted = observed.delete_missing(session)
    create_temporary_result(
        session, job_sql.dialect, _VERSIONS, observed.versions(), looked_up_by=(*keys, job_sql.column(VALID_FROM))
    )
    counts = _apply(session, job_sql, strategy)
    expired = expire_versions(session, job_sql, strategy)
    for name in (_TOUCHED, _VERSIONS):
        session.execute(job_sql.dialect.drop_temporary(name))
    return replace(counts, read=staged, unchanged=staged - new, closed=counts.closed + expired, deleted=hard_deleted)


def _apply(session: SqlSession, job_sql: JobSql, strategy: Scd2) -> Counts:
    """Bring the versions of the touched keys to the computed state, writing only rows that differ."""
    quote = job_sql.dialect.quote
    versions = job_sql.dialect.temporary(_VERSIONS)
    same = f"{job_sql.match(strategy.keys)} AND {job_sql.t(VALID_FROM)} = {job_sql.s(VALID_FROM)}"
    touched = f"EXISTS (SELECT 1 FROM {job_sql.dialect.temporary(_TOUCHED)} AS s WHERE {job_sql.match(strategy.keys)})"
    vanished = session.execute(
        f"DELETE FROM {job_sql.target} WHERE {touched} AND NOT EXISTS (SELECT 1 FROM {versions} AS s WHERE {same})"
    )
    closed = int(
        session.scalar(
            f"SELECT COUNT(*) FROM {job_sql.target} JOIN {versions} AS s ON {same} "
            f"WHERE {job_sql.t(IS_CURRENT)} = {job_sql.dialect.boolean(True)} "
            f"AND s.{quote(IS_CURRENT)} = {job_sql.dialect.boolean(False)}"
        )
    )
    kept = job_sql.job.shape.stored_columns
    written = [name for name in (*kept, VALID_TO, IS_CURRENT, ROW_HASH) if name not in strategy.keys]
    updated = session.execute(
        job_sql.dialect.update_from(
            job_sql.target,
            versions,
            on=same,
            sets=job_sql.from_stage(written) | job_sql.metadata(),
            where=job_sql.differ(written),
        )
    )
    values = job_sql.from_stage((*kept, VALID_FROM, VALID_TO, IS_CURRENT, ROW_HASH)) | job_sql.metadata()
    absent = f"NOT EXISTS (SELECT 1 FROM {job_sql.target} WHERE {same})"
    inserted = session.execute(job_sql.insert(values, source=versions, where=absent))
    return Counts(inserted=inserted, updated=updated - closed + vanished, closed=closed)


class _ObservationStatements:
    """The SQL statements on the observations table."""

    def __init__(self, job_sql: JobSql, strategy: Scd2) -> None:
        self.w = job_sql
        self.strategy = strategy
        self.spec = observations_of(job_sql.job.shape)
        self.relation = job_sql.dialect.relation(self.spec.schema, self.spec.name)

    def new_rows(self) -> str:
        """Return a query for the distinct observations of the stage that are not stored yet."""
        w, quote = self.w, self.w.dialect.quote
        event = self.strategy.event_time or ""
        names = ", ".join(w.s(name) for name in w.declared)
        instant = w.dialect.to_instant(w.s(event), w.column(event).type)
        inner = f"SELECT {names}, {instant} AS {quote(OBSERVED)}, {w.row_hash(w.declared)} AS {quote(HASH)} FROM {w.stage} AS s"
        keys = ", ".join(f"s.{quote(key)}" for key in self.strategy.keys)
        numbered = f"SELECT s.*, ROW_NUMBER() OVER (PARTITION BY {keys}, s.{quote(HASH)} ORDER BY s.{quote(OBSERVED)}) AS flow_rn FROM ({inner}) AS s"
        known = f"SELECT 1 FROM {self.relation} AS o WHERE {w.match(self.strategy.keys, left='o')} AND o.{quote(HASH)} = s.{quote(HASH)}"
        columns = ", ".join(f"s.{quote(name)}" for name in (*w.declared, OBSERVED, HASH))
        return f"SELECT {columns} FROM ({numbered}) AS s WHERE s.flow_rn = 1 AND NOT EXISTS ({known})"

    def remember(self) -> str:
        """Return the INSERT of the new observations."""
        w, quote = self.w, self.w.dialect.quote
        names = (*w.declared, OBSERVED, HASH)
        return (
            f"INSERT INTO {self.relation} ({w.dialect.names(names)}, {quote(GONE)}) "
            f"SELECT {', '.join(f's.{quote(name)}' for name in names)}, {w.dialect.boolean(False)} "
            f"FROM {w.dialect.temporary(_TOUCHED)} AS s"
        )

    def remember_deleted(self) -> str:
        """Return the INSERT of one deletion observation, at the load's time, per key missing from the snapshot."""
        w, quote = self.w, self.w.dialect.quote
        keys = w.dialect.names(self.strategy.keys)
        moment = w.dialect.instant(w.job.started_at)
        gone = f"NOT EXISTS (SELECT 1 FROM {w.stage} AS s WHERE {w.match(self.strategy.keys)})"
        return (
            f"INSERT INTO {self.relation} ({keys}, {quote(OBSERVED)}, {quote(GONE)}, {quote(HASH)}) "
            f"SELECT {', '.join(w.t(key) for key in self.strategy.keys)}, {moment}, {w.dialect.boolean(True)}, "
            f"{w.dialect.sha256(w.dialect.text_literal(w.job.run_id))} FROM {w.target} "
            f"WHERE {w.t(IS_CURRENT)} = {w.dialect.boolean(True)} AND {gone}"
        )

    def delete_missing(self, session: SqlSession) -> int:
        """Delete every version and observation of the missing keys; return the number of versions."""
        w = self.w
        unseen = f"NOT EXISTS (SELECT 1 FROM {w.stage} AS s WHERE {w.match(self.strategy.keys, left=self.relation)})"
        session.execute(f"DELETE FROM {self.relation} WHERE {unseen}")
        gone = f"NOT EXISTS (SELECT 1 FROM {w.stage} AS s WHERE {w.match(self.strategy.keys)})"
        return session.execute(f"DELETE FROM {w.target} WHERE {gone}")

    def versions(self) -> str:
        """Return a query for the versions of every touched key, computed from all its observations."""
        w, quote = self.w, self.w.dialect.quote
        keys = ", ".join(quote(key) for key in self.strategy.keys)
        columns = ", ".join(quote(name) for name in w.job.shape.stored_columns)
        at, gone, no = quote(OBSERVED), quote(GONE), w.dialect.boolean(False)
        of_keys = self._touched_condition()
        ends = self._ends()
        return f"""
            WITH o AS (SELECT o.*, {w.row_hash(self.strategy.compare, alias="o")} AS flow_h FROM {self.relation} AS o WHERE {of_keys}),
            d AS (SELECT o.*, ROW_NUMBER() OVER (PARTITION BY {keys}, {at} ORDER BY {gone}, {quote(HASH)} DESC) AS flow_rn FROM o),
            g AS (SELECT d.*, LAG(flow_h) OVER (PARTITION BY {keys} ORDER BY {at}) AS flow_ph,
                  LAG({gone}) OVER (PARTITION BY {keys} ORDER BY {at}) AS flow_pg FROM d WHERE flow_rn = 1),
            r AS (SELECT g.*, SUM(CASE WHEN flow_ph IS NULL OR flow_ph <> flow_h OR flow_pg <> {gone} THEN 1 ELSE 0 END)
                  OVER (PARTITION BY {keys} ORDER BY {at} ROWS UNBOUNDED PRECEDING) AS flow_run FROM g),
            x AS (SELECT r.*, ROW_NUMBER() OVER (PARTITION BY {keys}, flow_run ORDER BY {at} DESC) AS flow_newest,
                  MIN({at}) OVER (PARTITION BY {keys}, flow_run) AS flow_starts FROM r),
            v AS (SELECT x.*, LEAD(flow_starts) OVER (PARTITION BY {keys} ORDER BY flow_starts) AS flow_next FROM x WHERE flow_newest = 1),
            e AS (SELECT v.*, {ends} AS flow_ends FROM v WHERE {gone} = {no})
            SELECT {columns}, flow_starts AS {quote(VALID_FROM)}, flow_ends AS {quote(VALID_TO)},
                   CASE WHEN flow_ends IS NULL THEN {w.dialect.boolean(True)} ELSE {no} END AS {quote(IS_CURRENT)},
                   flow_h AS {quote(ROW_HASH)} FROM e"""

    def _touched_condition(self) -> str:
        w = self.w
        touched = (
            f"EXISTS (SELECT 1 FROM {w.dialect.temporary(_TOUCHED)} AS s WHERE {w.match(self.strategy.keys, left='o')})"
        )
        if self.strategy.deletes is None:
            return touched
        return "1 = 1"  # a full snapshot: missing keys have no row in the stage

    def _ends(self) -> str:
        if self.strategy.ttl is None:
            return "flow_next"
        expiry = self.w.dialect.plus("flow_starts", self.strategy.ttl)
        now = self.w.dialect.instant(self.w.job.started_at)
        return f"CASE WHEN {expiry} <= {now} AND (flow_next IS NULL OR {expiry} < flow_next) THEN {expiry} ELSE flow_next END"
