"""Lakes: Delta tables and folders of files, on this machine or on S3."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar
from urllib.parse import quote

from ematix_flow.declare.connections.base import Connection, FieldRules
from ematix_flow.foundation.secrets import references_in

FORMATS = ("parquet", "csv", "orc", "json_lines")

_COMPRESSIONS = (".gz", ".bz2", ".zst", ".zstd", ".snappy", ".lz4")
_EXTENSIONS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json_lines",
    ".jsonl": "json_lines",
    ".ndjson": "json_lines",
    ".orc": "orc",
}
_S3_FIELDS = ("endpoint", "bucket", "region", "access_key_id", "secret_access_key")
_S3_EXAMPLES = {
    "endpoint": "https://s3.amazonaws.com",
    "bucket": "my-bucket",
    "region": "us-east-1",
    "access_key_id": "${AWS_ACCESS_KEY_ID}",
    "secret_access_key": "${AWS_SECRET_ACCESS_KEY}",
    "format": "parquet",
}


def format_from_path(path: str) -> str | None:
    """Return the file format of a path's extension, ignoring one compression extension; None for any other.

    >>> [format_from_path(path) for path in ("s3://bucket/2026/events.CSV.gz", "logs.ndjson", "notes.txt")]
    ['csv', 'json_lines', None]
    """
    name = PurePosixPath(path.lower())
    if name.suffix in _COMPRESSIONS:
        name = name.with_suffix("")
    return _EXTENSIONS.get(name.suffix)


class FilesConnection(Connection):
    """Folders of files of one format. Not a dataclass, so that each kind has the field in its own order."""

    format: str


def files_format(connection: object) -> str | None:
    """Return the format of a connection to files; None for other systems."""
    return connection.format if isinstance(connection, FilesConnection) else None


@dataclass(frozen=True)
class DeltaLocalConnection(Connection):
    """Delta tables in folders below `path`."""

    path: str = ""

    kind: ClassVar[str] = "delta_local"
    rules: ClassVar[FieldRules] = FieldRules(required=("path",), examples={"path": "data/lake"}, paths=("path",))

    @property
    def dsn(self) -> str:
        return f"delta://{_quoted(self.path)}"

    @property
    def label(self) -> str:
        return f"delta:{self.path}"


@dataclass(frozen=True)
class ObjectStoreLocalConnection(FilesConnection):
    """Folders of Parquet, CSV, ORC or JSON-lines files below `path`."""

    path: str = ""
    format: str = ""

    kind: ClassVar[str] = "object_store_local"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("path", "format"),
        examples={"path": "data/incoming", "format": "parquet"},
        choices={"format": FORMATS},
        paths=("path",),
    )

    @property
    def dsn(self) -> str:
        return f"file://{_quoted(self.path)}?format={self.format}"

    @property
    def label(self) -> str:
        return f"{self.format}:{self.path}"


@dataclass(frozen=True)
class BucketConnection(Connection):
    """A bucket on S3 or on an S3-compatible server."""

    endpoint: str = ""
    bucket: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""

    @property
    def label(self) -> str:
        return self.location

    @property
    def location(self) -> str:
        """Return `s3://bucket/prefix`, without the login."""
        prefix = str(self.fields.get("prefix", "")).strip("/")
        return f"s3://{self.bucket}/{prefix}".rstrip("/")


@dataclass(frozen=True)
class DeltaS3Connection(BucketConnection):
    """Delta tables below a prefix of a bucket."""

    prefix: str = ""

    kind: ClassVar[str] = "delta_s3"
    rules: ClassVar[FieldRules] = FieldRules(
        required=_S3_FIELDS, examples=_S3_EXAMPLES, urls={"endpoint": ("http", "https")}
    )


@dataclass(frozen=True)
class ObjectStoreS3Connection(BucketConnection, FilesConnection):
    """Folders of Parquet, CSV, ORC or JSON-lines files in a bucket."""

    format: str = ""
    prefix: str = ""

    kind: ClassVar[str] = "object_store_s3"
    rules: ClassVar[FieldRules] = FieldRules(
        required=(*_S3_FIELDS, "format"),
        examples=_S3_EXAMPLES,
        choices={"format": FORMATS},
        urls={"endpoint": ("http", "https")},
    )


def _quoted(path: str) -> str:
    return path if references_in(path) else quote(path, safe="/:")
