"""The product's own tables in a target: made where they are missing, and only there."""

from __future__ import annotations

from urllib.parse import urlsplit

import psycopg
import pytest

from ematix_flow.backends.postgres.dialect import PostgresDialect
from ematix_flow.backends.postgres.session import connect
from ematix_flow.declare.connections import PostgresConnection
from ematix_flow.families.sql.metadata_tables import MetadataTables
from ematix_flow.foundation.errors import PermissionDenied


def ensure(url: str) -> None:
    with connect(PostgresConnection("warehouse", url=url)) as session:
        MetadataTables(session, PostgresDialect()).ensure()


def test_a_missing_right_is_not_taken_for_missing_tables(fresh_postgres: str) -> None:
    ensure(fresh_postgres)
    there = urlsplit(fresh_postgres)
    with psycopg.connect(fresh_postgres, autocommit=True) as session:
        session.execute("CREATE ROLE reads_no_commits LOGIN PASSWORD 'open-sesame'")
        session.execute("GRANT USAGE ON SCHEMA ematix_flow TO reads_no_commits")
    try:
        with pytest.raises(PermissionDenied, match="table commits"):
            ensure(there._replace(netloc=f"reads_no_commits:open-sesame@{there.hostname}:{there.port}").geturl())
    finally:
        with psycopg.connect(fresh_postgres, autocommit=True) as session:
            session.execute("DROP OWNED BY reads_no_commits")
            session.execute("DROP ROLE reads_no_commits")
