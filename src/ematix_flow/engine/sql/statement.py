"""A user's statement over `source`: Spark SQL with the user's functions, over views with unique names."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.spark_session import exact_settings
from ematix_flow.declare.udfs import Functions, Handle
from ematix_flow.engine.sql import statement_errors
from ematix_flow.engine.sql.functions import argument_types
from ematix_flow.engine.sql.functions.argument_types import SparkAnalysis
from ematix_flow.engine.sql.functions.calls import Call, Calls, mark_functions
from ematix_flow.engine.sql.functions.clauses import clauses_of
from ematix_flow.engine.sql.functions.partial_aggregation import PartialPlan, is_atomic, partial_plan
from ematix_flow.engine.sql.functions.registration import RegisteredFunctions
from ematix_flow.families.lake.source import parse_query, replace_in_text, table_name_parts
from ematix_flow.foundation.errors import FlowError, MissingTable, SqlError
from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.sql.linear_query import without_semicolon
from ematix_flow.sql.spark_text import quote
from ematix_flow.sql.translation.translate import translate_to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "source"
_MARK = re.compile("flow_udf_", re.IGNORECASE)
_MOST_PLANS = 32


@dataclass(frozen=True)
class NamedRelation:
    """A table besides the source that a statement may name."""

    text: str
    """The text by which Spark resolves it."""
    types: tuple[tuple[str, str], ...]
    """The names and types of its columns."""


@dataclass(frozen=True)
class PreparedStatement:
    """The statement prepared for rows of one schema, ready for repeated runs."""

    text: str
    names: tuple[str, ...]
    is_row_wise: bool
    partial: PartialPlan | None = None


@dataclass
class Statement:
    """One `transform_sql` and its prepared forms."""

    sql: str
    dialect: str = "spark"
    functions: Functions = field(default_factory=Functions)
    where: Location | None = None
    aggregates_in_parts: bool = True
    """Whether aggregates may be computed from partial states of partitions, where the statement allows it."""
    _plans: dict[Any, PreparedStatement] = field(default_factory=dict)

    @cached_property
    def registered(self) -> RegisteredFunctions:
        """Return the functions with their names in sessions."""
        return RegisteredFunctions(self.functions)

    @cached_property
    def view(self) -> str:
        """Return the name of the source's view, unique to this statement."""
        return f"flow_source_{uuid.uuid4().hex}"

    def frame(self, source: DataFrame, relations: Mapping[str, NamedRelation], open_until: ExitStack, *,
              hidden: Sequence[str] = ()) -> DataFrame:  # fmt: skip
        """Return the result as a lazy frame, with the `hidden` source columns if each row comes from one source row."""
        spark = source.sparkSession
        with self.translated_errors(source, relations), exact_settings(spark):
            self.register_source(source, open_until)
            return self._run(spark, self.prepared(source, relations, hidden), open_until)

    def register_source(self, source: DataFrame, open_until: ExitStack) -> None:
        """Register the source's rows and the functions in the session."""
        spark = source.sparkSession
        source.createOrReplaceTempView(self.view)
        open_until.callback(spark.catalog.dropTempView, self.view)
        self.registered.ensure(spark)

    def prepared(
        self, source: DataFrame, relations: Mapping[str, NamedRelation], hidden: Sequence[str] = ()
    ) -> PreparedStatement:
        """Return the statement prepared for rows of this schema; raise its errors."""
        key = (source.schema.simpleString(), tuple(sorted(relations.items())), tuple(hidden))
        prepared = self._plans.get(key)
        if prepared is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            prepared = self._plans[key] = self._prepare(source, relations, hidden)
        return prepared

    def calls(self, source: DataFrame, relations: Mapping[str, NamedRelation]) -> Calls:
        """Return the statement in Spark SQL over its views, with the calls in it."""
        text, by_name = without_semicolon(self.sql), self.functions.by_name
        if self.dialect != "spark":
            text, by_name = mark_functions(text, self.dialect, self.functions)
            text = translate_to_spark(text, self.dialect, self._analysis(source.sparkSession, relations, by_name))
        return Calls(self._placed(text, relations), by_name)

    def _analysis(
        self, spark: SparkSession, relations: Mapping[str, NamedRelation], by_name: Mapping[str, Handle]
    ) -> SparkAnalysis:
        """Return Spark's analysis for translations; the source's rows must be registered before."""
        return SparkAnalysis(spark, lambda query: Calls(self._placed(query, relations), by_name).written(self._write))

    def _placed(self, text: str, relations: Mapping[str, NamedRelation]) -> str:
        """Return the text with views in place of the tables that it names; raise MissingTable for others."""
        try:
            tree = parse_query(text)
        except SqlError as exc:
            raise SqlError(exc.what, hint=statement_errors.HINT) from exc
        known = {SOURCE: quote(self.view), **{name.lower(): item.text for name, item in relations.items()}}
        replacements = []
        for table in _tables(tree):
            name = ".".join(table_name_parts(table))
            if name.lower() not in known:
                raise MissingTable(
                    f"the SQL reads {name}, which is neither source nor a lookup",
                    hint=did_you_mean(name, [SOURCE, *relations]),
                    table=name,
                )
            replacements.append((table, known[name.lower()]))
        return replace_in_text(text, tree, replacements)

    def _prepare(
        self, source: DataFrame, relations: Mapping[str, NamedRelation], hidden: Sequence[str]
    ) -> PreparedStatement:
        spark, calls = source.sparkSession, self.calls(source, relations)
        tree = parse_query(calls.tokens.text)
        row_wise = is_row_wise(tree, self.view) and not any(call.is_aggregate for call in calls.all_calls.values())
        types = self._types(spark, calls)

        def write(call: Call, args: list[str], tail: str) -> str:
            return self._write(call, argument_types.cast_arguments(call, args, types.get(call.span[0])), tail)

        text = calls.written(write)
        columns = spark.sql(text).columns
        names = self._names(columns, tree)
        if row_wise and hidden:
            missing = [name for name in hidden if name in source.columns and name not in columns]
            text, names, row_wise = self._with_hidden(spark, text, names, missing)
        plan = None
        if self.aggregates_in_parts and not row_wise:
            merging = {handle: self.registered.merging(handle) for handle in self.functions.aggregates}
            plan = partial_plan(calls, tree, write=write, merging=merging, columns=_columns_of(tree, source, relations))
        return PreparedStatement(text, names, row_wise, self._proven(spark, plan, text))

    def _write(self, call: Call, args: list[str], tail: str) -> str:
        """Return a call in Spark SQL; an aggregate receives the rows of a group as a list."""
        name = self.registered.name(call.handle)
        if not call.is_aggregate:
            return f"{name}({', '.join(args)})"
        distinct = "DISTINCT " if call.distinct else ""
        return f"{name}(collect_list({distinct}{argument_types.pack_arguments(args)}){tail})"

    def _types(self, spark: SparkSession, calls: Calls) -> dict[int, list[str] | None]:
        """Return the argument types of every call; raise PlanError for wrong ones."""
        if not calls.all_calls:
            return {}
        spark.sql(calls.written(self._write)).schema  # noqa: B018  other errors are raised first
        types_by_call: dict[int, list[str] | None] = {}
        for number, call in calls.all_calls.items():
            types = argument_types.types_at(spark, calls, call, self._write)
            if types is not None:
                argument_types.require_types(calls, call, types)
            types_by_call[number] = types
        return types_by_call

    def _names(self, columns: Sequence[str], tree: Any) -> tuple[str, ...]:
        """Return the result's column names; one with a generated function name gets the user's text instead."""
        texts = iter([
            _MARK.sub("", node.sql(dialect="spark", normalize_functions=False))
            for node in tree.selects
            if not isinstance(node, exp.Alias) and self._calls_in(node)
        ])  # fmt: skip
        return tuple(next(texts, name) if self.registered.is_ours(name) else name for name in columns)

    def _calls_in(self, node: Any) -> bool:
        known = {handle.name.lower() for handle in self.functions.handles}
        return any(word in known for word in re.findall(r"\w+", _MARK.sub("", node.sql(dialect="spark")).lower()))

    def _with_hidden(
        self, spark: SparkSession, text: str, names: tuple[str, ...], hidden: Sequence[str]
    ) -> tuple[str, tuple[str, ...], bool]:
        """Return the statement with hidden source columns; unchanged, if it turns out not to be row by row."""
        from pyspark.errors import AnalysisException

        plain = Calls(text, {})
        clauses = clauses_of(plain.tokens, parse_query(text))
        if clauses is None:
            return text, names, False
        alias = source_alias(clauses.tree, self.view)
        added = "".join(f", {quote(alias)}.{quote(name)}" for name in hidden)
        place = plain.tokens.end(clauses.source[0] - 1)
        longer = text[:place] + added + text[place:]
        try:
            spark.sql(longer).schema  # noqa: B018
        except AnalysisException:
            return text, names, False
        return longer, (*names, *hidden), True

    def _proven(self, spark: SparkSession, plan: PartialPlan | None, text: str) -> PartialPlan | None:
        """Return the two-step plan if Spark gives it the same types as the statement itself, else None."""
        from pyspark.errors import AnalysisException

        if plan is None:
            return None
        with ExitStack() as open_until:
            try:
                frame = self._in_parts(spark, plan, open_until)
                alike = frame is not None and _kinds(frame) == _kinds(spark.sql(text))
            except AnalysisException:
                return None
        return plan if alike else None

    def _in_parts(self, spark: SparkSession, plan: PartialPlan, open_until: ExitStack) -> DataFrame | None:
        rows = spark.sql(plan.inner)
        key_types = [kind for _, kind in rows.dtypes[: plan.keys]]
        if not all(map(is_atomic, key_types)):
            return None
        view = f"flow_states_{uuid.uuid4().hex}"
        states: Any = rows.mapInArrow(plan.task(), plan.schema(key_types))
        states.createOrReplaceTempView(view)
        open_until.callback(spark.catalog.dropTempView, view)
        return spark.sql(plan.outer(view))

    def _run(self, spark: SparkSession, ready: PreparedStatement, open_until: ExitStack) -> DataFrame:
        frame = self._in_parts(spark, ready.partial, open_until) if ready.partial is not None else None
        frame = frame if frame is not None else spark.sql(ready.text)
        return frame if tuple(frame.columns) == ready.names else frame.toDF(*ready.names)

    @contextmanager
    def translated_errors(self, source: DataFrame, relations: Mapping[str, NamedRelation]) -> Iterator[None]:
        """Raise errors of the statement as a FlowError with the nearest name."""
        try:
            yield
        except FlowError as exc:
            exc.at(self.where)
            raise
        except Exception as exc:
            columns = [*source.columns, *(name for item in relations.values() for name, _ in item.types)]
            functions = [handle.name for handle in self.functions.handles]
            raise statement_errors.explained_error(exc, columns, functions).at(self.where) from exc


