"""Files on S3, fetched one by one and read as files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ematix_flow import ObjectStoreS3Connection
from ematix_flow.declare.table import TableSpec
from tests.harness.base import Row
from tests.harness.buckets import TestBucket
from tests.harness.file_formats import FORMATS
from tests.harness.files import BATCHES, FilesHarness


def open_system(name: str, url: str) -> FilesS3Harness:
    """A prefix of its own."""
    return FilesS3Harness(name, TestBucket.at(url, name))


class FilesS3Harness(FilesHarness):
    """Tables are prefixes; every load is a prefix inside."""

    backend = "files_s3"

    def __init__(self, name: str, bucket: TestBucket) -> None:
        super().__init__(name.replace("-s3", ""), Path("in-a-bucket"))
        self.name = name
        self.bucket = bucket
        self._bucket_connection = ObjectStoreS3Connection(
            name=f"contract_s3_{self.format}", format=self.format, **bucket.fields
        )

    @property
    def connection(self) -> ObjectStoreS3Connection:  # type: ignore[override]
        return self._bucket_connection

    def seed(self, table: TableSpec, rows: Sequence[Row]) -> None:
        """One object that somebody else wrote."""
        known, below = FORMATS[self.format], f"{table.schema}/{table.name}/"
        self.bucket.delete(below)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, f"rows.{known.ending}")
            known.write(file, table, rows)
            self.bucket.put(f"{below}{file.name}", file.read_bytes())

    def raw_rows(self, schema: str, table: str) -> list[Row]:
        """What somebody sees who lists the objects, whatever columns each batch has."""
        known, found = FORMATS[self.format], []
        with tempfile.TemporaryDirectory() as folder:
            for number, key in enumerate(sorted(self.bucket.keys(f"{schema}/{table}/"))):
                if fnmatchcase(key, f"{schema}/{table}/{BATCHES}/[!.]*.{known.ending}*"):
                    file = Path(folder, f"{number}-{key.rpartition('/')[2]}")
                    file.write_bytes(self.bucket.get(key))
                    found += known.read(file)
        names = list(dict.fromkeys(name for row in found for name in row))
        return [{name: row.get(name) for name in names} for row in found]
