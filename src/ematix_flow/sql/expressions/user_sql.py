"""The user's own SQL expressions, in PostgreSQL or Spark syntax, translated to every dialect."""

from __future__ import annotations

import re
from typing import Any

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.lazy_imports import exp, sqlglot
from ematix_flow.sql.expressions.literals import known_dialect
from ematix_flow.sql.expressions.tree import CannotRender

_READ_AS = ("postgres", "spark")
_PLACEHOLDER = "flow_value_so_far_7f3a"
_DATE_OR_NUMBER = re.compile(r"[-+]?[0-9][-+0-9:. TZ/]*\Z")
_PLAIN_EVERYWHERE = (
    "Column", "Identifier", "Literal", "Null", "Boolean", "Paren", "And", "Or", "Not", "EQ", "NEQ", "LT", "LTE", "GT",
    "GTE", "Is", "In", "Between", "Like", "Add", "Sub", "Mul", "Neg", "Case", "If", "Coalesce", "Nullif", "Lower",
    "Upper", "Trim", "Length", "Concat", "DPipe", "NullSafeEQ", "NullSafeNEQ", "Ordered", "Replace", "Left",
    "Substring", "Abs", "Var", "Tuple", "Escape",
)  # fmt: skip


def transpile(expression: str, dialect: str, replacing_col: str | None = None) -> str:
    """Return an expression in a dialect, with `replacing_col`, if given, in place of the identifier `col`.

    PostgreSQL and Spark accept every expression, other databases only what has the same meaning there; raise
    CannotRender for the rest.

    >>> transpile("col || '!'", "mysql", replacing_col="`name`")
    "CONCAT(`name`, '!')"
    """
    tree = _parse(expression)
    if replacing_col is not None:
        tree = tree.transform(_mark_col)
    dialect = known_dialect(dialect)
    if dialect not in _READ_AS:
        _require_plain(tree, dialect)
    tree = tree.transform(lambda node: _same_meaning(node, dialect))
    written = str(tree.sql(dialect=dialect, comments=False, unsupported_level=_nesting_level(dialect)))
    if replacing_col is not None:
        written = written.replace(_PLACEHOLDER, replacing_col)
    return written


def order_terms(order_by: str, dialect: str) -> str:
    """Return an ORDER BY list; NULL sorts as the largest value in every dialect, as in PostgreSQL."""
    select = _parse_select(f"SELECT 1 ORDER BY {order_by}", shown=order_by)
    order = select.args.get("order")
    if order is None or set(_select_items(select)) != {"expressions", "order"}:
        raise _sql_error(order_by, "it is no list of columns to order by")
    terms = []
    for term in order.expressions:
        inner = term.this if isinstance(term, exp.Ordered) else term
        descending = bool(term.args.get("desc"))
        nulls_first = bool(term.args.get("nulls_first"))
        value = transpile(inner.sql(dialect="postgres"), dialect)
        terms.append(_ordered(value, descending, nulls_first, known_dialect(dialect)))
    return ", ".join(terms)


def _ordered(value: str, descending: bool, nulls_first: bool, dialect: str) -> str:
    direction = "DESC" if descending else "ASC"
    if dialect == "mysql":
        return f"{value} IS NULL {'DESC' if nulls_first else 'ASC'}, {value} {direction}"
    return f"{value} {direction} NULLS {'FIRST' if nulls_first else 'LAST'}"


def _parse(expression: str) -> exp.Expr:
    select = _parse_select(f"SELECT {expression}", shown=expression)
    if set(_select_items(select)) != {"expressions"} or len(select.expressions) != 1:
        raise _sql_error(expression, "it is more than one expression")
    only: exp.Expr = select.expressions[0]
    return only.unalias()


def _parse_select(statement: str, *, shown: str) -> exp.Select:
    problems = []
    for notation in _READ_AS:
        try:
            statements = sqlglot.parse(statement, read=notation)
        except sqlglot.errors.SqlglotError as exc:
            problems.append(str(exc).splitlines()[0])
            continue
        if len(statements) != 1 or not isinstance(statements[0], exp.Select):
            raise _sql_error(shown, "it is more than one expression")
        return statements[0]
    raise _sql_error(shown, problems[0])


def _select_items(select: exp.Select) -> list[str]:
    return [name for name, value in select.args.items() if value]


