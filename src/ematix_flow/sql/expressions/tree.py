"""The operations of which every normalizer is built, as nodes of an expression tree."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal as Choice
from typing import TypeAlias

from ematix_flow.declare.normalizers.patterns import Pattern, Replacement

Kind: TypeAlias = Choice["text", "big_int", "numeric", "boolean", "date", "timestamp", "timestamp_tz"]
Value: TypeAlias = bool | int | float | str | Decimal | date | datetime


@dataclass(frozen=True)
class ColumnExpr:
    """A column of the source, as SQL of the target dialect."""

    sql: str
    kind: Kind | None = None


@dataclass(frozen=True)
class LiteralExpr:
    """A literal value."""

    value: Value


@dataclass(frozen=True)
class NullExpr:
    """NULL."""


@dataclass(frozen=True)
class AsTextExpr:
    """The text form of a value, as the engine casts it."""

    of: Expression


@dataclass(frozen=True)
class TrimExpr:
    """A text without the ASCII spaces at both ends."""

    of: Expression


@dataclass(frozen=True)
class LowerExpr:
    """A text in lower case by Unicode rules."""

    of: Expression


@dataclass(frozen=True)
class UpperExpr:
    """A text in upper case by Unicode rules."""

    of: Expression


@dataclass(frozen=True)
class SubstringExpr:
    """`length` characters from `start` (1 is the first); a length of None means the rest."""

    of: Expression
    start: int
    length: int | None


@dataclass(frozen=True)
class ConcatExpr:
    """The concatenation of texts; NULL if one of them is."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class ReplaceExpr:
    """A text with every occurrence of `old` replaced by `new`, case-sensitive."""

    of: Expression
    old: str
    new: str


@dataclass(frozen=True)
class RegexReplaceExpr:
    """A text in which the first match, or every match, of a pattern is replaced."""

    of: Expression
    pattern: Pattern
    replacement: Replacement
    everywhere: bool


@dataclass(frozen=True)
class NullIfExpr:
    """NULL where the value equals `value`, otherwise the value; text is compared character by character."""

    of: Expression
    value: LiteralExpr


@dataclass(frozen=True)
class CoalesceExpr:
    """The first of two values that is not NULL."""

    of: Expression
    otherwise: Expression


@dataclass(frozen=True)
class ToIntegerExpr:
    """The 64-bit integer of a text that is already checked to be one."""

    of: Expression


@dataclass(frozen=True)
class ToDecimalExpr:
    """The numeric(precision, scale) of a text that is already checked to fit, rounded half away from zero."""

    of: Expression
    precision: int
    scale: int


@dataclass(frozen=True)
class ToDateExpr:
    """The date of a text `YYYY-MM-DD` that is already checked to be one."""

    of: Expression


@dataclass(frozen=True)
class ToInstantExpr:
    """The instant of a local time `YYYY-MM-DD HH:MM:SS[.f]` and its offset text `+HHMM` (None is UTC)."""

    local: Expression
    offset: Expression | None


@dataclass(frozen=True)
class AtTimeZoneExpr:
    """The local time of an instant in a time zone, or the instant of a local time."""

    of: Expression
    zone: str


@dataclass(frozen=True)
class DateTruncExpr:
    """The start of the unit of time that contains the value, in UTC."""

    of: Expression
    unit: str


@dataclass(frozen=True)
class RoundExpr:
    """A number rounded half away from zero to a number of decimals."""

    of: Expression
    digits: int


@dataclass(frozen=True)
class CaseExpr:
    """The expression of the first condition that holds, otherwise `otherwise`."""

    branches: tuple[tuple[Condition, Expression], ...]
    otherwise: Expression


@dataclass(frozen=True)
class RaiseExpr:
    """An error with a message that shows `subject`; it fails the statement only where a row reaches it."""

    message: str
    subject: Expression
    kind: Kind


@dataclass(frozen=True)
class UserSqlExpr:
    """The user's own expression; the identifier `col` in it is replaced by `col`."""

    sql: str
    col: Expression | None


@dataclass(frozen=True)
class IsNullExpr:
    """The condition that a value is NULL."""

    of: Expression


