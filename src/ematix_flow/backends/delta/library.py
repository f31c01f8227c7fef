"""The library delta-rs: it commits to Delta tables without Spark, in a bucket on the condition that nobody else did."""

from __future__ import annotations

from typing import Any

from ematix_flow.families.lake.place import LakePath
from ematix_flow.families.lake.s3.path import S3Path


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
