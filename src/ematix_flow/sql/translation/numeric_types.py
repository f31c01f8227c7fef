"""Operators and casts whose meaning in a dialect depends on the types of their operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.translation.fraction_tracking import FractionTracker
from ematix_flow.sql.translation.operand_types import FLOATS, WHOLE, TypeAnalysis, selects_in_order, sites_in, types_of
from ematix_flow.sql.translation.rewriting import (
    build_sql,
    is_truncating_quotient,
    mark_settled,
    shown_node,
    untranslatable,
)

Rule = Callable[[Any, list[str]], Any]
"""Returns the replacement of a node whose operands have these types, None to keep the node."""


def settle_numeric_types(tree: Any, dialect: str, spark: TypeAnalysis) -> Any:
    """Return the tree with every type-dependent node rewritten, from the inside out."""
    root = exp.Subquery(this=tree)  # so that every node of the tree has a parent
    rules = _Rules(dialect, FractionTracker(tree))
    for select in selects_in_order(tree):
        while sites := sites_in(tree, select, rules.is_site):
            for site, types in zip(sites, types_of(tree, select, sites, operands, spark), strict=True):
                mark_settled(site)
                new = rules.by_kind[type(site)](site, types)
                if new is not None:
                    site.replace(new)
    return root.this.pop()


def operands(node: Any) -> list[Any]:
    """Return the expressions whose types decide."""
    if isinstance(node, exp.Binary):
        return [node.left, node.right]
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    inner = node.this
    return [inner.expressions[0] if isinstance(inner, exp.Distinct) else inner]


@dataclass
class _Rules:
    """The rules of one dialect, by node class."""

    dialect: str
    seen: FractionTracker

    def is_site(self, node: Any) -> bool:
        """Return whether the rewriting of a node depends on types."""
        if isinstance(node, exp.Anonymous):
            return self.dialect == "postgres" and str(node.this).upper() == "CONCAT_WS"
        if isinstance(node, exp.Round) and node.args.get("decimals") is not None:
            return False
        return type(node) in self.by_kind

    @cached_property
    def by_kind(self) -> dict[Any, Rule]:
        shared: dict[Any, Rule] = {exp.Div: self._quotient, exp.Ceil: self._whole_part, exp.Floor: self._whole_part,
                                   exp.Trunc: self._whole_part}  # fmt: skip
        if self.dialect == "datafusion":
            return {**shared, exp.Cast: self._bare_decimal}
        shared |= {
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.Sub: self._days,
            exp.Add: self._moved,
            exp.AtTimeZone: self._zone,
        }
        if self.dialect == "duckdb":
            return {**shared, exp.Avg: self._mean}
        return {**shared, exp.Round: self._round, exp.Avg: self._mean, exp.Sum: self._sum, exp.DPipe: self._joined,
                exp.Anonymous: self._joined}  # fmt: skip

    def _quotient(self, node: Any, types: list[str]) -> Any:
        if not all(map(is_number, types)):
            return None
        whole = all(kind in WHOLE for kind in types) and not self.seen.any_fraction(node.left, node.right)
        if self.dialect == "duckdb" and not (whole and is_truncating_quotient(node)):
            return _infinite_quotient(node, types)
        if whole:
            return build_sql(":l DIV :r", l=node.left, r=node.right)
        if any(kind in FLOATS for kind in types):
            return _infinite_quotient(node, types) if self.dialect == "datafusion" else None
        return _long_quotient(node, types) if self.dialect == "postgres" else None

    def _whole_part(self, node: Any, types: list[str]) -> Any:
        """Record that CEIL, FLOOR and TRUNC give a fraction type in the dialect, and an integer in Spark."""
        self.seen.record(node, "numeric" if types[0].startswith("decimal") else "double")

    def _mean(self, node: Any, types: list[str]) -> Any:
        """Rewrite AVG: a decimal of many digits in PostgreSQL, a double in DuckDB."""
        if self.dialect == "postgres" and types[0] in WHOLE:
            self.seen.record(node, "numeric")
        if not types[0].startswith("decimal"):
            return None
        if self.dialect == "duckdb":
            return build_sql("AVG(CAST(:x AS DOUBLE))", x=node.this)
        return build_sql("AVG(CAST(:x AS DECIMAL(34, 16)))", x=node.this) if _fits(types[0], 34, 16) else None

    def _sum(self, node: Any, types: list[str]) -> None:
        """Record that a sum of BIGINT is numeric in PostgreSQL, because it may exceed BIGINT."""
        if types[0] == "bigint":
            self.seen.record(node, "numeric")

    def _cast(self, node: Any, types: list[str]) -> Any:
        wanted, kind = node.to, types[0]
        if wanted.is_type(*exp.DataType.INTEGER_TYPES):
            return self._rounded(node, kind)
        if wanted.is_type(*exp.DataType.TEXT_TYPES):
            return self._text(node, kind)
        return self._bare_decimal(node, types)

    def _rounded(self, node: Any, kind: str) -> Any:
        """Rewrite a cast to an integer, which rounds in the dialect and truncates in Spark."""
        if kind == "string" and type(node).__name__ == "TryCast":
            inner: Any = build_sql("ROUND(TRY_CAST(:x AS DECIMAL(38, 18)))", x=node.this)
        elif kind.startswith("decimal") or (kind in FLOATS and self.seen.of(node.this) == "numeric"):
            inner = build_sql("ROUND(:x)", x=node.this)
        elif kind in FLOATS:
            inner = build_sql("RINT(:x)", x=node.this)
        else:
            return None
        new = node.copy()
        new.set("this", inner)
        return new

    def _text(self, node: Any, kind: str) -> Any:
        if self.dialect == "postgres":
            self._refuse_float_text(node.this, kind)
        size = node.to.expressions
        if not size:
            return None
        if node.to.is_type(exp.DataType.Type.CHAR, exp.DataType.Type.NCHAR):
            raise untranslatable("a text of a fixed length has no twin in Spark SQL", "use rpad(…)")
        words = "LEFT(CAST(:x AS STRING), :n)" if self.dialect == "postgres" else "CAST(:x AS STRING)"
        return build_sql(words, x=node.this, n=size[0].this)

    def _refuse_float_text(self, node: Any, kind: str) -> None:
        if kind in FLOATS:
            raise untranslatable(
                f"{shown_node(node, 'postgres')} is a {kind}, which PostgreSQL writes in other words than Spark SQL",
                "convert it to numeric(p, s) first",
            )

    def _joined(self, node: Any, types: list[str]) -> None:
        for operand, kind in zip(operands(node), types, strict=True):
            self._refuse_float_text(operand, kind)

    def _bare_decimal(self, node: Any, types: list[str]) -> Any:
        """Rewrite DECIMAL without a size: of any size in PostgreSQL, DECIMAL(10, 0) in Spark."""
        if not node.to.is_type(exp.DataType.Type.DECIMAL) or node.to.expressions:
            return None
        if self.dialect == "datafusion":
            return build_sql("CAST(:x AS DECIMAL(38, 10))", x=node.this)
        if types[0].startswith("decimal"):
            return exp.Paren(this=node.this.copy())
        return build_sql(f"CAST(:x AS DECIMAL({'20, 0' if types[0] in WHOLE else '38, 18'}))", x=node.this)

    def _round(self, node: Any, types: list[str]) -> Any:
        """Rewrite ROUND of floats, which PostgreSQL rounds half to even."""
        is_float = types[0] in FLOATS and self.seen.of(node.this) != "numeric"
        return build_sql("RINT(:x)", x=node.this) if is_float else None

    def _days(self, node: Any, types: list[str]) -> Any:
        """Rewrite the difference of dates: a number of days in the dialect, an interval in Spark."""
        if types == ["date", "date"]:
            return build_sql("DATEDIFF(:l, :r)", l=node.left, r=node.right)
        return self._moved(node, types)

    def _moved(self, node: Any, types: list[str]) -> Any:
        """Rewrite a date plus or minus an interval, which is a timestamp in the dialect."""
        if types[0] != "date" or not types[1].startswith("interval"):
            return None
        sign = "+" if isinstance(node, exp.Add) else "-"
        return build_sql(f"CAST(:l AS TIMESTAMP) {sign} :r", l=node.left, r=node.right)

    def _zone(self, node: Any, types: list[str]) -> None:
        if types[0] != "timestamp":
            raise untranslatable(
                f"AT TIME ZONE of a {types[0]} means something else in Spark SQL than in {self.dialect}",
                "write to_utc_timestamp(…) in Spark SQL",
            )


def is_number(kind: str) -> bool:
    """Return whether a Spark type is numeric."""
    return kind in WHOLE or kind in FLOATS or kind.startswith("decimal")


def _fits(kind: str, digits: int, scale: int) -> bool:
    """Return whether every value of a numeric type fits a decimal of this size.

    >>> _fits("decimal(10,2)", 38, 18), _fits("decimal(38,0)", 38, 18), _fits("bigint", 38, 18)
    (True, False, True)
    """
    digits_of_kind, behind = map(int, kind[len("decimal(") : -1].split(",")) if kind.startswith("decimal") else (20, 0)
    return behind <= scale and digits_of_kind - behind <= digits - scale


def _long_quotient(node: Any, types: list[str]) -> Any:
    """Return a quotient of decimals with about as many digits as PostgreSQL gives, None if it may not fit."""
    exact = any(kind.startswith("decimal") for kind in types) and _fits(types[0], 38, 18)
    return build_sql("CAST(:l AS DECIMAL(38, 18)) / :r", l=node.left, r=node.right) if exact else None


def _infinite_quotient(node: Any, types: list[str]) -> Any:
    """Return a quotient of floats that is infinite or NaN when the divisor is 0."""
    exact = any(kind.startswith("decimal") for kind in types)
    left = build_sql("CAST(:l AS DOUBLE)", l=node.left) if exact else node.left
    plain = build_sql(":l / :r", l=left, r=node.right)
    divisor = node.right
    if isinstance(divisor, exp.Literal) and float(divisor.name) != 0:
        return plain
    return build_sql(
        "CASE WHEN :r = 0 THEN CAST(:l AS DOUBLE) * CAST('Infinity' AS DOUBLE) ELSE :p END",
        l=node.left, r=divisor, p=plain,
    )  # fmt: skip
