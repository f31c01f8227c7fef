"""One Delta table: where it is, what it holds, and the commits that made it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.delta import native
from ematix_flow.backends.delta.adding import add_files, can_add_typed
from ematix_flow.backends.delta.small import rewrite_by
from ematix_flow.backends.delta.snapshot import snapshot_of
from ematix_flow.families.lake.change import ACTION, Change, StageFolder, rows_of
from ematix_flow.families.lake.place import LakePath, explained, local, read_if_there, uri
from ematix_flow.families.lake.s3.path import S3Path
from ematix_flow.families.lake.session import active, exactly, on_sail, quote, settings
from ematix_flow.families.lake.state import Load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MARK = "ematix_flow"
_CONF = "spark.databricks.delta."
_CHANGE = "change"
_COMMIT = re.compile(r"\d{20}\.json")
_READ_AHEAD = 32  # commits of a bucket, fetched side by side


@dataclass(frozen=True)
class DeltaTable:
    """A table by its folder; statements address it as delta.`path`."""

    path: LakePath

    @property
    def folder(self) -> Path:
        """The table's folder on this machine."""
        return local(self.path)

    @property
    def relation(self) -> str:
        """The table in a statement."""
        return f"delta.{quote(self.location)}"

    @property
    def location(self) -> str:
        """The table as the engine must be told."""
        return native.location(self.folder) if on_sail() else uri(self.path)

    @property
    def exists(self) -> bool:
        """Whether a Delta table is there."""
        return next(self._log(), None) is not None

    def read(self) -> DataFrame:
        """Every row, of the newest version."""
        if on_sail():
            return native.read(self.folder, _columns(self.schema()))
        return active().read.format("delta").load(self.location)

    def schema(self) -> StructType:
        """The columns, with their comments."""
        if on_sail():
            known: StructType = native.schema_of(self.folder)
            return known
        found = snapshot_of(self.path)
        return self.read().schema if found is None else found.schema

    def count(self) -> int:
        """How many rows there are, by the log where it says so."""
        known = self._counted()
        return self.read().count() if known is None else known

    def is_empty(self) -> bool:
        """Whether there is no row."""
        known = self._counted()
        return self.read().isEmpty() if known is None else known == 0

    def _counted(self) -> int | None:
        found = snapshot_of(self.path, with_files=True)
        return None if found is None else found.rows

    def layout(self) -> tuple[list[str], int]:
        """The columns of its partitions, and how many files there are."""
        if on_sail():
            return native.layout_of(self.folder)
        found = active().sql(f"DESCRIBE DETAIL {self.relation}").select("partitionColumns", "numFiles").collect()[0]
        return list(found["partitionColumns"]), int(found["numFiles"])

    def commits(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Versions with what our own loads wrote into their commits, newest first; read as it is asked for."""
        yield from _notes(list(self._log()))

    def commits_after(self, version: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The same of the versions after one."""
        files = list(self._log(after=version))
        yield from takewhile(lambda found: found[0] > version, _notes(files))

    def version(self) -> int:
        """The newest version."""
        return max(int(file.stem) for file in self._log(after=self._checkpoint() - 1))

    def _checkpoint(self) -> int:
        """A version that is there for certain; the log of a bucket is long to list from its beginning."""
        if not isinstance(self.path, S3Path):
            return 0
        found = read_if_there(self.path / "_delta_log" / "_last_checkpoint")
        return int(json.loads(found)["version"]) if found else 0

    def _log(self, *, after: int = -1) -> Iterator[LakePath]:
        """The commits in the table's log; those before a version may be left out."""
        log = self.path / "_delta_log"
        if isinstance(log, S3Path):
            since = f"{log.prefix}{after:020}.json" if after >= 0 else None
            listed = log.bucket.listed(log.prefix, after=since)
            return (S3Path(log.bucket, item.key) for item in listed if _COMMIT.fullmatch(item.key[len(log.prefix) :]))
        return (file for file in log.glob("*.json") if _COMMIT.fullmatch(file.name))

    def versions(self, first: int) -> list[int]:
        """The versions from one on that the log still has."""
        return [found for file in self._log(after=first - 1) if (found := int(file.stem)) >= first]

    def first_version(self) -> int | None:
        """The oldest version that the log still has."""
        return min((int(file.stem) for file in self._log()), default=None)

    def actions_of(self, version: int) -> list[dict[str, Any]]:
        """Everything that one commit says."""
        found = read_if_there(self.path / "_delta_log" / f"{version:020}.json")
        return [json.loads(line) for line in (found or "").splitlines() if line.strip()]

    def properties(self) -> Mapping[str, str]:
        """The table's settings."""
        found = active().sql(f"DESCRIBE DETAIL {self.relation}").select("properties").collect()[0]["properties"]
        return dict(found or {})

    def load_of(self, run_id: str) -> Load | None:
        """What a run committed, None when it did not."""
        return next((_load(kept) for _, kept in self.commits() if kept.get("run_id") == run_id), None)

    def last_load_of(self, writer: str) -> Load | None:
        """The newest commit of a writer."""
        return next((_load(kept) for _, kept in self.commits() if kept.get("writer") == writer), None)

    def change(self, change: Change, *, writer: str, load: Load, folder: StageFolder) -> bool:
        """One commit with the token; False when a commit with this token is already there."""
        note, before = _noted(writer, load), self.version()
        if on_sail():
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
        # Delta passes over a token it knows in silence, so its log is asked whose commit this is.
        return load.run_id in (kept.get("run_id") for _, kept in self.commits_after(before))

    def _write(self, change: Change, options: Mapping[str, str]) -> None:
        """Rows that need not be compared."""
        with alone():
            rows = self.typed(change.frame).write.format("delta").mode(change.how)
            rows.options(**options).save(self.location)

    def _add_on_s3(self, change: Change, *, writer: str, load: Load, folder: StageFolder) -> bool:
        """Spark writes the files, the other library commits them: it does so on a condition, which Spark's does not."""
        with alone():
            folder.keep(_CHANGE, self.typed(change.frame))
        files: list[LakePath] = sorted((folder.path / _CHANGE).glob("*.parquet"), key=lambda file: file.name)
        return self.add(files, change.how, writer=writer, load=load)

    def _change_on_sail(self, change: Change, *, token: tuple[str, int], note: str, folder: StageFolder) -> bool:
        folder.keep(_CHANGE, change.frame)
        rows = local(folder.path / _CHANGE)
        if change.how == "merge":
            return native.merge(self.folder, rows, rows_of(change.frame), change.match, token=token, note=note)
        return native.write(self.folder, rows, change.how, token=token, note=note)

    def add(self, files: Sequence[LakePath], how: str, *, writer: str, load: Load, onto: Any = None) -> bool:
        """The same with files that are already written; `onto` is the only version that they may follow."""
        token, note = (writer, load.sequence), _noted(writer, load)
        return add_files(self.path, files, how=how, token=token, note=note, run_id=load.run_id, onto=onto)

    def typed(self, frame: DataFrame) -> DataFrame:
        """The rows in the table's own types, which may be wider than the declared ones."""
        kinds = {field.name: field.dataType.simpleString() for field in self.schema().fields}
        return frame.selectExpr(*(f"CAST({quote(name)} AS {kinds[name]}) AS {quote(name)}" for name in frame.columns))

    def _merge(self, change: Change, *, writer: str, load: Load, note: str) -> None:
        spark, view = active(), f"flow_actions_{uuid.uuid4().hex}"
        names = rows_of(change.frame)
        nullable = {field.name: field.nullable for field in self.schema().fields}
        on = " AND ".join(f"t.{quote(key)} {'<=>' if nullable[key] else '='} s.{quote(key)}" for key in change.match)
        sets = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in names if name not in change.match)
        update = f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else ""  # a table of keys has nothing else
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
            # The actions are files that nobody changes: a copy of them would only cost time.
            f"{_CONF}merge.materializeSource": "none",
        }
        change.frame.createOrReplaceTempView(view)
        try:
            with alone(), settings(spark, token):
                spark.sql(statement).collect()
        finally:
            spark.catalog.dropTempView(view)

    def append(self, frame: DataFrame, folder: StageFolder) -> None:
        """Rows of the product's own, without a token; columns may be new."""
        if on_sail():
            folder.keep(_CHANGE, frame)
            native.write(self.folder, local(folder.path / _CHANGE), "append")
            return
        with alone():
            frame.write.format("delta").mode("append").option("mergeSchema", "true").save(self.location)

    def delete(self, condition: str) -> None:
        """Remove rows."""
        if on_sail():
            native.delete(self.folder, condition)
            return
        with alone():
            active().sql(f"DELETE FROM {self.relation} AS t WHERE {condition}").collect()

    def keep_keys_of(self, other: DeltaTable, keys: Sequence[str], folder: StageFolder) -> None:
        """Remove rows whose key the other table does not hold."""
        names = ", ".join(quote(key) for key in keys)
        if on_sail():
            folder.keep(_CHANGE, other.read().selectExpr(*(quote(key) for key in keys)).distinct())
            native.keep_keys(self.folder, local(folder.path / _CHANGE), keys)
            return
        on = " AND ".join(f"t.{quote(key)} <=> s.{quote(key)}" for key in keys)
        with alone():
            active().sql(
                f"MERGE INTO {self.relation} AS t USING (SELECT DISTINCT {names} FROM {other.relation}) AS s ON {on} "
                "WHEN NOT MATCHED BY SOURCE THEN DELETE"
            ).collect()


