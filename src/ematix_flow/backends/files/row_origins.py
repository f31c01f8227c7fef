"""The origin of a row of a file, in the `_source` form that broker messages have.

Rows are ordered by the time of their file, its name, and their position in it. Only Parquet numbers its rows; in other
formats the position orders the rows but is not a line number.
"""

from __future__ import annotations

from ematix_flow.messages.decode import source_struct

_PATH, _TIME = "_metadata.file_path", "_metadata.file_modification_time"
# A task reads blocks of at least 1 MiB one after the other, and counts its rows in 33 bits.
_COUNTED = "shiftleft(_metadata.file_block_start DIV 1048576, 33) + (monotonically_increasing_id() & 8589934591)"
_HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


def message_id(file_format: str) -> str:
    """Return SQL of the file and the position in it, as text that sorts like the rows."""
    place = "_metadata.row_index" if file_format == "parquet" else _COUNTED
    return f"concat({_PATH}, ':', lpad(CAST({place} AS STRING), 20, '0'))"


def source_of(file_format: str) -> str:
    """Return SQL of the column `_source` for rows that are read from files."""
    offset = "CAST(NULL AS BIGINT)"
    return source_struct(topic=_PATH, offset=offset, message_id=message_id(file_format), timestamp=_TIME)


def envelope_of(file_format: str, value: str, headers: str | None) -> list[str]:
    """Return SQL of the message columns for each line."""
    return [
        "CAST(NULL AS BINARY) AS key",
        f"{value} AS value",
        f"CAST({headers or 'NULL'} AS {_HEADERS}) AS headers",
        f"{_PATH} AS topic",
        "CAST(NULL AS INT) AS partition",
        "CAST(NULL AS BIGINT) AS offset",
        f"{message_id(file_format)} AS message_id",
        f"{_TIME} AS timestamp",
    ]
