"""The functions that users write inside `Annotated[...]`; each returns one normalizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ematix_flow.declare.normalizers import normalizers
from ematix_flow.declare.normalizers import validation as checks
from ematix_flow.declare.normalizers.normalizers import OnFailure
from ematix_flow.foundation.signatures import at_callers_line


def trim() -> normalizers.Trim:
    """Remove the spaces at both ends (spaces only: tabs and line ends stay)."""
    return normalizers.Trim()


def lower() -> normalizers.Lower:
    """Convert to lower case, by Unicode's rules whatever the database's locale."""
    return normalizers.Lower()


def upper() -> normalizers.Upper:
    """Convert to upper case, by Unicode's rules whatever the database's locale."""
    return normalizers.Upper()


def empty_to_null() -> normalizers.EmptyToNull:
    """Replace the empty text by NULL."""
    return normalizers.EmptyToNull()


def whitespace_to_null() -> normalizers.WhitespaceToNull:
    """Replace text that consists only of spaces by NULL; trim any other text."""
    return normalizers.WhitespaceToNull()


@at_callers_line
def replace(old: str, new: str) -> normalizers.Replace:
    """Replace every occurrence of `old` by `new`."""
    return normalizers.Replace(old, new)


@at_callers_line
def regex_replace(pattern: str, replacement: str, flags: str = "g") -> normalizers.RegexReplace:
    r"""Replace matches by `replacement` (`\1` to `\9` are groups, `\&` is the match); flags g, i, both or ''.

    `\d`, `\w`, `\s` and `\b` mean ASCII, `.` is any character, `^` and `$` are the ends of the text. PostgreSQL looks
    for the longest match where other engines take the first alternative that fits; a pattern in which that certainly
    makes a difference is not run inside PostgreSQL.
    """
    return normalizers.RegexReplace(pattern, replacement, flags)


@at_callers_line
def truncate(n: int) -> normalizers.TruncateText:
    """Keep the first `n` characters."""
    return normalizers.TruncateText(n)


def email_normalize() -> normalizers.EmailNormalize:
    """Trim and convert to lower case."""
    return normalizers.EmailNormalize()


def phone_normalize() -> normalizers.PhoneNormalize:
    """Keep only ASCII digits and plus signs."""
    return normalizers.PhoneNormalize()


@at_callers_line
def parse_timestamp(
    format: str | None = None,  # noqa: A002 - the documented name
    *,
    formats: Sequence[str] | None = None,
    on_failure: OnFailure = "null",
    default: Any = None,
) -> normalizers.ParseTimestamp:
    """Parse an instant; formats are tried in order, text without an offset is UTC.

    Only real dates are accepted (years 0001 to 9999, hours 00 to 23). `MS` takes 1 to 3 digits, `US` 1 to 6, `OF` is
    `Z`, `+HH`, `+HHMM` or `+HH:MM` up to 14 hours; the first and the last day of that range take only a zero offset.
    With `on_failure="default"` NULL becomes the default too.
    """
    default_value = None if default is None else checks.as_datetime(default, of="parse_timestamp(default=…)")
    return normalizers.ParseTimestamp(format, None if formats is None else tuple(formats), on_failure, default_value)


@at_callers_line
def parse_date(
    format: str | None = None,  # noqa: A002 - the documented name
    *,
    formats: Sequence[str] | None = None,
    on_failure: OnFailure = "null",
    default: Any = None,
) -> normalizers.ParseDate:
    """Parse a date, by the same rules as `parse_timestamp`; a time in the format is checked and dropped."""
    default_value = None if default is None else checks.as_date(default, of="parse_date(default=…)")
    return normalizers.ParseDate(format, None if formats is None else tuple(formats), on_failure, default_value)


@at_callers_line
def to_timezone(tz: str) -> normalizers.ToTimezone:
    """Convert an instant to the wall clock time of a zone, or back, for example `to_timezone("Europe/Berlin")`."""
    return normalizers.ToTimezone(tz)


@at_callers_line
def date_trunc(precision: str) -> normalizers.DateTrunc:
    """Truncate to micro- or milliseconds, second, minute, hour, day, week (Monday), month, quarter or year, in UTC."""
    return normalizers.DateTrunc(precision)


@at_callers_line
def parse_int(on_failure: OnFailure = "null", default: Any = None) -> normalizers.ParseInt:
    """Parse a whole number: digits with at most a minus before them, within 64 bits."""
    return normalizers.ParseInt(on_failure, default)


@at_callers_line
def parse_numeric(
    precision: int, scale: int, on_failure: OnFailure = "null", default: Any = None
) -> normalizers.ParseNumeric:
    """Parse a decimal number, rounded half away from zero; one that is too large or has over 200 decimals fails."""
    default_value = None if default is None else checks.as_decimal(default, of="parse_numeric(default=…)")
    return normalizers.ParseNumeric(precision, scale, on_failure, default_value)


@at_callers_line
def round(precision: int) -> normalizers.Round:  # noqa: A001 - the documented name
    """Round half away from zero, doubles by the shortest decimal that represents them (2.675 becomes 2.68).

    The 15 significant digits of a double are the same in every engine. 32-bit floats are the exception: Spark rounds
    them as the double they widen to.
    """
    return normalizers.Round(precision)


@at_callers_line
def clamp(low: Any, high: Any) -> normalizers.Clamp:
    """Limit the value to `low` and `high`; None leaves a side open, text is an SQL expression."""
    return normalizers.Clamp(low, high)


@at_callers_line
def parse_bool(
    truthy: Sequence[str] = ("true", "1", "yes", "y"), falsy: Sequence[str] = ("false", "0", "no", "n")
) -> normalizers.ParseBool:
    """Parse a truth value from its word in any case; any other text becomes NULL."""
    return normalizers.ParseBool(tuple(truthy), tuple(falsy))


@at_callers_line
def default(value: Any) -> normalizers.Default:
    """Replace NULL by `value`; a datetime without a zone is UTC."""
    return normalizers.Default(value)


@at_callers_line
def not_null_or(value: Any) -> normalizers.Default:
    """The same as `default`."""
    return normalizers.Default(value)


@at_callers_line
def nullif(value: Any) -> normalizers.NullIf:
    """Replace `value` by NULL."""
    return normalizers.NullIf(value)


@at_callers_line
def sql(expression: str) -> normalizers.Sql:
    """Apply an SQL expression in PostgreSQL's (or Spark's) notation; the word `col` is the value so far."""
    return normalizers.Sql(expression)


@at_callers_line
def derive(expression: str) -> normalizers.Derive:
    """Compute the column by SQL over the source's columns; must come first, the source need not have the column."""
    return normalizers.Derive(expression)
