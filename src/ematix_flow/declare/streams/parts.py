"""The parts of a stream as checked, frozen values: windows, joins, change data, state, watermarks and lookups."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ematix_flow.declare.connections import Connection
from ematix_flow.declare.streams.placement import NOT_TABLES, kind_of
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.names import valid_names
from ematix_flow.foundation.secrets import references_in
from ematix_flow.foundation.signatures import at_callers_line

AGGREGATIONS = ("count", "count_col", "sum", "min", "max", "avg", "first", "last", "count_distinct")
COUNTING = ("approximate", "exact")
WINDOW_KINDS = ("tumbling", "hopping", "session")
JOIN_KINDS = ("inner", "left_outer", "right_outer", "full_outer")
ENVELOPES = ("debezium", "maxwell", "custom")
OPERATIONS = ("c", "u", "d", "r")
STATE_STORES = ("postgres", "in_memory")
DROP, REOPEN, DLQ = "drop", "reopen", "dlq"
_OLD_INNER = "stream_stream_join"


class StreamPart:
    """The base of all parts: each checks its fields when it is created, and its errors have the user's line."""

    @at_callers_line
    def __post_init__(self) -> None:
        self._check()

    def _check(self) -> None:
        """Check the fields of the part."""

    def _wrong(self, field: str, what: str, *, hint: str | None = None) -> NoReturn:
        raise DeclarationError(f"{type(self).__name__}: {field} {what}", hint=hint, field=field)

    def _check_choice(self, field: str, valid: Sequence[str]) -> None:
        value = getattr(self, field)
        if value not in valid:
            self._wrong(field, f"does not take {value!r}", hint=valid_names(value, valid))

    def _check_integers(self, *fields: str, least: int | None = None) -> None:
        """Check that the fields that are set are integers of at least `least`."""
        for field in fields:
            value = getattr(self, field)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                self._wrong(field, f"is a whole number, not {value!r}")
            if least is not None and value < least:
                self._wrong(field, "must be positive" if least == 1 else f"must be at least {least}")

    def _check_text(self, *fields: str) -> None:
        for field in fields:
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip():
                self._wrong(field, "is a text that is not empty")

    def _check_names(self, *fields: str) -> None:
        """Check lists of column names, and store them as tuples; a single name counts as a list of one."""
        for field in fields:
            value = getattr(self, field)
            names = (value,) if isinstance(value, str) else value
            if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
                self._wrong(field, f"is a list of column names, not {value!r}")
            object.__setattr__(self, field, tuple(names))

    def _check_lateness(self, late_data: str, allowed_ms: int | None, *, valid: Sequence[str]) -> None:
        self._check_choice("late_data", valid)
        self._check_integers("allowed_lateness_ms", least=0)
        if late_data == REOPEN and allowed_ms is None:
            self._wrong("allowed_lateness_ms", 'is required with late_data="reopen"')
        if late_data != REOPEN and allowed_ms is not None:
            self._wrong("allowed_lateness_ms", 'goes with late_data="reopen" only')


@dataclass(frozen=True)
class Aggregation(StreamPart):
    """One column of a window's result.

    >>> Aggregation(agg="sum", column="amount", as_="total").as_
    'total'
    """

    agg: str
    as_: str
    column: str | None = None
    mode: str | None = None
    """How `count_distinct` counts: `approximate` (the default) or `exact`."""
    max_distinct_values_per_group: int | None = None

    def _check(self) -> None:
        self._check_choice("agg", AGGREGATIONS)
        self._check_text("as_")
        if self.agg == "count" and self.column is not None:
            self._wrong("column", "does not go with count, which counts rows", hint='agg="count_col" skips NULL')
        if self.agg != "count" and not self.column:
            self._wrong("column", f"is required with {self.agg}")
        if self.mode is not None:
            self._check_choice("mode", COUNTING)
            if self.agg != "count_distinct":
                self._wrong("mode", f"is for count_distinct, not for {self.agg}")
        self._check_integers("max_distinct_values_per_group", least=1)
        if self.max_distinct_values_per_group is not None and self.mode != "exact":
            self._wrong("max_distinct_values_per_group", 'goes with mode="exact" only')


