"""Builds one expression tree from a chain of normalizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ematix_flow.declare import normalizers as said
from ematix_flow.declare.patterns import Replacement, parse_pattern, parse_replacement
from ematix_flow.expressions import calendar, numbers
from ematix_flow.expressions.tree import (
    AsText,
    AtTimeZone,
    Case,
    Coalesce,
    Column,
    Compare,
    Condition,
    DateTrunc,
    Expression,
    IsNull,
    Kind,
    Literal,
    Lower,
    Null,
    NullIf,
    OneOf,
    Raise,
    RegexReplace,
    Replace,
    Round,
    Substring,
    Trim,
    Upper,
    UserSql,
    kind_of,
)


def build(markers: Sequence[object], column: Column | None) -> Expression:
    """Return the tree of a column's markers around its source column (None where the first marker is `derive`)."""
    tree: Expression | None = column
    for marker in said.check_chain(markers):
        tree = UserSql(marker.expression, None) if isinstance(marker, said.Derive) else _step(marker, _given(tree))
    return _given(tree)


def output_type(markers: Sequence[object]) -> Kind | None:
    """Return the kind of column a chain gives (`parse_int()`: `big_int`), None where it depends on the source."""
    return kind_of(build(markers, Column("x")))


def _given(tree: Expression | None) -> Expression:
    if tree is None:
        raise ValueError("a chain that does not begin with derive needs a column")
    return tree


def _step(marker: said.Normalizer, x: Expression) -> Expression:
    match marker:
        case said.ParseTimestamp() | said.ParseDate() | said.ParseInt() | said.ParseNumeric() | said.ParseBool():
            return _parsing(marker, x)
        case said.ToTimezone(zone):
            return AtTimeZone(x, zone)
        case said.DateTrunc(unit):
            return DateTrunc(x, unit)
        case said.Round(digits):
            return Round(x, digits)
        case said.Clamp(low, high):
            return _clamp(x, low, high)
        case said.Default(value):
            return Coalesce(_text(x) if isinstance(value, str) else x, Literal(value))
        case said.NullIf(value):
            return NullIf(_text(x) if isinstance(value, str) else x, Literal(value))
        case said.Sql(expression):
            return UserSql(expression, x)
    return _text_step(marker, _text(x))


def _text_step(marker: said.Normalizer, x: Expression) -> Expression:
    match marker:
        case said.Trim():
            return Trim(x)
        case said.Lower():
            return Lower(x)
        case said.Upper():
            return Upper(x)
        case said.EmptyToNull():
            return NullIf(x, Literal(""))
        case said.WhitespaceToNull():
            return NullIf(Trim(x), Literal(""))
        case said.EmailNormalize():
            return Lower(Trim(x))
        case said.PhoneNormalize():
            return RegexReplace(x, parse_pattern("[^0-9+]"), Replacement(()), everywhere=True)
        case said.Replace(old, new):
            return Replace(x, old, new)
        case said.Truncate(n):
            return Substring(x, 1, n)
        case said.RegexReplace(source, replacement, flags):
            pattern = parse_pattern(source, ignore_case="i" in flags)
            return RegexReplace(x, pattern, parse_replacement(replacement, pattern=pattern), everywhere="g" in flags)
    raise TypeError(f"{marker!r} has no meaning as an expression")


def _parsing(marker: said.Normalizer, x: Expression) -> Expression:
    text = _text(x)
    match marker, kind_of(x):
        case (said.ParseTimestamp(default=value), "timestamp_tz") | (said.ParseDate(default=value), "date"):
            return x if value is None else Coalesce(x, Literal(value))
    match marker:
        case said.ParseTimestamp():
            branches = calendar.instant_branches(text, marker.wanted())
            return _or_failure(text, branches, marker, kind="timestamp_tz")
        case said.ParseDate():
            return _or_failure(text, calendar.date_branches(text, marker.wanted()), marker, kind="date")
        case said.ParseInt():
            return _or_failure(text, numbers.integer_branches(text), marker, kind="big_int")
        case said.ParseNumeric(precision, scale):
            return _or_failure(text, numbers.decimal_branches(text, precision, scale), marker, kind="numeric")
        case said.ParseBool(truthy, falsy):
            word = Lower(text)
            answers = ((truthy, True), (falsy, False))
            return Case(
                tuple(
                    (OneOf(word, tuple(dict.fromkeys(one.lower() for one in words))), Literal(answer))
                    for words, answer in answers
                    if words
                ),
                Null(),
            )
    raise TypeError(f"{marker!r} parses nothing")


def _or_failure(
    text: Expression,
    branches: tuple[tuple[Condition, Expression], ...],
    marker: said.ParseTimestamp | said.ParseDate | said.ParseInt | said.ParseNumeric,
    *,
    kind: Kind,
) -> Expression:
    if marker.on_failure == "error":
        message = f"{marker!r} cannot read "
        return Case(((IsNull(text), Null()), *branches), Raise(message, text, kind))
    parsed = Case(branches, Null())
    return parsed if marker.default is None else Coalesce(parsed, Literal(marker.default))


def _clamp(x: Expression, low: Any, high: Any) -> Expression:
    branches: list[tuple[Condition, Expression]] = []
    if low is not None:
        branches.append((Compare(x, "<", _bound(low)), _bound(low)))
    if high is not None:
        branches.append((Compare(x, ">", _bound(high)), _bound(high)))
    return Case(tuple(branches), x)


def _bound(value: Any) -> Expression:
    return UserSql(value, None) if isinstance(value, str) else Literal(value)


def _text(x: Expression) -> Expression:
    return x if _is_made_text(x) else AsText(x)


def _is_made_text(x: Expression) -> bool:
    """Return whether our own operations created this text; a column's own text still has the column's collation."""
    match x:
        case NullIf(of) | Coalesce(of):
            return _is_made_text(of)
        case Column() | Literal() | Case() | UserSql():
            return False
    return kind_of(x) == "text"
