"""The tables of the run log, by version number; one list for every SQL database."""

from __future__ import annotations

from dataclasses import dataclass

from ematix_flow.foundation.errors import ConnectionFailed
from ematix_flow.run_log.sql.dialect import RunLogDialect, RunLogSession


@dataclass(frozen=True)
class TableIndex:
    """An index, for databases that benefit from one."""

    name: str
    table: str
    columns: str


@dataclass(frozen=True)
class AddedColumn:
    """A column that earlier versions lack."""

    table: str
    name: str
    type: str


# Times are fixed-width text in UTC, so that sorting the text sorts the time in every database.
VERSIONS: tuple[tuple[str | TableIndex | AddedColumn, ...], ...] = (
    (
        """CREATE TABLE IF NOT EXISTS $run_log (
            pipeline_name {key} PRIMARY KEY, last_run_at {time} NOT NULL, success INTEGER NOT NULL)""",
        """CREATE TABLE IF NOT EXISTS $attempt_state (
            pipeline_name {key} PRIMARY KEY, attempt_count INTEGER NOT NULL, last_attempt_at {time} NOT NULL,
            gave_up INTEGER NOT NULL)""",
        """CREATE TABLE IF NOT EXISTS $pipeline_claims (
            pipeline_name {key} PRIMARY KEY, claim_token {key} NOT NULL, worker_id {key} NOT NULL,
            claimed_at {time} NOT NULL, expires_at {time} NOT NULL)""",
        # Outlives the claims, so that a later token always has the greater fence.
        "CREATE TABLE IF NOT EXISTS $claim_fences (pipeline_name {key} PRIMARY KEY, fence INTEGER NOT NULL)",
        """CREATE TABLE IF NOT EXISTS $run_records (
            run_id {key} PRIMARY KEY, pipeline {key} NOT NULL, status {word} NOT NULL, started_at {time} NOT NULL,
            finished_at {time}, attempt INTEGER NOT NULL, failed_step {text}, failed_watermark {text},
            error_summary {text}, kind {word} NOT NULL, extras_json {text} NOT NULL)""",
        TableIndex("run_records_by_time", "run_records", "started_at, run_id"),
        TableIndex("run_records_by_pipeline", "run_records", "pipeline, started_at, run_id"),
    ),
    (
        TableIndex("pipeline_claims_by_token", "pipeline_claims", "claim_token"),
        TableIndex("run_records_by_status", "run_records", "status, started_at, run_id"),
        """CREATE TABLE IF NOT EXISTS $fired_slots (
            pipeline {key} NOT NULL, digest {word} NOT NULL, slot {text} NOT NULL, fired_at {time} NOT NULL,
            worker_id {key} NOT NULL, PRIMARY KEY (pipeline, digest))""",
        TableIndex("fired_slots_by_time", "fired_slots", "pipeline, fired_at"),
        # One row per pipeline and kind: a scheduler reads all of them in every polling cycle.
        """CREATE TABLE IF NOT EXISTS $last_slots (
            kind {word} NOT NULL, pipeline {key} NOT NULL, slot {text} NOT NULL, fired_at {time} NOT NULL,
            worker_id {key} NOT NULL, PRIMARY KEY (kind, pipeline))""",
        """CREATE TABLE IF NOT EXISTS $pauses (
            name {key} PRIMARY KEY, paused_at {time} NOT NULL, paused_by {key} NOT NULL)""",
        """CREATE TABLE IF NOT EXISTS $intervals (
            pipeline {key} NOT NULL, start_at {time} NOT NULL, end_at {time} NOT NULL, status {word} NOT NULL,
            run_id {key}, attempt INTEGER NOT NULL, error {text}, worker_id {key}, expires_at {time},
            PRIMARY KEY (pipeline, start_at, end_at))""",
    ),
    (AddedColumn("fired_slots", "run_id", "{word}"), AddedColumn("last_slots", "run_id", "{word}")),
)  # fmt: skip


def migrate(session: RunLogSession, *, create: bool) -> None:
    """Migrate the tables to the newest version; raise a ConnectionFailed for tables of a later version."""
    if _current_version(session) == len(VERSIONS):
        return
    if not create:
        raise ConnectionFailed(
            f"the run log {session.dialect.label} has no tables of version {len(VERSIONS)}",
            hint="let it make them once: leave out create_tables=false",
        )
    with session.dialect.migrating(session):
        for steps in VERSIONS[_current_version(session) :]:  # read again: another process may have migrated
            for step in steps:
                _apply_step(session, step)
        session.dialect.set_version(session, len(VERSIONS))


def _current_version(session: RunLogSession) -> int:
    result = session.dialect.version(session)
    if result > len(VERSIONS):
        raise ConnectionFailed(
            f"the run log {session.dialect.label} has version {result}, "
            f"and this program knows versions up to {len(VERSIONS)}",
            hint="update ematix-flow-spark, or use another run log: --run-log URL",
        )
    return result


def _apply_step(session: RunLogSession, step: str | TableIndex | AddedColumn) -> None:
    dialect = session.dialect
    if isinstance(step, TableIndex):
        dialect.create_index(session, step.name, step.table, step.columns)
    elif isinstance(step, str):
        session.run(_typed(dialect, step))
    # Where DDL cannot be rolled back, an interrupted migration has left the column behind.
    elif not dialect.has_column(session, step.table, step.name):
        session.run(f"ALTER TABLE ${step.table} ADD COLUMN {step.name} {_typed(dialect, step.type)}")


def _typed(dialect: RunLogDialect, text: str) -> str:
    return text.format(key=dialect.key_type, word=dialect.word_type, time=dialect.word_type, text=dialect.text_type)
