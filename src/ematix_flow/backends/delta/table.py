"""One Delta table: where it is, what it holds, and the commits that made it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.delta import native
from ematix_flow.backends.delta.adding import add_files
from ematix_flow.families.lake.change import ACTION, Change, StageFolder, rows_of
from ematix_flow.families.lake.place import explained, uri
from ematix_flow.families.lake.session import active, exactly, on_sail, quote, settings
from ematix_flow.families.lake.state import Load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MARK = "ematix_flow"
_CONF = "spark.databricks.delta."
_CHANGE = "change"
_COMMIT = re.compile(r"\d{20}\.json")


@dataclass(frozen=True)
class DeltaTable:
    """A table by its folder; statements address it as delta.`path`."""

    path: Path

    @property
    def relation(self) -> str:
        """The table in a statement."""
        return f"delta.{quote(self.location)}"

    @property
    def location(self) -> str:
        """The table as the engine must be told."""
        return native.location(self.path) if on_sail() else uri(self.path)

    @property
    def exists(self) -> bool:
        """Whether a Delta table is there."""
        return any((self.path / "_delta_log").glob("*.json"))

    def read(self) -> DataFrame:
        """Every row, of the newest version."""
        if on_sail():
            return native.read(self.path, _columns(self.schema()))
        return active().read.format("delta").load(self.location)

    def schema(self) -> StructType:
        """The columns, with their comments."""
        return native.schema_of(self.path) if on_sail() else self.read().schema

    def layout(self) -> tuple[list[str], int]:
        """The columns of its partitions, and how many files there are."""
        if on_sail():
            return native.layout_of(self.path)
        found = active().sql(f"DESCRIBE DETAIL {self.relation}").select("partitionColumns", "numFiles").collect()[0]
        return list(found["partitionColumns"]), int(found["numFiles"])

    def commits(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Versions with what our own loads wrote into their commits, newest first; read as it is asked for."""
        files = [file for file in (self.path / "_delta_log").glob("*.json") if _COMMIT.fullmatch(file.name)]
        for file in sorted(files, reverse=True):
            yield int(file.stem), _note(file)

    def version(self) -> int:
        """The newest version."""
        return next(self.commits())[0]

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
        if change.how == "merge":
            self._merge(change, writer=writer, load=load, note=note)
        else:
            with alone():
                self._typed(change.frame).write.format("delta").mode(change.how).options(
                    txnAppId=writer, txnVersion=str(load.sequence), userMetadata=note
                ).save(self.location)
        # Delta passes over a token it knows in silence, so its log is asked whose commit this is.
        recent = (kept.get("run_id") for version, kept in self.commits() if version > before)
        return load.run_id in recent

    def _change_on_sail(self, change: Change, *, token: tuple[str, int], note: str, folder: StageFolder) -> bool:
        folder.keep(_CHANGE, change.frame)
        rows = folder.path / _CHANGE
        if change.how == "merge":
            return native.merge(self.path, rows, rows_of(change.frame), change.match, token=token, note=note)
        return native.write(self.path, rows, change.how, token=token, note=note)

    def add(self, files: Sequence[Path], how: str, *, writer: str, load: Load) -> bool:
        """The same with files that are already written."""
        token = (writer, load.sequence)
        return add_files(self.path, files, how=how, token=token, note=_noted(writer, load), run_id=load.run_id)

    def _typed(self, frame: DataFrame) -> DataFrame:
        """The rows in the table's own types, which may be wider than the declared ones."""
        kinds = {field.name: field.dataType.simpleString() for field in self.read().schema.fields}
        return frame.selectExpr(*(f"CAST({quote(name)} AS {kinds[name]}) AS {quote(name)}" for name in frame.columns))

    def _merge(self, change: Change, *, writer: str, load: Load, note: str) -> None:
        spark, view = active(), f"flow_actions_{uuid.uuid4().hex}"
        names = rows_of(change.frame)
        nullable = {field.name: field.nullable for field in self.read().schema.fields}
        on = " AND ".join(f"t.{quote(key)} {'<=>' if nullable[key] else '='} s.{quote(key)}" for key in change.match)
        sets = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in names if name not in change.match)
        into, values = ", ".join(quote(name) for name in names), ", ".join(f"s.{quote(name)}" for name in names)
        statement = (
            f"MERGE INTO {self.relation} AS t USING {view} AS s ON {on} "
            f"WHEN MATCHED AND s.{ACTION} = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET {sets} "
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
            native.write(self.path, folder.path / _CHANGE, "append")
            return
        with alone():
            frame.write.format("delta").mode("append").option("mergeSchema", "true").save(self.location)

    def delete(self, condition: str) -> None:
        """Remove rows."""
        if on_sail():
            native.delete(self.path, condition)
            return
        with alone():
            active().sql(f"DELETE FROM {self.relation} AS t WHERE {condition}").collect()

    def keep_keys_of(self, other: DeltaTable, keys: Sequence[str], folder: StageFolder) -> None:
        """Remove rows whose key the other table does not hold."""
        names = ", ".join(quote(key) for key in keys)
        if on_sail():
            folder.keep(_CHANGE, other.read().selectExpr(*(quote(key) for key in keys)).distinct())
            native.keep_keys(self.path, folder.path / _CHANGE, keys)
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


def _note(file: Path) -> dict[str, Any]:
    """What one of our loads wrote into this commit; nothing for a commit of somebody else."""
    with explained(file), file.open(encoding="utf-8") as lines:
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
