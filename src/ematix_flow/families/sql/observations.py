"""The observations table beside an scd2 target: created with it and altered when its columns change."""

from __future__ import annotations

from dataclasses import replace

from ematix_flow.contract.backend import DdlPlanner
from ematix_flow.contract.ddl import AddColumn, ChangeType, DdlStep, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.contract.write import WriteJob
from ematix_flow.families.sql.ddl import SqlDdl
from ematix_flow.families.sql.scd2_events import GONE, HASH, observations_of, seed_observations
from ematix_flow.families.sql.statements import JobSql


def ensure_observations(ddl: SqlDdl, job: WriteJob) -> None:
    """Create the observations table, or add and change the columns in which it differs from its target."""
    table = observations_of(job.shape)
    shape = TargetShape(table, table)
    relation = ddl.dialect.relation(table.schema, table.name)
    state = ddl.inspect(shape)
    steps = missing_steps(ddl, job.shape, shape, state) if state else []
    ddl.apply(shape, steps)
    with ddl.connect() as session:
        if state is None:
            keys = [table.column(name) for name in getattr(job.strategy, "keys", ())]
            session.execute(ddl.dialect.create_table(relation, table.columns, primary_key=(), looked_up_by=keys))
        if steps:
            session.execute(_hash_anew(ddl, job, relation))
        # An scd2 history that was written by processing time is continued.
        if session.scalar(f"SELECT 1 FROM {relation} LIMIT 1") is None:
            session.execute(seed_observations(JobSql(ddl.dialect, job, "")))


def missing_steps(ddl: DdlPlanner, target: TargetShape, shape: TargetShape, state: TableState) -> list[DdlStep]:
    """Return the steps to the target's columns; one whose type in the target is not as declared is not changed here."""
    existing = {column.name: column for column in state.columns}
    main = ddl.inspect(target)
    as_declared = {
        column.name
        for column in (main.columns if main else ())
        if column.name in target.declared.column_names
        and column.type == ddl.stored_type(target, target.declared.column(column.name))
    }
    steps: list[DdlStep] = []
    for column in target.declared.columns:
        wanted = replace(column, nullable=True, primary_key=False)
        known = existing.get(column.name)
        if known is None:
            steps.append(AddColumn(wanted))
        elif column.name in as_declared and known.type != ddl.stored_type(shape, wanted):
            steps.append(ChangeType(wanted, known))
    return steps


def _hash_anew(ddl: SqlDdl, job: WriteJob, relation: str) -> str:
    """Return SQL that rehashes all observations, so that a repeated one with NULL in new columns is recognised."""
    d, job_sql = ddl.dialect, JobSql(ddl.dialect, job, "")
    hashed = job_sql.row_hash(job_sql.declared, alias=relation)
    return f"UPDATE {relation} SET {d.quote(HASH)} = {hashed} WHERE {d.quote(GONE)} = {d.boolean(False)}"
