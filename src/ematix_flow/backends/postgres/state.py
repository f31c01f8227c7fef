"""The state backend in PostgreSQL: two tables for all streams of a schema."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.postgres.dialect import PostgresDialect
from ematix_flow.backends.postgres.session import connect, dsn
from ematix_flow.backends.postgres.state_blobs import BYTES_A_PIECE, StateBlobs
from ematix_flow.contract.state import (
    StateLocation,
    StateManifest,
    manifest_from_text,
    manifest_to_text,
    missing_part,
    parts_named,
)
from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.dataplane.task_errors import carried_error_in
from ematix_flow.declare.connections import PostgresConnection
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import ConnectionFailed, LeaseLost
from ematix_flow.foundation.lazy_imports import t
from ematix_flow.storage.paths import safe_file_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE, OFFSETS = "ematix_streaming_state", "ematix_streaming_offsets"
_OURS = "flow/"
"""The prefix of the keys of all rows written here; other rows in these tables are not touched."""
_CHECKPOINT = "checkpoint"
"""The source id of the row with the progress of the state: a micro-batch of the checkpoint, which has the offsets."""
_DIALECT = PostgresDialect()
_TABLES = {
    STATE: "pipeline_name text NOT NULL, group_key bytea NOT NULL, state_blob bytea NOT NULL, "
    "state_version bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline_name, group_key)",
    OFFSETS: "pipeline_name text NOT NULL, source_id text NOT NULL, offset_bytes bytea NOT NULL, "
    "state_version bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline_name, source_id)",
}


@dataclass(repr=False)
class PostgresStateBackend:
    """The state of one stream: a part is several blobs and a list of their keys; the manifest names the parts.

    A session lasts only one step: between two micro-batches there may be hours.
    """

    location: StateLocation
    bytes_a_piece: int = BYTES_A_PIECE
    _is_ready: bool = field(default=False, init=False)
    _version: int = field(default=0, init=False)
    """The version of the next manifest."""

    @cached_property
    def _connection(self) -> PostgresConnection:
        return PostgresConnection("state_store", url=self.location.url)

    @cached_property
    def _state_blobs(self) -> StateBlobs:
        return StateBlobs(dsn(self._connection), self._table(STATE), self.location.stream)

    def _table(self, name: str) -> str:
        return _DIALECT.relation(self.location.schema, name)

    def _key(self, *names: str) -> str:
        return _OURS + "/".join(safe_file_name(name) for name in (self.location.generation, *names))

    @property
    def _manifest_key(self) -> str:
        return self._key("note")

    def _list_key(self, part: str) -> str:
        return self._key("part", part)

    def manifest(self) -> StateManifest | None:
        """Return the last manifest of this generation; None before the first."""
        with self._session() as session:
            text = self._blobs(session, [self._manifest_key]).get(self._manifest_key)
        if text is None:
            return None
        kept = manifest_from_text(text, self._table(STATE))
        self._version = kept.number + 1
        return kept

    def read(self, part: str) -> DataFrame:
        """Return the rows of a part, fetched by Spark's tasks."""
        with self._session() as session:
            text = self._blobs(session, [self._list_key(part)]).get(self._list_key(part))
        if text is None:
            raise missing_part(part, self._table(STATE))
        listed = json.loads(text)
        return self._state_blobs.read(active_session(), listed["pieces"], t.StructType.fromJson(listed["schema"]))

    def write(self, part: str, frame: DataFrame) -> int:
        """Write blobs under keys of this try, then the list that makes them valid; return the part's row count."""
        with self._session():  # the tables exist before a task uses them
            pass
        try:
            pieces = self._state_blobs.write(
                frame, self._key("rows", part, secrets.token_hex(6)), self._version, size=self.bytes_a_piece
            )
        except Exception as exc:
            known = carried_error_in(str(exc))
            if known is None:
                raise
            raise known from exc
        listed = {"schema": frame.schema.jsonValue(), "pieces": [key for key, _ in pieces]}
        with self._session() as session:
            session.execute(self._put(self._list_key(part), json.dumps(listed), self._version))
        return sum(rows for _, rows in pieces)

    def size(self, parts: Sequence[str]) -> int:
        """Return the size of these parts in bytes."""
        with self._session() as session:
            lists = self._blobs(session, [self._list_key(part) for part in parts])
            pieces = [key for listed in lists.values() for key in json.loads(listed)["pieces"]]
            if not pieces:
                return 0
            size = session.scalar(
                f"SELECT sum(octet_length(state_blob)) FROM {self._table(STATE)} WHERE pipeline_name = {self._name} "
                f"AND group_key IN ({', '.join(map(_bytea_literal, pieces))})"
            )
        return int(size or 0)

    def commit(self, manifest: StateManifest) -> None:
        """Write manifest and progress, and delete unreferenced parts, also of earlier generations: one transaction."""
        with self._session() as session, session.transaction():
            self._take_over(session, manifest.number)
            session.execute(self._put(self._manifest_key, manifest_to_text(manifest), manifest.number))
            lists = self._blobs(session, [self._list_key(part) for part in parts_named(manifest)])
            pieces = [key for listed in lists.values() for key in json.loads(listed)["pieces"]]
            stays = ", ".join(_bytea_literal(key) for key in (self._manifest_key, *lists, *pieces))
            session.execute(
                f"DELETE FROM {self._table(STATE)} WHERE pipeline_name = {self._name} "
                f"AND group_key >= {_bytea_literal(_OURS)} AND group_key < {_bytea_literal(_OURS[:-1] + '0')} "  # 0 follows the slash
                f"AND group_key <> ALL (ARRAY[{stays}])"
            )
        self._version = manifest.number + 1

    def close(self) -> None:
        """Do nothing: no session is open."""

    @property
    def _name(self) -> str:
        return _DIALECT.text_literal(self.location.stream)

    def _take_over(self, session: SqlSession, number: int) -> None:
        """Record the progress; raise LeaseLost where a later generation, or another process of this one, wrote."""
        mine = f"pipeline_name = {self._name} AND source_id = {_DIALECT.text_literal(_CHECKPOINT)}"
        seen = self._version - 1
        row = (
            f"{self._name}, {_DIALECT.text_literal(_CHECKPOINT)}, {_bytea_literal(self._progress(seen))}, {seen}, now()"
        )
        session.execute(f"INSERT INTO {self._table(OFFSETS)} VALUES ({row}) ON CONFLICT DO NOTHING")
        progress = session.scalar(f"SELECT offset_bytes FROM {self._table(OFFSETS)} WHERE {mine} FOR UPDATE")
        before: dict[str, Any] = json.loads(bytes(progress))
        is_own = before["generation"] == self.location.generation
        if (is_own and before["batch"] != seen) or (not is_own and before["since"] > self.location.since):
            what = "carried on by another process" if is_own else "begun anew"
            raise LeaseLost(
                f"the stream {self.location.stream} was {what} while this process stood still, which keeps nothing any more",
                hint="flow runs list shows who runs it now",
            )
        session.execute(
            f"UPDATE {self._table(OFFSETS)} SET offset_bytes = {_bytea_literal(self._progress(number))}, "
            f"state_version = {number}, updated_at = now() WHERE {mine}"
        )

    def _progress(self, batch: int) -> str:
        return json.dumps({"generation": self.location.generation, "since": self.location.since, "batch": batch})

    def _put(self, key: str, text: str, version: int) -> str:
        return (
            f"INSERT INTO {self._table(STATE)} (pipeline_name, group_key, state_blob, state_version, updated_at) "
            f"VALUES ({self._name}, {_bytea_literal(key)}, {_bytea_literal(text)}, {version}, now()) "
            "ON CONFLICT (pipeline_name, group_key) DO UPDATE SET state_blob = EXCLUDED.state_blob, "
            "state_version = EXCLUDED.state_version, updated_at = EXCLUDED.updated_at"
        )

    def _blobs(self, session: SqlSession, keys: Sequence[str]) -> dict[str, str]:
        """Return the texts of those keys that exist."""
        if not keys:
            return {}
        rows = session.rows(
            f"SELECT group_key, state_blob FROM {self._table(STATE)} WHERE pipeline_name = {self._name} "
            f"AND group_key IN ({', '.join(map(_bytea_literal, keys))})"
        )
        return {bytes(key).decode(): bytes(blob).decode() for key, blob in rows}

    @contextmanager
    def _session(self) -> Iterator[SqlSession]:
        try:
            session = connect(self._connection)
        except ConnectionFailed as error:
            raise type(error)(
                f"the state store of {self.location.stream} cannot be reached: {error.what}",
                hint="check host, database, user and password in the url of state_store",
            ) from error
        with session:
            if not self._is_ready:
                self._prepare(session)
                self._is_ready = True
            yield session

    def _prepare(self, session: SqlSession) -> None:
        """Create what is missing; where all of it exists, no privilege to create is needed."""
        for name, columns in _TABLES.items():
            relation = self._table(name)
            if session.scalar(f"SELECT to_regclass({_DIALECT.text_literal(relation)})") is not None:
                continue
            with session.transaction():  # streams that start together would create it together
                session.execute(f"SELECT pg_advisory_xact_lock(hashtext({_DIALECT.text_literal(relation)}))")
                schema = _DIALECT.quote(self.location.schema)
                if session.scalar(f"SELECT to_regnamespace({_DIALECT.text_literal(schema)})") is None:
                    session.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
                session.execute(f"CREATE TABLE IF NOT EXISTS {relation} ({columns})")


def _bytea_literal(text: str) -> str:
    """Return a bytea literal."""
    return f"'\\x{text.encode().hex()}'::bytea"
