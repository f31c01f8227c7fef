"""Column lineage of a SQL query: the source columns of each result column, exactly or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.lineage import column_uses
from ematix_flow.lineage.column_uses import NOTHING, ColumnUse, Uses, around, combined

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

_HASHES = ("MD5", "MD5Digest", "SHA", "SHA1Digest", "SHA2", "SHA2Digest", "StandardHash", "FarmFingerprint")


class Untraceable(Exception):
    """The statement cannot be analysed; the text is the reason."""


class QueryLineage:
    """A query, analysed.

    `known` holds the columns of tables as far as they are known, by the table's name in lower case (`schema.table` or
    `table`), to expand `*`. If they are not known, a column's origin is None, never a guess.
    """

    def __init__(self, query: str, *, dialect: str, known: Mapping[str, Sequence[str]] | None = None) -> None:
        self._root = _scoped(_parsed(query, dialect))
        self._known = {name.lower(): [column.lower() for column in columns] for name, columns in (known or {}).items()}
        self._busy: set[tuple[int, str]] = set()

    @property
    def tables(self) -> list[tuple[str, ...]]:
        """Return the tables that the query reads, each once, in the order of the text."""
        from sqlglot import exp

        stored = {_parts(source) for scope in self._root.traverse() for source in scope.sources.values()}
        written = [table for table in self._root.expression.find_all(exp.Table) if _parts(table) in stored - {None}]
        written.sort(key=lambda table: int(table.parts[0].meta.get("start", 0)))
        return list(dict.fromkeys(parts for table in written if (parts := _parts(table)) is not None))

    @property
    def outputs(self) -> list[str] | None:
        """Return the columns of the result; None if a `*` cannot be expanded."""
        return self._outputs(self._root)

    def of(self, column: str) -> Uses | None:
        """Return the uses of a result column; None if they cannot be determined."""
        return self._column(self._root, column)

    def row_conditions(self) -> Uses:
        """Return the columns that decide which rows are returned: in joins, filters and groups."""
        return self._conditions(self._root, set())

    # -- columns of a scope

    def _column(self, scope: Scope, name: str) -> Uses | None:
        key = (id(scope), name.lower())
        if key in self._busy:  # a recursive query adds no new origin to itself
            return NOTHING
        self._busy.add(key)
        try:
            return self._found(scope, name)
        finally:
            self._busy.discard(key)

    def _found(self, scope: Scope, name: str) -> Uses | None:
        from sqlglot import exp

        tree: Any = scope.expression
        if isinstance(tree, exp.SetOperation):
            return self._of_both(scope, name)
        if isinstance(tree, exp.Subquery):
            inner = next(iter(scope.derived_table_scopes), None)
            return self._column(inner, name) if inner is not None else None
        if isinstance(tree, exp.UDTF) or not isinstance(tree, exp.Select):
            return self._of_function(scope, tree)
        renamed = [str(column) for column in scope.outer_columns or ()]
        for position, projection in enumerate(tree.expressions):
            shown = renamed[position] if position < len(renamed) else projection.alias_or_name
            if shown.lower() == name.lower() and not projection.is_star:
                return self._expression(scope, projection.unalias())
        return self._by_star(scope, tree, name)

    def _of_both(self, scope: Scope, name: str) -> Uses | None:
        """Return the uses of a UNION's column: of the columns at the same position on both sides."""
        left, right = scope.set_operation_scopes[:2]
        names, others = self._outputs(left), self._outputs(right)
        if names is None or others is None:
            own, other = self._column(left, name), self._column(right, name)
        else:
            place = next((at for at, one in enumerate(names) if one.lower() == name.lower()), None)
            if place is None or place >= len(others):
                return None
            own, other = self._column(left, names[place]), self._column(right, others[place])
        return None if own is None or other is None else own | other

    def _of_function(self, scope: Scope, tree: Any) -> Uses | None:
        """Return the uses of rows from a table function: all its arguments."""
        from sqlglot import exp

        outside = scope.parent or scope
        arguments = (self._reference(outside, column) for column in tree.find_all(exp.Column))
        return combined(arguments, subtype=column_uses.TRANSFORMATION)

    def _by_star(self, scope: Scope, tree: exp.Select, name: str) -> Uses | None:
        for star in tree.expressions:
            if not star.is_star:
                continue
            marks: Any = star if type(star).__name__ == "Star" else star.this
            if name.lower() in (str(one.name).lower() for one in marks.args.get("except_") or ()):
                continue
            for replaced in marks.args.get("replace") or ():
                if replaced.alias_or_name.lower() == name.lower():
                    return self._expression(scope, replaced.unalias())
            for renamed in marks.args.get("rename") or ():
                if renamed.alias.lower() == name.lower():
                    return self._unqualified(scope, renamed.this.name)
            table = star.args.get("table") if type(star).__name__ == "Column" else None
            inner_uses = (
                self._from_source(scope, table.name, name) if table is not None else self._unqualified(scope, name)
            )
            if inner_uses is not None:
                return inner_uses
        return None

    def _outputs(self, scope: Scope) -> list[str] | None:
        from sqlglot import exp

        tree: Any = scope.expression
        if isinstance(tree, exp.SetOperation):
            return self._outputs(scope.set_operation_scopes[0])
        if scope.outer_columns:
            return [str(column) for column in scope.outer_columns]
        if not isinstance(tree, exp.Select):
            return None
        names: list[str] = []
        for projection in tree.expressions:
            more = self._starred(scope, projection) if projection.is_star else [projection.alias_or_name]
            if more is None:
                return None
            names += more
        return names

    def _starred(self, scope: Scope, star: Any) -> list[str] | None:
        marks = star if type(star).__name__ == "Star" else star.this
        if any(marks.args.get(word) for word in ("except_", "replace", "rename")):
            return None
        table = star.args.get("table") if type(star).__name__ == "Column" else None
        names: list[str] = []
        for alias, source in self._sources(scope):
            if table is not None and alias.lower() != table.name.lower():
                continue
            columns = self._columns_of(source)
            if columns is None:
                return None
            names += columns
        return names

    # -- sources of a scope

    def _sources(self, scope: Scope) -> list[tuple[str, Any]]:
        return [(name, source) for name, (_, source) in scope.selected_sources.items()]

    def _columns_of(self, source: Any) -> list[str] | None:
        parts = _parts(source)
        if parts is None:
            return self._outputs(source) if hasattr(source, "sources") else None
        for length in range(len(parts), 0, -1):
            columns = self._known.get(".".join(parts[-length:]).lower())
            if columns is not None:
                return list(columns)
        return None

    def _from_source(self, scope: Scope, alias: str, name: str) -> Uses | None:
        source = next((source for known, source in self._sources(scope) if known.lower() == alias.lower()), None)
        if source is None:
            return self._from_source(scope.parent, alias, name) if scope.parent is not None else None
        return self._of_source(source, name)

    def _of_source(self, source: Any, name: str) -> Uses | None:
        parts = _parts(source)
        if parts is not None:
            return frozenset({ColumnUse(parts, name)})
        return self._column(source, name) if hasattr(source, "sources") else NOTHING

    def _unqualified(self, scope: Scope, name: str) -> Uses | None:
        """Return the uses of a column without a table: of the only source that has it, or that may have it."""
        sure, possible = [], []
        for _, source in self._sources(scope):
            columns = self._columns_of(source)
            if columns is None:
                possible.append(source)
            elif name.lower() in (column.lower() for column in columns):
                sure.append(source)
        if not sure and len(possible) == 1:
            return self._of_source(possible[0], name)
        if len(sure) == 1:
            return self._of_source(sure[0], name)
        if sure and self._is_shared(scope, name):
            candidates = [self._of_source(source, name) for source in sure]
            return frozenset().union(*(one for one in candidates if one is not None))
        if not sure and not possible and scope.parent is not None:
            return self._unqualified(scope.parent, name)
        return None

    def _is_shared(self, scope: Scope, name: str) -> bool:
        """Return whether a JOIN … USING merges several columns into one."""
        joins = scope.expression.args.get("joins") or ()
        return any(name.lower() == one.name.lower() for join in joins for one in join.args.get("using") or ())

    # -- expressions

    def _reference(self, scope: Scope, column: Any) -> Uses | None:
        table = column.args.get("table")
        if table is None:
            return self._unqualified(scope, column.name)
        inner_uses = self._from_source(scope, table.name, column.name)
        # `a.b` may be the field b of the column a.
        return inner_uses if inner_uses is not None else self._unqualified(scope, column.parts[0].name)

    def _expression(self, scope: Scope, node: Any) -> Uses | None:
        from sqlglot import exp

        if isinstance(node, exp.Column):
            return self._reference(scope, node)
        if isinstance(node, (exp.Subquery, exp.Exists, exp.Query)):
            return self._of_subquery(scope, node)
        subtype = column_uses.AGGREGATION if isinstance(node, exp.AggFunc) else column_uses.TRANSFORMATION
        if isinstance(node, (exp.Alias, exp.Paren)):
            subtype = column_uses.IDENTITY
        masking = type(node).__name__ in _HASHES
        collected: set[ColumnUse] = set()
        for child, kind, reason in _children(node):
            child_uses = self._expression(scope, child)
            if child_uses is None:
                return None
            collected |= around(child_uses, type=kind, subtype=reason or subtype, masking=masking)
        return frozenset(collected)

    def _of_subquery(self, scope: Scope, node: Any) -> Uses | None:
        from sqlglot import exp

        query = node.find(exp.Query) if isinstance(node, exp.Exists) else node.unnest()
        inner = next((one for one in scope.subquery_scopes if one.expression is query), None)
        if inner is None:
            return None
        conditions = self._conditions(inner, set())
        if isinstance(node, exp.Exists):
            return around(conditions, type=column_uses.INDIRECT, subtype=column_uses.FILTER)
        names = self._outputs(inner)
        if names is None:
            return None
        uses = combined((self._column(inner, name) for name in names), subtype=column_uses.TRANSFORMATION)
        return None if uses is None else uses | conditions

    # -- conditions

    def _conditions(self, scope: Scope, seen: set[int]) -> Uses:
        if id(scope) in seen:
            return NOTHING
        seen.add(id(scope))
        collected: set[ColumnUse] = set()
        for node, reason in _deciding(scope.expression):
            node_uses = self._expression(scope, self._spelled_out(scope, node))
            collected |= around(node_uses or (), type=column_uses.INDIRECT, subtype=reason)
        inner = [source for _, source in self._sources(scope) if hasattr(source, "sources")]
        for child in (*inner, *scope.set_operation_scopes, *scope.derived_table_scopes):
            collected |= self._conditions(child, seen)
        return frozenset(collected)

    def _spelled_out(self, scope: Scope, node: Any) -> Any:
        """Return the result column's expression that `GROUP BY 1` or `ORDER BY total` means, else the node itself."""
        from sqlglot import exp

        tree: Any = scope.expression
        inner = node.this if isinstance(node, exp.Ordered) else node
        projections = tree.expressions if isinstance(tree, exp.Select) else []
        if isinstance(inner, exp.Literal) and inner.is_int:
            place = int(inner.name) - 1
            return projections[place].unalias() if 0 <= place < len(projections) else node
        if isinstance(inner, exp.Column) and inner.args.get("table") is None:
            for projection in projections:
                if isinstance(projection, exp.Alias) and projection.alias.lower() == inner.name.lower():
                    return projection.this
        return node


