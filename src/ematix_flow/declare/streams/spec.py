"""A streaming pipeline as one frozen value; every door builds the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.engine import EngineWish
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.streams.parts import CDC, Join, StateStore, Watermark, Window
from ematix_flow.declare.streams.parts import Lookup as Lookup
from ematix_flow.foundation.location import Location

FAIL, DROP, DLQ = "fail", "drop", "dlq"
ERROR_POLICIES = (FAIL, DROP, DLQ)
DLQ_STORES = ("auto", "topic", "table", "broker")
EXACTLY_ONCE = "exactly_once"
DELIVERIES = ("auto", "at_least_once", EXACTLY_ONCE)
DIALECTS = ("spark", "duckdb", "postgres", "datafusion")
PAYLOADS = ("json", "raw_bytes", "avro", "protobuf")


@dataclass(frozen=True)
class TableTarget:
    """A target with tables: a database, a lake or a folder of files."""

    name: str
    """What tokens and messages call it: `schema.table` or the prefix; unique in its stream."""
    connection: Any
    load: LoadSpec | None
    """The declared table; None where the first batch tells the columns."""
    schema: str = ""
    table: str = ""
    """A prefix `a/b/c` is the table `c` of `a/b`: the folder that a batch load would write to."""
    primary_key: tuple[str, ...] = ()
    mode: str = "append"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the load and of the files: keys, partition_by, parquet_compression …"""


@dataclass(frozen=True)
class BrokerTarget:
    """A target that takes messages."""

    name: str
    connection: Any
    place: str
    """The topic, queue or partition key prefix."""
    key_column: str | None = None
    payload: str = "json"


StreamTarget = TableTarget | BrokerTarget


@dataclass(frozen=True)
class Restarts:
    """What happens after an error that may pass."""

    on_error: bool = False
    initial_backoff_ms: int = 1_000
    max_backoff_ms: int = 60_000
    most: int | None = None
    """Restarts in a row before the stream gives up; None for any number."""
    reset_after_secs: float = 300.0
    """A stream that worked this long begins to count its restarts anew."""


@dataclass(frozen=True)
class BadRows:
    """What happens to a record that cannot be decoded, transformed or written."""

    policy: str = FAIL
    store: str = "auto"
    topic: str | None = None
    most_attempts: int = 3
    max_fraction: float | None = None
    """The stream stops when more than this part of a batch is bad."""


@dataclass(frozen=True)
class StreamSpec:
    """One declared stream."""

    name: str
    sources: tuple[Source, ...]
    targets: tuple[StreamTarget, ...]
    transform_sql: str | None = None
    dialect: str = "spark"
    lookups: Mapping[str, Lookup] = field(default_factory=dict)
    udfs: tuple[Any, ...] = ()
    aggregate_udfs: tuple[Any, ...] = ()
    bad_rows: BadRows = field(default_factory=BadRows)
    delivery: str = "auto"
    payload: str | None = None
    """How messages are written, where the connection does not say."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Columns of the messages with their types, where the first batch must not tell them."""
    start: str = "earliest"
    max_rows_per_batch: int | None = None
    idle_pause_ms: int = 300
    """How long to wait when nothing came: what a message waits at most, against what a quiet stream costs."""
    trigger: str | None = None
    """`once`, or an interval such as `5 seconds`; as soon as there is something otherwise."""
    checkpoint: str | None = None
    """The folder of checkpoints; below the user's own folder otherwise."""
    continue_on_target_failure: bool = False
    on_drift: str = "evolve"
    restarts: Restarts = field(default_factory=Restarts)
    metrics_port: int | None = None
    window: Window | None = None
    join: Join | None = None
    cdc: CDC | None = None
    state_store: StateStore | None = None
    watermark: Watermark | None = None
    engine: EngineWish = field(default_factory=EngineWish)
    where: Location | None = field(default=None, compare=False)
    captured: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The keywords as they were said, from which the same stream is written as TOML."""

    @property
    def processing(self) -> tuple[str, ...]:
        """What is to be done with rows beyond SQL: `window`, `join` or `cdc`."""
        return tuple(name for name in ("window", "join", "cdc") if getattr(self, name) is not None)

    @property
    def is_union(self) -> bool:
        """Whether several sources are one stream."""
        return len(self.sources) > 1 and self.join is None

    @property
    def is_tolerant(self) -> bool:
        """Whether a target that fails is left behind for a while."""
        return self.continue_on_target_failure and len(self.targets) > 1

    def writer(self, target: StreamTarget, generation: str) -> str:
        """Who writes, as commit tokens know it: a new checkpoint is a new writer."""
        return f"{self.name}@{generation}::{target.name}"
