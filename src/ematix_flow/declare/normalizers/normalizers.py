"""Normalizers: the steps that change a column's values between the source and the table.

They stand in a column's annotation and apply from left to right. Each keeps NULL as NULL unless it is about NULL
(`default`, `not_null_or`, `on_failure="default"`), and gives the same value in Spark and in every database.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Literal

from ematix_flow.declare.normalizers import validation as checks
from ematix_flow.declare.normalizers.formats import DEFAULT_DATE_FORMATS, DEFAULT_TIMESTAMP_FORMATS
from ematix_flow.declare.normalizers.patterns import parse_pattern, parse_replacement
from ematix_flow.foundation.errors import DeclarationError

OnFailure = Literal["null", "default", "error"]
TRUNCATIONS = (
    "microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year",
)  # fmt: skip


class Normalizer:
    """A step of a column's normalization; equal to another if their representations are equal."""

    call: ClassVar[str]
    rendered: ClassVar[Callable[[Sequence[Any], str], str]]
    """The renderer of a chain for PostgreSQL, which `ematix_flow.normalize` sets when it is imported."""

    def to_sql(self, col: str) -> str:
        """Return the PostgreSQL expression of this step for a column."""
        return Normalizer.rendered([self], col)

    def __repr__(self) -> str:
        arguments = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING:
                arguments.append(repr(value))
            elif repr(value) != repr(field.default):
                arguments.append(f"{field.name}={value!r}")
        return f"{self.call}({', '.join(arguments)})"

    # By representation, because 1 == True == 1.0 would make default(1) and default(True) the same annotation.
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True, eq=False, repr=False)
class Trim(Normalizer):
    """Removes spaces at both ends."""

    call = "trim"


@dataclass(frozen=True, eq=False, repr=False)
class Lower(Normalizer):
    """Converts to lower case."""

    call = "lower"


@dataclass(frozen=True, eq=False, repr=False)
class Upper(Normalizer):
    """Converts to upper case."""

    call = "upper"


@dataclass(frozen=True, eq=False, repr=False)
class EmptyToNull(Normalizer):
    """Replaces the empty text by NULL."""

    call = "empty_to_null"


@dataclass(frozen=True, eq=False, repr=False)
class WhitespaceToNull(Normalizer):
    """Replaces text that consists only of spaces by NULL; trims other text."""

    call = "whitespace_to_null"


@dataclass(frozen=True, eq=False, repr=False)
class EmailNormalize(Normalizer):
    """Trims and converts to lower case."""

    call = "email_normalize"


@dataclass(frozen=True, eq=False, repr=False)
class PhoneNormalize(Normalizer):
    """Keeps only digits and plus signs."""

    call = "phone_normalize"


@dataclass(frozen=True, eq=False, repr=False)
class Replace(Normalizer):
    """Replaces every occurrence of a text by another."""

    call = "replace"
    old: str
    new: str

    def __post_init__(self) -> None:
        checks.require_text(self.old, of="replace")
        checks.require_text(self.new, of="replace")
        if not self.old:
            raise DeclarationError("replace('', …) has nothing to look for", hint="name the text to replace")


@dataclass(frozen=True, eq=False, repr=False)
class RegexReplace(Normalizer):
    """Replaces the matches of a regular expression by a text; flags: g = all matches, i = any case."""

    call = "regex_replace"
    pattern: str
    replacement: str
    flags: str = "g"

    def __post_init__(self) -> None:
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
    """Keeps at most `n` characters."""

    call = "truncate"
    n: int

    def __post_init__(self) -> None:
        checks.require_integer(self.n, of="truncate", low=0, high=2**31 - 1)


@dataclass(frozen=True, eq=False, repr=False)
class ParseTimestamp(Normalizer):
    """Parses text as an instant."""

    call = "parse_timestamp"
    format: str | None = None
    formats: tuple[str, ...] | None = None
    on_failure: OnFailure = "null"
    default: datetime | None = None

    def __post_init__(self) -> None:
        checks.require_failure_pair(self.on_failure, self.default, of=self.call)
        checks.require_formats(self.formats_to_try(), on_failure=self.on_failure, of=self.call)
        object.__setattr__(self, "written", Normalizer.__repr__(self))
        formats = self.formats_to_try()
        object.__setattr__(self, "format", None)
        object.__setattr__(self, "formats", formats)

    def __repr__(self) -> str:
        return str(self.__dict__["written"])  # as the user wrote it, without the default formats

    def formats_to_try(self) -> tuple[str, ...]:
        """Return the formats to try, in order."""
        return checks.formats_or_defaults(self.format, self.formats, defaults=DEFAULT_TIMESTAMP_FORMATS, of=self.call)