@dataclass(frozen=True)
class Window(StreamPart):
    """A grouping of a stream's rows by event time: tumbling or hopping windows, or sessions of a key."""

    kind: str
    aggregations: Sequence[Aggregation]
    duration_ms: int = 0
    hop_ms: int | None = None
    gap_ms: int | None = None
    max_session_duration_ms: int | None = None
    event_time_column: str = "_event_ts"
    group_by: Sequence[str] = ()
    late_data: str = DROP
    allowed_lateness_ms: int | None = None
    max_groups_per_window: int = 1_000_000
    window_start_column: str = "window_start"
    window_end_column: str = "window_end"
    session_id_column: str = "session_id"

    def _check(self) -> None:
        self._check_choice("kind", WINDOW_KINDS)
        self._check_names("group_by")
        self._check_text("event_time_column", "window_start_column", "window_end_column", "session_id_column")
        self._check_integers("duration_ms", least=0)
        self._check_integers("hop_ms", "gap_ms", "max_session_duration_ms", "max_groups_per_window", least=1)
        if self.kind == "session":
            self._check_session()
        else:
            self._check_fixed()
        self._check_lateness(self.late_data, self.allowed_lateness_ms, valid=(DROP, REOPEN, DLQ))
        self._check_output()

    def _check_fixed(self) -> None:
        if self.duration_ms <= 0:
            self._wrong("duration_ms", f"is required with kind={self.kind!r}", hint="for example duration_ms=60_000")
        for field in ("gap_ms", "max_session_duration_ms"):
            if getattr(self, field) is not None:
                self._wrong(field, 'goes with kind="session" only')
        if self.kind == "tumbling" and self.hop_ms is not None:
            self._wrong("hop_ms", 'goes with kind="hopping" only')
        if self.kind == "hopping":
            if self.hop_ms is None:
                self._wrong("hop_ms", 'is required with kind="hopping"')
            if self.hop_ms > self.duration_ms:
                self._wrong("hop_ms", "is longer than duration_ms, and would leave gaps")

    def _check_session(self) -> None:
        for field in ("gap_ms", "max_session_duration_ms"):
            if getattr(self, field) is None:
                self._wrong(field, 'is required with kind="session"')
        if self.duration_ms or self.hop_ms is not None:
            self._wrong("duration_ms" if self.duration_ms else "hop_ms", 'does not go with kind="session"')
        if (self.max_session_duration_ms or 0) <= (self.gap_ms or 0):
            self._wrong("max_session_duration_ms", "must be longer than gap_ms")
        if not self.group_by:
            self._wrong("group_by", 'is required with kind="session"', hint='for example group_by=("user_id",)')

    def _check_output(self) -> None:
        aggregations = self.aggregations
        if isinstance(aggregations, Aggregation):
            aggregations = (aggregations,)
        if not isinstance(aggregations, Sequence) or not all(isinstance(item, Aggregation) for item in aggregations):
            self._wrong("aggregations", "is a list of Aggregation(…)")
        object.__setattr__(self, "aggregations", tuple(aggregations))
        if not self.aggregations:
            self._wrong("aggregations", "is empty", hint='for example [Aggregation(agg="count", as_="n")]')
        own = (self.session_id_column,) if self.kind == "session" else ()
        columns = [*self.group_by, self.window_start_column, self.window_end_column, *own,
                   *(item.as_ for item in self.aggregations)]  # fmt: skip
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            self._wrong("aggregations", f"would write the column {twice[0]!r} twice", hint="rename one with as_=")


@dataclass(frozen=True)
class Join(StreamPart):
    """A join of two sources: rows with equal keys whose event times are close to each other."""

    left_source: str
    right_source: str
    left_keys: Sequence[str]
    right_keys: Sequence[str]
    time_window_ms: int = 0
    kind: str = "inner"
    min_delta_ms: int | None = None
    max_delta_ms: int | None = None
    event_time_column: str = "_event_ts"
    late_data: str = DROP
    allowed_lateness_ms: int | None = None
    left_column_prefix: str = "left_"
    right_column_prefix: str = "right_"

    def _check(self) -> None:
        if self.kind == _OLD_INNER:
            object.__setattr__(self, "kind", "inner")
        self._check_choice("kind", JOIN_KINDS)
        self._check_text("left_source", "right_source", "event_time_column")
        if self.left_source == self.right_source:
            self._wrong("right_source", "must be another source than left_source")
        self._check_names("left_keys", "right_keys")
        if not self.left_keys or len(self.left_keys) != len(self.right_keys):
            self._wrong("right_keys", "must name as many columns as left_keys, at least one")
        self._check_time()
        self._check_lateness(self.late_data, self.allowed_lateness_ms, valid=(DROP, REOPEN))
        for field in ("left_column_prefix", "right_column_prefix"):
            if not isinstance(getattr(self, field), str):
                self._wrong(field, "is a text")
        if self.left_column_prefix == self.right_column_prefix:
            self._wrong("right_column_prefix", "must differ from left_column_prefix")

    def _check_time(self) -> None:
        self._check_integers("time_window_ms", least=0)
        self._check_integers("min_delta_ms", "max_delta_ms")
        low, high = self.min_delta_ms, self.max_delta_ms
        if low is None and high is None:
            if not self.time_window_ms:
                self._wrong(
                    "time_window_ms", "is required, or min_delta_ms and max_delta_ms", hint="for example 300_000"
                )
            return
        if low is None or high is None:
            self._wrong("min_delta_ms" if low is None else "max_delta_ms", "is missing: the two go together")
        if self.time_window_ms:
            self._wrong("time_window_ms", "excludes min_delta_ms and max_delta_ms", hint="keep one of the two forms")
        if low >= high:
            self._wrong("min_delta_ms", "must be smaller than max_delta_ms")


_LONG_OPERATIONS = {"create": "c", "update": "u", "delete": "d", "read": "r"}


