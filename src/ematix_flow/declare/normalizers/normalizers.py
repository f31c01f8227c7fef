"""Normalizers: the steps that change a column's values between the source and the table.

They stand in a column's annotation and apply from left to right. Each keeps NULL as NULL unless it is about NULL
(`default`, `not_null_or`, `on_failure="default"`), and gives the same value in Spark and in every database.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

from ematix_flow.declare.normalizers import validation as checks
from ematix_flow.declare.normalizers.formats import DEFAULT_DATE_FORMATS, DEFAULT_TIMESTAMP_FORMATS
from ematix_flow.declare.normalizers.patterns import parse_pattern, parse_replacement
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.signatures import at_callers_line

OnFailure = Literal["null", "default", "error"]
TRUNCATIONS = (
    "microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year",
)  # fmt: skip


class DeclaredStep:
    """A step that users declare by a call; its representation is that call."""

    call: ClassVar[str]

    @at_callers_line
    def __post_init__(self) -> None:
        self._check()

    def _check(self) -> None:
        """Check the arguments and convert them to their stored form; raise DeclarationError."""

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        arguments = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING:
                arguments.append(repr(value))
            elif repr(value) != repr(field.default):
                arguments.append(f"{field.name}={value!r}")
        return f"{self.call}({', '.join(arguments)})"


class Normalizer(DeclaredStep):
    """A step of a column's normalization; equal to another if their representations are equal."""

    rendered: ClassVar[Callable[[Sequence[Any], str], str]]
    """The renderer of a chain for PostgreSQL, which `ematix_flow.normalize` sets when it is imported."""

    def to_sql(self, col: str) -> str:
        """Return the PostgreSQL expression of this step for a column."""
        return Normalizer.rendered([self], col)

    # By representation, because 1 == True == 1.0 would make default(1) and default(True) the same annotation.
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True, eq=False, repr=False)
class Trim(Normalizer):
    """Remove the spaces at both ends (spaces only: tabs and line ends stay)."""

    call = "trim"


@dataclass(frozen=True, eq=False, repr=False)
class Lower(Normalizer):
    """Convert to lower case, by Unicode's rules whatever the database's locale."""

    call = "lower"


@dataclass(frozen=True, eq=False, repr=False)
class Upper(Normalizer):
    """Convert to upper case, by Unicode's rules whatever the database's locale."""

    call = "upper"


@dataclass(frozen=True, eq=False, repr=False)
class EmptyToNull(Normalizer):
    """Replace the empty text by NULL."""

    call = "empty_to_null"


@dataclass(frozen=True, eq=False, repr=False)
class WhitespaceToNull(Normalizer):
    """Replace text that consists only of spaces by NULL; trim any other text."""

    call = "whitespace_to_null"


@dataclass(frozen=True, eq=False, repr=False)
class EmailNormalize(Normalizer):
    """Trim and convert to lower case."""

    call = "email_normalize"


@dataclass(frozen=True, eq=False, repr=False)
class PhoneNormalize(Normalizer):
    """Keep only ASCII digits and plus signs."""

    call = "phone_normalize"


@dataclass(frozen=True, eq=False, repr=False)
class Replace(Normalizer):
    """Replace every occurrence of `old` by `new`."""

    call = "replace"
    old: str
    new: str

    def _check(self) -> None:
        checks.require_text(self.old, of="replace")
        checks.require_text(self.new, of="replace")
        if not self.old:
            raise DeclarationError("replace('', …) has nothing to look for", hint="name the text to replace")


@dataclass(frozen=True, eq=False, repr=False)
class RegexReplace(Normalizer):
    r"""Replace matches by `replacement` (`\1` to `\9` are groups, `\&` is the match); flags g, i, both or ''.

    `\d`, `\w`, `\s` and `\b` mean ASCII, `.` is any character, `^` and `$` are the ends of the text. PostgreSQL looks
    for the longest match where other engines take the first alternative that fits; a pattern in which that certainly
    makes a difference is not run inside PostgreSQL.
    """

    call = "regex_replace"
    pattern: str
    replacement: str
    flags: str = "g"

    def _check(self) -> None:
        checks.require_text(self.pattern, of="regex_replace")
        checks.require_text(self.replacement, of="regex_replace")
        if not isinstance(self.flags, str) or set(self.flags) - set("gi"):
            raise DeclarationError(
                f"regex_replace has no flags {self.flags!r}", hint="use g (everywhere), i (any case), both or ''"
            )
        pattern = parse_pattern(self.pattern, ignore_case="i" in self.flags)
        parse_replacement(self.replacement, pattern=pattern)


