"""Truncates, and appends to an empty table, without a second write: the stage replaces the table and takes its name.

Only a table without dependent objects can be replaced: no view, key, trigger, grant, comment, publication or setting of
its own. Every other table is filled from the stage.
"""

from __future__ import annotations

from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.strategy import Append, Truncate
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql
from ematix_flow.foundation.errors import FlowError

ATTEMPT = "_flow_attempt"


def stage_table_name(run_id: str) -> str:
    """Return the name of a stage that tasks write to."""
    return f"stage_{run_id.replace('-', '')}"


def sealed_stage_name(run_id: str) -> str:
    """Return the name of the stage after it is sealed, when no task can write to it any more."""
    return f"{stage_table_name(run_id)}_sealed"


# All properties and dependents that a new table would lack, except the row type, the toast table and the primary key.
_REPLACEABLE = """
SELECT c.relkind = 'r' AND c.relpersistence = 'p' AND NOT c.relispartition AND NOT c.relhastriggers AND NOT c.relhasrules
    AND NOT c.relrowsecurity AND NOT c.relforcerowsecurity AND c.relreplident = 'd' AND c.reltablespace = 0
    AND c.reloptions IS NULL AND c.relacl IS NULL AND c.reloftype = 0
    AND current_setting('default_tablespace') = ''
    AND (SELECT m.amname FROM pg_am m WHERE m.oid = c.relam) = current_setting('default_table_access_method')
    AND pg_get_userbyid(c.relowner) = current_user AND has_schema_privilege(c.relnamespace, 'CREATE')
    AND NOT EXISTS (SELECT 1 FROM pg_publication)
    AND NOT EXISTS (SELECT 1 FROM pg_inherits h WHERE c.oid IN (h.inhrelid, h.inhparent))
    AND NOT EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        AND (a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '' OR a.attacl IS NOT NULL
             OR a.attoptions IS NOT NULL OR COALESCE(a.attstattarget, -1) <> -1))
    AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conrelid = c.oid AND (k.contype NOT IN ('p', 'n') OR k.condeferrable))
    AND NOT EXISTS (SELECT 1 FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid
        AND (NOT i.indisprimary OR i.indisclustered OR i.indisreplident OR i.indnatts <> i.indnkeyatts
             OR x.reltablespace <> 0 OR x.reloptions IS NOT NULL))
    AND NOT EXISTS (SELECT 1 FROM pg_description d WHERE d.objoid IN (SELECT c.oid UNION ALL
        SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = c.oid UNION ALL
        SELECT k.oid FROM pg_constraint k WHERE k.conrelid = c.oid))
    AND NOT EXISTS (SELECT 1 FROM pg_seclabel l WHERE l.objoid = c.oid)
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
        AND NOT (d.classid = 'pg_type'::regclass AND d.objid = c.reltype)
        AND NOT (d.classid = 'pg_class'::regclass AND d.objid IN (SELECT c.reltoastrelid UNION ALL
            SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = c.oid))
        AND NOT (d.classid = 'pg_constraint'::regclass AND d.objid IN (SELECT k.oid FROM pg_constraint k WHERE k.conrelid = c.oid)))
    AND NOT EXISTS (SELECT 1 FROM pg_depend d JOIN pg_type t ON t.oid = c.reltype
        WHERE d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray)
        AND NOT (d.classid = 'pg_type'::regclass AND d.objid = t.typarray))
FROM pg_class c WHERE c.oid = to_regclass({table})
"""
_COLUMNS = """
SELECT array_agg(ROW(a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attcollation, a.attstorage)::text ORDER BY a.attnum)
FROM pg_attribute a WHERE a.attrelid = to_regclass({table}) AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> '_flow_attempt'
"""
_PRIMARY_KEY = """
SELECT array_agg(ROW(a.attname, i.indoption[k.n - 1], i.indcollation[k.n - 1], i.indclass[k.n - 1])::text ORDER BY k.n)
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, n)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = to_regclass({table}) AND i.indisprimary AND i.indisvalid
"""
# The tasks commit their rows one by one: a transaction with a snapshot from before the last commit would see only some
# of the rows in the new table. The stage was renamed after that commit, so its xmin is later than such snapshots.
_IS_SEEN_WHOLE = """
SELECT s.relacl IS NULL AND NOT EXISTS (SELECT 1 FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
    AND a.backend_xmin IS NOT NULL AND age(a.backend_xmin) >= age(s.xmin))
FROM pg_class s WHERE s.oid = to_regclass({stage})
"""
# By its pages: rows of open or rolled-back transactions count as well.
_IS_EMPTY = "SELECT pg_relation_size(to_regclass({table})) = 0"
_IS_LOGGED = "SELECT relpersistence = 'p' FROM pg_class WHERE oid = to_regclass({table})"
_KEY_NAME = "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass({table}) AND contype = 'p'"


def create_stage(session: SqlSession, job_sql: JobSql) -> bool:
    """Create the stage as a table that can replace the target; return False, and create nothing, where it could not."""
    if not _is_worthwhile(session, job_sql):
        return False
    with session.transaction():
        session.execute(_definition(job_sql))
        alike = _have_same_definition(session, job_sql, _COLUMNS)
        if not alike:
            session.execute(f"DROP TABLE {job_sql.stage}")
    return alike


