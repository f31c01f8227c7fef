"""MySQL 8 and MariaDB 10.6 and later, as SQL that both accept."""

from __future__ import annotations

from ematix_flow.declare.normalizers.patterns import Pattern, Replacement
from ematix_flow.sql.expressions import tree
from ematix_flow.sql.expressions.dialects.regexes import first_match_only, whole_match, with_backslashes, with_dollars
from ematix_flow.sql.expressions.dialects.renderer import Renderer
from ematix_flow.sql.expressions.tree import CannotRender, Expression, kind_of

_MOST_GROUPS = 9
_MOST_DECIMALS = 30
_EXACT_BELOW = "1e30"
_LARGEST_UNSIGNED = 2**64 - 1
_UTC_ZONES = ("UTC", "GMT", "Etc/UTC", "Etc/GMT")
_TYPES: dict[tree.Kind, str] = {
    "text": "CHAR", "big_int": "SIGNED", "numeric": "DECIMAL(65, 30)", "boolean": "SIGNED", "date": "DATE",
    "timestamp": "DATETIME(6)", "timestamp_tz": "DATETIME(6)",
}  # fmt: skip
_STARTS = {
    "second": (19, ""), "minute": (16, ":00"), "hour": (13, ":00:00"), "day": (10, ""), "month": (7, "-01"),
    "year": (4, "-01-01"),
}  # fmt: skip


