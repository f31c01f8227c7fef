"""The lineage of a declared pipeline, from its source's SQL and its declarations."""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ematix_flow.config.resolve import known_names, resolve
from ematix_flow.contract.shape import VALID_FROM, shape_of
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.normalizers.normalizers import Derive
from ematix_flow.declare.normalizers.pre_transforms import DeduplicateBy, FilterWhere
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.strategy import Scd2
from ematix_flow.foundation.errors import FlowError
from ematix_flow.lineage import column_uses
from ematix_flow.lineage.column_uses import NOTHING, ColumnUse, Uses, around, combined
from ematix_flow.lineage.datasets import Dataset, dataset_of, dialect_of
from ematix_flow.lineage.query import QueryLineage, Untraceable


@dataclass(frozen=True)
class SourceText:
    """The source of a pipeline, as returned by its function: SQL, and the connection to run it on."""

    query: str
    connection: Any = None
    """A connection or its name; None is the pipeline's own."""
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The known columns of the tables that the SQL reads, to expand `*`."""
    renamed: bool = False
    """Whether the SQL already returns columns under the names of `column_map`."""


@dataclass(frozen=True)
class InputColumn:
    """A column of another dataset, and the transformation applied to it."""

    dataset: Dataset
    column: str
    type: str
    subtype: str
    masking: bool = False


@dataclass(frozen=True)
class OutputTable:
    """A target with the origin of its columns."""

    dataset: Dataset
    columns: tuple[tuple[str, str], ...]
    """Names and types of all its columns."""
    origins: Mapping[str, tuple[InputColumn, ...]]
    """Origins by column; a column that is missing here has an unknown origin."""
    conditions: tuple[InputColumn, ...] = ()
    """Columns that decide which rows are loaded."""


@dataclass(frozen=True)
class Lineage:
    """The inputs and outputs of a pipeline."""

    pipeline: str
    inputs: tuple[Dataset, ...]
    outputs: tuple[OutputTable, ...]
    query: str = ""
    dialect: str = ""
    notes: tuple[str, ...] = ()
    """The parts that could not be determined, with reasons."""


def lineage_of(spec: PipelineSpec, *, source: SourceText | str | None = None) -> Lineage:
    """Return the lineage of tables and columns, from the declaration and the source's SQL.

    Without `source`, the SQL is taken from the declaration without calling the function: `source_table=`, or a plain
    `return "…"`. An origin that cannot be determined is left out and noted; nothing is guessed.
    """
    source_text = SourceText(source) if isinstance(source, str) else source
    if source_text is None:
        source_text = _declared_source(spec)
    if not spec.loads:
        return Lineage(spec.name, (), (), notes=("a plain function does its work unseen",))
    if source_text is None:
        outputs = tuple(_Target(spec, load, None, _StatementTables({}, None), {}).output() for load in spec.loads)
        return Lineage(spec.name, (), outputs, notes=("the source is known only when the pipeline runs",))
    return _trace_columns(spec, source_text)


def _trace_columns(spec: PipelineSpec, source_text: SourceText) -> Lineage:
    places = _StatementTables.of(spec, source_text)
    notes: tuple[str, ...] = ()
    query: QueryLineage | None = None
    try:
        known = {**_declared_columns(spec, places.own), **source_text.columns}
        query = QueryLineage(_of_any_window(source_text.query, places.dialect), dialect=places.dialect, known=known)
        inputs = tuple(dict.fromkeys(places.dataset(table) for table in query.tables))
    except Untraceable as error:
        inputs, notes = (), (f"the source's SQL cannot be taken apart: {error}",)
    renamed = (
        source_text.renamed or spec.source_table is not None
    )  # the columns of a table are renamed when they are read
    names = {} if renamed else spec.column_map
    targets = [_Target(spec, load, query, places, names) for load in spec.loads]
    outputs = tuple(target.output() for target in targets)
    notes += tuple(note for target in targets for note in target.notes)
    return Lineage(spec.name, inputs, outputs, source_text.query, places.dialect, notes)


def _of_any_window(query: str, dialect: str) -> str:
    """Return the SQL with an arbitrary instant for `{start}` and `{end}`, which does not affect the lineage."""
    from ematix_flow.sql.expressions import bind_window, window_marks

    edges = dict.fromkeys(window_marks(query), datetime(2026, 1, 1))
    with suppress(FlowError, ValueError):  # a query that cannot be parsed is reported later
        return bind_window(query, edges, dialect) if edges else query
    return query


def target_dataset(load: LoadSpec) -> Dataset:
    """Return the dataset that a load writes."""
    parts = tuple(part for part in (load.table.schema, load.table.name) if part)
    return dataset_of(_connection(load.connection), parts)


def target_connection(load: LoadSpec) -> str:
    """Return the name of the connection that a load writes to, as results of runs have it."""
    return str(getattr(_connection(load.connection), "name", load.connection))


@dataclass(frozen=True)
class _StatementTables:
    """The connections of the tables of a statement."""

    named: Mapping[str, Any]
    """Connections whose names may qualify a table."""
    own: Any

    @classmethod
    def of(cls, spec: PipelineSpec, source_text: SourceText) -> _StatementTables:
        listed = spec.source_connection
        several = [_connection(one) for one in listed] if isinstance(listed, (list, tuple)) else []
        if source_text.connection is not None:
            own = _connection(source_text.connection)
        elif several:
            own = several[0]
        else:
            own = _connection(listed if listed is not None else spec.loads[0].connection)
        if len(several) > 1:
            return cls({str(getattr(one, "name", "")): one for one in several}, own)
        return cls(dict.fromkeys(_known_connections()), own)

    @property
    def dialect(self) -> str:
        is_federation = any(connection is not None for connection in self.named.values())
        return "spark" if is_federation else dialect_of(self.own)

    def dataset(self, parts: tuple[str, ...]) -> Dataset:
        """Return the dataset of a table; `connection.schema.table` names its connection."""
        first = parts[0]
        if first in self.named:
            listed = self.named[first]
            if listed is not None and len(parts) > 1:
                return dataset_of(listed, parts[1:])
            if listed is None and len(parts) > 2:
                return dataset_of(_connection(first), parts[1:])
        return dataset_of(self.own, parts)


class _Target:
    """One target of the pipeline."""

    def __init__(self, spec: PipelineSpec, load: LoadSpec, query: QueryLineage | None, places: _StatementTables,
                 names: Mapping[str, str]) -> None:  # fmt: skip
        self._spec = spec
        self._load = load
        self._query = query
        self._places = places
        self._names = names
        self.notes: tuple[str, ...] = ()

    def output(self) -> OutputTable:
        """Return the target with the origin of each column."""
        table = self._load.table
        shape = shape_of(table, self._load.strategy)
        origins: dict[str, tuple[InputColumn, ...]] = {}
        for column in table.columns:
            origin = self._origin(column.name)
            if origin is None:
                if self._query is not None:
                    self.notes += (f"{table.qualified}.{column.name}: its origin cannot be determined from the SQL",)
            else:
                origins[column.name] = self._inputs(origin)
        event = self._load.strategy.event_time if isinstance(self._load.strategy, Scd2) else None
        if event is not None and event in origins and VALID_FROM not in origins:
            origins[VALID_FROM] = origins[event]
        return OutputTable(
            target_dataset(self._load),
            tuple((column.name, str(column.type)) for column in shape.table.columns),
            origins,
            self._inputs(self._conditions()),
        )

    def _origin(self, name: str) -> Uses | None:
        """Return the uses of a declared column: its normalizers applied to the source's column."""
        column = self._load.table.column(name)
        if not column.normalizers:
            return self._source(name)
        used = (self._source(source) for source in _columns_in_chain(column.normalizers, name))
        return combined(used, subtype=column_uses.TRANSFORMATION)

    def _source(self, name: str) -> Uses | None:
        """Return the uses of the source's column that is loaded under this name."""
        if self._query is None or self._spec.transform_sql is not None:  # transform_sql defines its own columns
            return None
        return self._query.of(self._names.get(name, name))

    def _conditions(self) -> Uses:
        collected: set[ColumnUse] = set(self._query.row_conditions()) if self._query is not None else set()
        for transform in self._spec.transforms_pre:
            if isinstance(transform, FilterWhere):
                collected |= self._deciding(_columns_in(transform.expr), column_uses.FILTER)
            elif isinstance(transform, DeduplicateBy):
                collected |= self._deciding(
                    (*transform.keys, *_columns_in(transform.order_by or "1")), column_uses.WINDOW
                )
        if self._spec.incremental is not None:
            collected |= self._deciding((self._spec.incremental.column,), column_uses.FILTER)
        return frozenset(collected)

    def _deciding(self, names: Sequence[str], reason: str) -> Uses:
        declared = {column.name.lower(): column.name for column in self._load.table.columns}
        collected: set[ColumnUse] = set()
        for name in names:
            known = declared.get(name.lower())
            inner_uses = self._origin(known) if known is not None else self._source(name)
            collected |= around(inner_uses or NOTHING, type=column_uses.INDIRECT, subtype=reason)
        return frozenset(collected)

    def _inputs(self, uses: Uses) -> tuple[InputColumn, ...]:
        return tuple(
            InputColumn(self._places.dataset(use.table), use.column, use.type, use.subtype, use.masking)
            for use in sorted(uses)
        )


