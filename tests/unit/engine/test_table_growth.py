"""A table that gets a column while a stream runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import types as t

from ematix_flow import CDC, ObjectStoreLocalConnection, SQLiteConnection, ematix
from ematix_flow.declare.streams.spec import TableTarget
from ematix_flow.streaming.runtime.table_writer import TableWriter


@pytest.mark.parametrize("options", [{"cdc": CDC()}, {"on_drift": "warn"}], ids=["changes", "rows"])
def test_a_column_that_is_added_meanwhile_is_taken(tmp_path: Path, options: dict[str, object]) -> None:
    path = tmp_path / "shop.db"

    @ematix.streaming_pipeline(
        name="grown", source=ObjectStoreLocalConnection("in", path=str(tmp_path), format="json_lines"), source_query="in",
        target=SQLiteConnection("out", path=str(path)), target_table=("main", "t"), target_primary_key=["id"], **options,
    )  # fmt: skip
    def grown() -> None:
        """Rows with a column that the table does not have."""

    def changed(statement: str) -> None:
        with closing(sqlite3.connect(path)) as client:
            client.execute(statement)
            client.commit()

    changed("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT)")
    (target,) = grown.spec.targets
    assert isinstance(target, TableTarget)
    writer = TableWriter(grown.spec, target, "1")
    rows = t.StructType([t.StructField(name, t.StringType()) for name in ("id", "name", "new")])
    assert writer.shape_for(rows).declared.column_names == ("id", "name")
    assert writer.shape_for(rows).declared.column_names == ("id", "name")
    changed("ALTER TABLE t ADD COLUMN new TEXT")
    assert writer.shape_for(rows).declared.column_names == ("id", "name", "new")
