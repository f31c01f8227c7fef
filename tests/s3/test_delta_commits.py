"""Files that become part of a Delta table in a bucket: each commit on the condition that nobody took its version."""

from __future__ import annotations

import io
import threading
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Other
from deltalake import write_deltalake

from ematix_flow import DeltaS3Connection
from ematix_flow.backends.delta.add_files import can_add_typed
from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.families.lake.state import LakeLoad
from ematix_flow.storage.paths import LakeRoot
from tests.harness.buckets import TestBucket
from tests.services.object_stores import PLACE


@pytest.fixture
def there(s3_url: str) -> TestBucket:
    return TestBucket.at(s3_url, "commits")


def add(place: LakeRoot, there: TestBucket, number: int, *, writer: str, sequence: int, how: str = "append") -> bool:
    """One staged file, made part of the table."""
    body, run_id = io.BytesIO(), uuid.uuid4().hex
    pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), body)
    there.put(f"_ematix_flow/stage/{run_id}/part-0.parquet", body.getvalue())
    table = DeltaTable(place.table("raw", "both"))
    files = [place.state("stage", run_id) / "part-0.parquet"]
    return table.add(files, how, writer=writer, load=LakeLoad(run_id, sequence, "raw", "both"))


def test_writers_side_by_side_lose_no_commit_and_a_token_counts_once(there: TestBucket) -> None:
    place = LakeRoot.of(DeltaS3Connection("lake", **there.fields))
    where = f"s3://{PLACE}/{there.prefix}/raw/both"
    write_deltalake(where, pa.table({"id": [0]}), storage_options=there.storage_options)
    assert can_add_typed(place.table("raw", "both"), ["id"])

    def ours(writer: int) -> None:
        for number in range(1, 6):
            assert add(place, there, writer * 1000 + number, writer=f"w{writer}", sequence=number)

    def others() -> None:
        for number in range(1, 11):
            rows = pa.table({"id": [9000 + number]})
            write_deltalake(where, rows, mode="append", storage_options=there.storage_options)

    threads = [threading.Thread(target=ours, args=(writer,)) for writer in (1, 2)]
    threads.append(threading.Thread(target=others))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {0, *(w * 1000 + n for w in (1, 2) for n in range(1, 6)), *range(9001, 9011)}
    found = Other(where, storage_options=there.storage_options)
    assert sorted(found.to_pyarrow_table().column("id").to_pylist()) == sorted(expected)
    assert found.version() == 20
    assert not add(place, there, 77, writer="w1", sequence=5)
    assert add(place, there, 88, writer="w1", sequence=6, how="overwrite")
    found.update_incremental()
    assert found.to_pyarrow_table().column("id").to_pylist() == [88]
    assert DeltaTable(place.table("raw", "both")).last_load_of("w1").sequence == 6  # type: ignore[union-attr]