def _columns_in_chain(chain: Sequence[Any], name: str) -> list[str]:
    """Return the source columns that a chain of normalizers uses."""
    from ematix_flow.sql.expressions import quote, render_chain

    is_derived = isinstance(chain[0], Derive)
    rendered = render_chain(chain, None if is_derived else name, dialect="spark", column_sql=None if is_derived else quote(name, "spark"))  # fmt: skip
    return _columns_in(rendered, notation="spark")


def _columns_in(expression: str, *, notation: str = "postgres") -> list[str]:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    for read in dict.fromkeys((notation, "postgres", "spark")):
        try:
            tree = sqlglot.parse_one(f"SELECT 1 ORDER BY {expression}", read=read)
        except SqlglotError:
            continue
        return list(dict.fromkeys(column.name for column in tree.find_all(exp.Column)))
    return []


def _declared_source(spec: PipelineSpec) -> SourceText | None:
    answer = _constant_answer(spec.function)
    if answer is not None:
        return SourceText(answer)
    if spec.source_table is None or not spec.loads:
        return None
    from ematix_flow.sql.expressions import quote

    named = spec.source_connection[0] if isinstance(spec.source_connection, (list, tuple)) else spec.source_connection
    dialect = dialect_of(_connection(named if named is not None else spec.loads[0].connection))
    dialect = dialect if dialect in ("postgres", "mysql", "sqlite", "duckdb", "spark") else "postgres"
    wanted = dict.fromkeys(
        column.name for load in spec.loads for column in load.table.columns if not _is_derived(column)
    )
    chosen = [f"{quote(spec.column_map.get(name, name), dialect)} AS {quote(name, dialect)}" for name in wanted]
    relation = ".".join(quote(part, dialect) for part in spec.source_table.split("."))
    return SourceText(f"SELECT {', '.join(chosen)} FROM {relation}")


