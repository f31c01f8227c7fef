"""The SQL that all dialects share; each dialect overrides what differs.

Every rendered expression can be used as an operand: it is a call, a literal, or in parentheses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ematix_flow.declare.normalizers.patterns import Pattern
from ematix_flow.sql.expressions import tree
from ematix_flow.sql.expressions.literals import literal
from ematix_flow.sql.expressions.tree import Condition, Expression, kind_of
from ematix_flow.sql.expressions.user_sql import transpile

_SHOWN_IN_MESSAGES = 60


class Renderer(ABC):
    """Renders expression trees as SQL of one dialect."""

    dialect: ClassVar[str]
    text_type: ClassVar[str] = "VARCHAR"
    decimal_type: ClassVar[str] = "DECIMAL"
    instant_type: ClassVar[str] = "TIMESTAMPTZ"
    cast: ClassVar[str] = "CAST"
    """The cast of texts that are already checked; TRY_CAST where an engine may evaluate more rows than needed."""
    utc: ClassVar[str] = "+00"
    """The offset of UTC behind the text of an instant."""

    def render(self, expression: Expression) -> str:
        """Return the SQL of an expression."""
        match expression:
            case tree.ColumnExpr(sql):
                return sql
            case tree.LiteralExpr(value):
                return self.literal(value)
            case tree.NullExpr():
                return "NULL"
            case tree.CoalesceExpr(of, otherwise):
                return f"COALESCE({self.render(of)}, {self.render(otherwise)})"
            case tree.NullIfExpr(of, value):
                return self.null_if(of, value)
            case tree.CaseExpr(branches, otherwise):
                whens = " ".join(f"WHEN {self.condition(when)} THEN {self.render(then)}" for when, then in branches)
                return f"CASE {whens} ELSE {self.render(otherwise)} END"
            case tree.UserSqlExpr(sql, col):
                return f"({transpile(sql, self.dialect, replacing_col=None if col is None else self.render(col))})"
            case tree.RaiseExpr(message, subject, kind):
                return self.raising(message, tree.SubstringExpr(subject, 1, _SHOWN_IN_MESSAGES), kind)
            case tree.RoundExpr(of, digits):
                return self.round(of, digits)
        return self._text(expression)

    def _text(self, expression: Expression) -> str:
        match expression:
            case tree.AsTextExpr(of):
                return self.as_text(self.render(of))
            case tree.TrimExpr(of):
                return self.trim(self.render(of))
            case tree.LowerExpr(of):
                return self.lower(self.render(of))
            case tree.UpperExpr(of):
                return self.upper(self.render(of))
            case tree.SubstringExpr(of, start, length):
                return self.substring(self.render(of), start, length)
            case tree.ConcatExpr(parts):
                return self.concat([self.render(part) for part in parts])
            case tree.ReplaceExpr(of, old, new):
                return f"REPLACE({self.render(of)}, {self.literal(old)}, {self.literal(new)})"
            case tree.RegexReplaceExpr():
                return self.regex_replace(expression)
        return self._typed(expression)

    def _typed(self, expression: Expression) -> str:
        match expression:
            case tree.ToIntegerExpr(of):
                return self.to_integer(self.render(of))
            case tree.ToDecimalExpr(of, precision, scale):
                return self.to_decimal(self.render(of), precision, scale)
            case tree.ToDateExpr(of):
                return self.to_date(self.render(of))
            case tree.ToInstantExpr(local, offset):
                return self.to_instant(self.render(local), None if offset is None else self.render(offset))
            case tree.AtTimeZoneExpr(of, zone):
                return self.at_time_zone(of, zone)
            case tree.DateTruncExpr(of, unit):
                return self.date_trunc(of, unit)
        raise TypeError(f"{expression!r} is no expression")

    def condition(self, condition: Condition) -> str:
        """Return the SQL of a condition."""
        match condition:
            case tree.IsNullExpr(of):
                return f"{self.render(of)} IS NULL"
            case tree.MatchesExpr(of, pattern):
                return self.matches(self.render(of), pattern)
            case tree.OneOfExpr(of, texts):
                return self.one_of(self.render(of), [self.literal(text) for text in texts])
            case tree.CompareExpr(left, operator, right):
                return self.compare(left, operator, right)
            case tree.AndNotExpr(holds, fails):
                return f"({self.condition(holds)} AND NOT {self.condition(fails)})"
            case tree.SearchesExpr(of, pattern):
                return self.searches(self.render(of), pattern)
            case tree.NotExpr(of):
                return f"NOT ({self.condition(of)})"
            case tree.EitherExpr(parts):
                return f"({' OR '.join(self.condition(part) for part in parts)})"

    def literal(self, value: tree.Value) -> str:
        """Return a literal."""
        return literal(value, self.dialect)

    def null_if(self, of: Expression, value: tree.LiteralExpr) -> str:
        """Return NULL where the value equals the literal."""
        return f"NULLIF({self.render(of)}, {self.literal(value.value)})"

    def as_text(self, x: str) -> str:
        """Return the value as text."""
        return f"CAST({x} AS {self.text_type})"

    def trim(self, x: str) -> str:
        """Return the text without spaces at both ends."""
        return f"TRIM({x})"

    def lower(self, x: str) -> str:
        """Return the text in lower case."""
        return f"LOWER({x})"

    def upper(self, x: str) -> str:
        """Return the text in upper case."""
        return f"UPPER({x})"

    def substring(self, x: str, start: int, length: int | None) -> str:
        """Return a part of a text."""
        if length is None:
            return f"SUBSTRING({x}, {start})"
        return f"LEFT({x}, {length})" if start == 1 else f"SUBSTRING({x}, {start}, {length})"

    def concat(self, parts: list[str]) -> str:
        """Return the concatenation of texts."""
        return f"({' || '.join(parts)})"

    def one_of(self, x: str, texts: list[str]) -> str:
        """Return the condition that a text is in a list."""
        return f"{x} IN ({', '.join(texts)})"

    def compare(self, left: Expression, operator: str, right: Expression) -> str:
        """Return a comparison with `<` or `>`."""
        return f"{self.render(left)} {operator} {self.render(right)}"

    def to_date(self, x: str) -> str:
        """Return the date of an ISO text."""
        return f"{self.cast}({x} AS DATE)"

    def to_integer(self, x: str) -> str:
        """Return the 64-bit integer of a text."""
        return f"{self.cast}({x} AS BIGINT)"

    def to_decimal(self, x: str, precision: int, scale: int) -> str:
        """Return the exact decimal of a text; the cast rounds half away from zero."""
        return f"{self.cast}({x} AS {self.decimal_type}({precision}, {scale}))"

    def to_instant(self, local: str, offset: str | None) -> str:
        """Return the instant of a local time and its offset, which is always appended: the session's zone has no effect."""
        return f"{self.cast}({self.concat([local, offset or self.literal(self.utc)])} AS {self.instant_type})"

    def at_time_zone(self, of: Expression, zone: str) -> str:
        """Return the local time of an instant, or the instant of a local time."""
        return f"({self.render(of)} AT TIME ZONE {self.literal(zone)})"

    def date_trunc(self, of: Expression, unit: str) -> str:
        """Return the start of a unit of time in UTC, independent of the session's time zone."""
        x, name = self.render(of), self.literal(unit)
        if kind_of(of) == "timestamp":
            return f"DATE_TRUNC({name}, {x})"
        wall_clock = f"CAST({x} AS TIMESTAMP)" if kind_of(of) == "date" else f"({x} AT TIME ZONE 'UTC')"
        return f"(DATE_TRUNC({name}, {wall_clock}) AT TIME ZONE 'UTC')"

    @abstractmethod
    def matches(self, x: str, pattern: str) -> str:
        """Return the condition that the whole text matches."""

    @abstractmethod
    def searches(self, x: str, pattern: Pattern) -> str:
        """Return the condition that the pattern matches somewhere in the text."""

    @abstractmethod
    def regex_replace(self, expression: tree.RegexReplaceExpr) -> str:
        """Return the text with matches replaced."""

    @abstractmethod
    def round(self, of: Expression, digits: int) -> str:
        """Return the number rounded half away from zero."""

    @abstractmethod
    def raising(self, message: str, subject: Expression, kind: tree.Kind) -> str:
        """Return an expression that fails the statement when it is evaluated."""
