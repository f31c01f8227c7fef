"""Spark SQL, in a session whose time zone is UTC."""

from __future__ import annotations

from ematix_flow.declare.normalizers.patterns import Pattern
from ematix_flow.sql.expressions import tree
from ematix_flow.sql.expressions.dialects.regexes import first_match_only, whole_match, with_dollars
from ematix_flow.sql.expressions.dialects.renderer import Renderer
from ematix_flow.sql.expressions.tree import Expression, kind_of

_UNITS = {"microseconds": "MICROSECOND", "milliseconds": "MILLISECOND"}


class SparkRenderer(Renderer):
    """Spark; it can render every operation, so the planner always has this path."""

    dialect = "spark"
    text_type = "STRING"
    instant_type = "TIMESTAMP_LTZ"
    cast = "TRY_CAST"
    utc = "+00:00"

    def concat(self, parts: list[str]) -> str:
        """Use CONCAT."""
        return f"CONCAT({', '.join(parts)})"

    def matches(self, x: str, pattern: str) -> str:
        """Anchor the pattern, because RLIKE searches in the text."""
        return f"RLIKE({x}, {self.literal(whole_match(pattern))})"

    def searches(self, x: str, pattern: Pattern) -> str:
        """Use RLIKE."""
        return f"RLIKE({x}, {self.literal(pattern.write('java'))})"

    def regex_replace(self, expression: tree.RegexReplaceExpr) -> str:
        """Use REGEXP_REPLACE; it replaces all matches, so for a single one the pattern includes the text around it."""
        pattern, replacement = expression.pattern.write("java"), expression.replacement
        if not expression.everywhere:
            pattern, replacement = first_match_only(expression.pattern, replacement, flavour="java")
        arguments = [self.render(expression.of), self.literal(pattern), self.literal(with_dollars(replacement))]
        return f"REGEXP_REPLACE({', '.join(arguments)})"

    def at_time_zone(self, of: Expression, zone: str) -> str:
        """Convert with TIMESTAMP_NTZ as the type of local times."""
        wall_clock, name = f"CAST({self.render(of)} AS TIMESTAMP_NTZ)", self.literal(zone)
        if kind_of(of) == "timestamp":
            return f"CAST(CONVERT_TIMEZONE({name}, CURRENT_TIMEZONE(), {wall_clock}) AS TIMESTAMP_LTZ)"
        return f"CONVERT_TIMEZONE({name}, {wall_clock})"

    def date_trunc(self, of: Expression, unit: str) -> str:
        """Truncate in the session's time zone, which is UTC."""
        start = f"DATE_TRUNC({self.literal(_UNITS.get(unit, unit.upper()))}, {self.render(of)})"
        return f"CAST({start} AS TIMESTAMP_NTZ)" if kind_of(of) == "timestamp" else start

    def round(self, of: Expression, digits: int) -> str:
        """Use ROUND: half away from zero, doubles by their decimal text."""
        return f"ROUND({self.render(of)}, {digits})"

    def raising(self, message: str, subject: Expression, kind: tree.Kind) -> str:
        """Use RAISE_ERROR."""
        return f"RAISE_ERROR({self.concat([self.literal(message), self.render(subject)])})"
