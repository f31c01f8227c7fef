"""Loads on a warm engine whose server answers before it has Spark's observed aggregates, as it does on a busy machine.

A Spark Connect server waits a tenth of a second for Spark's listeners and then answers without the aggregates; the client's
`Observation` is empty. Here it is always empty.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json
from typing import Annotated
from pyspark.sql.connect.observation import Observation
from ematix_flow import BigInt, DeltaLocalConnection, ObjectStoreLocalConnection, Text, ematix, pk

Observation.get = property(lambda self: {})
lake = DeltaLocalConnection(name="lake", path="lake")
folder = ObjectStoreLocalConnection(name="folder", path="folder", format="parquet")
first = [(1, "Ana"), (2, "Bo"), (3, "Cy")]
second = [(2, "Bea"), (3, "Cy"), (4, "Di")]
rows = first

def people(name, connection, mode):
    table = ematix.table(schema="raw", name=name)(type(name, (), {"__annotations__": {"id": Annotated[BigInt, pk()], "name": Text}}))

    @ematix.pipeline(name=name, target=table, target_connection=connection, mode=mode)
    def load(spark):
        return spark.createDataFrame(rows, "id BIGINT, name STRING").repartition(2)

    return load

loads = [people("appended", folder, "append"), people("merged", lake, "merge"), people("history", lake, "scd2")]
results = []
for rows in (first, second):
    for load in loads:
        result = load.sync()
        results.append([result.cost.session["kind"], result.rows_inserted, result.rows_updated])
print(json.dumps(results))
"""


@pytest.mark.slow
def test_loads_count_their_rows_although_the_server_answered_without_them(
    warm_engine: dict[str, str], tmp_path: Path
) -> None:
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, **warm_engine, "EMATIX_FLOW_LOGS_DIR": str(tmp_path), "EMATIX_FLOW_RUN_LOG_PATH": str(tmp_path / "log.db")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    appended, merged, history, *later = json.loads(done.stdout.splitlines()[-1])
    assert [appended[:2], merged[:2], history[:2]] == [["warm", 3]] * 3
    assert [later[0][1], later[1][1:]] == [3, [1, 1]]
    assert sorted(pq.read_table(tmp_path / "folder" / "raw" / "appended").column("id").to_pylist()) == [
        1,
        2,
        2,
        3,
        3,
        4,
    ]
    found = DeltaTable(str(tmp_path / "lake" / "raw" / "merged")).to_pyarrow_table(columns=["id", "name"]).to_pylist()
    assert {row["id"]: row["name"] for row in found} == {1: "Ana", 2: "Bea", 3: "Cy", 4: "Di"}
    versions = (
        DeltaTable(str(tmp_path / "lake" / "raw" / "history")).to_pyarrow_table(columns=["id", "name"]).to_pylist()
    )
    assert sorted((row["id"], row["name"]) for row in versions) == [
        (1, "Ana"),
        (2, "Bea"),
        (2, "Bo"),
        (3, "Cy"),
        (4, "Di"),
    ]