def add_key(session: SqlSession, job_sql: JobSql) -> None:
    """Build the index of the primary key at once, which is faster than row by row.

    With duplicate keys the stage gets no key and cannot replace the target; the target's own key then rejects the rows.
    """
    keys = job_sql.job.shape.table.primary_key
    if keys:
        try:
            session.execute(f"ALTER TABLE {job_sql.stage} ADD CONSTRAINT {_key_name(job_sql)} "
                            f"PRIMARY KEY ({job_sql.dialect.names(keys)})")  # fmt: skip
        except FlowError:
            return


def replace_table(session: SqlSession, job_sql: JobSql) -> int | None:
    """Replace the target by the stage in the current transaction; return the rows deleted, None if impossible.

    Other writers are locked out meanwhile. Readers wait only for the renaming.
    """
    if not _is_possible(job_sql.job) or not session.scalar(_IS_LOGGED.format(table=_literal(job_sql, job_sql.stage))):
        return None
    if not _is_empty_or_truncated(session, job_sql):  # also before the lock, which would wait for other writers
        return None
    session.execute(f"LOCK TABLE {job_sql.target} IN EXCLUSIVE MODE")
    if not (_is_empty_or_truncated(session, job_sql) and _can_replace(session, job_sql)):
        return None
    deleted = int(session.scalar(f"SELECT COUNT(*) FROM {job_sql.target}"))
    key = session.scalar(_KEY_NAME.format(table=_literal(job_sql, job_sql.target)))
    for statement in _rename_statements(job_sql, key):
        session.execute(statement)
    return deleted


def _rename_statements(job_sql: JobSql, key: str | None) -> list[str]:
    dialect, quote, table = job_sql.dialect, job_sql.dialect.quote, job_sql.job.shape.table
    defaults = [f"ALTER COLUMN {quote(name)} DROP DEFAULT" for name in job_sql.metadata()]
    name = sealed_stage_name(job_sql.job.run_id)
    statements = [
        f"ALTER TABLE {job_sql.stage} {', '.join([f'DROP COLUMN {ATTEMPT}', *defaults])}",
        f"DROP TABLE {job_sql.target}",
        f"ALTER TABLE {job_sql.stage} SET SCHEMA {quote(table.schema)}",
        f"ALTER TABLE {dialect.relation(table.schema, name)} RENAME TO {quote(table.name)}",
    ]
    if key is not None:
        statements.append(f"ALTER TABLE {job_sql.target} RENAME CONSTRAINT {_key_name(job_sql)} TO {quote(key)}")
    return statements


def _definition(job_sql: JobSql) -> str:
    """Return the DDL of the target's columns, with defaults for the load's metadata columns, and the attempt column."""
    dialect, own = job_sql.dialect, job_sql.metadata()
    keys = job_sql.job.shape.table.primary_key
    lines = [
        f"{dialect.quote(column.name)} {dialect.type_sql(column)}"
        f"{'' if column.nullable and column.name not in keys else ' NOT NULL'}"
        f"{f' DEFAULT {own[column.name]}' if column.name in own else ''}"
        for column in job_sql.job.shape.table.columns
    ]
    return f"CREATE TABLE {job_sql.stage} ({', '.join([*lines, f'{ATTEMPT} bigint'])})"


def _is_possible(job: WriteJob) -> bool:
    strategies = (Truncate, Append)
    return isinstance(job.strategy, strategies) and job.incremental is None and job.batch is None and not job.dry_run


def _is_worthwhile(session: SqlSession, job_sql: JobSql) -> bool:
    """Return whether the table could be replaced, as far as can be determined before the stage is filled."""
    return (
        _is_possible(job_sql.job)
        and session.scalar(_REPLACEABLE.format(table=_literal(job_sql, job_sql.target))) is True
        and _is_empty_or_truncated(session, job_sql)
    )


def _is_empty_or_truncated(session: SqlSession, job_sql: JobSql) -> bool:
    if isinstance(job_sql.job.strategy, Truncate):
        return True
    return session.scalar(_IS_EMPTY.format(table=_literal(job_sql, job_sql.target))) is True


def _can_replace(session: SqlSession, job_sql: JobSql) -> bool:
    table, stage = _literal(job_sql, job_sql.target), _literal(job_sql, job_sql.stage)
    return (
        session.scalar(_REPLACEABLE.format(table=table)) is True
        and session.scalar(_IS_SEEN_WHOLE.format(stage=stage)) is True
        and _have_same_definition(session, job_sql, _COLUMNS)
        and _have_same_definition(session, job_sql, _PRIMARY_KEY)
    )


def _have_same_definition(session: SqlSession, job_sql: JobSql, query: str) -> bool:
    tables = (_literal(job_sql, relation) for relation in (job_sql.target, job_sql.stage))
    target, stage = (session.scalar(query.format(table=table)) for table in tables)
    return bool(target == stage)


def _literal(job_sql: JobSql, relation: str) -> str:
    return job_sql.dialect.text_literal(relation)


def _key_name(job_sql: JobSql) -> str:
    return job_sql.dialect.quote(f"flow_key_{job_sql.job.run_id.replace('-', '')}")
