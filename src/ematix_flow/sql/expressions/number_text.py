"""Numbers as text: conditions that accept only values the number's type can hold."""

from __future__ import annotations

from ematix_flow.sql.expressions import tree

LARGEST = 2**63 - 1
MOST_DECIMALS = 200  # some engines reject texts of many thousand digits


def integer_branches(text: tree.Expression) -> tuple[tuple[tree.Condition, tree.Expression], ...]:
    """Return the branch for a 64-bit integer: digits with an optional minus sign."""
    guard = f"-?0*(?:{up_to(LARGEST)})|-0*{LARGEST + 1}"
    return ((tree.MatchesExpr(text, guard), tree.ToIntegerExpr(text)),)


def decimal_branches(
    text: tree.Expression, precision: int, scale: int
) -> tuple[tuple[tree.Condition, tree.Expression], ...]:
    """Return the branch for a number that still fits numeric(precision, scale) after rounding."""
    before = precision - scale
    whole = f"-?0*[0-9]{{1,{before}}}" if before else "-?0+"
    fits = tree.MatchesExpr(text, f"{whole}(?:[.][0-9]{{1,{MOST_DECIMALS}}})?")
    nines = f"9{{{before}}}" if before else "0"
    rounds_over = tree.MatchesExpr(text, f"-?0*{nines}[.]{f'9{{{scale}}}' if scale else ''}[5-9][0-9]*")
    return ((tree.AndNotExpr(fits, rounds_over), tree.ToDecimalExpr(text, precision, scale)),)


def up_to(limit: int) -> str:
    """Return a pattern of the integers from 0 to `limit`, without leading zeros beyond the limit's length.

    >>> up_to(25)
    '[0-9]{1,1}|[0-1][0-9]|2[0-5]'
    """
    digits = str(limit)
    choices = [f"[0-9]{{1,{len(digits) - 1}}}"] if len(digits) > 1 else []
    for place, digit in enumerate(digits):
        last = place == len(digits) - 1
        top = int(digit) if last else int(digit) - 1
        if top >= 0:
            rest = len(digits) - place - 1
            choices.append(digits[:place] + f"[0-{top}]" + (f"[0-9]{{{rest}}}" if rest > 1 else "[0-9]" * rest))
    return "|".join(choices)
