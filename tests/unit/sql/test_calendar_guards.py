"""The guards of dates accept every real date and nothing else."""

from __future__ import annotations

import re
import sqlite3
from datetime import date, timedelta

import pytest

from ematix_flow.normalize import parse_date, parse_timestamp
from ematix_flow.sql.expressions import render_chain, sqlite_functions
from ematix_flow.sql.expressions.build import build_expression
from ematix_flow.sql.expressions.tree import AndNotExpr, CaseExpr, ColumnExpr, MatchesExpr


def _guard(written: str) -> re.Pattern[str]:
    tree = build_expression([parse_date(written)], ColumnExpr("x"))
    assert isinstance(tree, CaseExpr)
    guard = tree.branches[0][0]
    assert isinstance(guard, MatchesExpr)
    return re.compile(guard.pattern)


def test_every_day_of_four_centuries_is_accepted() -> None:
    guard = _guard("DD.MM.YYYY")
    day = date(1999, 1, 1)
    while day.year < 2401:
        assert guard.fullmatch(day.strftime("%d.%m.%Y")), day
        day += timedelta(days=1)


@pytest.mark.parametrize("year", ["0001", "0004", "0100", "0400", "1900", "2000", "2023", "2024", "9996", "9999"])
def test_no_day_that_does_not_exist_is_accepted(year: str) -> None:
    guard = _guard("YYYY-MM-DD")
    for month in range(100):
        for day in range(100):
            text = f"{year}-{month:02}-{day:02}"
            try:
                date(int(year), month, day)
                real = True
            except ValueError:
                real = False
            assert bool(guard.fullmatch(text)) == real, text


def test_the_year_zero_does_not_exist() -> None:
    assert not _guard("YYYY-MM-DD").fullmatch("0000-01-01")
    assert not _guard("YYYY-MM-DD").fullmatch("0000-02-29")


def test_an_offset_that_leaves_the_calendar_is_refused_and_zero_is_not() -> None:
    tree = build_expression([parse_timestamp("YYYY-MM-DDTHH24:MI:SSOF")], ColumnExpr("x"))
    assert isinstance(tree, CaseExpr)
    guard = tree.branches[0][0]
    assert isinstance(guard, AndNotExpr)
    assert isinstance(guard.fails, MatchesExpr)
    refused = re.compile(guard.fails.pattern)
    for offset in ("+01", "-00:30", "+1400"):
        assert refused.fullmatch(f"0001-01-01T00:00:00{offset}")
        assert refused.fullmatch(f"9999-12-31T00:00:00{offset}")
        assert not refused.fullmatch(f"2024-01-01T00:00:00{offset}")
    for offset in ("Z", "+00", "-00:00"):
        assert not refused.fullmatch(f"0001-01-01T00:00:00{offset}")


@pytest.mark.parametrize(
    ("written", "text", "instant"),
    [
        ("YYYYMMDDHH24MISS", "20240229235958", "2024-02-29 23:59:58.000000+00:00"),
        ("DD.MM.YYYY", "29.02.2024", "2024-02-29 00:00:00.000000+00:00"),
        ("YYYY-MM", "2024-12", "2024-12-01 00:00:00.000000+00:00"),
        ("YYYY", "0001", "0001-01-01 00:00:00.000000+00:00"),
        ('HH24:MI OF "on" YYYY/MM/DD', "23:15 -0330 on 2024/12/31", "2025-01-01 02:45:00.000000+00:00"),
        ("HH24:MI:SS.US YYYY-MM-DD", "01:02:03.4 2024-01-02", "2024-01-02 01:02:03.400000+00:00"),
        ("YYYY-MM-DDTHH24:MI:SS.MSZ", "2024-01-02T03:04:05.67Z", "2024-01-02 03:04:05.670000+00:00"),
        ("YYYY-MM-DD HH24:MI:SS,MS", "2024-01-02 03:04:05,678", "2024-01-02 03:04:05.678000+00:00"),
        ("YYYY-MM-DD HH24:MI:SS OF", "2024-01-02 03:04:05 Z", "2024-01-02 03:04:05.000000+00:00"),
        ("[YYYY] ^MM$ (DD)", "[2024] ^01$ (02)", "2024-01-02 00:00:00.000000+00:00"),
        ('YYYY"MM"MM', "2024MM05", "2024-05-01 00:00:00.000000+00:00"),
    ],
)
def test_tokens_may_stand_in_any_order(written: str, text: str, instant: str) -> None:
    connection = sqlite3.connect(":memory:")
    sqlite_functions.register(connection)
    chain = render_chain([parse_timestamp(written)], "x", dialect="sqlite")
    assert connection.execute(f'SELECT {chain} FROM (SELECT ? AS "x")', (text,)).fetchone() == (instant,)
    assert connection.execute(f'SELECT {chain} FROM (SELECT ? AS "x")', (text + "0",)).fetchone() == (None,)
