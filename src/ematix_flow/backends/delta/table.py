"""One Delta table: its location, rows, schema and commits."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.delta import sail_tables
from ematix_flow.backends.delta.add_files import add_files, can_add_typed
from ematix_flow.backends.delta.small_tables import rewrite_by
from ematix_flow.backends.delta.snapshot import snapshot_of
from ematix_flow.dataplane.spark_session import active_session, exact_settings, is_active_session_sail, session_settings
from ematix_flow.families.lake.state import LakeLoad
from ematix_flow.families.lake.table_change import ACTION, StageFolder, TableChange, action_columns
from ematix_flow.sql.spark_text import quote
from ematix_flow.storage.object_store import in_parallel
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import LakePath, engine_uri, read_text_if_exists, require_local
from ematix_flow.storage.s3_path import S3Path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MARK = "ematix_flow"
_CONF = "spark.databricks.delta."
_CHANGE = "change"
_COMMIT = re.compile(r"\d{20}\.json")
_READ_AHEAD = 32  # commits of a bucket that are fetched concurrently


@dataclass(frozen=True)
class DeltaTable:
    """A table, identified by its folder; SQL statements address it as delta.`path`."""

    path: LakePath

    @property
    def folder(self) -> Path:
        """Return the table's local folder; raise Unsupported for a table in a bucket."""
        return require_local(self.path)

    @property
    def relation(self) -> str:
        """Return the table's name in SQL statements."""
        return f"delta.{quote(self.location)}"

    @property
    def location(self) -> str:
        """Return the table's address for the current engine."""
        return sail_tables.location(self.folder) if is_active_session_sail() else engine_uri(self.path)

    @property
    def exists(self) -> bool:
        """Return whether the folder contains a Delta table."""
        return next(self._log(), None) is not None

    def read(self) -> DataFrame:
        """Return every row of the newest version."""
        if is_active_session_sail():
            return sail_tables.read(self.folder, _columns(self.schema()))
        return active_session().read.format("delta").load(self.location)

    def schema(self) -> StructType:
        """Return the columns, with their comments."""
        if is_active_session_sail():
            known: StructType = sail_tables.schema_of(self.folder)
            return known
        snapshot = snapshot_of(self.path)
        return self.read().schema if snapshot is None else snapshot.schema

    def count(self) -> int:
        """Return the number of rows, from the log where it records that."""
        known = self._counted()
        return self.read().count() if known is None else known

    def is_empty(self) -> bool:
        """Return whether the table has no rows."""
        known = self._counted()
        return self.read().isEmpty() if known is None else known == 0

    def _counted(self) -> int | None:
        snapshot = snapshot_of(self.path, with_files=True)
        return None if snapshot is None else snapshot.rows

    def layout(self) -> tuple[list[str], int]:
        """Return the partition columns and the number of files."""
        if is_active_session_sail():
            return sail_tables.layout_of(self.folder)
        detail = (
            active_session().sql(f"DESCRIBE DETAIL {self.relation}").select("partitionColumns", "numFiles").collect()[0]
        )
        return list(detail["partitionColumns"]), int(detail["numFiles"])

    def commits(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield versions with the metadata that our own loads wrote into the commits, newest first; read lazily."""
        yield from _commit_infos(list(self._log()))

    def commits_after(self, version: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the same for the versions after `version`."""
        files = list(self._log(after=version))
        yield from takewhile(lambda commit: commit[0] > version, _commit_infos(files))

    def version(self) -> int:
        """Return the newest version."""
        return max(int(file.stem) for file in self._log(after=self._checkpoint() - 1))

    def _checkpoint(self) -> int:
        """Return a version that certainly exists; listing the log of a bucket from its beginning takes long."""
        if not isinstance(self.path, S3Path):
            return 0
        text = read_text_if_exists(self.path / "_delta_log" / "_last_checkpoint")
        return int(json.loads(text)["version"]) if text else 0

    def _log(self, *, after: int = -1) -> Iterator[LakePath]:
        """Return the commit files in the table's log; in a bucket, only those later than version `after`."""
        log = self.path / "_delta_log"
        if isinstance(log, S3Path):
            since = f"{log.prefix}{after:020}.json" if after >= 0 else None
            listed = log.bucket.listed(log.prefix, after=since)
            return (S3Path(log.bucket, item.key) for item in listed if _COMMIT.fullmatch(item.key[len(log.prefix) :]))
        return (file for file in log.glob("*.json") if _COMMIT.fullmatch(file.name))

    def versions(self, first: int) -> list[int]:
        """Return the versions from `first` on that the log still has."""
        return [version for file in self._log(after=first - 1) if (version := int(file.stem)) >= first]

    def first_version(self) -> int | None:
        """Return the oldest version that the log still has."""
        return min((int(file.stem) for file in self._log()), default=None)

    def actions_of(self, version: int) -> list[dict[str, Any]]:
        """Return all actions of one commit."""
        text = read_text_if_exists(self.path / "_delta_log" / f"{version:020}.json")
        return [json.loads(line) for line in (text or "").splitlines() if line.strip()]

    def written_at(self, version: int) -> float:
        """Return when the file of a commit was written, in milliseconds; 0 where the log no longer has it."""
        file = self.path / "_delta_log" / f"{version:020}.json"
        if isinstance(file, S3Path):
            found = next((item for item in file.bucket.listed(file.key) if item.key == file.key), None)
            return found.modified.timestamp() * 1000 if found is not None else 0.0
        with translated_os_errors(file), suppress(FileNotFoundError):
            return require_local(file).stat().st_mtime * 1000
        return 0.0

    def properties(self) -> Mapping[str, str]:
        """Return the table's properties."""
        properties = (
            active_session().sql(f"DESCRIBE DETAIL {self.relation}").select("properties").collect()[0]["properties"]
        )
        return dict(properties or {})

    def load_of(self, run_id: str) -> LakeLoad | None:
        """Return the load that a run committed, None where it committed none."""
        return next((_load_from_dict(kept) for _, kept in self.commits() if kept.get("run_id") == run_id), None)

    def last_load_of(self, writer: str) -> LakeLoad | None:
        """Return the newest load that a writer committed, None where it committed none."""
        return next((_load_from_dict(kept) for _, kept in self.commits() if kept.get("writer") == writer), None)

    def change(self, change: TableChange, *, writer: str, load: LakeLoad, folder: StageFolder) -> bool:
        """Apply a change by one commit with the token; return False when a commit with this token exists already."""
        note, before = _commit_metadata(writer, load), self.version()
        if is_active_session_sail():
            return self._change_on_sail(change, token=(writer, load.sequence), note=note, folder=folder)
        if change.files is not None:
            return self.add(change.files, change.how, writer=writer, load=load)
        if change.how == "merge":
            small = rewrite_by(self.path, change, folder)
            if small is not None:
                return self.add(small.files, small.how, writer=writer, load=load, onto=small.onto)
            self._merge(change, writer=writer, load=load, note=note)
        elif isinstance(self.path, S3Path) and can_add_typed(self.path, change.frame.columns):
            return self._add_on_s3(change, writer=writer, load=load, folder=folder)
        else:
            self._write(change, {"txnAppId": writer, "txnVersion": str(load.sequence), "userMetadata": note})
        # Delta silently skips a token that it has already, so the log must show whose commit this is.
        return load.run_id in (kept.get("run_id") for _, kept in self.commits_after(before))

    def _write(self, change: TableChange, options: Mapping[str, str]) -> None:
        """Append or overwrite without comparing rows."""
        with exclusive_write():
            rows = self.typed(change.frame).write.format("delta").mode(change.how)
            rows.options(**options).save(self.location)

    def _add_on_s3(self, change: TableChange, *, writer: str, load: LakeLoad, folder: StageFolder) -> bool:
        """Let Spark write the files and delta-rs commit them: its commit is a conditional write, Spark's is not."""
        with exclusive_write():
            folder.write(_CHANGE, self.typed(change.frame))
        files: list[LakePath] = sorted((folder.path / _CHANGE).glob("*.parquet"), key=lambda file: file.name)
        return self.add(files, change.how, writer=writer, load=load)

    def _change_on_sail(self, change: TableChange, *, token: tuple[str, int], note: str, folder: StageFolder) -> bool:
        folder.write(_CHANGE, change.frame)
        rows = require_local(folder.path / _CHANGE)
        if change.how == "merge":
            return sail_tables.merge(
                self.folder, rows, action_columns(change.frame), change.match, token=token, note=note
            )
        return sail_tables.write(self.folder, rows, change.how, token=token, note=note)

    def add(self, files: Sequence[LakePath], how: str, *, writer: str, load: LakeLoad, onto: Any = None) -> bool:
        """Commit files that are already written; `onto` is the only version that the commit may follow."""
        token, note = (writer, load.sequence), _commit_metadata(writer, load)
        return add_files(self.path, files, how=how, token=token, note=note, run_id=load.run_id, onto=onto)

    def typed(self, frame: DataFrame) -> DataFrame:
        """Return the rows cast to the table's own types, which may be wider than the declared ones."""
        kinds = {field.name: field.dataType.simpleString() for field in self.schema().fields}
        return frame.selectExpr(*(f"CAST({quote(name)} AS {kinds[name]}) AS {quote(name)}" for name in frame.columns))

    def _merge(self, change: TableChange, *, writer: str, load: LakeLoad, note: str) -> None:
        spark, view = active_session(), f"flow_actions_{uuid.uuid4().hex}"
        names = action_columns(change.frame)
        nullable = {field.name: field.nullable for field in self.schema().fields}
        on = " AND ".join(f"t.{quote(key)} {'<=>' if nullable[key] else '='} s.{quote(key)}" for key in change.match)
        sets = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in names if name not in change.match)
        update = f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else ""  # a table of key columns only has no other
        into, values = ", ".join(quote(name) for name in names), ", ".join(f"s.{quote(name)}" for name in names)
        statement = (
            f"MERGE INTO {self.relation} AS t USING {view} AS s ON {on} "
            f"WHEN MATCHED AND s.{ACTION} = 'delete' THEN DELETE {update}"
            f"WHEN NOT MATCHED AND s.{ACTION} = 'write' THEN INSERT ({into}) VALUES ({values})"
        )
        token = {
            f"{_CONF}write.txnAppId": writer,
            f"{_CONF}write.txnVersion": str(load.sequence),
            f"{_CONF}commitInfo.userMetadata": note,
            # The actions are files that no process changes: a copy of them would only cost time.
            f"{_CONF}merge.materializeSource": "none",
        }
        change.frame.createOrReplaceTempView(view)
        try:
            with exclusive_write(), session_settings(spark, token):
                spark.sql(statement).collect()
        finally:
            spark.catalog.dropTempView(view)

    def append(self, frame: DataFrame, folder: StageFolder) -> None:
        """Append rows without a commit token; columns may be new."""
        if is_active_session_sail():
            folder.write(_CHANGE, frame)
            sail_tables.write(self.folder, require_local(folder.path / _CHANGE), "append")
            return
        with exclusive_write():
            frame.write.format("delta").mode("append").option("mergeSchema", "true").save(self.location)

    def delete(self, condition: str) -> None:
        """Delete the rows that match the condition."""
        if is_active_session_sail():
            sail_tables.delete(self.folder, condition)
            return
        with exclusive_write():
            active_session().sql(f"DELETE FROM {self.relation} AS t WHERE {condition}").collect()

    def keep_keys_of(self, other: DeltaTable, keys: Sequence[str], folder: StageFolder) -> None:
        """Delete rows whose key is not in the other table."""
        names = ", ".join(quote(key) for key in keys)
        if is_active_session_sail():
            folder.write(_CHANGE, other.read().selectExpr(*(quote(key) for key in keys)).distinct())
            sail_tables.delete_missing_keys(self.folder, require_local(folder.path / _CHANGE), keys)
            return
        on = " AND ".join(f"t.{quote(key)} <=> s.{quote(key)}" for key in keys)
        with exclusive_write():
            active_session().sql(
                f"MERGE INTO {self.relation} AS t USING (SELECT DISTINCT {names} FROM {other.relation}) AS s ON {on} "
                "WHEN NOT MATCHED BY SOURCE THEN DELETE"
            ).collect()


