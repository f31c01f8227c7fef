"""The tables of the SQLite run log, by numbered version."""

from __future__ import annotations

import sqlite3

from ematix_flow.foundation.errors import ConnectionFailed

VERSIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE IF NOT EXISTS run_log (
            pipeline_name TEXT PRIMARY KEY, last_run_at TEXT NOT NULL, success INTEGER NOT NULL)""",
        """CREATE TABLE IF NOT EXISTS attempt_state (
            pipeline_name TEXT PRIMARY KEY, attempt_count INTEGER NOT NULL, last_attempt_at TEXT NOT NULL,
            gave_up INTEGER NOT NULL DEFAULT 0)""",
        """CREATE TABLE IF NOT EXISTS pipeline_claims (
            pipeline_name TEXT PRIMARY KEY, claim_token TEXT NOT NULL UNIQUE, worker_id TEXT NOT NULL,
            claimed_at TEXT NOT NULL, expires_at TEXT NOT NULL)""",
        # Outlives the claims, so that a later token is always the greater one.
        "CREATE TABLE IF NOT EXISTS claim_fences (pipeline_name TEXT PRIMARY KEY, fence INTEGER NOT NULL)",
        """CREATE TABLE IF NOT EXISTS run_records (
            run_id TEXT PRIMARY KEY, pipeline TEXT NOT NULL, status TEXT NOT NULL, started_at TEXT NOT NULL,
            finished_at TEXT, attempt INTEGER NOT NULL DEFAULT 1, failed_step TEXT, failed_watermark TEXT,
            error_summary TEXT, kind TEXT NOT NULL DEFAULT 'batch', extras_json TEXT NOT NULL DEFAULT '{}')""",
        "CREATE INDEX IF NOT EXISTS run_records_by_time ON run_records (started_at DESC)",
        "CREATE INDEX IF NOT EXISTS run_records_by_pipeline ON run_records (pipeline, started_at DESC)",
    ),
)


def prepare(sql: sqlite3.Connection) -> None:
    """Bring an open file to the newest version; a file of a version not known here is refused."""
    if _version(sql) != len(VERSIONS):
        sql.execute("PRAGMA journal_mode = WAL")  # kept in the file; readers and a writer do not wait for each other
        sql.execute("BEGIN IMMEDIATE")
        try:
            _migrate(sql)
            sql.execute("COMMIT")
        except BaseException:
            if sql.in_transaction:
                sql.execute("ROLLBACK")
            raise
    # In WAL mode this keeps the file whole through a crash; only the last moments before a power cut may be missing.
    sql.execute("PRAGMA synchronous = NORMAL")


def _migrate(sql: sqlite3.Connection) -> None:
    before = _version(sql)  # again, because another process may have been quicker
    if before > len(VERSIONS):
        raise ConnectionFailed(
            f"the run log has version {before}, and this program knows versions up to {len(VERSIONS)}",
            hint="update ematix-flow-spark, or use another file: --run-log-path PATH",
        )
    for statements in VERSIONS[before:]:
        for statement in statements:
            sql.execute(statement)
    sql.execute(f"PRAGMA user_version = {len(VERSIONS)}")


def _version(sql: sqlite3.Connection) -> int:
    (version,) = sql.execute("PRAGMA user_version").fetchone()
    return int(version)
