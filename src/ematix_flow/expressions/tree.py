"""The small set of operations every normalizer is made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal as Choice
from typing import TypeAlias

from ematix_flow.declare.patterns import Pattern, Replacement

Kind: TypeAlias = Choice["text", "big_int", "numeric", "boolean", "date", "timestamp", "timestamp_tz"]
Value: TypeAlias = bool | int | float | str | Decimal | date | datetime


@dataclass(frozen=True)
class Column:
    """The source's column, as SQL of the dialect it will be rendered for."""

    sql: str
    kind: Kind | None = None


@dataclass(frozen=True)
class Literal:
    """A value written down."""

    value: Value


@dataclass(frozen=True)
class Null:
    """NULL."""


@dataclass(frozen=True)
class AsText:
    """The engine's own text form of a value."""

    of: Expression


@dataclass(frozen=True)
class Trim:
    """Without ASCII spaces at both ends."""

    of: Expression


@dataclass(frozen=True)
class Lower:
    """Lower case by Unicode."""

    of: Expression


@dataclass(frozen=True)
class Upper:
    """Upper case by Unicode."""

    of: Expression


@dataclass(frozen=True)
class Substring:
    """`length` characters from `start` (1 is the first); None takes the rest."""

    of: Expression
    start: int
    length: int | None


@dataclass(frozen=True)
class Concat:
    """Texts one after the other; NULL if one of them is."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Replace:
    """Every occurrence of a text becomes another, upper and lower case told apart."""

    of: Expression
    old: str
    new: str


@dataclass(frozen=True)
class RegexReplace:
    """Matches become a replacement, the first one or all of them."""

    of: Expression
    pattern: Pattern
    replacement: Replacement
    everywhere: bool


@dataclass(frozen=True)
class NullIf:
    """NULL where the value is `value`; text is compared character by character."""

    of: Expression
    value: Literal


@dataclass(frozen=True)
class Coalesce:
    """The first that is not NULL."""

    of: Expression
    otherwise: Expression


@dataclass(frozen=True)
class ToInteger:
    """Text known to be a 64-bit integer becomes one."""

    of: Expression


@dataclass(frozen=True)
class ToDecimal:
    """Text known to fit numeric(precision, scale) becomes one, rounded half away from zero."""

    of: Expression
    precision: int
    scale: int


@dataclass(frozen=True)
class ToDate:
    """Text `YYYY-MM-DD` known to be a date becomes one."""

    of: Expression


@dataclass(frozen=True)
class ToInstant:
    """Text `YYYY-MM-DD HH:MM:SS[.f]` of a wall clock and its offset text `+HHMM` (None is UTC) become an instant."""

    local: Expression
    offset: Expression | None


@dataclass(frozen=True)
class AtTimeZone:
    """An instant becomes a zone's wall clock, a wall clock an instant."""

    of: Expression
    zone: str


@dataclass(frozen=True)
class DateTrunc:
    """The start of a unit of time, in UTC."""

    of: Expression
    unit: str


@dataclass(frozen=True)
class Round:
    """Rounded half away from zero to a number of decimals."""

    of: Expression
    digits: int


@dataclass(frozen=True)
class Case:
    """The expression of the first condition that holds, else `otherwise`."""

    branches: tuple[tuple[Condition, Expression], ...]
    otherwise: Expression


@dataclass(frozen=True)
class Raise:
    """Ends the statement with a message that shows `subject`; never evaluated unless reached."""

    message: str
    subject: Expression
    kind: Kind


@dataclass(frozen=True)
class UserSql:
    """The user's own expression; its word `col` stands for `col`."""

    sql: str
    col: Expression | None


@dataclass(frozen=True)
class IsNull:
    """Is NULL."""

    of: Expression


@dataclass(frozen=True)
class Matches:
    """The whole text matches; the pattern uses only what all engines write alike."""

    of: Expression
    pattern: str


@dataclass(frozen=True)
class OneOf:
    """The text is one of these, character by character."""

    of: Expression
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Compare:
    """Smaller or greater."""

    left: Expression
    operator: Choice["<", ">"]
    right: Expression


@dataclass(frozen=True)
class AndNot:
    """The first holds and the second does not."""

    holds: Condition
    fails: Condition


@dataclass(frozen=True)
class Searches:
    """The pattern is found somewhere in the text."""

    of: Expression
    pattern: Pattern


@dataclass(frozen=True)
class Not:
    """It does not hold; of NULL nobody knows."""

    of: Condition


@dataclass(frozen=True)
class Either:
    """At least one of them holds."""

    parts: tuple[Condition, ...]


Expression: TypeAlias = (
    Column
    | Literal
    | Null
    | AsText
    | Trim
    | Lower
    | Upper
    | Substring
    | Concat
    | Replace
    | RegexReplace
    | NullIf
    | Coalesce
    | ToInteger
    | ToDecimal
    | ToDate
    | ToInstant
    | AtTimeZone
    | DateTrunc
    | Round
    | Case
    | Raise
    | UserSql
)
Condition: TypeAlias = IsNull | Matches | OneOf | Compare | AndNot | Searches | Not | Either

_KINDS: dict[type, Kind] = {
    AsText: "text", Trim: "text", Lower: "text", Upper: "text", Substring: "text", Concat: "text", Replace: "text",
    RegexReplace: "text", ToInteger: "big_int", ToDecimal: "numeric", ToDate: "date", ToInstant: "timestamp_tz",
}  # fmt: skip


def kind_of(expression: Expression) -> Kind | None:
    """The kind of value an expression gives, or None where only the source knows."""
    fixed = _KINDS.get(type(expression))
    if fixed is not None:
        return fixed
    match expression:
        case Column(kind=kind) | Raise(kind=kind):
            return kind
        case Literal(value):
            return kind_of_value(value)
        case NullIf(of) | Coalesce(of):
            return kind_of(of)
        case Round(of):
            return "numeric" if kind_of(of) == "numeric" else None
        case DateTrunc(of):
            return "timestamp" if kind_of(of) == "timestamp" else "timestamp_tz"
        case AtTimeZone(of):
            return "timestamp_tz" if kind_of(of) == "timestamp" else "timestamp"
        case Case(branches, otherwise):
            kinds = [kind_of(value) for _, value in branches] + [kind_of(otherwise)]
            return next((kind for kind in kinds if kind is not None), None)
    return None


def known_kind(name: str | None) -> Kind | None:
    """The kind of a declared column type, None for those that no operation treats specially."""
    match name:
        case "big_int" | "numeric" | "boolean" | "date" | "timestamp" | "timestamp_tz" | "text":
            return name
        case "string":
            return "text"
    return None


def kind_of_value(value: Value) -> Kind | None:
    """The kind of a literal."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, datetime):
        return "timestamp_tz"
    if isinstance(value, date):
        return "date"
    return None
