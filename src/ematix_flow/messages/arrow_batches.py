"""Payloads of single messages as Arrow batches and back, without Spark."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ematix_flow.foundation.errors import BadValue, MissingColumn
from ematix_flow.foundation.lazy_imports import pa
from ematix_flow.foundation.redact import mask

_RAW = 'read them with payload_format="raw_bytes" to see what they hold'


def batch_from_json(payloads: Sequence[bytes | None], places: Sequence[str]) -> Any:
    """Return a batch of one row per message; a message without a payload becomes a row of NULLs.

    `places` are the messages' positions, for error messages.
    """
    import pyarrow.json

    text = b"\n".join(_line(payload, place) for payload, place in zip(payloads, places, strict=True)) + b"\n"
    # One block: column types are inferred from all values, and a message must not be longer than a block.
    reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    try:
        table = pyarrow.json.read_json(pa.BufferReader(text), read_options=reading)
    except pa.ArrowInvalid as exc:
        _refuse_invalid_payload(payloads, places)
        raise BadValue(f"the messages do not make one table: {mask(str(exc))}", hint=_RAW) from exc
    if table.num_columns and table.num_rows != len(payloads):
        _refuse_invalid_payload(payloads, places)
    return _one_batch(table)


def batch_from_rows(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return the rows as one batch; a column that a row lacks is NULL there."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        return pa.RecordBatch.from_arrays([pa.array([row.get(name) for row in rows]) for name in names], names=names)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as exc:
        raise BadValue(f"the messages do not make one table: {mask(str(exc))}", hint=_RAW) from exc


def batch_to_json(batch: Any) -> Iterator[bytes]:
    """Yield one JSON object per row."""
    for row in batch.to_pylist():
        yield json.dumps(row, default=_json_value, ensure_ascii=False, separators=(",", ":")).encode()


def raw_columns(batch: Any) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return keys and values of a batch of bytes, which must have a column `value` and may have a column `key`."""
    if "value" not in batch.schema.names:
        raise MissingColumn(
            f"a batch of bytes needs a column value, and this one has {', '.join(batch.schema.names) or 'none'}",
            hint='name it value, or write with payload_format="json"',
        )
    values = batch.column("value").cast(pa.binary()).to_pylist()
    keys = batch.column("key").cast(pa.binary()).to_pylist() if "key" in batch.schema.names else [None] * len(values)
    return keys, values


def _line(payload: bytes | None, place: str) -> bytes:
    """Return a payload on one line."""
    if not payload or not payload.strip():
        return b"{}"
    if b"\n" not in payload and b"\r" not in payload:
        return payload
    return json.dumps(_parsed(payload, place)).encode()


def _parsed(payload: bytes, place: str) -> Any:
    try:
        return json.loads(payload)
    except ValueError as exc:
        raise BadValue(f"message {place} is not JSON: {exc}", hint=_RAW, message=place) from exc


def _refuse_invalid_payload(payloads: Sequence[bytes | None], places: Sequence[str]) -> None:
    for payload, place in zip(payloads, places, strict=True):
        parsed = _parsed(payload, place) if payload and payload.strip() else {}
        if not isinstance(parsed, dict):
            raise BadValue(f"message {place} is JSON, and no object: {type(parsed).__name__}", hint=_RAW, message=place)


def _one_batch(table: Any) -> Any:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _json_value(value: Any) -> Any:
    """Return a JSON representation of a value that JSON has no type for."""
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    raise BadValue(f"a {type(value).__name__} has no form in JSON", hint="cast the column before it is written")
