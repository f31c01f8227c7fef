"""DuckDB."""

from __future__ import annotations

from ematix_flow.declare.normalizers.patterns import Pattern
from ematix_flow.sql.expressions import tree
from ematix_flow.sql.expressions.dialects.regexes import with_backslashes
from ematix_flow.sql.expressions.dialects.renderer import Renderer
from ematix_flow.sql.expressions.tree import CannotRender, Expression, kind_of

_DECIMALS_OF_A_DOUBLE = 16


class DuckDBRenderer(Renderer):
    """DuckDB; casts are TRY_CAST behind exact conditions, because it may evaluate more rows of a vector than needed."""

    dialect = "duckdb"
    cast = "TRY_CAST"

    def trim(self, x: str) -> str:
        """Trim only spaces: without a list of characters every Unicode space would be removed."""
        return f"TRIM({x}, ' ')"

    def matches(self, x: str, pattern: str) -> str:
        """Use REGEXP_FULL_MATCH."""
        return f"REGEXP_FULL_MATCH({x}, {self.literal(pattern)})"

    def searches(self, x: str, pattern: Pattern) -> str:
        """Use REGEXP_MATCHES; raise CannotRender for lookaround, which RE2 does not support."""
        if pattern.looks_around:
            raise CannotRender("regex", self.dialect, f"it cannot look around as {pattern.source!r} does")
        return f"REGEXP_MATCHES({x}, {self.literal(pattern.write('re2'))})"

    def regex_replace(self, expression: tree.RegexReplaceExpr) -> str:
        """Use REGEXP_REPLACE; raise CannotRender for lookaround, which RE2 does not support."""
        pattern = expression.pattern
        if pattern.looks_around:
            raise CannotRender("regex_replace", self.dialect, f"it cannot look around as {pattern.source!r} does")
        arguments = [
            self.render(expression.of),
            self.literal(pattern.write("re2")),
            self.literal(with_backslashes(expression.replacement)),
            *([self.literal("g")] if expression.everywhere else []),
        ]
        return f"REGEXP_REPLACE({', '.join(arguments)})"

    def round(self, of: Expression, digits: int) -> str:
        """Round the value's text: doubles would be multiplied first, and 2.675 * 100 is less than 267.5.

        A value that fits no decimal is a double whose digits end before the rounding position; it is kept.
        """
        x = self.render(of)
        if kind_of(of) == "numeric":
            return f"ROUND({x}, {digits})"
        if digits >= 0:
            return f"COALESCE(TRY_CAST(CAST({x} AS VARCHAR) AS DECIMAL(38, {digits})), {x})"
        exact = f"ROUND(TRY_CAST(CAST({x} AS VARCHAR) AS DECIMAL(38, {_DECIMALS_OF_A_DOUBLE})), {digits})"
        large = f"CASE WHEN TYPEOF({x}) IN ('DOUBLE', 'FLOAT') THEN {x} ELSE ROUND({x}, {digits}) END"
        return f"COALESCE({exact}, {large})"

    def raising(self, message: str, subject: Expression, kind: tree.Kind) -> str:
        """Use ERROR."""
        return f"ERROR({self.concat([self.literal(message), self.render(subject)])})"
