"""The functions users write inside `Annotated[...]`; each makes one normalizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ematix_flow.declare import normalizer_checks as checks
from ematix_flow.declare import normalizers
from ematix_flow.declare.normalizers import OnFailure
from ematix_flow.declare.placed import placed


def trim() -> normalizers.Trim:
    """Take away the spaces at both ends (spaces only: tabs and line ends stay)."""
    return normalizers.Trim()


def lower() -> normalizers.Lower:
    """Lower case, by Unicode's rules whatever the database's locale."""
    return normalizers.Lower()


def upper() -> normalizers.Upper:
    """Upper case, by Unicode's rules whatever the database's locale."""
    return normalizers.Upper()


def empty_to_null() -> normalizers.EmptyToNull:
    """The empty text becomes NULL."""
    return normalizers.EmptyToNull()


def whitespace_to_null() -> normalizers.WhitespaceToNull:
    """Text of nothing but spaces becomes NULL; any other text comes out trimmed."""
    return normalizers.WhitespaceToNull()


@placed
def replace(old: str, new: str) -> normalizers.Replace:
    """Every `old` becomes `new`."""
    return normalizers.Replace(old, new)


@placed
def regex_replace(pattern: str, replacement: str, flags: str = "g") -> normalizers.RegexReplace:
    r"""What matches becomes `replacement` (`\1` to `\9` are groups, `\&` is the match); flags g, i, both or ''.

    `\d`, `\w`, `\s` and `\b` mean ASCII, `.` is any character, `^` and `$` are the ends of the text. PostgreSQL looks
    for the longest match where other engines take the first alternative that fits; a pattern in which that certainly
    makes a difference is not run inside PostgreSQL.
    """
    return normalizers.RegexReplace(pattern, replacement, flags)


@placed
def truncate(n: int) -> normalizers.Truncate:
    """Keep the first `n` characters."""
    return normalizers.Truncate(n)


def email_normalize() -> normalizers.EmailNormalize:
    """Trimmed and in lower case."""
    return normalizers.EmailNormalize()


def phone_normalize() -> normalizers.PhoneNormalize:
    """Keep only ASCII digits and plus signs."""
    return normalizers.PhoneNormalize()


@placed
def parse_timestamp(
    format: str | None = None,  # noqa: A002 - the documented name
    *,
    formats: Sequence[str] | None = None,
    on_failure: OnFailure = "null",
    default: Any = None,
) -> normalizers.ParseTimestamp:
    """Read an instant; formats are tried in order, text without an offset is UTC.

    Only real dates are read (years 0001 to 9999, hours 00 to 23). `MS` takes 1 to 3 digits, `US` 1 to 6, `OF` is `Z`,
    `+HH`, `+HHMM` or `+HH:MM` up to 14 hours; the first and the last day of that range take only a zero offset.
    With `on_failure="default"` NULL becomes the default too.
    """
    given = None if default is None else checks.as_datetime(default, of="parse_timestamp(default=…)")
    return normalizers.ParseTimestamp(format, None if formats is None else tuple(formats), on_failure, given)


@placed
def parse_date(
    format: str | None = None,  # noqa: A002 - the documented name
    *,
    formats: Sequence[str] | None = None,
    on_failure: OnFailure = "null",
    default: Any = None,
) -> normalizers.ParseDate:
    """Read a date, by the same rules as `parse_timestamp`; a time in the format is checked and dropped."""
    given = None if default is None else checks.as_date(default, of="parse_date(default=…)")
    return normalizers.ParseDate(format, None if formats is None else tuple(formats), on_failure, given)


@placed
def to_timezone(tz: str) -> normalizers.ToTimezone:
    """The wall clock of a zone, for example `to_timezone("Europe/Berlin")`."""
    return normalizers.ToTimezone(tz)


@placed
def date_trunc(precision: str) -> normalizers.DateTrunc:
    """The start of the second, minute, hour, day, week (Monday), month, quarter or year in UTC."""
    return normalizers.DateTrunc(precision)


@placed
def parse_int(on_failure: OnFailure = "null", default: Any = None) -> normalizers.ParseInt:
    """Read a whole number: digits with at most a minus before them, and no more than 64 bits hold."""
    return normalizers.ParseInt(on_failure, default)


@placed
def parse_numeric(
    precision: int, scale: int, on_failure: OnFailure = "null", default: Any = None
) -> normalizers.ParseNumeric:
    """Read a decimal number and round it half away from zero; what does not fit then, or has more than 200 decimals,
    is a failure."""
    given = None if default is None else checks.as_decimal(default, of="parse_numeric(default=…)")
    return normalizers.ParseNumeric(precision, scale, on_failure, given)


@placed
def round(precision: int) -> normalizers.Round:  # noqa: A001 - the documented name
    """Round half away from zero, doubles by the shortest decimal that stands for them (2.675 becomes 2.68).

    The 15 digits a double is good for are the same everywhere. 32-bit floats are the exception: Spark rounds them as
    the double they widen to.
    """
    return normalizers.Round(precision)


@placed
def clamp(low: Any, high: Any) -> normalizers.Clamp:
    """Nothing below `low` or above `high`; None leaves a side open, text is an SQL expression."""
    return normalizers.Clamp(low, high)


@placed
def parse_bool(
    truthy: Sequence[str] = ("true", "1", "yes", "y"), falsy: Sequence[str] = ("false", "0", "no", "n")
) -> normalizers.ParseBool:
    """Read a truth value by its word in any case; any other text becomes NULL."""
    return normalizers.ParseBool(tuple(truthy), tuple(falsy))


@placed
def default(value: Any) -> normalizers.Default:
    """NULL becomes `value`; a datetime without a zone is UTC."""
    return normalizers.Default(value)


@placed
def not_null_or(value: Any) -> normalizers.Default:
    """The same as `default`."""
    return normalizers.Default(value)


@placed
def nullif(value: Any) -> normalizers.NullIf:
    """`value` becomes NULL."""
    return normalizers.NullIf(value)


@placed
def sql(expression: str) -> normalizers.Sql:
    """An SQL expression in PostgreSQL's (or Spark's) notation; the word `col` is the value so far."""
    return normalizers.Sql(expression)


@placed
def derive(expression: str) -> normalizers.Derive:
    """An SQL expression over the source's columns; it stands first and the source need not have this column."""
    return normalizers.Derive(expression)
