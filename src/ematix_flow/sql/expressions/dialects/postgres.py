"""PostgreSQL 12 and later."""

from __future__ import annotations

from ematix_flow.declare.normalizers.patterns import Pattern
from ematix_flow.sql.expressions import tree
from ematix_flow.sql.expressions.dialects.regexes import with_backslashes
from ematix_flow.sql.expressions.dialects.renderer import Renderer
from ematix_flow.sql.expressions.tree import CannotRender, Expression, kind_of

_TYPES: dict[tree.Kind, str] = {
    "text": "TEXT", "big_int": "BIGINT", "numeric": "NUMERIC", "boolean": "BOOLEAN", "date": "DATE",
    "timestamp": "TIMESTAMP", "timestamp_tz": "TIMESTAMPTZ",
}  # fmt: skip


class PostgresRenderer(Renderer):
    """PostgreSQL, independent of the database's locale and the session's time zone."""

    dialect = "postgres"
    text_type = "TEXT"
    decimal_type = "NUMERIC"

    def lower(self, x: str) -> str:
        """Use ICU's rules, because the C locale supports only ASCII; reset the collation afterwards."""
        return f'(LOWER({x} COLLATE "und-x-icu") COLLATE "default")'

    def upper(self, x: str) -> str:
        """Use ICU's rules, as `lower` does."""
        return f'(UPPER({x} COLLATE "und-x-icu") COLLATE "default")'

    def matches(self, x: str, pattern: str) -> str:
        """Anchor the pattern; `$` matches only at the very end here."""
        return f"{x} ~ {self.literal(f'^(?:{pattern})$')}"

    def searches(self, x: str, pattern: Pattern) -> str:
        """Use `~`: whether a match exists does not depend on which one is found."""
        return f"{x} ~ {self.literal(pattern.write('postgres'))}"

    def compare(self, left: Expression, operator: str, right: Expression) -> str:
        """Compare texts by their characters, independent of the database's locale."""
        if isinstance(right, tree.LiteralExpr) and isinstance(right.value, str):
            return f'{self.render(left)} COLLATE "C" {operator} {self.render(right)}'
        return super().compare(left, operator, right)

    def regex_replace(self, expression: tree.RegexReplaceExpr) -> str:
        """Use REGEXP_REPLACE; raise CannotRender where the longest match can differ from the first."""
        pattern = expression.pattern
        if pattern.depends_on_order:
            raise CannotRender("regex_replace", self.dialect, f"it looks for the longest match of {pattern.source!r}")
        arguments = [
            self.render(expression.of),
            self.literal(pattern.write("postgres")),
            self.literal(with_backslashes(expression.replacement, match="\\&")),
            *([self.literal("g")] if expression.everywhere else []),
        ]
        return f"REGEXP_REPLACE({', '.join(arguments)})"

    def round(self, of: Expression, digits: int) -> str:
        """Round the value's text: the cast from double to numeric would keep only 15 digits."""
        x = self.render(of)
        exact = x if kind_of(of) == "numeric" else f"CAST(CAST({x} AS TEXT) AS NUMERIC)"
        return f"ROUND({exact}, {digits})"

    def raising(self, message: str, subject: Expression, kind: tree.Kind) -> str:
        """Cast the message to the type: it depends on the row and is therefore not evaluated early."""
        return f"CAST({self.concat([self.literal(message), self.render(subject)])} AS {_TYPES[kind]})"
