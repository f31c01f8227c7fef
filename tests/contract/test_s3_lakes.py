"""Lakes in buckets: writers of one table side by side, runs that died among copies, what others see, and logins."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pytest
from deltalake import DeltaTable, write_deltalake

from ematix_flow import BigInt, DeltaS3Connection, Numeric, ObjectStoreS3Connection, Text
from ematix_flow.backends import delta_s3, files_s3
from ematix_flow.backends.files.commit_markers import CommitMarkers
from ematix_flow.contract.ddl import AddColumn, ChangeType, ColumnState
from ematix_flow.contract.shape import shape_of
from ematix_flow.declare.strategy import Append, Truncate
from ematix_flow.engine.session.session import log_file
from ematix_flow.foundation.errors import ConfigError, LeaseLost, PermissionDenied
from ematix_flow.storage.lease import Lease
from ematix_flow.storage.paths import LakeRoot
from tests.contract import native
from tests.contract.lakes import Lake, merging, people, person
from tests.contract.loading import columns, declare
from tests.full import IS_FULL
from tests.harness.buckets import REGION, TestBucket
from tests.services.object_stores import PLACE, S3_ACCESS

pytestmark = pytest.mark.skipif(native.is_native(), reason="the native engine has no way into a bucket here")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("_loaded_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("_batch_id", pa.string(), nullable=False),
    ]
)
FORMATS = ("parquet", *(pytest.param(name, marks=pytest.mark.full) for name in ("csv", "orc", "json_lines")))


@pytest.fixture
def there(s3_url: str) -> TestBucket:
    return TestBucket.at(s3_url, "lakes")


@pytest.fixture
def delta(there: TestBucket, spark: Any) -> Lake:
    connection = DeltaS3Connection("lake", **there.fields)
    return Lake(delta_s3.backend, connection, LakeRoot.of(connection).root, spark)


@pytest.fixture(params=FORMATS)
def files(there: TestBucket, spark: Any, request: pytest.FixtureRequest) -> Lake:
    connection = ObjectStoreS3Connection("lake", format=request.param, **there.fields)
    return Lake(files_s3.backend, connection, LakeRoot.of(connection).root, spark)


def test_two_writers_of_one_delta_table_lose_no_commit(delta: Lake, there: TestBucket) -> None:
    """Spark through the product, and another library that knows nothing of it, append at the same time."""
    table = declare({"id": BigInt}, schema="raw", name="both")
    delta.load(table, Append(), [{"id": 0}])
    where = f"s3://{PLACE}/{there.prefix}/raw/both"
    written: list[int] = []
    over, loads = threading.Event(), 5 if IS_FULL else 2

    def other() -> None:
        number = 1_000_000
        while not over.is_set():
            row = {"id": number, "_loaded_at": datetime.now(timezone.utc), "_batch_id": "somebody else's"}
            rows = pa.Table.from_pylist([row], schema=SCHEMA)
            write_deltalake(where, rows, mode="append", storage_options=there.storage_options)
            written.append(number)
            number += 1

    thread = threading.Thread(target=other)
    thread.start()
    try:
        for number in range(1, loads + 1):
            delta.load(table, Append(), [{"id": number}])
    finally:
        over.set()
        thread.join()
    found = DeltaTable(where, storage_options=there.storage_options).to_pyarrow_table(columns=["id"])
    assert len(written) > 3
    assert sorted(found.column("id").to_pylist()) == sorted([*range(loads + 1), *written])


def test_a_load_into_a_delta_table_on_s3_is_one_commit_with_its_token(delta: Lake) -> None:
    table = people()
    delta.load(table, Append(), [person(1, "a"), person(2, "b")])
    result = delta.load(table, merging(), [person(2, "B"), person(3, "c")])
    assert (result.counts.inserted, result.counts.updated) == (1, 1)
    assert delta.rows(table, "id", "name") == [(1, "a"), (2, "B"), (3, "c")]
    log = delta.root / table.__schema__ / table.__tablename__ / "_delta_log"
    tokens = [
        json.loads(line)["txn"]["version"]
        for file in sorted(log.glob("*.json"))
        for line in file.read_text().splitlines()
        if line.startswith('{"txn"')
    ]
    assert tokens == [1, 2]


def test_a_run_that_died_among_its_copies_is_forgotten(files: Lake, there: TestBucket, monkeypatch: Any) -> None:
    table = people()
    files.load(table, Append(), [person(1, "a")])
    dead = files.open(table, Append())
    monkeypatch.setattr(CommitMarkers, "_commit", _die)
    with pytest.raises(_Died):
        dead.publish([person(2, "b")])
    monkeypatch.undo()
    folder = f"{table.__schema__}/{table.__tablename__}/flow_batch={dead.job.run_id}/"
    assert there.keys(folder)
    assert files.rows(table, "id") == [(1,)]
    alive = files.open(table, Append())
    assert (alive.opening.recovered, alive.opening.commit.sequence) == (None, 2)
    assert not there.keys(folder)
    alive.run([person(2, "b")])
    assert files.rows(table, "id") == [(1,), (2,)]


def test_a_run_that_died_before_the_old_batches_were_gone_is_finished(files: Lake, monkeypatch: Any) -> None:
    table = people()
    for number in range(3):
        files.load(table, Append(), [person(number, "old")])
    dead = files.open(table, Truncate())
    monkeypatch.setattr(CommitMarkers, "finish", _die)
    with pytest.raises(_Died):
        dead.publish([person(9, "new")])
    monkeypatch.undo()
    assert files.rows(table, "id") == [(9,)]
    alive = files.open(table, Append())
    assert alive.opening.recovered is not None
    assert alive.opening.recovered.counts.deleted == 3
    alive.run([person(10, "more")])
    assert files.rows(table, "id") == [(10,), (9,)]


class _Died(BaseException):
    """As kill -9: nothing that follows happens."""


def _die(*_: Any, **__: Any) -> None:
    raise _Died


def test_others_who_list_the_objects_find_the_rows(files: Lake, there: TestBucket) -> None:
    table = people()
    files.load(table, Append(), [person(1, "a"), person(2, "b")])
    files.load(table, Append(), [person(3, "c")])
    folder = f"{table.__schema__}/{table.__tablename__}"
    assert {key.rpartition("/")[2] for key in there.keys(f"{folder}/_commits/")} == {
        key.split("/")[2] for key in there.keys(f"{folder}/flow_batch=")
    }
    if files.connection.format != "parquet":
        return
    store = pyarrow.fs.S3FileSystem(
        access_key=S3_ACCESS["AWS_ACCESS_KEY_ID"], secret_key=S3_ACCESS["AWS_SECRET_ACCESS_KEY"], region=REGION,
        endpoint_override=there.url, scheme="http",
    )  # fmt: skip
    found = pyarrow.dataset.dataset(
        f"{PLACE}/{there.prefix}/{folder}", filesystem=store, format="parquet", partitioning="hive"
    )
    assert sorted(found.to_table(columns=["id"]).column("id").to_pylist()) == [1, 2, 3]


def test_a_wider_type_is_written_anew_and_published_with_the_load(files: Lake) -> None:
    narrow = declare({"id": BigInt, "word": Text | None})
    names = {"schema": narrow.__schema__, "name": narrow.__tablename__}
    files.load(narrow, Append(), [{"id": 1, "word": "a"}])
    files.load(narrow, Append(), [{"id": 2, "word": "b"}], writer="other")
    wide = declare({"id": Numeric[30, 2], "word": Text | None, "more": Text | None}, **names)
    shape = shape_of(wide.spec(), Append())
    before = narrow.spec().column("id")
    steps = [
        ChangeType(wide.spec().column("id"), ColumnState("id", str(before.type), before.type, before.nullable)),
        AddColumn(wide.spec().column("more")),
    ]
    files.backend.ddl(files.connection).apply(shape, steps)  # type: ignore[misc]
    files.load(wide, Append(), [{"id": Decimal(3), "word": "c", "more": "m"}])
    assert [int(row[0]) for row in files.rows(wide, "id")] == [1, 2, 3]
    again = files.open(wide, Append(), writer="other")
    assert again.opening.commit.sequence == 2
    again.run([{"id": Decimal(4), "word": "d", "more": None}])
    assert columns(files.query(f"SELECT word, more FROM {wide.spec().qualified}"), ("word", "more")) == [
        ("a", None), ("b", None), ("c", "m"), ("d", None),
    ]  # fmt: skip


def test_a_lock_that_was_lost_ends_a_load_before_its_commit(delta: Lake, monkeypatch: Any) -> None:
    table = people()
    delta.load(table, Append(), [person(1, "a")])
    load = delta.open(table, Append())
    stage = load.stage([person(2, "b")])
    lock, check = LakeRoot.of(delta.connection).state("locks", table.spec().qualified), Lease.check

    def taken_after_a_silence(lease: Lease) -> None:
        lock.write_text('{"owner": "another run"}')  # type: ignore[call-arg]
        lease._renewed_at = float("-inf")
        check(lease)

    monkeypatch.setattr(Lease, "check", taken_after_a_silence)
    with pytest.raises(LeaseLost):
        load.sink.publish(load.job, stage, load.opening)
    monkeypatch.undo()
    assert delta.rows(table, "id") == [(1,)]


@pytest.fixture
def second_bucket(there: TestBucket) -> str:
    name = f"flow-tests-{there.prefix}"
    there.client.create_bucket(Bucket=name)
    return name


def test_two_logins_work_in_one_session_and_none_is_in_its_log(
    delta: Lake, there: TestBucket, second_bucket: str
) -> None:
    table = declare({"id": BigInt}, schema="raw", name="t")
    delta.load(table, Append(), [{"id": 1}])
    wrong = {**there.fields, "bucket": second_bucket, "secret_access_key": "a-secret-that-is-not-known"}
    refused = Lake(delta_s3.backend, DeltaS3Connection("other", **wrong), delta.root, delta.spark)
    with pytest.raises(PermissionDenied, match="refused"):
        refused.load(table, Append(), [{"id": 2}])
    assert delta.rows(table, "id") == [(1,)]
    twice = {**there.fields, "secret_access_key": "another-secret-of-the-same-bucket"}
    with pytest.raises(ConfigError, match="by two logins or at two endpoints"):
        delta_s3.backend.batch_source(DeltaS3Connection("twice", **twice))  # type: ignore[misc]
    said = log_file().read_text(encoding="utf-8", errors="replace")
    for secret in (S3_ACCESS["AWS_SECRET_ACCESS_KEY"], "a-secret-that-is-not-known"):
        assert secret not in said
    shown = delta.spark.sql("SET -v").collect()
    assert not [row for row in shown if S3_ACCESS["AWS_SECRET_ACCESS_KEY"] in str(row)]