@contextmanager
def alone() -> Iterator[None]:
    """One Delta write at a time in this process: a token in the session's settings must not reach another table."""
    spark = active()
    with settings(spark, {}), exactly(spark):
        yield


def _columns(schema: StructType) -> str:
    return ", ".join(f"{quote(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def _notes(files: Sequence[LakePath]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Versions and notes of commits, newest first; those in a bucket are fetched some at a time."""
    left = sorted(files, key=lambda file: file.name, reverse=True)
    ahead = 2  # the newest is asked for most often
    while left:
        some, left = left[:ahead], left[ahead:]
        fetched = some[0].bucket.at_once(_note, some) if isinstance(some[0], S3Path) else map(_note, some)
        yield from zip((int(file.stem) for file in some), fetched, strict=True)
        ahead = min(2 * ahead, _READ_AHEAD)


def _note(file: LakePath) -> dict[str, Any]:
    """What one of our loads wrote into this commit; nothing for a commit of somebody else."""
    if isinstance(file, S3Path):
        return _noted_in(file.read_text().splitlines())
    with explained(file), file.open(encoding="utf-8") as lines:
        return _noted_in(lines)


def _noted_in(lines: Iterable[str]) -> dict[str, Any]:
    info = next((line for line in lines if line.startswith('{"commitInfo"')), "{}")
    note = json.loads(info).get("commitInfo", {}).get("userMetadata")
    try:
        kept = json.loads(note or "{}")
    except ValueError:
        return {}
    found = kept.get(MARK) if isinstance(kept, dict) else None
    return found if isinstance(found, dict) else {}


def _noted(writer: str, load: Load) -> str:
    return json.dumps({MARK: {"writer": writer, **_kept(load)}})


def _kept(load: Load) -> dict[str, Any]:
    kept = asdict(load)
    return {name: kept[name] for name in _REMEMBERED if kept[name] is not None}


def _load(kept: Mapping[str, Any]) -> Load:
    return Load.from_dict({**kept, "published": True})


_REMEMBERED = ("run_id", "sequence", "schema", "table", "started_at", "counts", "watermark", "column")
