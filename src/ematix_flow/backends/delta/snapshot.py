"""Plain Delta tables of this machine as their log describes them: read without a Spark job, and once per version.

Spark finds the files of a table by several jobs over its log. A table without features of its own says the same to the
library delta-rs in a few milliseconds; what is small enough is then read, and written anew, as plain Parquet.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.delta.adding import is_addressable
from ematix_flow.families.lake.place import LakePath, uri
from ematix_flow.families.lake.session import active, on_sail
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
_PROPERTIES = {"delta.logRetentionDuration", "delta.deletedFileRetentionDuration", "delta.checkpointInterval"}
"""Those that change nothing about how rows are read and written."""
_SMALL_BYTES = 8 * 1024 * 1024
_SMALL_FILES = 64
_kept: dict[Path, Snapshot] = {}
_MOST_KEPT = 64


@dataclass(frozen=True)
class Snapshot:
    """One version of a table: its columns as JSON, its files, and their rows where the log counts them."""

    version: int
    columns: str
    files: tuple[str, ...]
    size: int
    rows: int | None

    @property
    def schema(self) -> StructType:
        """The columns, with their comments."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.columns))

    @property
    def is_small(self) -> bool:
        """Whether the whole table may be read and written by one task."""
        return self.size <= _SMALL_BYTES and len(self.files) <= _SMALL_FILES

    def read(self) -> DataFrame:
        """Return the rows as one partition, so that nothing has to be exchanged to compare them."""
        spark, columns = active(), self.schema
        if not self.files:
            return spark.createDataFrame([], columns).coalesce(1)
        return spark.read.schema(columns).parquet(*(uri(Path(file)) for file in self.files)).coalesce(1)

    def values(self, names: Sequence[str]) -> Any:
        """Return these columns of all rows as an Arrow table; read here, so only of a small table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pa.concat_tables([pq.ParquetFile(file).read(list(names)) for file in self.files])


def snapshot_of(table: LakePath, version: int) -> Snapshot | None:
    """Return the table as of its newest version; None where only Spark reads it right."""
    if not isinstance(table, Path) or on_sail() or not is_addressable(table):
        return None
    known = _kept.get(table)
    if known is not None and known.version == version:
        return known
    found = _opened(table)
    if found is None:
        _kept.pop(table, None)
        return None
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[table] = found
    return found


def _opened(table: Path) -> Snapshot | None:
    try:
        from deltalake import DeltaTable

        found = DeltaTable(str(table))
        about = found.metadata()
        if about.partition_columns or not _is_plain(found.protocol(), about.configuration):
            return None
        return _described(found)
    except ImportError:
        return None
    except Exception as exc:  # a table that this library does not understand is Spark's
        logging.getLogger(__name__).debug("%s is left to Spark: %s", table, mask(str(exc)))
        return None


def _is_plain(protocol: Any, properties: Any) -> bool:
    """Whether rows are in files as they are; the older versions of the protocol have features without a name."""
    named = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    is_older = protocol.min_reader_version <= 1 and protocol.min_writer_version <= 2
    is_named = protocol.min_reader_version == 3 and protocol.min_writer_version == 7
    own = {name for name in properties or {} if name.startswith("delta.")}
    return (is_older or is_named) and named <= _FEATURES and own <= _PROPERTIES


def _described(found: Any) -> Snapshot:
    import pyarrow as pa

    files = pa.table(found.get_add_actions())
    counts = files.column("num_records").to_pylist() if "num_records" in files.column_names else [None] * len(files)
    return Snapshot(
        version=found.version(),
        columns=found.schema().to_json(),
        files=tuple(sorted(found.file_uris())),
        size=sum(files.column("size_bytes").to_pylist()),
        rows=None if None in counts else sum(counts),
    )