def _mark_col(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Column) and node.name.lower() == "col" and len(node.parts) == 1:
        return exp.Var(this=_PLACEHOLDER)
    return node


def _require_plain(tree: exp.Expr, dialect: str) -> None:
    for node in tree.walk():
        name = type(node).__name__
        if name not in _PLAIN_EVERYWHERE and not _is_date_literal(node) and not _is_date_literal(node.parent):
            raise CannotRender("sql", dialect, f"{node.sql(dialect='postgres')!r} may mean something else there")
        if dialect == "mysql" and isinstance(node, exp.Predicate):
            _require_comparable(node)


def _is_date_literal(node: Any) -> bool:
    return (
        isinstance(node, exp.Cast)
        and isinstance(node.this, exp.Literal)
        and node.this.is_string
        and node.to.is_type("date")
    )


def _require_comparable(node: exp.Expr) -> None:
    """Raise CannotRender for a comparison that depends on collations; one with a literal that is no word is safe."""
    if not isinstance(node, (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)):
        return
    sides = [node.this, node.expression]
    ordering = isinstance(node, (exp.LT, exp.LTE, exp.GT, exp.GTE))
    values = [side for side in sides if isinstance(side, (exp.Literal, exp.Boolean, exp.Neg, exp.Cast))]
    if not values or (ordering and any(_is_col_word(value) for value in values)):
        raise CannotRender("sql", "mysql", f"{node.sql(dialect='postgres')!r} depends on the columns' collations")


def _is_col_word(node: Any) -> bool:
    return isinstance(node, exp.Literal) and node.is_string and not _DATE_OR_NUMBER.match(node.name)


def _same_meaning(node: exp.Expr, dialect: str) -> exp.Expr:
    """Rewrite nodes that sqlglot would leave unchanged although the dialect gives them another meaning."""
    if dialect == "postgres" and isinstance(node, (exp.Lower, exp.Upper)):
        if not isinstance(node.this, exp.Collate):
            node.set("this", exp.Collate(this=node.this, expression=exp.to_identifier("und-x-icu", quoted=True)))
        return node
    if dialect == "duckdb" and isinstance(node, exp.Trim) and not node.expression:
        node.set("expression", exp.Literal.string(" "))
        return node
    if dialect == "sqlite":
        return _for_sqlite(node)
    if dialect == "mysql":
        return _for_mysql(node)
    return node


def _for_sqlite(node: exp.Expr) -> exp.Expr:
    if isinstance(node, (exp.Lower, exp.Upper)):
        return exp.Anonymous(this=f"FLOW_{type(node).__name__.upper()}", expressions=[node.this])
    if isinstance(node, exp.Like):
        return exp.Anonymous(this="FLOW_LIKE", expressions=[node.this, node.expression])
    if isinstance(node, exp.Left):
        return exp.Anonymous(this="SUBSTR", expressions=[node.this, exp.Literal.number(1), node.expression])
    return node


def _for_mysql(node: exp.Expr) -> exp.Expr:
    if isinstance(node, (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)) and (
        _is_col_word(node.this) or _is_col_word(node.expression)
    ):
        node.set("this", _as_bytes(node.this))
        node.set("expression", _as_bytes(node.expression))
    elif isinstance(node, exp.In) and any(_is_col_word(item) for item in node.expressions):
        node.set("this", _as_bytes(node.this))
        node.set("expressions", [_as_bytes(item) for item in node.expressions])
    elif isinstance(node, exp.Like):
        node.set("this", _as_text(node.this))
    return node


def _as_text(node: exp.Expr) -> exp.Expr:
    converted = exp.Anonymous(this="CONVERT", expressions=[exp.Var(this=f"{node.sql(dialect='mysql')} USING utf8mb4")])
    return exp.Paren(this=exp.Collate(this=converted, expression=exp.Var(this="utf8mb4_bin")))


def _as_bytes(node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="CAST", expressions=[exp.Var(this=f"{_as_text(node).sql(dialect='mysql')} AS BINARY")])


def _nesting_level(dialect: str) -> Any:
    return sqlglot.ErrorLevel.IGNORE if dialect in _READ_AS else sqlglot.ErrorLevel.RAISE


def _sql_error(expression: str, reason: str) -> DeclarationError:
    return DeclarationError(
        f"{expression!r} is not an SQL expression: {reason}", hint="write it in PostgreSQL's or Spark's notation"
    )