@dataclass(frozen=True, eq=False, repr=False)
class ParseDate(Normalizer):
    """Parses text as a date."""

    call = "parse_date"
    format: str | None = None
    formats: tuple[str, ...] | None = None
    on_failure: OnFailure = "null"
    default: date | None = None

    def __post_init__(self) -> None:
        checks.require_failure_pair(self.on_failure, self.default, of=self.call)
        checks.require_formats(self.formats_to_try(), on_failure=self.on_failure, of=self.call)
        checks.require_no_offset(self.formats_to_try())
        object.__setattr__(self, "written", Normalizer.__repr__(self))
        formats = self.formats_to_try()
        object.__setattr__(self, "format", None)
        object.__setattr__(self, "formats", formats)

    def __repr__(self) -> str:
        return str(self.__dict__["written"])  # as the user wrote it, without the default formats

    def formats_to_try(self) -> tuple[str, ...]:
        """Return the formats to try, in order."""
        return checks.formats_or_defaults(self.format, self.formats, defaults=DEFAULT_DATE_FORMATS, of=self.call)


@dataclass(frozen=True, eq=False, repr=False)
class ToTimezone(Normalizer):
    """Converts an instant to the wall clock time of a zone, or a wall clock time of that zone to an instant."""

    call = "to_timezone"
    tz: str

    def __post_init__(self) -> None:
        checks.require_zone(self.tz)


@dataclass(frozen=True, eq=False, repr=False)
class DateTrunc(Normalizer):
    """Truncates to the start of the second, hour, day, week (Monday), … in UTC."""

    call = "date_trunc"
    precision: str

    def __post_init__(self) -> None:
        if self.precision not in TRUNCATIONS:
            raise DeclarationError(
                f"date_trunc does not know {self.precision!r}", hint="use one of " + ", ".join(TRUNCATIONS)
            )


@dataclass(frozen=True, eq=False, repr=False)
class ParseInt(Normalizer):
    """Parses text of digits as a 64-bit integer."""

    call = "parse_int"
    on_failure: OnFailure = "null"
    default: int | None = None

    def __post_init__(self) -> None:
        checks.require_failure_pair(self.on_failure, self.default, of=self.call)
        if self.default is not None:
            checks.require_integer(self.default, of="parse_int(default=…)", low=-(2**63), high=2**63 - 1)


@dataclass(frozen=True, eq=False, repr=False)
class ParseNumeric(Normalizer):
    """Parses text as a decimal number, rounded half away from zero; a number that is too large is a failure."""

    call = "parse_numeric"
    precision: int
    scale: int
    on_failure: OnFailure = "null"
    default: Decimal | None = None

    def __post_init__(self) -> None:
        checks.require_integer(self.precision, of="parse_numeric precision", low=1, high=38)
        checks.require_integer(self.scale, of="parse_numeric scale", low=0, high=self.precision)
        checks.require_failure_pair(self.on_failure, self.default, of=self.call)
        if self.default is not None:
            checks.require_fits(self.default, precision=self.precision, scale=self.scale)


@dataclass(frozen=True, eq=False, repr=False)
class Round(Normalizer):
    """Rounds to `precision` decimals, half away from zero."""

    call = "round"
    precision: int

    def __post_init__(self) -> None:
        checks.require_integer(self.precision, of="round", low=-30, high=30)


@dataclass(frozen=True, eq=False, repr=False)
class Clamp(Normalizer):
    """Limits the value to `low` and `high`; a bound given as text is an SQL expression."""

    call = "clamp"
    low: Any
    high: Any

    def __post_init__(self) -> None:
        checks.require_bounds(self.low, self.high)


@dataclass(frozen=True, eq=False, repr=False)
class ParseBool(Normalizer):
    """Converts words to true or false, other text to NULL."""

    call = "parse_bool"
    truthy: tuple[str, ...] = ("true", "1", "yes", "y")
    falsy: tuple[str, ...] = ("false", "0", "no", "n")

    def __post_init__(self) -> None:
        checks.require_boolean_words(self.truthy, self.falsy)


@dataclass(frozen=True, eq=False, repr=False)
class Default(Normalizer):
    """Replaces NULL by a value."""

    call = "default"
    value: Any

    def __post_init__(self) -> None:
        checks.require_literal(self.value, of=self.call)


@dataclass(frozen=True, eq=False, repr=False)
class NullIf(Normalizer):
    """Replaces a value by NULL."""

    call = "nullif"
    value: Any

    def __post_init__(self) -> None:
        checks.require_literal(self.value, of=self.call)


@dataclass(frozen=True, eq=False, repr=False)
class Sql(Normalizer):
    """Applies an SQL expression in which the word `col` stands for the value so far."""

    call = "sql"
    expression: str

    def __post_init__(self) -> None:
        checks.require_sql(self.expression, of=self.call)


@dataclass(frozen=True, eq=False, repr=False)
class Derive(Normalizer):
    """Replaces the column by an SQL expression over the source's columns."""

    call = "derive"
    expression: str

    def __post_init__(self) -> None:
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