class MySQLRenderer(Renderer):
    """MySQL and MariaDB; text is utf8mb4 in a binary collation, instants are DATETIME(6) in UTC."""

    dialect = "mysql"

    def as_text(self, x: str) -> str:
        """Distinguish case and accents, independent of the column's and the connection's collation."""
        return f"(CONVERT({x} USING utf8mb4) COLLATE utf8mb4_bin)"

    def concat(self, parts: list[str]) -> str:
        """Use CONCAT: || may mean OR."""
        return f"CONCAT({', '.join(parts)})"

    def null_if(self, of: Expression, value: tree.LiteralExpr) -> str:
        """Compare text as bytes, as collations ignore trailing spaces; use CASE otherwise: NULLIF cuts microseconds."""
        x, literal = self.render(of), self.literal(value.value)
        if isinstance(value.value, str):
            return self.as_text(f"NULLIF({_bytes(x)}, {_bytes(literal)})")
        return f"CASE WHEN {x} = {literal} THEN NULL ELSE {x} END"

    def one_of(self, x: str, texts: list[str]) -> str:
        """Compare as bytes, because collations ignore trailing spaces."""
        return f"{_bytes(x)} IN ({', '.join(_bytes(text) for text in texts)})"

    def matches(self, x: str, pattern: str) -> str:
        """Anchor the pattern, because REGEXP searches in the text."""
        return f"({x} REGEXP {self.literal(whole_match(pattern))})"

    def searches(self, x: str, pattern: Pattern) -> str:
        """Use REGEXP."""
        return f"({x} REGEXP {self.literal(pattern.write('icu_pcre'))})"

    def compare(self, left: Expression, operator: str, right: Expression) -> str:
        """Compare texts as bytes, which in UTF-8 have the order of the characters."""
        if isinstance(right, tree.LiteralExpr) and isinstance(right.value, str):
            return f"{_bytes(self.render(left))} {operator} {_bytes(self.render(right))}"
        return super().compare(left, operator, right)

    def regex_replace(self, expression: tree.RegexReplaceExpr) -> str:
        """Use REGEXP_REPLACE; both servers replace all matches, so for one the pattern includes the text around it.

        MySQL 8.0.15 returns UTF-16, and crashes on an empty text that follows a replaced one.
        """
        x, pattern, replacement = (
            self.render(expression.of),
            expression.pattern.write("icu_pcre"),
            expression.replacement,
        )
        if not expression.everywhere:
            pattern, replacement = first_match_only(expression.pattern, replacement, flavour="icu_pcre")
        replaced = self.as_text(f"REGEXP_REPLACE({x}, {self.literal(pattern)}, {self._replacement(replacement)})")
        return f"CASE WHEN CHAR_LENGTH({x}) = 0 THEN {x} ELSE {replaced} END"

    def _replacement(self, replacement: Replacement) -> str:
        if not replacement.takes_groups:
            return self.literal(with_dollars(replacement))  # \$ and \\ mean the same in both
        if max(part for part in replacement.parts if isinstance(part, int)) > _MOST_GROUPS:
            raise CannotRender("regex_replace", self.dialect, "MariaDB counts only nine groups")
        maria, mysql = self.literal(with_backslashes(replacement)), self.literal(with_dollars(replacement))
        return f"IF(INSTR(VERSION(), 'MariaDB') > 0, {maria}, {mysql})"

    def to_integer(self, x: str) -> str:
        """Use CAST AS SIGNED."""
        return f"CAST({x} AS SIGNED)"

    def to_decimal(self, x: str, precision: int, scale: int) -> str:
        """Remove digits without effect before the cast: a strict session rejects more than 80 digits."""
        if scale > _MOST_DECIMALS:
            raise CannotRender("parse_numeric", self.dialect, f"it has at most {_MOST_DECIMALS} decimals")
        idle = f"(?<![0-9.])0+(?=[0-9])|(?<=[.][0-9]{{{scale + 1}}})[0-9]+"
        digits = self.as_text(f"REGEXP_REPLACE({x}, {self.literal(idle)}, '')")
        return f"CAST({digits} AS DECIMAL({precision}, {scale}))"

    def to_instant(self, local: str, offset: str | None) -> str:
        """Subtract the offset, read as a number HHMM, in minutes."""
        wall_clock = f"CAST({local} AS DATETIME(6))"
        if offset is None:
            return wall_clock
        clock = f"CAST({offset} AS SIGNED)"
        return f"TIMESTAMPADD(MINUTE, 40 * ({clock} DIV 100) - {clock}, {wall_clock})"

    def at_time_zone(self, of: Expression, zone: str) -> str:
        """Accept only UTC: zone tables are usually not loaded, and CONVERT_TZ ends in 2038."""
        if zone not in _UTC_ZONES:
            raise CannotRender("to_timezone", self.dialect, f"it cannot be relied on to know {zone}")
        return f"CAST({self.render(of)} AS DATETIME(6))"

    def date_trunc(self, of: Expression, unit: str) -> str:
        """Cut the text of the time."""
        x = f"CAST({self.render(of)} AS DATETIME(6))"
        if unit == "microseconds":
            return x
        if unit == "milliseconds":
            return f"CAST(LEFT(CAST({x} AS CHAR), 23) AS DATETIME(6))"
        if unit == "week":
            return f"CAST(FROM_DAYS(TO_DAYS({x}) - WEEKDAY({x})) AS DATETIME(6))"
        if unit == "quarter":
            month = f"ELT(QUARTER({x}), '-01-01', '-04-01', '-07-01', '-10-01')"
            return f"CAST(CONCAT(LEFT(CAST({x} AS CHAR), 4), {month}) AS DATETIME(6))"
        length, rest = _STARTS[unit]
        return f"CAST(CONCAT(LEFT(CAST({x} AS CHAR), {length}), '{rest}') AS DATETIME(6))"

    def round(self, of: Expression, digits: int) -> str:
        """Round the value's text: doubles would be rounded half to even; one beyond the range of decimals is kept."""
        x = self.render(of)
        if kind_of(of) == "numeric":
            return f"ROUND({x}, {digits})"
        decimal = f"CAST(CONVERT({x} USING utf8mb4) AS DECIMAL(65, {digits if digits >= 0 else _MOST_DECIMALS}))"
        exact = decimal if digits >= 0 else f"ROUND({decimal}, {digits})"
        return f"CASE WHEN ABS({x}) < {_EXACT_BELOW} THEN {exact} ELSE {x} END"

    def raising(self, message: str, subject: Expression, kind: tree.Kind) -> str:
        """Raise an overflow, the only expression error of both servers in every mode; it prints the operands."""
        length = f"CHAR_LENGTH(CONCAT({self.literal(message)}, {self.render(subject)}))"
        return f"CASE WHEN {_LARGEST_UNSIGNED} + {length} = 0 THEN CAST(NULL AS {_TYPES[kind]}) END"


def _bytes(x: str) -> str:
    return f"CAST({x} AS BINARY)"
