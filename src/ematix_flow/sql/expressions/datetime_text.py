"""Dates and times as text: conditions that accept only valid ones, and expressions that reorder them to ISO."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ematix_flow.declare.normalizers.formats import VARIABLE_WIDTH, FormatPart, parse_format
from ematix_flow.declare.normalizers.patterns import Replacement, parse_pattern
from ematix_flow.sql.expressions import tree

_TWO_DIGITS = {"HH24": "(?:[01][0-9]|2[0-3])", "MI": "[0-5][0-9]", "SS": "[0-5][0-9]"}
_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_BY_FOUR = "(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = f"(?:[0-9]{{2}}{_BY_FOUR}|{_BY_FOUR}00)"
_MONTH = "(?:0[1-9]|1[0-2])"
_CALENDAR = (
    {"YYYY": _YEAR, "MM": "(?:0[13578]|1[02])", "DD": "(?:0[1-9]|[12][0-9]|3[01])"},
    {"YYYY": _YEAR, "MM": "(?:0[469]|11)", "DD": "(?:0[1-9]|[12][0-9]|30)"},
    {"YYYY": _YEAR, "MM": "02", "DD": "(?:0[1-9]|1[0-9]|2[0-8])"},
    {"YYYY": _LEAP_YEAR, "MM": "02", "DD": "29"},
)
_FIRST_AND_LAST_DAY = ({"YYYY": "0001", "MM": "01", "DD": "01"}, {"YYYY": "9999", "MM": "12", "DD": "31"})
_OFFSETS = {
    "Z": "Z",
    "+HH": "[+-](?:0[0-9]|1[0-4])",
    "+HHMM": "[+-](?:0[0-9]|1[0-4])[0-5][0-9]",
    "+HH:MM": "[+-](?:0[0-9]|1[0-4]):[0-5][0-9]",
}
_ANY_OFFSET = "(?:Z|[+-](?:0[0-9]|1[0-4])(?::?[0-5][0-9])?)"
_SHIFTING_OFFSET = "[+-](?:(?:0[1-9]|1[0-4])(?::?[0-5][0-9])?|00:?(?:0[1-9]|[1-5][0-9]))"
_FRACTION_DIGITS = {"MS": 3, "US": 6}
_WIDTHS = {"YYYY": 4, "MM": 2, "DD": 2, "HH24": 2, "MI": 2, "SS": 2, "Z": 1, "+HH": 3, "+HHMM": 5, "+HH:MM": 6}
_ISO_DATE = ("YYYY", "-", "MM", "-", "DD")
_ISO = (*_ISO_DATE, " ", "HH24", ":", "MI", ":", "SS")
_MISSING = {"MM": "01", "DD": "01", "HH24": "00", "MI": "00", "SS": "00"}


@dataclass(frozen=True)
class _FormatPiece:
    """A part of fixed width: a token, `n` digits of a fraction, a form of offset, or one character."""

    name: str
    width: int
    is_token: bool


@dataclass(frozen=True)
class _FormatLayout:
    """A format as parts of fixed width, then a fraction and an offset of variable width."""

    body: tuple[_FormatPiece, ...]
    fraction: int = 0
    offset: bool = False

    @property
    def width(self) -> int:
        return sum(piece.width for piece in self.body)


def instant_branches(
    text: tree.Expression, formats: Sequence[str]
) -> tuple[tuple[tree.Condition, tree.Expression], ...]:
    """Return a condition and an instant for each format; formats that differ only at their end share one."""
    branches = []
    for body, members in itertools.groupby(_layouts(formats), key=lambda layout: layout.body):
        group = list(members)
        branches.append((_guard(text, group), _instant(text, body, group)))
    return tuple(branches)


def date_branches(text: tree.Expression, formats: Sequence[str]) -> tuple[tuple[tree.Condition, tree.Expression], ...]:
    """Return a condition and a date for each format."""
    return tuple(
        (_guard(text, [layout]), tree.ToDateExpr(_in_order(text, layout.body, _ISO_DATE)))
        for layout in _layouts(formats)
    )


def _layouts(formats: Sequence[str]) -> Iterator[_FormatLayout]:
    for written in formats:
        parts = parse_format(written)
        body, fraction, offset = _without_tail(parts)
        if any(part.is_token and part.text in VARIABLE_WIDTH for part in body):
            for fixed in itertools.product(*(_fixed_widths(part) for part in parts)):
                yield _FormatLayout(fixed)
        else:
            yield _FormatLayout(tuple(_fixed_widths(part)[0] for part in body), fraction, offset)


def _without_tail(parts: tuple[FormatPart, ...]) -> tuple[tuple[FormatPart, ...], int, bool]:
    offset = parts[-1] == FormatPart("OF", True)
    body = parts[:-1] if offset else parts
    if len(body) > 1 and body[-2] == FormatPart(".", False) and body[-1].is_token and body[-1].text in _FRACTION_DIGITS:
        return body[:-2], _FRACTION_DIGITS[body[-1].text], offset
    return body, 0, offset


def _fixed_widths(part: FormatPart) -> tuple[_FormatPiece, ...]:
    if not part.is_token:
        return (_FormatPiece(part.text, 1, False),)
    if part.text == "OF":
        return tuple(_FormatPiece(form, _WIDTHS[form], True) for form in _OFFSETS)
    if part.text in _FRACTION_DIGITS:
        return tuple(_FormatPiece("fraction", digits, True) for digits in range(1, _FRACTION_DIGITS[part.text] + 1))
    return (_FormatPiece(part.text, _WIDTHS[part.text], True),)


def _guard(text: tree.Expression, group: list[_FormatLayout]) -> tree.Condition:
    body = group[0].body
    tails = {_tail(layout.fraction, _ANY_OFFSET if layout.offset else "") for layout in group}
    guard = tree.MatchesExpr(text, _body(body) + _one_of_tails(tails))
    shifting = {_tail(layout.fraction, _SHIFTING_OFFSET) for layout in group if layout.offset}
    inner = [piece.name for piece in body if piece.name in _OFFSETS and piece.is_token]
    if inner and inner != ["Z"]:
        shifting.add("")
    if not shifting:
        return guard
    return tree.AndNotExpr(
        guard, tree.MatchesExpr(text, _body(body, days=_FIRST_AND_LAST_DAY, shifting=True) + _one_of_tails(shifting))
    )


def _tail(fraction: int, offset: str) -> str:
    return (f"[.][0-9]{{1,{fraction}}}" if fraction else "") + offset


def _one_of_tails(tails: set[str]) -> str:
    some = sorted(tail for tail in tails if tail)
    if not some:
        return ""
    return f"(?:{'|'.join(some)})" + ("?" if "" in tails else "")


def _body(
    pieces: tuple[_FormatPiece, ...], *, days: Sequence[dict[str, str]] = _CALENDAR, shifting: bool = False
) -> str:
    places = [index for index, piece in enumerate(pieces) if piece.is_token and piece.name in ("YYYY", "MM", "DD")]
    first, last = places[0], places[-1] + 1
    names = {pieces[place].name for place in places}
    if "DD" not in names and days is _CALENDAR:
        days = ({"YYYY": _YEAR, "MM": _MONTH},)
    spans = ["".join(_piece_pattern(piece, day, shifting) for piece in pieces[first:last]) for day in days]
    before = "".join(_piece_pattern(piece, {}, shifting) for piece in pieces[:first])
    after = "".join(_piece_pattern(piece, {}, shifting) for piece in pieces[last:])
    return f"{before}(?:{'|'.join(spans)}){after}"


def _piece_pattern(piece: _FormatPiece, day: dict[str, str], shifting: bool) -> str:
    if not piece.is_token:
        return _escaped(piece.name)
    if piece.name == "fraction":
        return f"[0-9]{{{piece.width}}}"
    if piece.name in _OFFSETS:
        return _SHIFTING_OFFSET if shifting else _OFFSETS[piece.name]
    return day.get(piece.name) or _TWO_DIGITS[piece.name]


def _escaped(character: str) -> str:
    if character in "^[]\\":
        return "\\" + character
    return f"[{character}]" if character in ".+*?(){}|$" else character


def _instant(text: tree.Expression, body: tuple[_FormatPiece, ...], group: list[_FormatLayout]) -> tree.Expression:
    local = _in_order(text, body, _ISO)
    tail = tree.SubstringExpr(text, group[0].width + 1, None)
    fractions = any(layout.fraction for layout in group)
    offsets = any(layout.offset for layout in group)
    if fractions:
        local = tree.ConcatExpr((local, _remove_matches(tail, r"[Z+\-].*") if offsets else tail))
    if offsets:
        bare = tree.NullIfExpr(_remove_matches(tail, r"^[.][0-9]+|[:Z]"), tree.LiteralExpr(""))
        return tree.ToInstantExpr(
            local,
            tree.SubstringExpr(
                tree.ConcatExpr((tree.CoalesceExpr(bare, tree.LiteralExpr("+00")), tree.LiteralExpr("00"))), 1, 5
            ),
        )
    return tree.ToInstantExpr(_with_inner_fraction(text, local, body), _inner_offset(text, body))


def _remove_matches(text: tree.Expression, pattern: str) -> tree.Expression:
    return tree.RegexReplaceExpr(text, parse_pattern(pattern), Replacement(()), everywhere=True)


def _with_inner_fraction(
    text: tree.Expression, local: tree.Expression, body: tuple[_FormatPiece, ...]
) -> tree.Expression:
    for start, piece in _token_positions(body):
        if piece.name == "fraction" and piece.is_token:
            return tree.ConcatExpr((local, tree.LiteralExpr("."), tree.SubstringExpr(text, start, piece.width)))
    return local


def _inner_offset(text: tree.Expression, body: tuple[_FormatPiece, ...]) -> tree.Expression | None:
    for start, piece in _token_positions(body):
        if piece.name == "+HH" and piece.is_token:
            return tree.ConcatExpr((tree.SubstringExpr(text, start, 3), tree.LiteralExpr("00")))
        if piece.name == "+HHMM" and piece.is_token:
            return tree.SubstringExpr(text, start, 5)
        if piece.name == "+HH:MM" and piece.is_token:
            return tree.ConcatExpr((tree.SubstringExpr(text, start, 3), tree.SubstringExpr(text, start + 4, 2)))
    return None


def _token_positions(body: tuple[_FormatPiece, ...]) -> Iterator[tuple[int, _FormatPiece]]:
    start = 1
    for piece in body:
        yield start, piece
        start += piece.width


def _in_order(text: tree.Expression, body: tuple[_FormatPiece, ...], wanted: tuple[str, ...]) -> tree.Expression:
    """Return the tokens in ISO order; neighbours that are already in order become one substring."""
    written = "".join("\0" * piece.width if piece.is_token else piece.name for piece in body)
    starts = {piece.name: start for start, piece in _token_positions(body) if piece.is_token}
    taken: list[tuple[int, int] | str] = []
    for name in wanted:
        if name in starts:
            _append_span(taken, starts[name], _WIDTHS[name], written)
        else:
            taken.append(_MISSING.get(name, name))
    parts = tuple(
        tree.LiteralExpr(item) if isinstance(item, str) else tree.SubstringExpr(text, *item) for item in taken
    )
    return parts[0] if len(parts) == 1 else tree.ConcatExpr(_joined(parts))


def _append_span(taken: list[tuple[int, int] | str], start: int, width: int, written: str) -> None:
    if len(taken) > 1 and isinstance(taken[-1], str) and isinstance(taken[-2], tuple):
        before_start, before_width = taken[-2]
        gap = written[before_start + before_width - 1 : start - 1]
        if gap == taken[-1]:
            taken[-2:] = [(before_start, start + width - before_start)]
            return
    taken.append((start, width))


def _joined(parts: tuple[tree.LiteralExpr | tree.SubstringExpr, ...]) -> tuple[tree.Expression, ...]:
    joined: list[tree.Expression] = []
    for part in parts:
        if isinstance(part, tree.LiteralExpr) and joined and isinstance(joined[-1], tree.LiteralExpr):
            joined[-1] = tree.LiteralExpr(f"{joined[-1].value}{part.value}")
        else:
            joined.append(part)
    return tuple(joined)
