"""The table of observations beside an scd2 target: made with it, and changed as it changes."""

from __future__ import annotations

from dataclasses import replace

from ematix_flow.contract.backend import DdlPlanner
from ematix_flow.contract.ddl import AddColumn, ChangeType, DdlStep, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.contract.write import WriteJob
from ematix_flow.families.sql.ddl import SqlDdl
from ematix_flow.families.sql.scd2_events import GONE, HASH, observations_of, seed_observations
from ematix_flow.families.sql.statements import Writing


def ensure_observations(ddl: SqlDdl, job: WriteJob) -> None:
    """Create the table, or bring it to the columns its target has by now."""
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
        if session.scalar(f"SELECT 1 FROM {relation} LIMIT 1") is None:  # a history kept by processing time goes on
            session.execute(seed_observations(Writing(ddl.dialect, job, "")))


def missing_steps(ddl: DdlPlanner, target: TargetShape, shape: TargetShape, state: TableState) -> list[DdlStep]:
    """What the target has and this table lacks; a target column that is not as declared is none to follow."""
    there = {column.name: column for column in state.columns}
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
        known = there.get(column.name)
        if known is None:
            steps.append(AddColumn(wanted))
        elif column.name in as_declared and known.type != ddl.stored_type(shape, wanted):
            steps.append(ChangeType(wanted, known))
    return steps


def _hash_anew(ddl: SqlDdl, job: WriteJob, relation: str) -> str:
    """An observation is the same one when it comes again with the new columns empty."""
    d, writing = ddl.dialect, Writing(ddl.dialect, job, "")
    hashed = writing.row_hash(writing.declared, alias=relation)
    return f"UPDATE {relation} SET {d.quote(HASH)} = {hashed} WHERE {d.quote(GONE)} = {d.boolean(False)}"
