"""Builds one expression tree from a chain of normalizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ematix_flow.declare.normalizers import normalizers
from ematix_flow.declare.normalizers.patterns import Replacement, parse_pattern, parse_replacement
from ematix_flow.sql.expressions import datetime_text, number_text, tree


def build_expression(markers: Sequence[object], column: tree.ColumnExpr | None) -> tree.Expression:
    """Return the tree of a column's markers around its source column (None where the first marker is `derive`)."""
    expression: tree.Expression | None = column
    for marker in normalizers.check_chain(markers):
        expression = (
            tree.UserSqlExpr(marker.expression, None)
            if isinstance(marker, normalizers.Derive)
            else _step(marker, _require_expression(expression))
        )
    return _require_expression(expression)


def output_type(markers: Sequence[object]) -> tree.Kind | None:
    """Return the kind of column a chain gives (`parse_int()`: `big_int`), None where it depends on the source."""
    return tree.kind_of(build_expression(markers, tree.ColumnExpr("x")))


def _require_expression(expression: tree.Expression | None) -> tree.Expression:
    if expression is None:
        raise ValueError("a chain that does not begin with derive needs a column")
    return expression


def _step(marker: normalizers.Normalizer, x: tree.Expression) -> tree.Expression:
    match marker:
        case (
            normalizers.ParseTimestamp()
            | normalizers.ParseDate()
            | normalizers.ParseInt()
            | normalizers.ParseNumeric()
            | normalizers.ParseBool()
        ):
            return _parsing(marker, x)
        case normalizers.ToTimezone(zone):
            return tree.AtTimeZoneExpr(x, zone)
        case normalizers.DateTrunc(unit):
            return tree.DateTruncExpr(x, unit)
        case normalizers.Round(digits):
            return tree.RoundExpr(x, digits)
        case normalizers.Clamp(low, high):
            return _clamp(x, low, high)
        case normalizers.Default(value):
            return tree.CoalesceExpr(_text(x) if isinstance(value, str) else x, tree.LiteralExpr(value))
        case normalizers.NullIf(value):
            return tree.NullIfExpr(_text(x) if isinstance(value, str) else x, tree.LiteralExpr(value))
        case normalizers.Sql(expression):
            return tree.UserSqlExpr(expression, x)
    return _text_step(marker, _text(x))


def _text_step(marker: normalizers.Normalizer, x: tree.Expression) -> tree.Expression:
    match marker:
        case normalizers.Trim():
            return tree.TrimExpr(x)
        case normalizers.Lower():
            return tree.LowerExpr(x)
        case normalizers.Upper():
            return tree.UpperExpr(x)
        case normalizers.EmptyToNull():
            return tree.NullIfExpr(x, tree.LiteralExpr(""))
        case normalizers.WhitespaceToNull():
            return tree.NullIfExpr(tree.TrimExpr(x), tree.LiteralExpr(""))
        case normalizers.EmailNormalize():
            return tree.LowerExpr(tree.TrimExpr(x))
        case normalizers.PhoneNormalize():
            return tree.RegexReplaceExpr(x, parse_pattern("[^0-9+]"), Replacement(()), everywhere=True)
        case normalizers.Replace(old, new):
            return tree.ReplaceExpr(x, old, new)
        case normalizers.TruncateText(n):
            return tree.SubstringExpr(x, 1, n)
        case normalizers.RegexReplace(source, replacement, flags):
            pattern = parse_pattern(source, ignore_case="i" in flags)
            return tree.RegexReplaceExpr(
                x, pattern, parse_replacement(replacement, pattern=pattern), everywhere="g" in flags
            )
    raise TypeError(f"{marker!r} has no meaning as an expression")


def _parsing(marker: normalizers.Normalizer, x: tree.Expression) -> tree.Expression:
    text = _text(x)
    match marker, tree.kind_of(x):
        case (normalizers.ParseTimestamp(default=value), "timestamp_tz") | (
            normalizers.ParseDate(default=value),
            "date",
        ):
            return x if value is None else tree.CoalesceExpr(x, tree.LiteralExpr(value))
    match marker:
        case normalizers.ParseTimestamp():
            branches = datetime_text.instant_branches(text, marker.formats_to_try())
            return _or_failure(text, branches, marker, kind="timestamp_tz")
        case normalizers.ParseDate():
            return _or_failure(text, datetime_text.date_branches(text, marker.formats_to_try()), marker, kind="date")
        case normalizers.ParseInt():
            return _or_failure(text, number_text.integer_branches(text), marker, kind="big_int")
        case normalizers.ParseNumeric(precision, scale):
            return _or_failure(text, number_text.decimal_branches(text, precision, scale), marker, kind="numeric")
        case normalizers.ParseBool(truthy, falsy):
            word = tree.LowerExpr(text)
            answers = ((truthy, True), (falsy, False))
            return tree.CaseExpr(
                tuple(
                    (tree.OneOfExpr(word, tuple(dict.fromkeys(one.lower() for one in words))), tree.LiteralExpr(answer))
                    for words, answer in answers
                    if words
                ),
                tree.NullExpr(),
            )
    raise TypeError(f"{marker!r} parses nothing")


def _or_failure(
    text: tree.Expression,
    branches: tuple[tuple[tree.Condition, tree.Expression], ...],
    marker: normalizers.ParseTimestamp | normalizers.ParseDate | normalizers.ParseInt | normalizers.ParseNumeric,
    *,
    kind: tree.Kind,
) -> tree.Expression:
    if marker.on_failure == "error":
        message = f"{marker!r} cannot read "
        return tree.CaseExpr(((tree.IsNullExpr(text), tree.NullExpr()), *branches), tree.RaiseExpr(message, text, kind))
    parsed = tree.CaseExpr(branches, tree.NullExpr())
    return parsed if marker.default is None else tree.CoalesceExpr(parsed, tree.LiteralExpr(marker.default))


def _clamp(x: tree.Expression, low: Any, high: Any) -> tree.Expression:
    branches: list[tuple[tree.Condition, tree.Expression]] = []
    if low is not None:
        branches.append((tree.CompareExpr(x, "<", _bound(low)), _bound(low)))
    if high is not None:
        branches.append((tree.CompareExpr(x, ">", _bound(high)), _bound(high)))
    return tree.CaseExpr(tuple(branches), x)


def _bound(value: Any) -> tree.Expression:
    return tree.UserSqlExpr(value, None) if isinstance(value, str) else tree.LiteralExpr(value)


def _text(x: tree.Expression) -> tree.Expression:
    return x if _is_made_text(x) else tree.AsTextExpr(x)


def _is_made_text(x: tree.Expression) -> bool:
    """Return whether our own operations created this text; a column's own text still has the column's collation."""
    match x:
        case tree.NullIfExpr(of) | tree.CoalesceExpr(of):
            return _is_made_text(of)
        case tree.ColumnExpr() | tree.LiteralExpr() | tree.CaseExpr() | tree.UserSqlExpr():
            return False
    return tree.kind_of(x) == "text"