def _parsed(query: str, dialect: str) -> Any:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    problem = ""
    for notation in dict.fromkeys((dialect, "spark", "postgres", "")):
        try:
            trees = [tree for tree in sqlglot.parse(query, read=notation or None) if tree is not None]
        except (SqlglotError, ValueError) as error:
            problem = problem or str(error).splitlines()[0]
            continue
        if len(trees) == 1 and isinstance(trees[0], exp.Query):
            return trees[0]
        raise Untraceable("it is not one query")
    raise Untraceable(problem)


def _scoped(tree: Any) -> Scope:
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import build_scope

    scope = build_scope(tree)
    if scope is None:
        raise Untraceable("it is not a query")
    try:
        for inner in scope.traverse():
            _ = inner.selected_sources  # raises here for two tables of one name, not in later calls
    except SqlglotError as error:
        raise Untraceable(str(error)) from None
    return scope


def _parts(source: Any) -> tuple[str, ...] | None:
    """Return the parts of a table's name; None for anything other than a stored table."""
    from sqlglot import exp

    if not isinstance(source, exp.Table) or not all(isinstance(part, exp.Identifier) for part in source.parts):
        return None
    return tuple(part.name for part in source.parts)


def _children(node: Any) -> Iterator[tuple[Any, str, str]]:
    """Yield the direct child expressions of a node, with the type and subtype of their use."""
    from sqlglot import exp

    if isinstance(node, exp.Case):
        if node.this is not None:
            yield node.this, column_uses.INDIRECT, column_uses.CONDITIONAL
        for branch in node.args.get("ifs") or ():
            yield branch.this, column_uses.INDIRECT, column_uses.CONDITIONAL
            yield branch.args["true"], column_uses.DIRECT, ""
        if node.args.get("default") is not None:
            yield node.args["default"], column_uses.DIRECT, ""
        return
    if isinstance(node, exp.If):
        yield node.this, column_uses.INDIRECT, column_uses.CONDITIONAL
        for word in ("true", "false"):
            if node.args.get(word) is not None:
                yield node.args[word], column_uses.DIRECT, ""
        return
    if isinstance(node, exp.Window):
        yield node.this, column_uses.DIRECT, ""
        for part in node.args.get("partition_by") or ():
            yield part, column_uses.INDIRECT, column_uses.WINDOW
        if node.args.get("order") is not None:
            yield node.args["order"], column_uses.INDIRECT, column_uses.WINDOW
        return
    for child in node.iter_expressions():
        if not isinstance(child, (exp.Identifier, exp.DataType, exp.Star)):
            yield child, column_uses.DIRECT, ""


def _deciding(tree: Any) -> Iterator[tuple[Any, str]]:
    """Yield the parts of a query that decide which rows are returned."""
    for word in ("where", "having", "qualify"):
        if tree.args.get(word) is not None:
            yield tree.args[word].this, column_uses.FILTER
    for join in tree.args.get("joins") or ():
        if join.args.get("on") is not None:
            yield join.args["on"], column_uses.JOIN
        for shared in join.args.get("using") or ():
            yield _as_column(shared), column_uses.JOIN
    if tree.args.get("group") is not None:
        for term in tree.args["group"].expressions:
            yield term, column_uses.GROUP_BY
    if tree.args.get("order") is not None and tree.args.get("limit") is not None:
        for term in tree.args["order"].expressions:
            yield term, column_uses.SORT


def _as_column(node: Any) -> Any:
    from sqlglot import exp

    return exp.column(node.name) if isinstance(node, exp.Identifier) else node
