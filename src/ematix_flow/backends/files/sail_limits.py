"""Limits of the Sail engine with files."""

from __future__ import annotations

from typing import Any

from ematix_flow.backends.files.layout import BATCH
from ematix_flow.dataplane.spark_session import is_active_session_sail
from ematix_flow.dataplane.task_errors import raise_bad_value_sql
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.types import Column
from ematix_flow.foundation.errors import Unsupported
from ematix_flow.sql.spark_text import quote
from ematix_flow.storage.paths import LakePath, require_local

_FORMATS = {
    "orc": "it has no ORC",
    "csv": "it takes an empty text in CSV for NULL",
}
_PARTITIONS = "it gives NULL and an empty text one folder, and takes the names of all folders for text"


def sail_limitation(connection: Any, load: LoadSpec | None) -> str | None:
    """Return why Sail cannot run a read or a load of this connection, None where it can."""
    known = _FORMATS.get(connection.resolved().format)
    return known or (_PARTITIONS if load is not None and load.write_options.get("partition_by") else None)


def refuse_layout(file_format: str, partition_by: tuple[str, ...]) -> None:
    """Raise Unsupported on Sail for files of this kind."""
    reason = _FORMATS.get(file_format) or (_PARTITIONS if partition_by else None)
    if reason is not None and is_active_session_sail():
        raise _refusal(reason)


def refuse_external(file_format: str, path: LakePath) -> None:
    """Raise Unsupported on Sail for external files of this kind."""
    refuse_layout(file_format, ())
    if is_active_session_sail() and require_local(path).is_dir():
        named = (item.name for item in require_local(path).rglob("*=*") if item.is_dir())
        if any(not name.startswith(f"{BATCH}=") for name in named):
            raise _refusal(_PARTITIONS)


def finite(column: Column) -> str:
    """Return SQL of the column that raises on NaN and infinity, which Sail would write as null into JSON."""
    name = quote(column.name)
    refused = raise_bad_value_sql(
        name,
        before=f"column {column.name!r}: engine sail cannot write ",
        after=" into JSON; nothing was loaded",
        hint='use engine="local", or write to Parquet',
    )
    return f"CASE WHEN isnan({name}) OR abs({name}) = double('Infinity') THEN {refused} ELSE {name} END"


def _refusal(reason: str) -> Unsupported:
    return Unsupported(f'engine="sail" is not for these files: {reason}', hint='use engine="local"')