@dataclass(frozen=True, eq=False, repr=False)
class TruncateText(Normalizer):
    """Keep the first `n` characters."""

    call = "truncate"
    n: int

    def _check(self) -> None:
        checks.require_integer(self.n, of="truncate", low=0, high=2**31 - 1)


@dataclass(frozen=True, eq=False, repr=False)
class _ParseMoment(Normalizer):
    """The base of the parsers of dates and times; `formats` are the formats to try, in order."""

    format: str | None = None
    _: KW_ONLY
    formats: Sequence[str] | None = None
    on_failure: OnFailure = "null"
    default: Any = None

    usual_formats: ClassVar[tuple[str, ...]]
    convert: ClassVar[Callable[..., Any]]
    """The conversion of a default to the type of the column."""

    def _check(self) -> None:
        formats = None if self.formats is None else tuple(self.formats)
        if self.default is not None:
            self._set(default=self.convert(self.default, of=f"{self.call}(default=…)"))
        checks.require_failure_pair(self.on_failure, self.default, of=self.call)
        to_try = checks.formats_or_defaults(self.format, formats, defaults=self.usual_formats, of=self.call)
        checks.require_formats(to_try, on_failure=self.on_failure, of=self.call)
        self._set(formats=formats)
        self._set(_written=super().__repr__())  # as the user wrote it, without the usual formats
        self._set(format=None, formats=to_try)

    def __repr__(self) -> str:
        return str(self.__dict__["_written"])

    def formats_to_try(self) -> tuple[str, ...]:
        """Return the formats to try, in order."""
        return tuple(self.formats or ())


@dataclass(frozen=True, eq=False, repr=False)
class ParseTimestamp(_ParseMoment):
    """Parse an instant; formats are tried in order, text without an offset is UTC.

    Only real dates are accepted (years 0001 to 9999, hours 00 to 23). `MS` takes 1 to 3 digits, `US` 1 to 6, `OF` is
    `Z`, `+HH`, `+HHMM` or `+HH:MM` up to 14 hours; the first and the last day of that range take only a zero offset.
    With `on_failure="default"` NULL becomes the default too.
    """

    call = "parse_timestamp"
    usual_formats = DEFAULT_TIMESTAMP_FORMATS
    convert = staticmethod(checks.as_datetime)


@dataclass(frozen=True, eq=False, repr=False)
class ParseDate(_ParseMoment):
    """Parse a date, by the same rules as `parse_timestamp`; a time in the format is checked and dropped."""

    call = "parse_date"
    usual_formats = DEFAULT_DATE_FORMATS
    convert = staticmethod(checks.as_date)

    def _check(self) -> None:
        super()._check()
        checks.require_no_offset(self.formats_to_try())


@dataclass(frozen=True, eq=False, repr=False)
class ToTimezone(Normalizer):
    """Convert an instant to the wall clock time of a zone, or back, for example `to_timezone("Europe/Berlin")`."""

    call = "to_timezone"
    tz: str

    def _check(self) -> None:
        checks.require_zone(self.tz)


@dataclass(frozen=True, eq=False, repr=False)
class DateTrunc(Normalizer):
    """Truncate to micro- or milliseconds, second, minute, hour, day, week (Monday), month, quarter or year, in UTC."""

    call = "date_trunc"
    precision: str

    def _check(self) -> None:
        if self.precision not in TRUNCATIONS:
            raise DeclarationError(
                f"date_trunc does not know {self.precision!r}", hint="use one of " + ", ".join(TRUNCATIONS)
            )


