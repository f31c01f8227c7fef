"""Source rows for several targets, read from their source once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ematix_flow.families.lake.place import uri
from ematix_flow.families.lake.session import is_sail
from ematix_flow.families.parquet_stage import scratch_dir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def kept(frame: DataFrame, open_until: ExitStack) -> DataFrame:
    """Return the rows persisted for several readers; on Sail, which cannot persist dataframes, written to files."""
    if is_sail(frame.sparkSession):
        where = uri(scratch_dir(open_until) / "rows")
        frame.write.parquet(where)
        return frame.sparkSession.read.schema(frame.schema).parquet(where)
    held = frame.persist()
    open_until.callback(held.unpersist)
    return held
