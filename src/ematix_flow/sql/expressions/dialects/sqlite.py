"""SQLite, with the functions of `sqlite_functions.register`."""

from __future__ import annotations

from datetime import date, datetime

from ematix_flow.declare.normalizers.patterns import Pattern
from ematix_flow.sql.expressions import tree
from ematix_flow.sql.expressions.dialects.renderer import Renderer
from ematix_flow.sql.expressions.tree import Expression, kind_of


class SQLiteRenderer(Renderer):
    """SQLite; instants, dates and decimals are text, booleans 1 and 0."""

    dialect = "sqlite"
    text_type = "TEXT"

    def null_if(self, of: Expression, value: tree.LiteralExpr) -> str:
        """Compare by type: a number, date or time may be stored as text."""
        x, literal = self.render(of), self.literal(value.value)
        if isinstance(value.value, str):
            return f"NULLIF({x} COLLATE BINARY, {literal})"
        return f"FLOW_NULLIF({x}, {literal}, '{_meaning(value.value)}')"

    def one_of(self, x: str, texts: list[str]) -> str:
        """Compare case-sensitively, independent of the column's collation."""
        return f"{x} COLLATE BINARY IN ({', '.join(texts)})"

    def compare(self, left: Expression, operator: str, right: Expression) -> str:
        """Compare by the type of the bound if it is a literal."""
        if not isinstance(right, tree.LiteralExpr):
            return super().compare(left, operator, right)
        if isinstance(right.value, str):
            return f"{self.render(left)} COLLATE BINARY {operator} {self.render(right)}"
        return f"FLOW_COMPARE({self.render(left)}, {self.render(right)}, '{_meaning(right.value)}') {operator} 0"

    def lower(self, x: str) -> str:
        """Use a Python function: SQLite's own supports only ASCII."""
        return f"FLOW_LOWER({x})"

    def upper(self, x: str) -> str:
        """Use a Python function: SQLite's own supports only ASCII."""
        return f"FLOW_UPPER({x})"

    def substring(self, x: str, start: int, length: int | None) -> str:
        """Use SUBSTR."""
        return f"SUBSTR({x}, {start})" if length is None else f"SUBSTR({x}, {start}, {length})"

    def matches(self, x: str, pattern: str) -> str:
        """Match the whole text with Python's `re`."""
        return f"FLOW_MATCHES({x}, {self.literal(pattern)})"

    def searches(self, x: str, pattern: Pattern) -> str:
        """Search with Python's `re`."""
        return f"FLOW_SEARCHES({x}, {self.literal(pattern.write('python'))})"

    def regex_replace(self, expression: tree.RegexReplaceExpr) -> str:
        """Replace with Python's `re`, in its replacement syntax; a count of 0 replaces all matches."""
        replacement = "".join(
            part.replace("\\", "\\\\") if isinstance(part, str) else f"\\g<{part}>"
            for part in expression.replacement.parts
        )
        pattern = self.literal(expression.pattern.write("python"))
        count = 0 if expression.everywhere else 1
        return f"FLOW_REGEX_REPLACE({self.render(expression.of)}, {pattern}, {self.literal(replacement)}, {count})"

    def to_integer(self, x: str) -> str:
        """Use CAST AS INTEGER."""
        return f"CAST({x} AS INTEGER)"

    def to_decimal(self, x: str, precision: int, scale: int) -> str:
        """Return an exact decimal, as text."""
        return f"FLOW_DECIMAL({x}, {scale})"

    def to_date(self, x: str) -> str:
        """Return the text: dates are stored as text."""
        return x

    def to_instant(self, local: str, offset: str | None) -> str:
        """Return the instant as text in UTC."""
        return f"FLOW_INSTANT({local}, {offset or self.literal('+0000')})"

    def at_time_zone(self, of: Expression, zone: str) -> str:
        """Use Python's time zone data."""
        name = "FLOW_FROM_ZONE" if kind_of(of) == "timestamp" else "FLOW_TO_ZONE"
        return f"{name}({self.render(of)}, {self.literal(zone)})"

    def date_trunc(self, of: Expression, unit: str) -> str:
        """Truncate in UTC; a local time stays a local time."""
        keeps_wall_clock = int(kind_of(of) == "timestamp")
        return f"FLOW_DATE_TRUNC({self.render(of)}, {self.literal(unit)}, {keeps_wall_clock})"

    def round(self, of: Expression, digits: int) -> str:
        """Round numbers as numbers, and decimals in text as text."""
        return f"FLOW_ROUND({self.render(of)}, {digits})"

    def raising(self, message: str, subject: Expression, kind: tree.Kind) -> str:
        """Use JSON_EXTRACT with the message as an invalid path: the only SQLite error that shows a text."""
        return f"JSON_EXTRACT('{{}}', {self.concat([self.literal(message), self.render(subject)])})"


def _meaning(value: tree.Value) -> str:
    if isinstance(value, datetime):
        return "instant"
    return "date" if isinstance(value, date) else "number"
