"""Messages that tell of changes, in the words of the tools that write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Message = dict[str, Any]
T0 = 1_760_000_000_000


def debezium(
    op: str,
    after: Mapping[str, Any] | None = None,
    *,
    before: Mapping[str, Any] | None = None,
    at: int | None = 0,
    lsn: int | None = None,
    key: Mapping[str, Any] | None = None,
    schema: Mapping[str, Any] | None = None,
    **more: Any,
) -> Message:
    """An event as Debezium's PostgreSQL connector writes it; `at` is milliseconds after a common beginning."""
    source: dict[str, Any] = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "customers"}
    source |= {"ts_ms": T0 + at} if at is not None else {}
    source |= {"lsn": lsn} if lsn is not None else {}
    source |= more.pop("source", {})
    event = {"before": before, "after": after, "source": source, "op": op, "ts_ms": T0 + 999_999, **more}
    value = {"schema": schema, "payload": event} if schema is not None else event
    row = key or {name: (after or before or {}).get(name) for name in ("id",)}
    return {"value": json.dumps(value).encode(), "key": json.dumps(row).encode()}


def mysql(
    op: str, after: Mapping[str, Any] | None = None, *, pos: int, file: int = 3, server: int = 1, **more: Any
) -> Message:
    """An event as Debezium's MySQL connector writes it."""
    place = {"file": f"mysql-bin.{file:06}", "pos": pos, "row": 0, "server_id": server, "gtid": None}
    return debezium(op, after, source={"connector": "mysql", "name": "shop", "schema": None, **place}, **more)


def connect_schema(**kinds: Any) -> dict[str, Any]:
    """The block that Connect's JSON converter puts before every message."""
    fields = [{"field": name, "optional": True, **kind} for name, kind in kinds.items()]
    rows = [{"type": "struct", "field": field, "fields": fields} for field in ("before", "after")]
    return {"type": "struct", "fields": [*rows, {"type": "string", "field": "op"}]}


def maxwell(kind: str, data: Mapping[str, Any], *, at: int = 0, **more: Any) -> Message:
    """An event as Maxwell writes it; `at` is seconds after the beginning."""
    event = {"database": "shop", "table": "customers", "type": kind, "ts": T0 // 1000 + at, "data": data, **more}
    return {"value": json.dumps(event).encode(), "key": json.dumps({"pk.id": data.get("id")}).encode()}


def tombstone(key: Mapping[str, Any]) -> Message:
    """What a compacted topic keeps of a deleted key for a while."""
    return {"value": None, "key": json.dumps(key).encode()}