@dataclass(frozen=True, eq=False, repr=False)
class ParseInt(Normalizer):
    """Parse a whole number: digits with at most a minus before them, within 64 bits."""

    call = "parse_int"
    on_failure: OnFailure = "null"
    default: Any = None

    def _check(self) -> None:
        checks.require_failure_pair(self.on_failure, self.default, of=self.call)
        if self.default is not None:
            checks.require_integer(self.default, of="parse_int(default=…)", low=-(2**63), high=2**63 - 1)


@dataclass(frozen=True, eq=False, repr=False)
class ParseNumeric(Normalizer):
    """Parse a decimal number, rounded half away from zero; one that is too large or has over 200 decimals fails."""

    call = "parse_numeric"
    precision: int
    scale: int
    on_failure: OnFailure = "null"
    default: Any = None

    def _check(self) -> None:
        if self.default is not None:
            self._set(default=checks.as_decimal(self.default, of="parse_numeric(default=…)"))
        checks.require_integer(self.precision, of="parse_numeric precision", low=1, high=38)
        checks.require_integer(self.scale, of="parse_numeric scale", low=0, high=self.precision)
        checks.require_failure_pair(self.on_failure, self.default, of=self.call)
        if self.default is not None:
            checks.require_fits(self.default, precision=self.precision, scale=self.scale)


@dataclass(frozen=True, eq=False, repr=False)
class Round(Normalizer):
    """Round half away from zero, doubles by the shortest decimal that represents them (2.675 becomes 2.68).

    The 15 significant digits of a double are the same in every engine. 32-bit floats are the exception: Spark rounds
    them as the double they widen to.
    """

    call = "round"
    precision: int

    def _check(self) -> None:
        checks.require_integer(self.precision, of="round", low=-30, high=30)


@dataclass(frozen=True, eq=False, repr=False)
class Clamp(Normalizer):
    """Limit the value to `low` and `high`; None leaves a side open, text is an SQL expression."""

    call = "clamp"
    low: Any
    high: Any

    def _check(self) -> None:
        checks.require_bounds(self.low, self.high)


@dataclass(frozen=True, eq=False, repr=False)
class ParseBool(Normalizer):
    """Parse a truth value from its word in any case; any other text becomes NULL."""

    call = "parse_bool"
    truthy: Sequence[str] = ("true", "1", "yes", "y")
    falsy: Sequence[str] = ("false", "0", "no", "n")

    def _check(self) -> None:
        self._set(truthy=tuple(self.truthy), falsy=tuple(self.falsy))
        checks.require_boolean_words(self.truthy, self.falsy)


@dataclass(frozen=True, eq=False, repr=False)
class Default(Normalizer):
    """Replace NULL by `value`; a datetime without a zone is UTC."""

    call = "default"
    value: Any

    def _check(self) -> None:
        checks.require_literal(self.value, of=self.call)


@dataclass(frozen=True, eq=False, repr=False)
class NullIf(Normalizer):
    """Replace `value` by NULL."""

    call = "nullif"
    value: Any

    def _check(self) -> None:
        checks.require_literal(self.value, of=self.call)


@dataclass(frozen=True, eq=False, repr=False)
class Sql(Normalizer):
    """Apply an SQL expression in PostgreSQL's (or Spark's) notation; the word `col` is the value so far."""

    call = "sql"
    expression: str

    def _check(self) -> None:
        checks.require_sql(self.expression, of=self.call)


@dataclass(frozen=True, eq=False, repr=False)
class Derive(Normalizer):
    """Compute the column by SQL over the source's columns; must come first, the source need not have the column."""

    call = "derive"
    expression: str

    def _check(self) -> None:
        checks.require_sql(self.expression, of=self.call)


def is_normalizer(marker: object) -> bool:
    """Return whether a marker of an annotation is a normalizer."""
    return isinstance(marker, Normalizer)


def check_chain(markers: Sequence[object]) -> tuple[Normalizer, ...]:
    """Return the normalizers of a column's markers; raise DeclarationError if `derive` is not the first of them."""
    chain = tuple(marker for marker in markers if isinstance(marker, Normalizer))
    for marker in chain[1:]:
        if isinstance(marker, Derive):
            raise DeclarationError(
                f"{marker!r} replaces the column, so nothing may stand before it", hint="put derive(…) first"
            )
    return chain
