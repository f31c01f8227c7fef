"""Pipelines as plain data: source, target and mode, ready for JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from ematix_flow.declare.loads import check_mode


@dataclass(frozen=True)
class Source:
    """A query on a named connection."""

    connection: str
    query: str


@dataclass(frozen=True)
class Target:
    """A table on a named connection."""

    connection: str
    schema: str
    table: str


@dataclass(frozen=True)
class Pipeline:
    """One load as plain data; two with equal data have the same fingerprint.

    >>> load = Pipeline("ids", Source("shop", "SELECT id FROM ids"), Target("wh", "raw", "ids"), "merge", ("id",))
    >>> load.to_spec_dict()["target"]
    {'connection': 'wh', 'schema': 'raw', 'table': 'ids'}
    """

    name: str
    source: Source
    target: Target
    mode: str
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_mode(self.mode)

    def to_spec_dict(self) -> dict[str, Any]:
        """Return the pipeline as plain data."""
        return {**asdict(self), "keys": list(self.keys)}

    def to_normalized_dict(self) -> dict[str, Any]:
        """Return the plain data with one name per mode, and a fingerprint of 32 hexadecimal digits."""
        plain = {**self.to_spec_dict(), "mode": "merge" if self.mode == "scd1" else self.mode}
        digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
        return {**plain, "fingerprint": digest[:32]}
