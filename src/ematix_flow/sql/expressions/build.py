"""Builds one expression tree from a chain of normalizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ematix_flow.declare.normalizers import normalizers
from ematix_flow.declare.normalizers.patterns import Replacement, parse_pattern, parse_replacement
from ematix_flow.sql.expressions import datetime_text, number_text
from ematix_flow.sql.expressions.tree import (
    AsTextExpr,
    AtTimeZoneExpr,
    CaseExpr,
    CoalesceExpr,
    ColumnExpr,
    CompareExpr,
    Condition,
    DateTruncExpr,
    Expression,
    IsNullExpr,
    Kind,
    LiteralExpr,
    LowerExpr,
    NullExpr,
    NullIfExpr,
    OneOfExpr,
    RaiseExpr,
    RegexReplaceExpr,
    ReplaceExpr,
    RoundExpr,
    SubstringExpr,
    TrimExpr,
    UpperExpr,
    UserSqlExpr,
    kind_of,
)


def build_expression(markers: Sequence[object], column: ColumnExpr | None) -> Expression:
    """Return the tree of a column's markers around its source column (None where the first marker is `derive`)."""
    tree: Expression | None = column
    for marker in normalizers.check_chain(markers):
        tree = (
            UserSqlExpr(marker.expression, None)
            if isinstance(marker, normalizers.Derive)
            else _step(marker, _require_tree(tree))
        )
    return _require_tree(tree)


def output_type(markers: Sequence[object]) -> Kind | None:
    """Return the kind of column a chain gives (`parse_int()`: `big_int`), None where it depends on the source."""
    return kind_of(build_expression(markers, ColumnExpr("x")))


def _require_tree(tree: Expression | None) -> Expression:
    if tree is None:
        raise ValueError("a chain that does not begin with derive needs a column")
    return tree


def _step(marker: normalizers.Normalizer, x: Expression) -> Expression:
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
            return AtTimeZoneExpr(x, zone)
        case normalizers.DateTrunc(unit):
            return DateTruncExpr(x, unit)
        case normalizers.Round(digits):
            return RoundExpr(x, digits)
        case normalizers.Clamp(low, high):
            return _clamp(x, low, high)
        case normalizers.Default(value):
            return CoalesceExpr(_text(x) if isinstance(value, str) else x, LiteralExpr(value))
        case normalizers.NullIf(value):
            return NullIfExpr(_text(x) if isinstance(value, str) else x, LiteralExpr(value))
        case normalizers.Sql(expression):
            return UserSqlExpr(expression, x)
    return _text_step(marker, _text(x))


def _text_step(marker: normalizers.Normalizer, x: Expression) -> Expression:
    match marker:
        case normalizers.Trim():
            return TrimExpr(x)
        case normalizers.Lower():
            return LowerExpr(x)
        case normalizers.Upper():
            return UpperExpr(x)
        case normalizers.EmptyToNull():
            return NullIfExpr(x, LiteralExpr(""))
        case normalizers.WhitespaceToNull():
            return NullIfExpr(TrimExpr(x), LiteralExpr(""))
        case normalizers.EmailNormalize():
            return LowerExpr(TrimExpr(x))
        case normalizers.PhoneNormalize():
            return RegexReplaceExpr(x, parse_pattern("[^0-9+]"), Replacement(()), everywhere=True)
        case normalizers.Replace(old, new):
            return ReplaceExpr(x, old, new)
        case normalizers.TruncateText(n):
            return SubstringExpr(x, 1, n)
        case normalizers.RegexReplace(source, replacement, flags):
            pattern = parse_pattern(source, ignore_case="i" in flags)
            return RegexReplaceExpr(
                x, pattern, parse_replacement(replacement, pattern=pattern), everywhere="g" in flags
            )
    raise TypeError(f"{marker!r} has no meaning as an expression")


def _parsing(marker: normalizers.Normalizer, x: Expression) -> Expression:
    text = _text(x)
    match marker, kind_of(x):
        case (normalizers.ParseTimestamp(default=value), "timestamp_tz") | (
            normalizers.ParseDate(default=value),
            "date",
        ):
            return x if value is None else CoalesceExpr(x, LiteralExpr(value))
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
            word = LowerExpr(text)
            answers = ((truthy, True), (falsy, False))
            return CaseExpr(
                tuple(
                    (OneOfExpr(word, tuple(dict.fromkeys(one.lower() for one in words))), LiteralExpr(answer))
                    for words, answer in answers
                    if words
                ),
                NullExpr(),
            )
    raise TypeError(f"{marker!r} parses nothing")


def _or_failure(
    text: Expression,
    branches: tuple[tuple[Condition, Expression], ...],
    marker: normalizers.ParseTimestamp | normalizers.ParseDate | normalizers.ParseInt | normalizers.ParseNumeric,
    *,
    kind: Kind,
) -> Expression:
    if marker.on_failure == "error":
        message = f"{marker!r} cannot read "
        return CaseExpr(((IsNullExpr(text), NullExpr()), *branches), RaiseExpr(message, text, kind))
    parsed = CaseExpr(branches, NullExpr())
    return parsed if marker.default is None else CoalesceExpr(parsed, LiteralExpr(marker.default))


def _clamp(x: Expression, low: Any, high: Any) -> Expression:
    branches: list[tuple[Condition, Expression]] = []
    if low is not None:
        branches.append((CompareExpr(x, "<", _bound(low)), _bound(low)))
    if high is not None:
        branches.append((CompareExpr(x, ">", _bound(high)), _bound(high)))
    return CaseExpr(tuple(branches), x)


def _bound(value: Any) -> Expression:
    return UserSqlExpr(value, None) if isinstance(value, str) else LiteralExpr(value)


def _text(x: Expression) -> Expression:
    return x if _is_made_text(x) else AsTextExpr(x)


def _is_made_text(x: Expression) -> bool:
    """Return whether our own operations created this text; a column's own text still has the column's collation."""
    match x:
        case NullIfExpr(of) | CoalesceExpr(of):
            return _is_made_text(of)
        case ColumnExpr() | LiteralExpr() | CaseExpr() | UserSqlExpr():
            return False
    return kind_of(x) == "text"
