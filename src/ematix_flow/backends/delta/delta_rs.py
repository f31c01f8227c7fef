"""Access to delta-rs, which commits to Delta tables without Spark; in a bucket by conditional writes of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ematix_flow.foundation.errors import LeaseHeld
from ematix_flow.foundation.lazy_imports import pq
from ematix_flow.foundation.redact import mask
from ematix_flow.storage.paths import LakePath
from ematix_flow.storage.s3_path import S3Path

# Features that a table with plain columns may have; others require more in a commit.
_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
_MAPPED = 2  # the reader version that stands for column mapping in protocols without named features
_CONSTRAINTS = "delta.constraints."
_OWN = '"delta.'  # occurs in the JSON of generated columns and columns with invariants


def is_addressable(table: LakePath) -> bool:
    """Return whether the library accepts the path; some characters crash the process instead of raising an error."""
    return not any(sign in str(table) for sign in "[]\\^|%")


def can_create(table: LakePath) -> bool:
    """Return whether the library is installed and can create a table at this path; buckets are left to Spark."""
    return isinstance(table, Path) and is_addressable(table) and find_spec("deltalake") is not None


def is_plain(delta_table: Any) -> bool:
    """Return whether files may be added by a log entry alone: no partitions, constraints or computed columns.

    Protocol versions older than named features imply some of them; the table's settings and columns then show these.
    """
    about, protocol = delta_table.metadata(), delta_table.protocol()
    named = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if about.partition_columns or not named <= _FEATURES or protocol.min_reader_version == _MAPPED:
        return False
    constrained = any(name.startswith(_CONSTRAINTS) for name in about.configuration)
    return not constrained and _OWN not in delta_table.schema().to_json()


def open_table(table: LakePath) -> Any:
    """Return the table, opened by the library at its newest version."""
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


def parquet_footer(file: LakePath) -> Any:
    """Return the metadata from the footer of a Parquet file."""
    import pyarrow.fs

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
def refuse_concurrent_commits(table: LakePath) -> Iterator[None]:
    """Raise LeaseHeld when another writer has committed since the table was opened."""
    from deltalake.exceptions import CommitFailedError

    try:
        yield
    except CommitFailedError as exc:
        raise LeaseHeld(
            f"another writer changed {table.name} meanwhile; nothing was loaded", hint="run it again"
        ) from exc


@contextmanager
def left_to_spark(table: LakePath) -> Iterator[None]:
    """End the block without an error where the library is not installed or does not support the table."""
    try:
        yield
    except ImportError:
        return
    except Exception as exc:
        logging.getLogger(__name__).debug("%s is left to Spark: %s", table, mask(str(exc)))
