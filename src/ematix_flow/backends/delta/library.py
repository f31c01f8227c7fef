"""The library delta-rs: it commits to Delta tables without Spark, in a bucket on the condition that nobody else did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ematix_flow.families.lake.place import LakePath
from ematix_flow.families.lake.s3.path import S3Path
from ematix_flow.foundation.errors import LeaseHeld

# Features that a table with plain columns may have; others change what a commit has to say.
_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
_MAPPED = 2  # the version of readers that is the older word for mapped columns
_CONSTRAINTS = "delta.constraints."
_OWN = '"delta.'  # in the JSON of a column that the table computes or checks


def is_addressable(table: LakePath) -> bool:
    """Whether the library takes the path; some signs end the process instead of raising an error."""
    return not any(sign in str(table) for sign in "[]\\^|%")


def can_create(table: LakePath) -> bool:
    """Return whether the library is there and takes a new table at this path; buckets are left to Spark."""
    return isinstance(table, Path) and is_addressable(table) and find_spec("deltalake") is not None


def is_plain(found: Any) -> bool:
    """Whether files may join the table by an entry in its log: no partitions, and nothing that the table does to rows.

    Versions of writers before features had names imply some of them, which the settings and columns then show.
    """
    about, protocol = found.metadata(), found.protocol()
    named = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if about.partition_columns or not named <= _FEATURES or protocol.min_reader_version == _MAPPED:
        return False
    constrained = any(name.startswith(_CONSTRAINTS) for name in about.configuration)
    return not constrained and _OWN not in found.schema().to_json()


def opened(table: LakePath) -> Any:
    """The table as the library sees it."""
    from deltalake import DeltaTable

    return DeltaTable(str(table), storage_options=_login(table))


def _login(table: LakePath) -> dict[str, str] | None:
    if not isinstance(table, S3Path):
        return None
    bucket = table.bucket
    own = {} if bucket.is_amazons else {"AWS_ENDPOINT_URL": bucket.endpoint}
    return own | {
        "AWS_REGION": bucket.region,
        "AWS_ACCESS_KEY_ID": bucket.access_key_id,
        "AWS_SECRET_ACCESS_KEY": bucket.secret_access_key,
        "AWS_ALLOW_HTTP": str(bucket.endpoint.startswith("http:")).lower(),
        "AWS_CONDITIONAL_PUT": "etag",
    }


def footer(file: LakePath) -> Any:
    """What a Parquet file says at its end."""
    import pyarrow.fs
    import pyarrow.parquet as pq

    if not isinstance(file, S3Path):
        return pq.ParquetFile(file).metadata
    bucket = file.bucket
    scheme, _, host = bucket.endpoint.partition("://")
    own = {} if bucket.is_amazons else {"endpoint_override": host, "scheme": scheme}
    store = pyarrow.fs.S3FileSystem(
        access_key=bucket.access_key_id, secret_key=bucket.secret_access_key, region=bucket.region, **own
    )
    return pq.ParquetFile(f"{bucket.name}/{file.key}", filesystem=store).metadata


@contextmanager
def refusing_others(table: LakePath) -> Iterator[None]:
    """Raise LeaseHeld when another writer has committed since the table was opened."""
    from deltalake.exceptions import CommitFailedError

    try:
        yield
    except CommitFailedError as exc:
        raise LeaseHeld(
            f"another writer changed {table.name} meanwhile; nothing was loaded", hint="run it again"
        ) from exc