@dataclass(frozen=True)
class MatchesExpr:
    """The condition that the whole text matches; the pattern uses only syntax that all engines share."""

    of: Expression
    pattern: str


@dataclass(frozen=True)
class OneOfExpr:
    """The condition that the text is one of these, compared character by character."""

    of: Expression
    texts: tuple[str, ...]


@dataclass(frozen=True)
class CompareExpr:
    """The condition that one value is smaller or greater than another."""

    left: Expression
    operator: Choice["<", ">"]
    right: Expression


@dataclass(frozen=True)
class AndNotExpr:
    """The condition that the first holds and the second does not."""

    holds: Condition
    fails: Condition


@dataclass(frozen=True)
class SearchesExpr:
    """The condition that the pattern matches somewhere in the text."""

    of: Expression
    pattern: Pattern


@dataclass(frozen=True)
class NotExpr:
    """The negation of a condition; NULL stays NULL."""

    of: Condition


@dataclass(frozen=True)
class EitherExpr:
    """The condition that at least one of several holds."""

    parts: tuple[Condition, ...]


Expression: TypeAlias = (
    ColumnExpr
    | LiteralExpr
    | NullExpr
    | AsTextExpr
    | TrimExpr
    | LowerExpr
    | UpperExpr
    | SubstringExpr
    | ConcatExpr
    | ReplaceExpr
    | RegexReplaceExpr
    | NullIfExpr
    | CoalesceExpr
    | ToIntegerExpr
    | ToDecimalExpr
    | ToDateExpr
    | ToInstantExpr
    | AtTimeZoneExpr
    | DateTruncExpr
    | RoundExpr
    | CaseExpr
    | RaiseExpr
    | UserSqlExpr
)
Condition: TypeAlias = (
    IsNullExpr | MatchesExpr | OneOfExpr | CompareExpr | AndNotExpr | SearchesExpr | NotExpr | EitherExpr
)

_KINDS: dict[type, Kind] = {
    AsTextExpr: "text", TrimExpr: "text", LowerExpr: "text", UpperExpr: "text", SubstringExpr: "text", ConcatExpr: "text", ReplaceExpr: "text",
    RegexReplaceExpr: "text", ToIntegerExpr: "big_int", ToDecimalExpr: "numeric", ToDateExpr: "date", ToInstantExpr: "timestamp_tz",
}  # fmt: skip


def kind_of(expression: Expression) -> Kind | None:
    """Return the kind of value an expression gives, None where it depends on the source."""
    fixed = _KINDS.get(type(expression))
    if fixed is not None:
        return fixed
    match expression:
        case ColumnExpr(kind=kind) | RaiseExpr(kind=kind):
            return kind
        case LiteralExpr(value):
            return kind_of_value(value)
        case NullIfExpr(of) | CoalesceExpr(of):
            return kind_of(of)
        case RoundExpr(of):
            return "numeric" if kind_of(of) == "numeric" else None
        case DateTruncExpr(of):
            return "timestamp" if kind_of(of) == "timestamp" else "timestamp_tz"
        case AtTimeZoneExpr(of):
            return "timestamp_tz" if kind_of(of) == "timestamp" else "timestamp"
        case CaseExpr(branches, otherwise):
            kinds = [kind_of(value) for _, value in branches] + [kind_of(otherwise)]
            return next((kind for kind in kinds if kind is not None), None)
    return None


def known_kind(name: str | None) -> Kind | None:
    """Return the kind of a declared column type, None for types that no operation treats specially."""
    match name:
        case "big_int" | "numeric" | "boolean" | "date" | "timestamp" | "timestamp_tz" | "text":
            return name
        case "string":
            return "text"
    return None


def kind_of_value(value: Value) -> Kind | None:
    """Return the kind of a literal."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, datetime):
        return "timestamp_tz"
    if isinstance(value, date):
        return "date"
    return None


class CannotRender(Exception):
    """A dialect cannot execute `op` with the same result; the planner then uses the Spark path."""

    def __init__(self, op: str, dialect: str, reason: str) -> None:
        super().__init__(f"{op} cannot run inside {dialect}: {reason}")
        self.op = op
        self.dialect = dialect
        self.reason = reason
