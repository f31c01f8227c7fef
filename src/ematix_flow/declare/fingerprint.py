"""A short digest of a pipeline's declaration, which shows whether two runs executed the same pipeline."""

from __future__ import annotations

import hashlib
import inspect
import json
import linecache
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ematix_flow.declare.pipeline import PipelineSpec, as_tuple
from ematix_flow.declare.streams.spec import StreamSpec

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LENGTH = 12


def fingerprint(spec: PipelineSpec) -> str:
    """Return the digest, equal for equal declarations in every process and on every machine."""
    declaration = {
        "function": _source(spec.function),
        "loads": [
            [load.table.qualified, _plain_value(load.table.columns), _connection_name(load.connection), _plain_value(load.strategy),
             _plain_value(sorted(load.write_options.items())), load.max_delete_fraction]
            for load in spec.loads
        ],
        "source": [_connection_name(item) for item in as_tuple(spec.source_connection)],
        "options": [spec.source_table, sorted(spec.column_map.items()), _plain_value(spec.incremental), spec.on_drift,
                    spec.force_path, spec.force_lane, spec.fan_out, f"EngineWish(engine={spec.engine.engine!r}, peers={spec.engine.peers!r})"],
        "before": [_plain_value(item) for item in spec.transforms_pre],
        "after": [item if isinstance(item, str) else _plain_value(item) for item in spec.transforms_post],
    }  # fmt: skip
    if any(load.checks for load in spec.loads):
        declaration["quality"] = [spec.quality.on_failure, *(_plain_value(load.checks) for load in spec.loads)]
    return _digest(declaration)


def stream_fingerprint(spec: StreamSpec) -> str:
    """Return the digest of a stream, equal if it makes the same rows from the same messages."""
    functions = (*spec.udfs, *spec.aggregate_udfs)
    declaration = {
        "sources": [[_connection_name(item.connection), item.query] for item in spec.sources],
        "targets": [[item.name, _connection_name(item.connection)] for item in spec.targets],
        "sql": [spec.transform_sql, spec.dialect],
        "lookups": {
            name: [_connection_name(item.connection), item.query, item.table] for name, item in spec.lookups.items()
        },
        "functions": [[_plain_value(item), _source(getattr(item, "function", item))] for item in functions],
        "messages": [spec.payload, sorted(spec.fields.items())],
        "processing": [_plain_value(getattr(spec, name)) for name in spec.processing],
    }
    return _digest(declaration)


def _digest(declaration: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(declaration, sort_keys=True).encode()).hexdigest()[:_LENGTH]


def _plain_value(value: Any) -> str:
    return _ADDRESS.sub("", repr(value))


def _connection_name(connection: Any) -> str:
    return connection if isinstance(connection, str) else str(getattr(connection, "name", type(connection).__name__))


def _source(function: Callable[..., Any]) -> str:
    """Return the function's source code, or its name if no file contains it."""
    code = getattr(function, "__code__", None)
    if code is None:
        return _plain_value(function)
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    with suppress(SyntaxError):  # the file has changed since it was loaded
        return "".join(inspect.getblock(lines)) if lines else _plain_value(function)
    return _plain_value(function)
