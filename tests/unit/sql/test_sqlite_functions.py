"""The functions that SQLite is given."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from ematix_flow.sql.expressions import sqlite_functions

Ask = Callable[..., Any]


@pytest.fixture
def ask() -> Ask:
    connection = sqlite3.connect(":memory:")
    sqlite_functions.register(connection)

    def asked(call: str, *given: Any) -> Any:
        return connection.execute(f"SELECT {call}", given).fetchone()[0]

    return asked


def test_null_in_any_place_gives_null(ask: Ask) -> None:
    assert ask("FLOW_LOWER(NULL)") is None
    assert ask("FLOW_MATCHES(NULL, 'a')") is None
    assert ask("FLOW_COMPARE(1, NULL, 'number')") is None


def test_numbers_kept_as_text_are_compared_as_numbers(ask: Ask) -> None:
    assert ask("FLOW_COMPARE('10', 9, 'number')") == 1
    assert ask("FLOW_COMPARE('0.10', '0.1', 'number')") == 0
    assert ask("FLOW_NULLIF(1.5, '1.50', 'number')") is None


def test_rounding_keeps_the_kind_of_number(ask: Ask) -> None:
    assert ask("FLOW_ROUND(2.675, 2)") == 2.68
    assert ask("FLOW_ROUND('123456789012345678901234567890.125', 2)") == "123456789012345678901234567890.13"
    assert ask("FLOW_ROUND(-150, -2)") == -200
    assert ask("FLOW_DECIMAL('-0.001', 2)") == "0.00"


def test_times_in_the_usual_spellings_are_read(ask: Ask) -> None:
    spellings = (
        "2024-01-02T03:04:05Z",
        "2024-01-02 05:04:05+02:00",
        "2024-01-02 03:04:05",
        "2024-01-01 22:04:05 -0500",
    )
    for spelling in spellings:
        assert ask("FLOW_DATE_TRUNC(?, 'second', 0)", spelling) == "2024-01-02 03:04:05.000000+00:00"
    assert ask("FLOW_DATE_TRUNC('2024-01-02', 'year', 1)") == "2024-01-01 00:00:00.000000"


def test_what_is_no_time_is_an_error_and_not_null(ask: Ask) -> None:
    with pytest.raises(sqlite3.OperationalError):
        ask("FLOW_TO_ZONE('soon', 'UTC')")


def test_like_tells_case_apart_and_knows_escapes(ask: Ask) -> None:
    assert [ask("FLOW_LIKE(?, 'A\\%_%')", text) for text in ("A%b", "A%bc\n", "a%b", "Axb", "A%")] == [1, 1, 0, 0, 0]


def test_sha256_takes_text_and_bytes(ask: Ask) -> None:
    assert ask("FLOW_SHA256('é')") == hashlib.sha256("é".encode()).digest()
    assert ask("FLOW_SHA256(?)", b"\xff") == hashlib.sha256(b"\xff").digest()
