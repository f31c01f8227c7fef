"""Folders of files, read file by file."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ematix_flow import ObjectStoreLocalConnection
from ematix_flow.declare.table import TableSpec
from tests.harness.base import Harness, Row
from tests.harness.file_formats import FORMATS

BATCHES = "flow_batch=*"


def open_system(name: str, folder: Path) -> FilesHarness:
    """A folder of its own."""
    return FilesHarness(name, folder / "files")


class FilesHarness(Harness):
    """Tables are folders; every load is a folder inside."""

    backend = "files"

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.format = {"files-jsonl": "json_lines"}.get(name, name.removeprefix("files-"))
        self._connection = ObjectStoreLocalConnection(
            name=f"contract_{self.format}", path=str(root), format=self.format
        )

    @property
    def connection(self) -> ObjectStoreLocalConnection:
        return self._connection

    def seed(self, table: TableSpec, rows: Sequence[Row]) -> None:
        """One file that somebody else wrote."""
        folder = self.root / table.schema / table.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        known = FORMATS[self.format]
        known.write(folder / f"rows.{known.ending}", table, rows)

    def raw_rows(self, schema: str, table: str) -> list[Row]:
        """What is published, whatever columns each batch has."""
        known = FORMATS[self.format]
        files = sorted((self.root / schema / table).glob(f"{BATCHES}/[!.]*.{known.ending}*"))
        found = [row for file in files for row in known.read(file)]
        names = list(dict.fromkeys(name for row in found for name in row))
        return [{name: row.get(name) for name in names} for row in found]

    def rows(self, table: TableSpec) -> list[Row]:
        kinds = {column.name: column.type.kind for column in table.columns}
        texts = [
            {name: _typed(value, kinds.get(name)) for name, value in row.items()}
            for row in self.raw_rows(table.schema, table.name)
        ]
        return self.canonical_rows(table, texts)


def _typed(value: Any, kind: str | None) -> Any:
    """What a format without that type keeps as text."""
    if not isinstance(value, str):
        return value
    if kind in ("small_int", "integer", "big_int"):
        return int(value)
    if kind in ("float", "double"):
        return float(value)
    if kind == "boolean":
        return {"true": True, "false": False}[value]
    if kind == "bytes":
        return base64.b64decode(value)
    return value