def _tables(tree: Any) -> list[Any]:
    """Return the tables that are not names of WITH queries in scope."""
    from sqlglot.optimizer.scope import traverse_scope

    named = [item for scope in traverse_scope(tree) for item in scope.sources.values() if isinstance(item, exp.Table)]
    return list({id(item): item for item in named if isinstance(item.this, exp.Identifier)}.values())


def is_row_wise(tree: Any, view: str) -> bool:
    """Return whether every row of the result depends on exactly one row of the source."""
    across = ("group", "having", "distinct", "limit", "offset", "qualify", "windows", "with", "with_", "sample")
    if not isinstance(tree, exp.Select) or any(tree.args.get(name) for name in across):
        return False
    if len(list(tree.find_all(exp.Select))) != 1 or tree.find(exp.AggFunc, exp.Window) is not None:
        return False
    sources = [table for table in tree.find_all(exp.Table) if table.name == view]
    sides = [str(join.side or "").upper() for join in tree.find_all(exp.Join)]
    first = tree.find(exp.From)
    return (
        len(sources) == 1
        and first is not None
        and first.this is sources[0]
        and all(side in ("", "LEFT") for side in sides)
    )


def source_alias(tree: Any, view: str) -> str:
    """Return the alias or name of the source in the statement."""
    return str(next(table for table in tree.find_all(exp.Table) if table.name == view).alias_or_name)


def _columns_of(tree: Any, source: DataFrame, relations: Mapping[str, NamedRelation]) -> frozenset[str] | None:
    """Return the columns that FROM provides, None where they cannot be derived from the tables' own."""
    if tree.find(exp.CTE, exp.Subquery) is not None:
        return None
    names = [*source.columns, *(name for item in relations.values() for name, _ in item.types)]
    return frozenset(name.lower() for name in names)


def _kinds(frame: DataFrame) -> list[str]:
    return [kind for _, kind in frame.dtypes]
