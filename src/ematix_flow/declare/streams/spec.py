"""A streaming pipeline as one frozen value, the same from Python and from TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.engine import EngineOptions
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
    """The name in commit tokens and messages: `schema.table` or the prefix; unique in its stream."""
    connection: Any
    load: LoadSpec | None
    """The declared table; None if the first batch determines the columns."""
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
    """The restart policy after a retryable error."""

    on_error: bool = False
    initial_backoff_ms: int = 1_000
    max_backoff_ms: int = 60_000
    max_restarts: int | None = None
    """The maximum number of consecutive restarts; None for any number."""
    reset_after_secs: float = 300.0
    """The running time after which a stream counts its restarts from zero again."""


@dataclass(frozen=True)
class BadRows:
    """The policy for records that cannot be decoded, transformed or written."""

    policy: str = FAIL
    store: str = "auto"
    topic: str | None = None
    max_attempts: int = 3
    max_fraction: float | None = None
    """The share of bad rows in a batch above which the stream stops."""


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
    """The message format, if the connection does not define it."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """The columns of the messages with their types, if they should not be inferred from the first batch."""
    start: str = "earliest"
    max_rows_per_batch: int | None = None
    idle_pause_ms: int = 300
    """The pause when no message came: the maximum delay of a message, against the cost of polling an idle stream."""
    trigger: str | None = None
    """`once`, or an interval such as `5 seconds`; by default a batch starts as soon as there is data."""
    checkpoint: str | None = None
    """The folder of checkpoints; by default below the user's own folder."""
    continue_on_target_failure: bool = False
    on_drift: str = "evolve"
    restarts: Restarts = field(default_factory=Restarts)
    metrics_port: int | None = None
    window: Window | None = None
    join: Join | None = None
    cdc: CDC | None = None
    state_store: StateStore | None = None
    watermark: Watermark | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)
    where: Location | None = field(default=None, compare=False)
    captured: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The keywords as given, from which the same stream is rendered as TOML."""

    @property
    def processing(self) -> tuple[str, ...]:
        """Return the processing of rows beyond SQL: `window`, `join` or `cdc`."""
        return tuple(name for name in ("window", "join", "cdc") if getattr(self, name) is not None)

    @property
    def is_union(self) -> bool:
        """Return whether several sources form one stream."""
        return len(self.sources) > 1 and self.join is None

    @property
    def is_tolerant(self) -> bool:
        """Return whether a failing target is skipped and catches up later."""
        return self.continue_on_target_failure and len(self.targets) > 1

    def writer(self, target: StreamTarget, generation: str) -> str:
        """Return the writer's name in commit tokens: a new checkpoint is a new writer."""
        return f"{self.name}@{generation}::{target.name}"
