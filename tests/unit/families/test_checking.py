"""Examples of rows that break a check: keys only, and nothing that is named or known as a secret."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from ematix_flow.contract.shape import shape_of
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.quality.checks import NotNull, Unique
from ematix_flow.declare.strategy import Append
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import BigInt, Column, Text
from ematix_flow.families.expectations import StagedRows, run_checks
from ematix_flow.foundation import redact
from ematix_flow.foundation.clock import now
from ematix_flow.sql.expressions import sqlite_functions


def staged(key: str, values: list[Any]) -> StagedRows:
    """Rows with a key and nothing else in them."""
    connection = sqlite3.connect(":memory:")
    sqlite_functions.register(connection)
    connection.execute(f'CREATE TABLE rows ("{key}", v)')
    connection.executemany("INSERT INTO rows VALUES (?, NULL)", [(value,) for value in values])
    columns = (Column(Text(), nullable=False, primary_key=True, name=key), Column(BigInt(), name="v"))
    table = TableSpec("main", "t", columns)
    job = WriteJob("run", "p", "p", shape_of(table, Append()), Append(), now())
    return StagedRows(job, lambda sql: connection.execute(sql).fetchall(), "sqlite", "rows", lambda _: None)


def samples(key: str, values: list[Any]) -> tuple[str, ...]:
    (finding,) = run_checks(staged(key, values), [NotNull("v")])
    assert finding.failing == len(values)
    return finding.samples


def test_at_most_five_examples_are_shown() -> None:
    assert samples("id", list("abcdefg")) == ("id=a", "id=b", "id=c", "id=d", "id=e")


@pytest.mark.parametrize("name", ["password", "api_key", "access_token", "private-key", "Secret"])
def test_a_key_that_is_named_like_a_secret_is_not_shown(name: str) -> None:
    assert samples(name, ["tops3cret"]) == (f"{name}=<redacted>",)


@pytest.mark.parametrize("name", ["order_key", "key", "id", "keyboard"])
def test_the_key_of_an_order_is_shown(name: str) -> None:
    assert samples(name, ["7"]) == (f"{name}=7",)


def test_a_known_secret_is_masked_and_a_long_value_is_cut() -> None:
    redact.remember_secret("hunter22")
    try:
        assert samples("id", ["is hunter22 here", "x" * 500]) == ("id=is *** here", f"id={'x' * 80}…")
    finally:
        redact.forget_secrets()


def test_repeated_values_are_counted_by_value_and_by_row() -> None:
    (finding,) = run_checks(staged("id", ["a", "A", "a", "b", "b", "b", None]), [Unique(("id",))])
    assert (finding.repeated, finding.failing, finding.rows) == (2, 5, 7)
    assert finding.samples == ("id=a", "id=b")
