"""Single values as Arrow without pyarrow's conversion, whose first call imports pandas (slower than a tiny load)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from ematix_flow.foundation.lazy_imports import pa

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Plain = int | str | datetime


def single_value(value: Plain) -> Any:
    """Return an array of this one value: int64, string, or timestamp[us] in UTC.

    >>> single_value(7).to_pylist(), single_value("é").to_pylist(), str(single_value(datetime(2026, 1, 31)).type)
    ([7], ['é'], 'timestamp[us, tz=UTC]')
    """
    if isinstance(value, str):
        text = value.encode()
        return pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, len(text))), pa.py_buffer(text)]
        )
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        number = (moment - _EPOCH) // timedelta(microseconds=1)
        return _number(number).view(pa.timestamp("us", "UTC"))
    return _number(value)


def repeated_value(value: Plain, kind: Any, times: int) -> Any:
    """Return an array of the value, repeated `times` times, in the type `kind`."""
    return pa.repeat(single_value(value).cast(kind)[0], times)


def row_batch(values: Mapping[str, Plain]) -> Any:
    """Return a batch of one row.

    >>> row_batch({"file": "part-1", "rows": 3}).to_pylist()
    [{'file': 'part-1', 'rows': 3}]
    """
    return pa.RecordBatch.from_arrays([single_value(value) for value in values.values()], names=list(values))


def _number(value: int) -> Any:
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("<q", value))])