def _short(operation: object) -> object:
    """Return the letter of an operation, which may be given as a word."""
    return _LONG_OPERATIONS.get(operation, operation) if isinstance(operation, str) else operation


@dataclass(frozen=True)
class CDC(StreamPart):
    """Messages as row changes to apply to the target, in the envelope of Debezium, Maxwell or a custom one."""

    envelope: str = "debezium"
    op_field: str | None = None
    before_field: str | None = None
    after_field: str | None = None
    key_field: str | None = None
    ts_field: str | None = None
    op_map: Mapping[str, str] | None = None
    delete_mode: str = "hard"
    soft_delete_column: str | None = None
    schema_evolution: str = "skip"
    out_of_order_tolerance_ms: int = 5000
    source_tables: Sequence[str] | None = None
    """The source tables whose rows go into the one target; None for one table of any name."""

    def _check(self) -> None:
        self._check_choice("envelope", ENVELOPES)
        if self.source_tables is not None:
            self._check_names("source_tables")
        self._check_choice("delete_mode", ("hard", "soft"))
        self._check_choice("schema_evolution", ("skip", "fail"))
        self._check_integers("out_of_order_tolerance_ms", least=0)
        if self.delete_mode == "soft" and not self.soft_delete_column:
            self._wrong("soft_delete_column", 'is required with delete_mode="soft"')
        if self.delete_mode == "hard" and self.soft_delete_column:
            self._wrong("soft_delete_column", 'goes with delete_mode="soft" only')
        if self.op_map is not None:
            self._check_operations(self.op_map)
        if self.envelope == "custom":
            missing = [name for name in ("op_field", "after_field", "key_field", "op_map") if not getattr(self, name)]
            if missing:
                verb = "is" if len(missing) == 1 else "are"
                self._wrong(", ".join(missing), f'{verb} required with envelope="custom"')

    def _check_operations(self, operations: Mapping[str, str]) -> None:
        if not isinstance(operations, Mapping):
            self._wrong("op_map", 'is a mapping, for example {"INSERT": "c"}')
        for word, operation in operations.items():
            if not isinstance(word, str) or _short(operation) not in OPERATIONS:
                known = ", ".join(f"{short} ({long})" for long, short in _LONG_OPERATIONS.items())
                self._wrong("op_map", f"maps {word!r} to {operation!r}", hint=f"an operation is one of {known}")
        object.__setattr__(self, "op_map", {word: _short(operation) for word, operation in operations.items()})


@dataclass(frozen=True, repr=False)
class StateStore(StreamPart):
    """The store of the state of sessions and joins between batches.

    >>> StateStore(kind="postgres", url="postgres://ana:hunter22@db/state")
    StateStore(kind='postgres', url='postgres://ana:***@db/state', schema='public', checkpoint_interval_ms=60000)
    """

    kind: str
    url: str | None = None
    schema: str = "public"
    checkpoint_interval_ms: int = 60_000

    def _check(self) -> None:
        self._check_choice("kind", STATE_STORES)
        self._check_text("schema")
        self._check_integers("checkpoint_interval_ms", least=1)
        if self.kind == "in_memory":
            if self.url is not None:
                self._wrong("url", 'does not go with kind="in_memory", which keeps nothing')
            return
        if not isinstance(self.url, str) or not self.url.strip():
            self._wrong("url", 'is required with kind="postgres"', hint='for example "postgres://db/state"')
        if not self.url.startswith(("postgres://", "postgresql://")) and not references_in(self.url):
            self._wrong("url", "does not begin with postgres://")
        redact.remember_url_secrets(self.url)

    def __repr__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        pairs = ", ".join(f"{name}={redact.redact(name, value)!r}" for name, value in shown.items())
        return f"StateStore({pairs})"


@dataclass(frozen=True)
class Watermark(StreamPart):
    """The maximum lateness of a row, and the idle time after which a source no longer delays the watermark."""

    lateness_ms: int | None = None
    source_idleness_ms: int | None = None

    def _check(self) -> None:
        self._check_integers("lateness_ms", "source_idleness_ms", least=0)


@dataclass(frozen=True)
class Lookup(StreamPart):
    """A table or query that a stream is joined with, refreshed between batches."""

    connection: Any
    table: str | None = None
    schema: str = ""
    refresh_interval_ms: int | None = None
    query: str | None = None

    def _check(self) -> None:
        if (self.table is None) == (self.query is None):
            self._wrong("table", "or query: give exactly one of the two")
        self._check_text("table" if self.table is not None else "query")
        if not isinstance(self.schema, str):
            self._wrong("schema", "is a text")
        if self.schema and self.query is not None:
            self._wrong("schema", "goes with table, not with query")
        self._check_integers("refresh_interval_ms", least=1)
        if not isinstance(self.connection, (str, Connection)) or not self.connection:
            self._wrong("connection", "is a connection or the name of one")
        if kind_of(self.connection) in NOT_TABLES:
            self._wrong("connection", f"is a {kind_of(self.connection)} connection, which has no tables")
