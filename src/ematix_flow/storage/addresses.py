"""Addresses of checkpoint locations: a folder, or a prefix of a bucket whose credentials are registered."""

from __future__ import annotations

from pathlib import Path

from ematix_flow.foundation.errors import ConfigError
from ematix_flow.storage.paths import LakePath
from ematix_flow.storage.s3_bucket import S3Bucket
from ematix_flow.storage.s3_path import S3Path

_SCHEMES = ("s3", "s3a")
_known: dict[str, S3Bucket] = {}


def bucket_in(address: str) -> str | None:
    """Return the bucket of an address, None for a folder.

    >>> bucket_in("s3://shop/checkpoints/orders"), bucket_in("file:///var/flow"), bucket_in("streams")
    ('shop', None, None)
    """
    scheme, separator, rest = address.partition("://")
    if not separator or scheme == "file":
        return None
    name = rest.partition("/")[0]
    if scheme not in _SCHEMES or not name:
        raise ConfigError(
            f"a stream cannot keep its checkpoint at {address!r}", hint="name a folder, or s3://bucket/prefix"
        )
    return name


def register_bucket(bucket: S3Bucket) -> None:
    """Register a bucket, so that `path_of_address` can resolve addresses in it."""
    _known[bucket.name] = bucket


def path_of_address(address: str) -> LakePath:
    """Return the path of an address; raise `ConfigError` if its bucket is not registered."""
    name = bucket_in(address)
    if name is None:
        return Path(address.removeprefix("file://").removeprefix("file:")).expanduser().absolute()
    if name not in _known:
        raise ConfigError(
            f"no connection has the login of the bucket {name!r}, where a stream keeps its checkpoint",
            hint="declare a connection of kind delta_s3 or object_store_s3 with that bucket",
        )
    return S3Path(_known[name], address.partition("://")[2].partition("/")[2].strip("/"))
