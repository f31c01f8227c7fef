"""What each normalizer means, in a few lines of plain Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext

_FIELDS = {
    "YYYY": r"(?P<year>[0-9]{4})", "MM": r"(?P<month>[0-9]{2})", "DD": r"(?P<day>[0-9]{2})",
    "HH24": r"(?P<hour>[0-9]{2})", "MI": r"(?P<minute>[0-9]{2})", "SS": r"(?P<second>[0-9]{2})",
    "MS": r"(?P<fraction>[0-9]{1,3})", "US": r"(?P<fraction>[0-9]{1,6})",
    "OF": r"(?P<offset>Z|[+-][0-9]{2}(?::?[0-9]{2})?)",
}  # fmt: skip


def instant(text: str | None, formats: tuple[str, ...]) -> datetime | None:
    """The first format that reads the text as a real moment."""
    for written in formats if text is not None else ():
        found = _read(text or "", written)
        if found is not None:
            return found
    return None


def _read(text: str, written: str) -> datetime | None:
    pattern = "".join(_FIELDS.get(piece, re.escape(piece)) for piece in re.findall("|".join(_FIELDS) + "|.", written))
    match = re.fullmatch(pattern, text)
    if not match:
        return None
    fields = match.groupdict()
    try:
        local = datetime(
            int(fields["year"]), int(fields.get("month") or 1), int(fields.get("day") or 1),
            int(fields.get("hour") or 0), int(fields.get("minute") or 0), int(fields.get("second") or 0),
            int((fields.get("fraction") or "").ljust(6, "0")), tzinfo=timezone.utc,
        )  # fmt: skip
    except ValueError:
        return None
    offset = fields.get("offset")
    if offset in (None, "Z"):
        return local
    digits = offset[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 14 or minutes > 59 or (local.date() in (date.min, date.max) and hours + minutes > 0):
        return None
    ahead = timedelta(hours=hours, minutes=minutes)
    return local + ahead if offset[0] == "-" else local - ahead


def whole_number(text: str | None) -> int | None:
    """Digits with at most a minus, within 64 bits."""
    if text is None or not re.fullmatch("-?[0-9]+", text) or len(text.lstrip("-0")) > 25:
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


def decimal(text: str | None, precision: int, scale: int) -> Decimal | None:
    """Rounded half away from zero, if it still fits."""
    if text is None or not re.fullmatch(r"-?[0-9]+(\.[0-9]{1,200})?", text):
        return None
    rounded = half_away(Decimal(text), scale)
    return rounded if abs(rounded) < Decimal(10) ** (precision - scale) else None


def half_away(number: Decimal, digits: int) -> Decimal:
    """Rounded half away from zero."""
    with localcontext() as context:
        context.prec = 6000
        return number.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)


def null_safe(function: Callable[[str], object]) -> Callable[[str | None], object]:
    """NULL in, NULL out."""
    return lambda value: None if value is None else function(value)