@contextmanager
def exclusive_write() -> Iterator[None]:
    """Serialise the Delta writes of this process: a token in the session's settings must reach one commit only."""
    spark = active_session()
    with session_settings(spark, {}), exact_settings(spark):
        yield


def _columns(schema: StructType) -> str:
    return ", ".join(f"{quote(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def _commit_infos(files: Sequence[LakePath]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield versions and commit metadata, newest first; in a bucket several commits are fetched concurrently."""
    left = sorted(files, key=lambda file: file.name, reverse=True)
    ahead = 2  # the newest commit is the one that is needed most often
    while left:
        some, left = left[:ahead], left[ahead:]
        fetched = in_parallel(_commit_info, some) if isinstance(some[0], S3Path) else map(_commit_info, some)
        yield from zip((int(file.stem) for file in some), fetched, strict=True)
        ahead = min(2 * ahead, _READ_AHEAD)


def _commit_info(file: LakePath) -> dict[str, Any]:
    """Return the metadata that one of our loads wrote into this commit; empty for any other commit."""
    if isinstance(file, S3Path):
        return _commit_info_in(file.read_text().splitlines())
    with translated_os_errors(file), file.open(encoding="utf-8") as lines:
        return _commit_info_in(lines)


def _commit_info_in(lines: Iterable[str]) -> dict[str, Any]:
    info = next((line for line in lines if line.startswith('{"commitInfo"')), "{}")
    note = json.loads(info).get("commitInfo", {}).get("userMetadata")
    try:
        kept = json.loads(note or "{}")
    except ValueError:
        return {}
    mark = kept.get(MARK) if isinstance(kept, dict) else None
    return mark if isinstance(mark, dict) else {}


def _commit_metadata(writer: str, load: LakeLoad) -> str:
    return json.dumps({MARK: {"writer": writer, **_load_to_dict(load)}})


def _load_to_dict(load: LakeLoad) -> dict[str, Any]:
    kept = asdict(load)
    return {name: kept[name] for name in _REMEMBERED if kept[name] is not None}


def _load_from_dict(kept: Mapping[str, Any]) -> LakeLoad:
    return LakeLoad.from_dict({**kept, "published": True})


_REMEMBERED = ("run_id", "sequence", "schema", "table", "started_at", "counts", "watermark", "column")
