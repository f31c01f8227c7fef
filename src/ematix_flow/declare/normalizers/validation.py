"""Validation of the arguments of normalizers, at their declaration; each check raises DeclarationError."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from ematix_flow.declare.normalizers.formats import parse_format
from ematix_flow.foundation.errors import DeclarationError

_FAILURES = ("null", "default", "error")
_ZONE = re.compile(r"(?:UTC|GMT|[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+)\Z")


def require_text(value: object, *, of: str) -> None:
    """Require text without NUL, which no database stores."""
    if not isinstance(value, str):
        raise DeclarationError(f"{of} takes text, not {value!r}")
    if "\0" in value:
        raise DeclarationError(f"{of} was given text with a NUL character", hint="no database stores that character")


def require_integer(value: object, *, of: str, low: int, high: int) -> None:
    """Require a whole number between the limits, which are inclusive."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise DeclarationError(f"{of} takes a whole number from {low} to {high}, not {value!r}")


def require_failure_pair(on_failure: object, default: object, *, of: str) -> None:
    """Require a default exactly with `on_failure="default"`."""
    if on_failure not in _FAILURES:
        raise DeclarationError(f"{of} does not know on_failure={on_failure!r}", hint="use null, default or error")
    if (on_failure == "default") != (default is not None):
        raise DeclarationError(
            f'{of}: on_failure="default" and default=… belong together', hint='write on_failure="default", default=…'
        )


def formats_or_defaults(
    one: str | None, several: tuple[str, ...] | None, *, defaults: tuple[str, ...], of: str
) -> tuple[str, ...]:
    """Return the given formats, or else the defaults."""
    if one is not None and several is not None:
        raise DeclarationError(f"{of} was given both format and formats", hint="give one of them")
    if several is not None and not several:
        raise DeclarationError(f"{of} was given no format in formats=", hint="name at least one, or leave it out")
    return (one,) if one is not None else several if several is not None else defaults


def require_formats(formats: tuple[str, ...], *, on_failure: str, of: str) -> None:
    """Require formats that every engine supports; `on_failure="error"` needs exactly one."""
    for text in formats:
        require_text(text, of=of)
        parse_format(text)
    if on_failure == "error" and len(formats) != 1:
        raise DeclarationError(
            f'{of}(on_failure="error") needs exactly one format, not {len(formats)}', hint='add format="YYYY-MM-DD"'
        )


def require_no_offset(formats: tuple[str, ...]) -> None:
    """Require formats without an offset, which a date does not have."""
    for text in formats:
        if any(part.is_token and part.text == "OF" for part in parse_format(text)):
            raise DeclarationError(
                f"parse_date cannot use {text!r}: an offset has no meaning for a date",
                hint="use parse_timestamp, or leave OF out",
            )


def require_zone(name: object) -> None:
    """Require a time zone name that all engines read alike, as they do not for offsets and abbreviations."""
    if not isinstance(name, str) or not _ZONE.match(name) or not _is_known_zone(name):
        raise DeclarationError(
            f"to_timezone does not know the zone {name!r}", hint="use a name such as Europe/Berlin or UTC"
        )


def _is_known_zone(name: str) -> bool:
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return not zoneinfo.available_timezones()  # a machine without zone data cannot check
    return True


def require_literal(value: object, *, of: str) -> None:
    """Require a value that can be written as an SQL literal."""
    if isinstance(value, str):
        require_text(value, of=of)
    elif isinstance(value, float):
        _require_finite(math.isfinite(value), value, of=of)
    elif isinstance(value, Decimal):
        _require_finite(value.is_finite(), value, of=of)
    elif not isinstance(value, (bool, int, date)):
        hint = "use text, a number, True, False, a date or a datetime"
        if value is None:
            hint = "declare the column nullable instead: T | None"
        elif isinstance(value, (list, tuple, set, dict)):
            hint = 'write the expression yourself: sql("…")'
        raise DeclarationError(f"{of} cannot use {value!r}", hint=hint)


def _require_finite(finite: bool, value: object, *, of: str) -> None:
    if not finite:
        raise DeclarationError(f"{of} cannot use {value!r}", hint="give a finite number")


def require_bounds(low: Any, high: Any) -> None:
    """Require at least one bound, and two in ascending order; None leaves a side open."""
    if low is None and high is None:
        raise DeclarationError("clamp(None, None) has no bound", hint="give at least one")
    for bound in (low, high):
        if bound is not None:
            require_literal(bound, of="clamp")
    if isinstance(low, str) or isinstance(high, str) or low is None or high is None:
        return
    try:
        crossed = _comparable(low) > _comparable(high)
    except TypeError as exc:
        raise DeclarationError(f"clamp cannot compare {low!r} with {high!r}") from exc
    if crossed:
        raise DeclarationError(f"clamp({low!r}, {high!r}) has its bounds the wrong way round")


def _comparable(bound: Any) -> Any:
    return bound.replace(tzinfo=timezone.utc) if isinstance(bound, datetime) and bound.tzinfo is None else bound


def require_boolean_words(truthy: Sequence[str], falsy: Sequence[str]) -> None:
    """Require words for true and false, none of them for both."""
    for word in (*truthy, *falsy):
        require_text(word, of="parse_bool")
    both = {word.lower() for word in truthy} & {word.lower() for word in falsy}
    if both:
        raise DeclarationError(f"parse_bool: {sorted(both)[0]!r} cannot mean both true and false")
    if not truthy and not falsy:
        raise DeclarationError("parse_bool was given no words", hint="name at least one")


def require_sql(text: object, *, of: str) -> None:
    """Require a non-empty SQL expression."""
    require_text(text, of=of)
    if not str(text).strip():
        raise DeclarationError(f"{of} needs an SQL expression")


def require_fits(value: Decimal, *, precision: int, scale: int) -> None:
    """Require a default that the column's numeric type can store."""
    with localcontext() as context:
        context.prec = 100
        rounded = value.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
    if abs(rounded) >= Decimal(10) ** (precision - scale):
        raise DeclarationError(f"parse_numeric: the default {value} does not fit numeric({precision}, {scale})")


def as_decimal(value: object, *, of: str) -> Decimal:
    """Return a default, given as a number or its text, as a Decimal."""
    try:
        number = Decimal(repr(value) if isinstance(value, float) else str(value))
    except ArithmeticError as exc:
        raise DeclarationError(f"{of} is no number: {value!r}") from exc
    _require_finite(number.is_finite(), value, of=of)
    return number


def as_datetime(value: object, *, of: str) -> datetime:
    """Return a default, given as a datetime, a date or ISO text, as a datetime."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00"))  # type: ignore[attr-defined]
    except (AttributeError, ValueError) as exc:
        raise DeclarationError(f"{of} is no date and time: {value!r}", hint="give a datetime") from exc


def as_date(value: object, *, of: str) -> date:
    """Return a default, given as a date or ISO text, as a date."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as exc:
        raise DeclarationError(f"{of} is no date: {value!r}", hint="give a date") from exc
