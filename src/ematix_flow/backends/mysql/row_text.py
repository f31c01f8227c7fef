"""Renders Arrow rows as text for LOAD DATA and INSERT … VALUES: quoted cells, NULL as a bare word, binary as hex."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ematix_flow.declare.types import ColumnType
from ematix_flow.foundation.errors import BadValue
from ematix_flow.foundation.lazy_imports import pa, pc

_ESCAPES = (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\0", "\\0"))


def rows_as_text(batch: Any, columns: list[tuple[str, ColumnType]], *, begin: str, end: str, hex_mark: str) -> Any:
    """Return one text per row: `begin`, cells joined by commas, `end`."""
    texts = pa.large_string()
    cells = [
        _cell(batch.column(index), name, column_type, hex_mark=hex_mark)
        for index, (name, column_type) in enumerate(columns)
    ]
    joined = pc.binary_join_element_wise(*cells, pa.scalar(",", texts))
    return pc.binary_join_element_wise(pa.scalar(begin, texts), joined, pa.scalar(end, texts), pa.scalar("", texts))


def _cell(array: Any, name: str, column_type: ColumnType, *, hex_mark: str) -> Any:
    texts = pa.large_string()
    kind = column_type.kind
    if kind in ("float", "double"):
        array = array.cast(pa.float64())  # the shortest text of a float32 may exceed the largest FLOAT
        if pc.any(pc.invert(pc.is_finite(array))).as_py():
            raise BadValue(
                f"{name} has a value that is NaN or infinite, which MySQL cannot store; nothing was loaded",
                hint="replace it in the source, for example by NULL",
            )
    elif kind == "boolean":
        array = array.cast(pa.int8())
    elif kind == "timestamp_tz":
        array = array.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    text = array.cast(texts)
    if kind in ("text", "string", "json", "jsonb"):
        for character, escaped in _ESCAPES:
            text = pc.replace_substring(text, character, escaped)
    before = pa.scalar(f"{hex_mark}'" if kind == "bytes" else "'", texts)
    quoted = pc.binary_join_element_wise(before, text, pa.scalar("'", texts), pa.scalar("", texts))
    return pc.fill_null(quoted, pa.scalar("NULL", texts))


def chunks(rows: Any, largest: int) -> Iterator[memoryview]:
    """Yield the bytes of the texts in chunks of at most `largest` bytes, or of one row that is longer."""
    whole = _bytes_of(rows)
    if len(whole) <= largest or len(rows) < 2:
        yield whole
        return
    middle = len(rows) // 2
    yield from chunks(rows.slice(0, middle), largest)
    yield from chunks(rows.slice(middle), largest)


def _bytes_of(rows: Any) -> memoryview:
    _, offsets, data = rows.buffers()
    edges = memoryview(offsets).cast("q")
    return (
        memoryview(data)[edges[rows.offset] : edges[rows.offset + len(rows)]] if data is not None else memoryview(b"")
    )