def _constant_answer(function: Any) -> str | None:
    """Return the text of a function that consists only of `return "…"`."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("RESUME", "NOP", "CACHE")]
    names = [step.opname for step in steps]
    answer = steps[0].argval if names in (["LOAD_CONST", "RETURN_VALUE"], ["RETURN_CONST"]) else None
    return answer if isinstance(answer, str) else None


def _is_derived(column: Any) -> bool:
    return bool(column.normalizers) and isinstance(column.normalizers[0], Derive)


def _connection(named: Any) -> Any:
    """Return the connection; a name that is not configured here is returned as it is."""
    declared = getattr(named, "declared", named)
    try:
        return resolve(declared).connection
    except FlowError:
        return declared


def _known_connections() -> list[str]:
    try:
        return list(known_names())
    except FlowError:
        return []


def _declared_columns(spec: PipelineSpec, own: Any) -> dict[str, tuple[str, ...]]:
    """Return the columns of tables that other pipelines write to the same system, to expand `*`."""
    from ematix_flow.declare import registry

    here = dataset_of(own, ("x",)).namespace
    columns: dict[str, tuple[str, ...]] = {}
    for pipeline in registry.pipelines().values():
        for load in pipeline.spec.loads if pipeline.spec.name != spec.name else ():
            if dataset_of(_connection(load.connection), ("x",)).namespace == here:
                columns[load.table.qualified] = shape_of(load.table, load.strategy).table.column_names
    return columns
